"""The recipe of the discrete methods: rows are measured once, budgets are kept, and the tables have a place for all."""

from __future__ import annotations

import ast
import json
import math
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import redraft
from redraft.apps.cli import VERBS
from redraft.apps.cli.arguments import (
    parse_verb,
)
from redraft.core import Batch, BatchOrigin, CharTokenizer, rng
from redraft.decoding import Ancestral, EntropyBound, Unmask
from redraft.models import DiffusionLM, MaskedLM, TransformerSize
from redraft.tasks import TextModel
from redraft.training import PackedRows, Run, StoryClasses, TextFiles, first_batches, fit, load, load_rows, presets
from redraft.training.runs import variations

SVG = "{http://www.w3.org/2000/svg}"
LATENT = ("tencdm", "ld4tg", "planner", "cosmos")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "recipes"))

import claims  # noqa: E402
import continuous  # noqa: E402
import costs  # noqa: E402
import drafts  # noqa: E402
import infill  # noqa: E402
import methods  # noqa: E402
import pages  # noqa: E402
import pairs  # noqa: E402
import probing  # noqa: E402
import real  # noqa: E402
import rows  # noqa: E402
import trajectories  # noqa: E402
from results_pages import claim_tables, figures, picture, tables  # noqa: E402


@pytest.fixture
def run() -> Run:
    base = presets.mdlm_tiny()
    network = replace(base.model.network, width=16, layers=1, heads=2, hidden=16)
    return replace(base, model=replace(base.model, network=network), batch=2)


@pytest.fixture
def half_a_minute(monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    """A step takes half a minute; gives the runs that were timed."""
    timed: list[Run] = []

    def seconds_per_step(run: Run, **_: object) -> float:
        timed.append(run)
        return 30.0

    monkeypatch.setattr("redraft.evaluation.comparison.budget.seconds_per_step", seconds_per_step)
    return timed


def once(value: dict[str, Any]) -> Callable[[], dict[str, Any]]:
    """A measurement that may not be made twice."""
    left = [value]
    return lambda: left.pop()


def test_a_row_is_measured_once(tmp_path: Path) -> None:
    held, measure = rows.Rows(tmp_path / "new" / "methods.jsonl"), once({"excess": 0.5})
    for _ in range(2):
        held.add("a", measure)
    held.add("b", once({"excess": 0.25}))
    lines = [json.loads(line) for line in held.file.read_text().splitlines()]
    assert [(row["name"], row["excess"]) for row in lines] == [("a", 0.5), ("b", 0.25)]
    assert all(row["commit"] and "torch" in row["machine"] for row in lines)
    assert rows.Rows(held.file).read() == {row["name"]: row for row in lines}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("real.py letters --prose nowhere --wiki nowhere", "real.py: nowhere/train.txt: No such file or directory"),
        ("methods.py strides --data nowhere", "methods.py: --data nowhere is neither a corpus (sotu, stories) nor an"),
        ("spelling.py --prose nowhere", "spelling.py: nowhere is not a directory; give a directory with text files"),
        ("infill.py stories --model nowhere", "infill.py: nowhere is not a directory; give the directory of a run"),
        (
            "continuous.py systems --only cosmo",
            "continuous.py: --only 'cosmo' is not a row here; choose from 'diffusion_lm',",
        ),
    ],
)
def test_wrong_input_of_a_recipe_is_told_in_one_line(command: str, said: str, tmp_path: Path) -> None:
    recipe, *rest = shlex.split(command)
    asked = [sys.executable, str(ROOT / "recipes" / recipe), *rest, "--results", str(tmp_path)]
    made = subprocess.run(asked, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert made.returncode == 2
    assert made.stderr.startswith(said)
    assert made.stderr.count("\n") == 1


@pytest.mark.parametrize("table", ["methods", "ablations", "remask"])
def test_rows_that_do_not_exist_are_refused(table: str, tmp_path: Path) -> None:
    """Before anything is measured; a mistyped name would otherwise pass for a row that is there."""
    with pytest.raises(ValueError, match="--only 'gstar' is not a row here; choose from "):
        methods.main([table, "--only", "gstar", "--out", str(tmp_path), "--results", str(tmp_path)])
    assert not list(tmp_path.iterdir())


def test_a_budget_is_kept(run: Run, tmp_path: Path, half_a_minute: list[Run]) -> None:
    """Two steps of half a minute each; another call neither measures nor trains again."""
    made = rows.trained(run, tmp_path, minutes=1.0)
    cost = made.cost()
    assert (made.run.steps, cost["minutes"], cost["steps"], cost["batch"]) == (2, 1.0, 2, 2)
    saved = (tmp_path / "step-00000002" / "model.safetensors").stat().st_mtime_ns
    again = rows.trained(run, tmp_path, minutes=1.0)
    assert again.run == made.run
    assert (tmp_path / "step-00000002" / "model.safetensors").stat().st_mtime_ns == saved
    assert len(half_a_minute) == 1


def test_a_method_is_measured(
    run: Run, tmp_path: Path, half_a_minute: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From training to the table: an untrained model is far above the truth and writes nothing right."""
    monkeypatch.setattr(methods, "HELD_OUT", 2)
    monkeypatch.setattr(methods, "WRITTEN", 2)
    row = methods.method_row(run, Ancestral, (2, 4), tmp_path, 1.0)
    assert row["excess"] > 1
    assert {n: (made["share"], made["samples"]) for n, made in row["steps_written"].items()} == {
        "2": (0.0, 2),
        "4": (0.0, 2),
    }
    assert row["steps_written"]["2"]["nfe"] == 2.0
    table = tables.ablations_table({"mdlm_tiny": {**row, "steps_written": {"64": row["steps_written"]["2"]}}})
    assert table.splitlines()[2].endswith("| 0 ± 0 | 2 |")


@pytest.mark.parametrize(("uniform", "samplers"), [(0.0, ["64"]), (0.2, ["64", "64+32"])])
def test_without_uniform_noise_nothing_is_corrected(
    uniform: float, samplers: list[str], tmp_path: Path, half_a_minute: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(methods, "HELD_OUT", 2)
    monkeypatch.setattr(methods, "WRITTEN", 1)
    base = methods.hybrid(uniform)
    network = replace(base.model.network, width=16, layers=1, heads=2, hidden=16)
    row = methods.gidd_row(replace(base, model=replace(base.model, network=network), batch=2), tmp_path, 1.0)
    assert list(row["steps_written"]) == samplers


def test_corrections_cost_no_more_calls() -> None:
    sampler = methods.corrected(64)
    assert isinstance(sampler.sampler, Ancestral)
    assert sampler.sampler.steps + sampler.steps == 64


def test_remasking_is_measured_on_the_same_weights(
    tmp_path: Path, half_a_minute: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Model and error layer are trained once; each of the rows says how both came to be."""
    monkeypatch.setattr(methods, "REMASKED", 1)
    for _ in range(2):
        methods.main(["remask", "--out", str(tmp_path / "runs"), "--results", str(tmp_path)])
    held = rows.Rows(tmp_path / "remask.jsonl").read()
    assert list(held) == [f"{name} {steps}" for steps in (8, 16, 32, 64) for name in tables.REMASKING]
    assert len(half_a_minute) == 2
    for row in held.values():
        assert [rows.filed_digest(tmp_path, stage["run"]) for stage in row["stages"]] == [
            s["run"] for s in row["stages"]
        ]
        assert len(row["stages"]) == 2


def test_every_row_of_the_recipe_has_a_place(tmp_path: Path) -> None:
    assert set(methods.jobs("methods", tmp_path, 1.0)) == set(tables.METHODS)
    assert set(methods.ablations()) == set(tables.GIDD) | set(tables.ABLATIONS) - {"mdlm_tiny"}
    assert set(methods.remasking(8)) == set(tables.REMASKING)


def test_every_system_has_a_place() -> None:
    assert continuous.systems().keys() == tables.SYSTEMS.keys()
    assert continuous.ablations().keys() == tables.VARIANTS.keys()
    assert continuous.patient().keys() == tables.PATIENT.keys()
    assert continuous.samplers().keys() == tables.SAMPLERS.keys()
    assert all(system.codec is not None for name, system in continuous.systems().items() if name in LATENT)


def test_a_system_is_measured(tmp_path: Path, half_a_minute: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """Two steps of its codec, two of its diffusion; another denoiser then works on the same latents."""
    for name, few in (("HELD_OUT", 4), ("CHOSEN", 2), ("WRITTEN", 2), ("SAMPLED", 2)):
        monkeypatch.setattr(continuous, name, few)
    monkeypatch.setattr("redraft.evaluation.comparison.measurement._ENDS", (0.0, 1.0))
    monkeypatch.setattr("redraft.evaluation.comparison.measurement._NOISIER", (-1.0,))
    base = presets.tencdm_tiny()
    codec: Any = replace(
        base.model.codec,
        encoder=MaskedLM(presets.STORY_LENGTH, TransformerSize(8, 1, 2)),
        decoder=TransformerSize(8, 1, 2),
    )
    network = replace(base.model.network, width=16, layers=1, heads=2, hidden=16)
    model = replace(base.model, codec=codec, network=network)
    run = replace(base, model=model, batch=2, sampler=Ancestral(2))
    bare, first = variations.with_model(run, self_conditioning=False), variations.codec_stage(run)
    for name, system in (("a", continuous.latent(run)), ("b", continuous.latent(bare, first))):
        found = continuous.row(system, tmp_path / name, 1.0)
        assert found["steps"] == 2
        assert found["share"] == 0
        assert 0 <= found["reconstruction"] <= 1
        assert found["end"] in (-1.0, 0.0, 1.0)
        assert found["bits_per_char"] > 0
    assert len(list((tmp_path / "codecs").iterdir())) == 1
    assert tables.patient_table({"cosmos": found}).count("1 + 1") == 1
    again = continuous.sampled(tmp_path / "a", Ancestral(3))
    assert (again["samples"], again["step"]) == (2, 2)
    assert tables.samplers_table({"ddim 64": again}).count("| 0 ± 0 |") == 1
    smooth = continuous.smoothness(tmp_path / "a", continuous.latent(run).codec or run)
    assert 0 <= smooth["aubleu"] < 1
    assert list(smooth["noisy"]) == ["0.25", "0.5", "1.0"]
    assert tables.codecs_table({"tencdm": smooth}).splitlines()[2].count("–") == 0


def test_trained_codecs_are_diagnosed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Variants of the denoiser alone have the codec of their system."""
    assert continuous.jobs("codecs", tmp_path, 1.0) == {}
    monkeypatch.setattr(continuous, "latest_checkpoint", lambda place: place)
    assert set(continuous.jobs("codecs", tmp_path, 1.0)) == set(tables.CODECS)


def test_restaurants_are_measured(tmp_path: Path, half_a_minute: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """From the files of E2E to the table: all systems are asked for the sentence alone, LD4TG after its codec."""
    for module, name, few in ((continuous, "HELD_OUT", 2), (real, "ASKED", 2)):
        monkeypatch.setattr(module, name, few)
    monkeypatch.setattr("redraft.evaluation.comparison.measurement._ENDS", (0.0, 1.0))
    monkeypatch.setattr("redraft.evaluation.comparison.measurement._NOISIER", (-1.0,))
    for name in ("trainset.csv", "devset.csv", "testset_w_refs.csv"):
        lines = [f'"name[{place}], food[French]",{place} is French.\n' * 4 for place in ("The Eagle", "The Mill")]
        (tmp_path / name).write_text("".join(["mr,ref\n", *lines]))
    for name, system in real.restaurants(str(tmp_path)).items():
        small = continuous.System(
            lambda base, run=system.run: replace(variations._shrunken(run(base)), sampler=Ancestral(2), batch=2),
            system.codec and replace(variations._shrunken(system.codec), batch=2),
        )
        writer, candidates = real.WRITERS.get(name), real.CANDIDATES.get(name, 1)
        found = real.row(small, writer, real.slots, tmp_path / name, 1.5, candidates)
        assert [stage["steps"] for stage in found["stages"]] == ([3] if system.codec is None else [1, 2])
        assert (found["asked"], found["slots_people"]) == (2, 1.0), "each meaning once"
        assert found["candidates"] == candidates
        assert 0 <= found["slots"] <= 1
        assert len(found["samples"]) == 2
        assert tables.real_table({name: found}).count("100.0)") == 1
    assert {*real.restaurants(str(tmp_path)), "tencdm"} == tables.REAL.keys()


def test_a_blind_guess_knows_frequencies_alone(tmp_path: Path, half_a_minute: list[Run]) -> None:
    """Three of four letters are a's where it learns, half of them where it is measured; the bound is set against it."""
    for name, text in (("train", "aaab" * 64), ("test", "ab" * 64)):
        (tmp_path / f"{name}.txt").write_text(text)
    files = [(str(tmp_path / f"{name}.txt"),) for name in ("train", "test", "test")]
    letters_ab = CharTokenizer("ab", ("eos", "pad", "mask"))
    data = TextFiles(*files, split_by="file")
    run = variations._shrunken(
        variations.with_embedding(variations.with_text(presets.mdlm_tiny(), letters_ab, data, PackedRows(4)))
    )
    size = run.model.vocab.size
    share = [(count + 1) / (256 + size) for count in (192, 64)]
    assert real.guessed(run).tolist()[:2] == pytest.approx([-math.log2(each) for each in share], abs=0.05)
    found = real.against_guess(made := rows.trained(run, tmp_path / "run", 1.0), 1.0)
    assert found["guessed_bits_per_token"] == pytest.approx(-sum(map(math.log2, share)) / 2, abs=0.05)
    test = first_batches(load_rows(data, "test", letters_ab, run.framing), real.HELD_OUT)
    likely = redraft.training.likelihood(redraft.training.with_final_logsnr(made.model, 1.0), test, draws=4)
    above = likely.bits_per_char - found["guessed_bits_per_token"]  # a token is a character
    assert found["above_guess_bits_per_char"] == pytest.approx(above, abs=1e-4)
    assert 0 < found["above_guess_bits_per_char_stderr"] < likely.row_error("char") + 1


def test_prose_is_plain_text(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(ValueError, match="is not plain text"):
        real.prose([str(tmp_path)])
    with pytest.raises(ValueError, match="--prose nowhere does not exist"):
        real.prose(["nowhere"])


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they stand: where their rows are there, nothing is measured."""
    page = (ROOT / "docs" / "results" / "methods.md").read_text("utf-8")
    named = [line for line in page.splitlines() if line.startswith("python recipes/methods.py")]
    scale = (ROOT / "recipes" / "results" / "scale.jsonl").exists()
    commands = [line for line in named if "PATH" not in line and (scale or line.split()[2] != "scale")]
    assert [command.split()[2] for command in commands][:4] == ["methods", "ablations", "remask", "reuse"]
    results = shutil.copytree(ROOT / "recipes" / "results", tmp_path / "recipes" / "results")
    before = {file: file.read_bytes() for file in results.glob("*.jsonl")}
    monkeypatch.chdir(tmp_path)
    for command in commands:
        methods.main(shlex.split(command, comments=True)[2:])
    assert {file: file.read_bytes() for file in results.glob("*.jsonl")} == before
    assert [path.name for path in tmp_path.iterdir()] == ["recipes"]


def test_the_command_of_the_chat_page_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, half_a_minute: list[Run]
) -> None:
    """As it stands, but for few questions, and with steps that are said to take half a minute."""
    page = (ROOT / "docs" / "guides" / "chat.md").read_text("utf-8")
    (command,) = (line for line in page.splitlines() if line.startswith("python recipes/pairs.py chat"))
    monkeypatch.chdir(tmp_path)
    for _ in range(2):  # the second time there is nothing left to do
        pairs.main([*shlex.split(command)[2:], "--questions", "3", "--results", "results"])
    (row,) = (json.loads(line) for line in (tmp_path / "results" / "chat.jsonl").read_text().splitlines())
    assert row["name"] == "llada_chat_tiny"
    assert row["questions"] == 3
    assert len(half_a_minute) == 1, "trained once"
    assert row["nfe"] >= 17, "blocks of 17 tokens, one at a time"
    assert 0 <= row["attributes"] <= 1
    assert 0 <= row["ended"] <= 1
    assert row["bits_per_token"] > 0
    assert (tmp_path / "runs" / "chat" / "llada_chat_tiny").is_dir()


def test_reuse_changes_the_price_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same texts; without reuse every step is a call of every row."""
    monkeypatch.setattr(methods, "REUSE_STEPS", (8, 128))
    monkeypatch.setattr(methods, "TEXTS", 2)
    for _ in range(2):
        methods.main(["reuse", "--results", str(tmp_path)])
    held = rows.Rows(tmp_path / "mdlm_reuse.jsonl").read()
    assert list(held) == ["reuse 8", "no reuse 8", "reuse 128", "no reuse 128"]
    assert held["no reuse 128"]["nfe"] == 128.0
    assert held["reuse 128"]["nfe"] <= 69, "no more than tokens"
    for steps in (8, 128):
        kinds = [held[f"{kind} {steps}"] for kind in ("reuse", "no reuse")]
        assert len({(row["share"], row["unigram_entropy"]) for row in kinds}) == 1


def test_long_texts_are_judged(tmp_path: Path, half_a_minute: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """Every system, with two steps of training each; the judge is trained once."""
    (tmp_path / "text.txt").write_text("A few words of English, again and again, and more.\n\n" * 200)
    for name, few in (
        ("LETTERS", 48),
        ("WINDOW", 32),
        ("STRIDE", 16),
        ("BLOCK", 8),
        ("LONG", 1),
        ("STRIDE_STEPS", (4,)),
    ):
        monkeypatch.setattr(methods, name, few)
    found = ["strides", "--data", str(tmp_path / "text.txt"), "--minutes", "1", "--out", str(tmp_path / "runs")]
    methods.main([*found, "--results", str(tmp_path)])
    held = rows.Rows(tmp_path / "mdlm_strides.jsonl").read()
    assert list(held) == ["mdlm 4", "ssd 4", "ar 32"]
    assert all(row["generative_perplexity"] > 1 and row["steps"] == 2 for row in held.values())
    assert (held["mdlm 4"]["nfe"], held["ssd 4"]["nfe"]) == (pytest.approx(8, abs=2), pytest.approx(12, abs=7))
    assert len(half_a_minute) == 3


def test_letters_are_measured_by_the_protocol(
    tmp_path: Path, half_a_minute: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Local files become 27 letters; each method has the bounds that it knows."""
    for name in ("train", "valid", "test"):
        (tmp_path / f"{name}.txt").write_text("It was the 12th day of a long year.\n" * 60)
    for name, few in (("LENGTH", 16), ("BATCH", 2), ("CHAINS", (2, 4))):
        monkeypatch.setattr(real, name, few)
    (tmp_path / "prose").mkdir()
    for name in ("one", "treasure-island", "war-of-the-worlds"):
        (tmp_path / "prose" / f"{name}.txt").write_text("Once upon a time, in 1901.\n\n" * 30)
    words = ["--prose", str(tmp_path / "prose"), "--wiki", str(tmp_path), "--out", str(tmp_path / "runs")]
    real.main(["letters", *words, "--minutes", "1", "--rows", "2", "--results", str(tmp_path)])
    held = rows.Rows(tmp_path / "letters.jsonl").read()
    assert set((tmp_path / "runs" / "letters.test").read_text()) <= set(" abcdefghijklmnopqrstuvwxyz")
    chains = ["chain_2", "chain_4"]
    bounds = {name: [key for key in row if f"{key}_stderr" in row] for name, row in held.items()}
    assert bounds == {
        "ar_tiny": ["exact"],
        "mdlm_tiny": ["continuous", *chains],
        "udlm_tiny": ["continuous", *chains],
        "multinomial_tiny": ["continuous", *chains],
    }
    assert all(3 < row[bounds[name][0]] < 12 for name, row in held.items())
    (tmp_path / "ptb.txt").write_text("it is n't N words <unk> long\n" * 20)
    sets = ["--sets", f"ptb={tmp_path / 'ptb.txt'}", f"plain={tmp_path / 'ptb.txt'}"]
    real.main(["letters", *words, *sets, "--minutes", "1", "--rows", "2", "--results", str(tmp_path)])
    found = rows.Rows(tmp_path / "letters_sets.jsonl").read()
    assert set(found) == set(held)
    assert (tmp_path / "runs" / "ptb.set").read_text().startswith("it isn t one words long")
    assert (tmp_path / "runs" / "plain.set").read_text().startswith("it is n t n words long")
    for name, row in found.items():
        assert row["sets"]["own"]["bits_per_char"] == pytest.approx(held[name][bounds[name][0]])
        for each in row["sets"].values():
            per_word = math.log2(each["word_perplexity"]) / each["bits_per_char"]
            assert 1 < per_word < 16, "letters of a word, and the space"
    assert len(half_a_minute) == len(held), "nothing is trained again"


def test_tables_without_a_row_are_whole(tmp_path: Path) -> None:
    """Nothing is measured: every figure is a dash."""
    shown = tables.tables(tmp_path)
    assert list(shown) == [
        *(
            "seeds",
            "methods",
            "ablations",
            "gidd",
            "remask",
            "reuse",
            "strides",
            "letters",
            "elsewhere",
            "systems",
            "variants",
        ),
        *("patient", "samplers", "codecs", "real"),
    ]
    sizes = {name: [line.count("|") for line in table.splitlines()] for name, table in shown.items()}
    assert {name: (len(lines), set(lines)) for name, lines in sizes.items()} == {
        "seeds": (2, {7}),
        "methods": (18, {8}),
        "ablations": (8, {5}),
        "gidd": (5, {5}),
        "remask": (7, {7}),
        "reuse": (7, {7}),
        "strides": (7, {6}),
        "patient": (9, {9}),
        "samplers": (6, {4}),
        "letters": (6, {7}),
        "elsewhere": (6, {6}),
        "systems": (12, {9}),
        "variants": (14, {9}),
        "codecs": (10, {9}),
        "real": (7, {9}),
    }
    assert shown["methods"].splitlines()[4] == "| MDLM (`mdlm_tiny`) | – | – | – | – | – | – |"


def test_rows_of_several_seeds_become_means(tmp_path: Path) -> None:
    """Best bound first; a number of steps that is missing is that of the method's own sampler."""
    held = rows.Rows(tmp_path / "compare.jsonl")
    for method, excess, shares in (("mdlm_tiny", 0.5, (0.25, 0.75)), ("ar_tiny", 0.25, (1.0, 1.0))):
        for seed, share in enumerate(shares):
            own = {"share": share, "sampler": "…"}
            point = {"own": own} | ({} if method == "ar_tiny" else {"16": {**own, "share": 0.0}, "256": own})
            about = {"method": method, "seed": seed, "steps": 1200, "minutes": 2, "parameters": 1}
            bits = {"excess": excess + seed / 100, "bits_per_char": 1.0}
            row = {**about, "process": "Masked", "text": "StoryCorpus", **bits, "written": point}
            held.add(f"{method} seed {seed}", once(row))
    assert tables.tables(tmp_path)["seeds"].splitlines()[2:] == [
        "| autoregressive (`ar_tiny`) | 0.2550 ± 0.0050 | 100 ± 0 | 100 ± 0 | 100 ± 0 | 1,200 |",
        "| MDLM (`mdlm_tiny`) | 0.5050 ± 0.0050 | 0 ± 0 | 50 ± 25 | 50 ± 25 | 1,200 |",
    ]
    assert figures.figure("compare: mdlm_tiny: written/256/share/mean: %", tmp_path) == "50"


def test_methods_are_drawn_best_first(tmp_path: Path) -> None:
    """Bits above the truth that the methods tell; what is told a source is another task."""
    methods, systems = (rows.Rows(tmp_path / f"{name}.jsonl") for name in ("methods", "continuous_systems"))
    for name, excess in (("ar_tiny", 0.125), ("mdlm_tiny", 0.5)):
        written, over = {"64": {"share": 0.5, "share_stderr": 0.25}}, {"excess": excess, "excess_stderr": 0.0625}
        methods.add(name, once({"bits_per_char": 1.0 + excess, **over, "steps_written": written}))
    for name, told in (("ssd", {}), ("genie", {"attributes": 1.0})):
        bits = {"bits_per_char": 1.25, "bits_per_char_stderr": 0.125}
        systems.add(name, once({**bits, "share": 0.0, "share_stderr": 0.0, **told}))
    assert [(bar.name, bar.excess.value, bar.excess.error) for bar in picture.bars(tmp_path)] == [
        ("autoregressive", 0.125, 0.0625),
        ("SSD-LM, blocks of 17", 0.25, 0.125),
        ("MDLM", 0.5, 0.0625),
    ]
    assert picture.drawn(tmp_path) == picture.drawn(tmp_path)
    drawn = ElementTree.fromstring(picture.drawn(tmp_path))
    names = [text.text for text in drawn.iter(f"{SVG}text") if text.attrib.get("class") == "name end"]
    assert names[0] == "autoregressive"
    places = [float(dot.attrib["cx"]) for dot in drawn.iter(f"{SVG}circle") if dot.attrib["r"] == "4.5"]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2), "logarithmic"
    assert len([path for path in drawn.iter(f"{SVG}path") if path.attrib["class"] == "error"]) == 6


RESULTS = ROOT / "recipes" / "results"


def test_a_row_says_how_it_came_to_be(run: Run, tmp_path: Path, half_a_minute: list[Run]) -> None:
    """Every stage, and a configuration from which its digest can be computed again."""
    first = rows.trained(run, tmp_path / "first", 1.0)
    made = rows.trained(replace(run, seed=3), tmp_path / "second", 1.5, (first,))
    held = rows.Rows(tmp_path / "a.jsonl")
    for name in ("x", "y"):  # several rows of one training
        held.add(name, once({**made.cost(), "excess": 0.5}))
    row = held.read()["x"]
    assert held.read()["y"] == {**row, "name": "y"}
    assert [(s["run"], s["steps"], s["seed"], s["minutes"]) for s in row["stages"]] == [
        (first.run.digest, 2, 0, 1.0),
        (made.run.digest, 3, 3, 1.5),
    ]
    assert {stage["precision"] for stage in row["stages"]} <= {"fp32", "bf16"}
    assert row["run"] == made.run.digest
    runs = [stage["run"] for stage in row["stages"]]
    assert [rows.filed_digest(tmp_path, run) for run in runs] == runs
    file = tmp_path / "configs" / f"{row['run']}.json"
    file.write_text(file.read_text().replace('"seed": 3', '"seed": 4'))
    assert rows.filed_digest(tmp_path, row["run"]) != row["run"]


def test_a_recipe_is_one_file_that_says_what_it_asks() -> None:
    """At most twenty, each with its command; what writes the pages, draws and stores rows is no recipe."""
    shared = {"rows", "trajectories", "pages", "write_results"}
    recipes = {file for file in (ROOT / "recipes").glob("*.py") if file.stem not in shared}
    about = {file.name: ast.get_docstring(ast.parse(file.read_text("utf-8"))) or "" for file in recipes}
    assert len(recipes) <= 20
    assert [name for name, text in about.items() if f"python recipes/{name}" not in text] == []
    pages = {name: re.findall(r"docs/[a-z]+/[a-z-]+\.md", text) for name, text in about.items()}
    assert [(name, page) for name, found in pages.items() for page in found if not (ROOT / page).exists()] == []
    assert [name for name, text in about.items() if "Answer: docs/" not in text] == []
    assert [name for name, text in about.items() if not re.search("minute|hour", text)] == []


def test_committed_rows_say_how_they_came_to_be() -> None:
    """Commit and machine, without exception, and every digest can be derived again."""
    for file in RESULTS.glob("*.jsonl"):
        for row in rows.Rows(file).read().values():
            rows.require_units(row)
            assert row["commit"], (file.name, row["name"])
            assert row["machine"], (file.name, row["name"])
            for stage in row.get("stages", ()):
                assert rows.filed_digest(RESULTS, stage["run"], ["trajectories"]) == stage["run"], (
                    file.name,
                    row["name"],
                )


def test_the_pictures_of_the_pages_are_up_to_date(tmp_path: Path) -> None:
    """Those of noise are drawn again; all are readable in the dark."""
    picture.draw_noises(tmp_path)
    pictures = ROOT / "docs" / "pictures"
    for drawn in tmp_path.glob("*.svg"):
        assert (pictures / drawn.name).read_text("utf-8") == drawn.read_text("utf-8"), (
            f"{drawn.name}: python recipes/pages.py"
        )
    for file in pictures.glob("*.svg"):
        svg = file.read_text("utf-8")
        assert "svg:root{color-scheme:light dark}" in svg, f"{file.name} was not drawn by redraft.apps.framed"
        assert not re.search(r'fill="#|stroke="#', svg), "a color that knows no dark"
        style = svg.partition("<style>")[2].partition("</style>")[0]
        assert len(re.findall(r":#\w+;", style)) == style.count("light-dark("), f"{file.name}: one color of a pair"


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/methods/[a-z]*.md")), ids=lambda page: page.stem)
def test_every_method_has_a_picture_and_the_command_that_draws_it(page: Path) -> None:
    (drawn,) = re.findall(r"^!\[.+\]\(\.\./pictures/(.+\.svg)\)$", page.read_text("utf-8"), re.MULTILINE)
    ElementTree.parse(ROOT / "docs" / "pictures" / drawn)
    after = page.read_text("utf-8").partition(drawn)[2]
    command = shlex.split(re.findall(r"```sh\n(.+)\n```", after)[0])
    if command[0] == "redraft":
        parse_verb(VERBS, command[1:])
        assert command[command.index("--strip") + 1] == drawn
    else:
        assert command[:2] == ["python", "recipes/pages.py"]
        assert command[command.index("--only") + 1] in pages.PAGES
        assert f"{command[command.index('--only') + 1]}.svg" == drawn


def test_pictures_of_pages_that_need_no_weights_are_up_to_date(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("multinomial", "sedd", "ssd-lm"):
        pages.main(["--only", name, "--out", str(tmp_path)])
        drawn, held = (folder / f"{name}.svg" for folder in (tmp_path, ROOT / "docs" / "pictures"))
        assert drawn.read_text("utf-8") == held.read_text("utf-8"), "python recipes/pages.py"
    pages.main(["--only", "star", "--out", str(tmp_path), "--runs", str(tmp_path)])
    assert "star: unchanged; it needs" in capsys.readouterr().out
    assert not (tmp_path / "star.svg").exists()


@pytest.mark.parametrize(("preset", "ways"), [("mdlm_code_tiny", [0]), ("ar_code_tiny", [1, 3])])
def test_holes_in_programs_are_filled(preset: str, ways: list[int]) -> None:
    """Given parts stay, whoever fills; a hole that gets what was lost is right."""
    torn = [infill.torn_program(index, number) for index in range(2) for number in infill.HOLES.values()]
    assert infill.judged([one.filled(one.lost) for one in torn], 1.0, 1.0)["right"] == 1
    small = variations._shrunken(presets.PRESETS[preset]())
    it = TextModel(DiffusionLM(small.model, small.tokenizer).eval(), small)
    for candidates in ways:
        texts, nfe = infill.continued(it, torn, candidates) if candidates else infill.diffused(it, torn, 4)
        assert len(texts) == len(torn)
        assert nfe > 0
        for text, one in zip(texts, torn, strict=True):
            assert text.startswith(one.before)
            assert text.endswith(one.after)
        assert 0 <= infill.judged(texts, nfe, 1.0)["right"] <= 1


def test_probes_are_measured(tmp_path: Path) -> None:
    """A row of a small model has all that the table needs."""
    small = variations._shrunken(presets.mdlm_tiny())
    row = probing.probed(TextModel(DiffusionLM(small.model, small.tokenizer).eval(), small), "mood", 32)
    rows.Rows(tmp_path / "probing.jsonl").add("mdlm_tiny, mood", lambda: row)
    assert probing.tables(tmp_path)["probing"].count("±") == 2


def test_authors_are_told_in_books_that_were_not_seen(tmp_path: Path) -> None:
    """Two books of each author: one to learn from, one to measure on."""
    for number, author in enumerate(probing.AUTHORS):
        for book in ("one", "two"):
            (tmp_path / f"{author}_{book}.txt").write_text(f"{book} {'abcd'[number]} of {author}\n\n" * 80)
    fit(replace(small_of(presets.mdlm_tiny()), steps=1, samples=0), tmp_path / "prose", quiet=True)
    words = ["--prose", str(tmp_path), "--out", str(tmp_path / "out"), "--texts", "8"]
    probing.main(["authors", *words, "--model", str(tmp_path / "prose"), "--results", str(tmp_path)])
    told = [json.loads(line) for line in (tmp_path / "out" / "authors.test.jsonl").read_text().splitlines()]
    assert [line["label"] for line in told[:4]] == list(probing.AUTHORS)
    assert not any("one" in line["text"] for line in told)
    (row,) = rows.Rows(tmp_path / "probing.jsonl").read().values()
    assert (row["topic"], row["majority"]) == ("author", 0.25)
    assert probing.tables(tmp_path)["probing"].count("±") == 2
    with pytest.raises(SystemExit, match="two are needed"):
        probing.main(["authors", "--prose", str(tmp_path / "out"), "--out", str(tmp_path / "out")])


def test_cost_grows_with_length(tmp_path: Path) -> None:
    claims.main(["lengths", "--lengths", "16", "32", "--results", str(tmp_path)])
    held = rows.Rows(tmp_path / "lengths.jsonl").read()
    assert [held[f"left, {size}"]["nfe"] for size in (16, 32)] == [16, 32]
    assert [held[f"mask, {size}"]["nfe"] for size in (16, 32)] == [16, 32]
    assert held["mask 64, 32"]["nfe"] == 32, "at most a step per token"
    assert 4 <= held["blocks 4, 16"]["nfe"] < held["blocks, 16"]["nfe"]


@pytest.mark.parametrize("preset", ["mdlm_tiny", "ar_tiny"])
def test_claims_are_measured_on_known_grammar(preset: str) -> None:
    small = variations._shrunken(presets.PRESETS[preset]())
    it = TextModel(DiffusionLM(small.model, small.tokenizer).eval(), small)
    for claim in claims.CLAIMS:
        row = claims.measured(it, claim, 2)
        assert row["right"] == 0, "nothing is learned"
        rows.require_units(row)


def small_of(run: Run) -> Run:
    return replace(variations._shrunken(run), batch=2)


def test_guidance_is_measured(tmp_path: Path, half_a_minute: list[Run], monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact points lie in their blob at γ = 1 and closer together above; stories of any noise have a row."""
    one, four = (claims.point_row(scale) for scale in (1.0, 4.0))
    assert one["fidelity"] == pytest.approx(1, abs=0.01)
    assert one["width"] == pytest.approx(1, abs=0.1)
    assert four["width"] < 0.9
    monkeypatch.setattr(claims, "STEPS", 2)
    monkeypatch.setattr(claims, "TOPIC", StoryClasses("season"))
    for name, run in claims.runs().items():
        row = claims.story_row(rows.trained(small_of(run), tmp_path / name, 1.0), 2.0, 1)
        rows.require_units(row)
        assert (row["texts"], row["nfe"]) == (4, 2 * 2)
        assert row["entropy"] > 0


def test_heads_and_schedules_are_measured_at_equal_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(continuous, "HINTS_WRITTEN", 2)
    monkeypatch.setattr(continuous, "HELD_OUT", 4)
    monkeypatch.setattr("redraft.evaluation.comparison.measurement._ENDS", (0.0,))
    run = continuous.points()["points v even 1"]
    row = continuous.targets_row(continuous.point_row, small_of(run), tmp_path / "points", 2, ())
    assert (row["steps"], row["stages"][0]["seed"]) == (2, 1)
    rows.require_units(row)
    stories = continuous.stories()
    assert len(set(stories.values())) == 6
    row = continuous.targets_row(continuous.figures, small_of(stories["stories eps even"]), tmp_path / "stories", 2, ())
    assert row["bits_per_char"] > 0
    rows.require_units(row)
    fit(replace(small_of(presets.diffusion_lm_tiny()), steps=1, samples=0), tmp_path / "base", quiet=True)
    words = ["--model", str(tmp_path / "base"), "--out", str(tmp_path / "runs"), "--results", str(tmp_path)]
    continuous.main(["hints", "--steps", "1", *words])
    held = rows.Rows(tmp_path / "predicting.jsonl").read()
    without, told = held["hints without"], held["hints with"]
    assert without["entropy"][0] == told["entropy"][0], "zero weights: hints change nothing yet, and step 1 has none"
    assert [len(row["entropy"]) for row in (without, told)] == [64, 64]
    assert [stage["steps"] for stage in told["stages"]] == [1, 1]


def test_tables_of_claims_and_programs_have_a_dash_for_what_is_not_measured(tmp_path: Path) -> None:
    assert "\n".join(claim_tables.tables(tmp_path).values()).count("| –") > 50
    for drawn in claim_tables.pictures(tmp_path).values():
        ElementTree.fromstring(drawn)
    row = {"right": 0.5, "right_stderr": 0.05, "nfe": 8.0}
    rows.Rows(tmp_path / "coding.jsonl").add("diffusion, last", once(row))
    assert "| masked diffusion, 8 steps | – | 50 ± 5 | 8.0 |" in infill.program_tables(tmp_path)["coding"]


def test_figures_are_shown_with_their_error(tmp_path: Path) -> None:
    written = {"64": {"share": 0.625, "share_stderr": 0.0302, "seconds_per_sample": 0.1234}}
    row = {"excess": 0.00401, "excess_stderr": 0.002, "steps": 2345, "steps_written": written}
    rows.Rows(tmp_path / "methods.jsonl").add("mdlm_tiny", lambda: row)
    rows.Rows(tmp_path / "remask.jsonl").add("gstar 8", lambda: written["64"])
    shown = tables.tables(tmp_path)
    assert "| MDLM (`mdlm_tiny`) | 0.0040 ± 0.0020 | – | 62 ± 3 | – | 0.123 | 2,345 |" in shown["methods"]
    assert "no time | 0.0040 ± 0.0020 | 62 ± 3 | 2,345 |" in shown["ablations"]  # the base of the ablations
    assert "| G-Star | 62 ± 3 | – | – | – | – |" in shown["remask"]


# How long, and how large --------------------------------------------------------------------------------------------


def told(page: str) -> list[list[str]]:
    """The commands of recipes that a page names."""
    text = (ROOT / "docs" / "results" / page).read_text("utf-8")
    lines = [line for line in text.splitlines() if line.startswith("python recipes/")]
    return [shlex.split(line, comments=True)[1:] for line in lines]


def test_own_text_is_measured_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both commands of the page, in small: a row for every evaluation, called again no more of them."""
    ((script, *measure),) = told("how-long.md")
    assert (script, measure[0]) == ("recipes/costs.py", "readable")
    (tmp_path / "PATH").write_text("\n\n".join(f"It was the {n}th day of a windy year." for n in range(400)))
    monkeypatch.chdir(tmp_path)
    network = ["--model.network.width", "16", "--model.network.layers", "1", "--model.network.heads", "2"]
    small = [*network, "--steps", "2", "--eval-every", "1", "--eval-rows", "2", "--samples", "1", "--batch", "2"]
    for _ in range(2):
        costs.main([*measure, *small, "--sampler.steps", "2"])
    held = rows.Rows(tmp_path / "recipes" / "results" / "own_text.jsonl").read()
    assert list(held) == [f"{name}, step {step}" for name in costs.COMMANDS for step in (1, 2)]
    assert all(row["minutes"] > 0 and row["bits_per_char"] > 0 for row in held.values())
    assert held["plain, step 2"]["minutes"] > held["plain, step 1"]["minutes"]
    known = [
        (stage["run"], rows.filed_digest(tmp_path / "recipes" / "results", stage["run"]))
        for row in held.values()
        for stage in row["stages"]
    ]
    assert len(known) == len(held)
    assert all(told == found for told, found in known)
    shown = costs.readable_tables(tmp_path / "recipes" / "results")
    assert f"{held['larger, step 2']['bits_per_char']:.3f}" in shown["larger"]


def test_own_text_has_the_commands_of_the_page() -> None:
    """The page shows the reader the very commands that were measured."""
    page = (ROOT / "docs" / "results" / "how-long.md").read_text("utf-8")
    shown = [shlex.split(line)[2:] for line in page.splitlines() if line.startswith("redraft train")]
    place = {"--data", "--out"}
    bare = [[w for before, w in zip(["", *line], line, strict=False) if not {before, w} & place] for line in shown]
    assert bare == [shlex.split(command) for command in costs.COMMANDS.values()]


def test_sizes_are_measured_as_the_page_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tiny preset in a process of its own, a published one by counting; the page has the committed rows."""
    ((script, *measure),) = told("presets.md")
    assert (script, measure[0]) == ("recipes/costs.py", "presets")
    results = tmp_path / "results"
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    costs.main(["presets", "--only", "gstar_tiny", "mdlm_owt", "--steps", "1", "--results", str(results)])
    held = rows.Rows(results / "sizes.jsonl").read()
    assert held["mdlm_owt"]["parameters"] == 169_627_218
    assert held["mdlm_owt"]["state_bytes"] == 20 * 169_627_218
    tiny = held["gstar_tiny"]
    assert tiny["seconds_per_step"] != 0  # of one step the difference of two trainings may be anything
    assert tiny["peak_bytes"] > tiny["state_bytes"] > 8 * tiny["parameters"]
    published = costs.cost_tables(results)["published"]
    assert "| `mdlm_owt` | 169.6 M | 512 × 1024 | 50,258 | 1,000,000 | 3.4 GB |" in published


def test_certainty_is_distilled(run: Run, tmp_path: Path) -> None:
    """The command in small: base and student at every level; called again nothing is measured anew."""
    fit(variations.with_budget(run, 1), tmp_path / "base", quiet=True)
    few = ["--texts", "3", "--steps", "2", "--written", "2", "--results", str(tmp_path)]
    asked = ["--base", str(tmp_path / "base"), "--out", str(tmp_path / "out"), *few]
    drafts.main(["certainty", *asked])
    held = rows.Rows(tmp_path / "certainty.jsonl").read()
    assert [row["model"] for row in held.values()] == ["before"] * 5 + ["after, weight 1"] * 5
    assert all(row["texts"] == 2 and row["tokens_per_forward"] > 0 and row["diversity"] > 0 for row in held.values())
    assert load(tmp_path / "out" / "student-1").config == run.model
    stages = [[stage["steps"] for stage in row["stages"]] for row in held.values()]
    assert stages == [[1]] * 5 + [[1, 2]] * 5
    assert all(rows.filed_digest(tmp_path, row["run"], ["trajectories"]) == row["run"] for row in held.values())
    drafts.main(["certainty", *asked])
    assert len((tmp_path / "certainty.jsonl").read_text().splitlines()) == 10
    assert len(drafts.certainty_tables(tmp_path)["certainty"].splitlines()) == 12


def test_certainty_is_learned_on_canvases_of_the_trajectory(run: Run, tmp_path: Path) -> None:
    """Later tokens are learned, and the entropy counts only where the likeliest token is right."""
    model = DiffusionLM(run.model, run.tokenizer)
    made = trajectories.Trajectories.of(model, Unmask(None, EntropyBound(0.0, 1.0)), 2, 8)
    assert sorted(made.when[0].tolist()) == list(range(1, 9))
    made.save(tmp_path / "made.pt")
    batch = replace(Batch.of(made.tokens), origin=BatchOrigin(sample=torch.arange(2)))
    plain, sure = (trajectories.Certainty(str(tmp_path / "made.pt"), w)(model, batch, rng=rng(0, 2)) for w in (0, 2))
    assert torch.equal(plain.parts["later"], sure.parts["later"])
    assert float(plain.parts["certainty"]) == 0 <= float(sure.parts["certainty"])
    assert (plain.count <= 8).all()
    assert (plain.count > 0).all()


def test_control_fulfills_what_is_demanded() -> None:
    assert rows.Rows(RESULTS / "control.jsonl").read()["story, demanded"]["success"] == 1.0
    held = rows.Rows(RESULTS / "control_wishes.jsonl").read()
    assert held["who, demanded"]["grammatical"] > held["who, demanded in any order"]["grammatical"]


def test_stories_lose_the_words_that_their_holes_have() -> None:
    for holes in (1, 2):
        story = infill.torn(3, holes)
        template = story.template()
        assert [int(size) for size in re.findall(r"\[\[(\d+)\]\]", template)] == [len(lost) for lost in story.lost]
        assert template.count("[[") == holes
        assert story.template("[[*]]").count("[[*]]") == holes
    for row in rows.Rows(RESULTS / "infill.jsonl").read().values():
        assert row["reached"] == (row["kept"] >= infill.GOAL)


def test_holes_in_english_have_what_was_cut_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["".join(chr(97 + (i * k) % 26) for k in (1, 3, 7, 11)) for i in range(120)]
    text = " ".join(words)
    model: Any = SimpleNamespace(tokenizer=SimpleNamespace(encode_inside=str.split))
    for kind, size in {"words": 1, "spans of 3 words": 3, "spans of 5 words": 5}.items():
        for cut in infill.cuts(model, text, kind, 4):
            assert f"[[{size}]]" in cut.template
            assert len(cut.lost.split()) == size
            assert cut.template.replace(f"[[{size}]]", cut.lost) in text
    held = {"kind": "spans of 3 words", "holes": 10, "right": {"searched": 0.2, "token by token": 0.1}}
    cost = {"seconds_per_hole": {"searched": 3.0, "token by token": 6.0}}
    both = [{"name": f"smol, spans of {n} words", **held, **cost, "kind": f"spans of {n} words"} for n in (3, 4)]
    (tmp_path / "holes.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in both), "utf-8")
    table = infill.hole_tables(tmp_path)["holes"].splitlines()
    assert "| spans of 3 words | searched | 10 | 2 (20 %) | 3.0 |" in table
    assert "| all spans | token by token | 20 | 2 (10 %) | 6.0 |" in table
    for part, option in {
        "english": "--data",
        "choose": "--model",
        "stories": "--model",
        "programs": "--minutes",
    }.items():
        with pytest.raises(SystemExit, match="0"):
            infill.main([part, "--help"])
        assert option in capsys.readouterr().out
