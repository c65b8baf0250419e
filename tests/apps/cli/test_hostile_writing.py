"""Nonsense, huge numbers and broken streams, for the verbs that write, measure and show: one line, nothing lost."""

from __future__ import annotations

import io
import json
import math
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Say, table

from redraft import tasks
from redraft.apps import cli
from redraft.apps.cli import main, output, streams
from redraft.apps.cli.models import open_model
from redraft.core import randomness
from redraft.core.hardware import system as machine
from redraft.decoding import AnyOrder, Confidence, Unmask
from redraft.tasks import canvases
from redraft.tasks.engine import sampler_choice
from redraft.training import export, load
from redraft.training.progress import Progress

SMALL = [
    *("--steps", "2", "--batch", "2", "--eval-rows", "2", "--samples", "1", "--quiet", "--precision", "fp32"),
    *("--model.network.width", "16", "--model.network.layers", "1", "--model.network.heads", "2"),
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@pytest.fixture
def refused(say: Say) -> Callable[..., str]:
    """What one line says about a command that is wrong."""

    def run_it(*argv: object) -> str:
        out, err = say(*argv, code=2)
        assert out == ""
        (line,) = err.splitlines()
        assert line.startswith("redraft: ")
        assert len(line) < 1200
        return line

    return run_it


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Learned positions, none, one token at a time, insertion, uniform noise, vectors."""
    folder = tmp_path_factory.mktemp("hostile")
    kinds = {name: [f"{name}_tiny"] for name in ("mdlm", "ar", "flex", "udlm", "diffuseq", "diffusion_lm")}
    kinds["rotary"] = ["mdlm_tiny", "--model.network.positions", "None", "--model.network.rotary", "10000"]
    for name, words in kinds.items():
        main(["train", *words, *SMALL, "--out", str(folder / name)])
    return {path.name: path for path in folder.iterdir()}


def shell(command: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """A real `redraft`, called $R, by a real shell."""
    env = {**ENVIRONMENT, "R": f"{sys.executable} -m redraft.apps.cli", **environment}
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, env=env, cwd=cwd)


def timeless(text: str) -> list[dict[str, Any]]:
    """Records without what differs from run to run."""
    return [
        {k: v for k, v in each.items() if k not in ("seconds", "tokens_per_second", "new_tokens")}
        for each in objects(text)
    ]


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


# Flags --------------------------------------------------------------------------------------------------------------

WRITING = [
    ("--temperature nan", "--temperature nan: it must be a finite number"),
    ("--temperature inf", "--temperature inf: it must be a finite number"),
    ("--temperature 1e300", "it must be from 0 to 1,000,000"),
    (f"--seed {2**64}", "--seed 18446744073709551616: it must be from 1 − 2^63 to 2^63 − 1"),
    (f"--seed {2**63}", "it must be from 1 − 2^63 to 2^63 − 1"),
    (f"--seed -{2**63}", "it must be from 1 − 2^63 to 2^63 − 1"),
    ("--seed " + "9" * 100, "--seed of more than 30 digits"),
    ("--seed " + "9" * 5000, "it must be a whole number"),
    ("--rows 0", "--n 0: it must be from 1 to 1,000,000,000"),
    ("--rows -1", "--n -1: it must be from 1"),
    (f"--rows {10**20}", "it must be from 1 to 1,000,000,000"),
    ("--rows nan", "--n 'nan': it must be a whole number"),
    ("--steps 0", "--steps 0: it must be from 1 to 1,000,000"),
    ("--trust nofile.py", "nofile.py is not a Python file"),
    ("--trust .", ". is not a Python file"),
]
FLAGS = [(f"{verb} x {flags}", says) for verb in ("generate", "infill") for flags, says in WRITING] + [
    ("generate x --guidance nan", "--guidance nan: it must be a finite number"),
    ("generate x --guidance 1e300", "it must be from 0 to 1,000"),
    ("generate x --guidance -1", "--guidance -1.0: it must be from 0 to 1,000"),
    ("generate x --temperature=", "--temperature '': it must be a number"),
    ("generate x --new many", "--max-new-tokens 'many': it must be a whole number"),
    ("generate x --new 0", "--max-new-tokens 0: it must be at least 1"),
    ("infill x --room -1", "--room -1: it must be from 1"),
    ("infill x --room 0", "--room 0: it must be from 1"),
    ("infill x [[0]]", "the hole [[0]] has no length"),
    ("infill x [[-1]]", "the hole [[-1]] has no length"),
    ("infill x [[a]]", "the hole [[a]] has no length"),
    ("infill x [[]]", "the hole [[]] has no length"),
    ("infill x [[1.5]]", "the hole [[1.5]] has no length"),
    ("infill x [[²]]", "the hole [[²]] has no length"),
    ("infill x [[" + "9" * 30 + "]]", "is too long; use fewer tokens"),
    ("infill x " + "x" * 100_000, "has no hole; write [[?]]"),
    ("generate x --decode-block 0", "--decode-block 0: it must be from 1"),
    ("generate x --cache fast", "--cache 'fast': choose from 'own', 'none', 'exact', 'prefix', 'dual'"),
    ("generate x --refresh 4", "--refresh 4: it needs an approximate cache"),
    ("infill x --decode-block -1", "--decode-block -1: it must be from 1"),
    ("generate x --max-new-tokens 0", "--max-new-tokens 0: it must be at least 1"),
    ("generate x --n 0", "--n 0: it must be from 1"),
    ("score x", "give a text: redraft score"),
    ("score x a --draws 0", "--draws 0: it must be from 1 to 4,096"),
    ("score x a --draws many", "--draws 'many': it must be a whole number"),
    ("score x a --draws 1000000000", "it must be from 1 to 4,096"),
    ("score x a --seed -1", "--seed -1: it must be from 0"),
    (f"score x a --seed {2**64}", "it must be from 0 to 2^63 − 1"),
    ("score x a --steps 3", "--steps is not an option of this command"),
    ("score x a b", "b is not an option of this command"),
    ("score x a --trust nofile.py", "nofile.py is not a Python file"),
    ("score", "give a text: redraft score"),
    ("choose", "give a hole and two or more answers"),
    ("choose x", "give a hole and two or more answers: redraft choose"),
    ("choose x [[?]]", "give a hole and two or more answers"),
    ("choose x [[?]] --answers blue", "give a hole and two or more answers"),
    ("choose x [[?]] --answers a b --steps 3", "--steps is not an option of this command"),
    ("choose x [[?]] --answers a b --trust nofile.py", "nofile.py is not a Python file"),
    ("eval x --rows 0", "--rows 0: it must be from 1 to 1,000,000"),
    ("eval x --rows 1000000000", "it must be from 1 to 1,000,000"),
    ("eval x --draws 1000000000", "it must be from 1 to 4,096"),
    ("eval x --samples -1", "it must be from 0 to 100,000"),
    ("eval x --samples 1000000000", "it must be from 0 to 100,000"),
    (f"eval x --seed {2**64}", "it must be from 0 to 2^63 − 1"),
    ("eval x --trust nofile.py", "nofile.py is not a Python file"),
    ("levels x --levels 1", "--levels 1: it must be from 2 to 10,000"),
    ("levels x --levels 1000000000", "it must be from 2 to 10,000"),
    ("levels x --rows 0", "--rows 0: it must be from 1 to 100,000"),
    ("levels x --seed -1", "it must be from 0 to 2^63 − 1"),
    ("levels x --picture x.xyz", "--picture x.xyz: its name must end in .svg, .png or .pdf"),
    ("levels x --picture no/where.svg", "give a file in an existing directory"),
    ("show --trust nofile.py", "nofile.py is not a Python file"),
    ("check nofile.py", "nofile.py is not a Python file"),
    ("check /dev/zero", "/dev/zero is not a Python file"),
    ("demo --minutes nan", "--minutes nan: it must be a finite number"),
    ("demo --minutes inf", "--minutes inf: it must be a finite number"),
    ("demo --minutes 0", "--minutes 0.0: it must be above 0 and at most 44,640"),
    ("demo --minutes -1", "--minutes -1.0: it must be above 0"),
    ("demo --minutes 1e300", "--minutes of more than 30 digits: it must be above 0 and at most 44,640"),
    (f"demo --seed {2**64}", "it must be from 0 to 2^63 − 1"),
]


@table(("line", "says"), FLAGS)
def test_nonsense_is_refused(refused: Callable[..., str], line: str, says: str) -> None:
    assert says in refused(*line.split())


def test_flags_are_judged_before_torch_is_loaded() -> None:
    asked = [line.split() for line, _ in FLAGS]
    code = (
        "import sys\nfrom redraft.apps.cli import main\n"
        f"for argv in {asked!r}:\n try:\n  main(argv)\n except SystemExit as end:\n  assert end.code == 2, argv\n"
        " assert 'torch' not in sys.modules, argv\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == len(FLAGS)


def test_seeds_do_not_repeat(say: Say, runs: dict[str, Path]) -> None:
    """The last one is as good as the first, and another."""
    first, last = (say("generate", runs["mdlm"], "--new", "9", "--seed", seed)[0] for seed in (0, 2**63 - 1))
    assert first != last


@pytest.mark.parametrize("cold", [1e-300, 1e-45, 1e-9])
def test_what_is_cold_takes_the_likeliest(cold: float) -> None:
    log_p = torch.tensor([[0.1, 0.5, 0.4], [0.7, 0.3, 0.0]]).log()
    u = torch.tensor([0.99, 0.01], dtype=torch.float64)
    assert randomness.sample_categorical(log_p, u, cold).tolist() == [1, 0]
    assert randomness.sample_categorical(log_p, u, 1e300).tolist() == [2, 0]  # all that can be, equally
    for wrong in (math.nan, math.inf, -1.0):
        with pytest.raises(ValueError, match="use 0 for the most likely token"):
            Confidence(wrong)


# Sizes --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("new", [10_000_000_000, 10**30])
def test_rows_that_nothing_can_hold(refused: Callable[..., str], runs: dict[str, Path], new: int) -> None:
    assert f"{new} tokens are too many: this network has" in refused("generate", runs["mdlm"], "--new", new)
    line = refused("generate", runs["rotary"], "--new", new)
    assert f"a row of {new:,} tokens needs about" in line
    assert "are free; write fewer tokens" in line


@pytest.mark.parametrize(("name", "says"), [("mdlm", "too many"), ("flex", "too many"), ("rotary", "needs about")])
def test_holes_that_nothing_can_hold(refused: Callable[..., str], runs: dict[str, Path], name: str, says: str) -> None:
    assert says in refused("infill", runs[name], "One [[999999999]] day.")


def test_a_hole_of_any_length_takes_what_the_network_knows(say: Say, runs: dict[str, Path]) -> None:
    out, _ = say("infill", runs["flex"], "One [[*]] day.", "--room", 10**9, "--steps", "2")
    assert out.startswith("One ")
    say("generate", runs["flex"], "--new", 10**10, "--steps", "2")


def test_texts_are_written_as_many_at_a_time_as_memory_holds(
    say: Say, runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And come out the same."""
    command = ["generate", runs["mdlm"], "--rows", "5", "--new", "3", "--json"]
    it, sizes = open_model(runs["mdlm"]), []
    need = 3 * it.bytes_per_token
    alone, _ = say(*command)
    whole = canvases.DecodingLoop.results

    def spy(writing: tasks.DecodingLoop) -> tasks.TextResults:
        sizes.append(len(writing.start.z))
        return whole(writing)

    monkeypatch.setattr(canvases.DecodingLoop, "results", spy)
    monkeypatch.setattr(machine, "_system_memory", lambda: machine.MemoryInfo(10 * need, 4 * need + 1, None))
    few, _ = say(*command)
    assert sizes == [2, 2, 1]
    assert timeless(few) == timeless(alone)
    monkeypatch.setattr(machine, "_system_memory", lambda: None)
    assert sampler_choice.batch_size(it, it.sampler, 3) == 64


def test_texts_come_out_as_they_are_finished(runs: dict[str, Path], tmp_path: Path) -> None:
    """Of a thousand million texts the first ones: nobody waits for the others."""
    done = shell(f"$R generate {runs['mdlm']} --rows 1000000000 --new 2 | head -3; echo ${{PIPESTATUS[0]}}", tmp_path)
    assert len(done.stdout.splitlines()) == 4
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_the_memory_being_not_enough_is_one_line(
    refused: Callable[..., str], runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (MemoryError(), RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate …")):

        def full(*_: object, error: Exception = error, **__: object) -> None:
            raise error

        monkeypatch.setattr(canvases.DecodingLoop, "__iter__", full)
        assert "not enough memory" in refused("generate", runs["mdlm"])


# Steps --------------------------------------------------------------------------------------------------------------


def test_no_more_steps_than_can_change_anything(say: Say, runs: dict[str, Path]) -> None:
    for name, sampler, kept in (("mdlm", "any-order", "steps=5"), ("ar", "ancestral", "steps=1")):
        command = ["generate", runs[name], "--new", "5", "--steps", 10**6, "--sampler", sampler, "--json"]
        out, err = say(*command)
        assert "would change nothing here" in err.splitlines()[0]
        assert kept in objects(out)[0]["sampler"]


def test_the_most_steps_of_every_sampler(runs: dict[str, Path]) -> None:
    masked, causal, uniform = (open_model(runs[name]) for name in ("mdlm", "ar", "udlm"))

    def chosen(it: tasks.TextModel, name: Any, steps: int = 10**6) -> tuple[Any, tuple[str, ...]]:
        return sampler_choice.choose_sampler(it, tasks.DecodingSettings(sampler=name, steps=steps), 7)

    assert chosen(masked, "any-order")[0] == Unmask(7, AnyOrder())
    assert chosen(masked, "ancestral")[0].steps == 7000
    assert chosen(uniform, "ancestral")[0].steps == sampler_choice._MOST_STEPS
    by_one, notes = chosen(causal, "any-order")
    assert by_one.sampler == Unmask(1, AnyOrder())
    assert notes == ("steps=1000000: more than 1 would change nothing here; using 1",)
    assert chosen(masked, "any-order", 7) == (Unmask(7, AnyOrder()), ())


def test_more_steps_than_tokens_write_the_same(say: Say, runs: dict[str, Path]) -> None:
    """That is why they may be left out."""
    it = open_model(runs["mdlm"])
    canvas = it.lm.canvas(new=5, rows=3)
    some, many = (tasks.sample_canvases(it.lm, Unmask(n, AnyOrder()), canvas).texts for n in (5, 50))
    assert some == many


# Given texts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prompt", "says"),
    [
        ("\udcff\udcfe", "the text given is not UTF-8 (byte 1)"),
        ("One \ud800", "the text given is not UTF-8"),
        ("a\x00b", "does not know 'a\\x00b'"),
        ("😀", "does not know '😀'"),
        ("x" * 1_000_000, "does not know 'xxx"),
        ("zog " * 100_000, "does not know 'zog';"),
        (
            " ".join(f"zog{n}" for n in range(30_000)),
            "does not know 'zog0', 'zog1', 'zog2', 'zog3', 'zog4' and 29995 more",
        ),
        ("One " * 250_000, "250003 tokens are too many"),
    ],
    ids=lambda value: value[:9].encode("ascii", "replace").decode(),
)
def test_strange_prompts(refused: Callable[..., str], runs: dict[str, Path], prompt: str, says: str) -> None:
    assert says in refused("generate", runs["mdlm"], prompt, "--new", "3")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "stdin has no text"),
        (b"\n \n", "stdin has no text"),
        (b"[[1]]\n\xff\xfe", "line 2 of stdin is not UTF-8 (byte 1)"),
        (bytes(range(256)), "of stdin is not UTF-8"),
        (b"One day.\n" * 1000, "has no hole"),
    ],
    ids=["empty", "blank", "latin", "binary", "no-holes"],
)
def test_strange_stdin(tmp_path: Path, data: bytes, says: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "redraft.apps.cli", "infill", "x", "-"], input=data, capture_output=True
    )
    assert (done.returncode, done.stdout) == (2, b"")
    assert says in done.stderr.decode()
    assert done.stderr.count(b"\n") == 1


def test_stdin_that_never_ends(tmp_path: Path) -> None:
    done = shell("yes One | $R generate x -", tmp_path)
    assert done.returncode == 2
    assert "stdin has more than 64 MB" in done.stderr


def test_weights_that_are_no_numbers(refused: Callable[..., str], runs: dict[str, Path], tmp_path: Path) -> None:
    model = load(runs["mdlm"])
    with torch.no_grad():
        next(model.parameters()).fill_(math.nan)
    export(tmp_path / "broken", model)
    for verb in ("generate", "eval"):
        assert "values that are nan or infinite" in refused(verb, tmp_path / "broken")


def test_infill_by_vectors(say: Say, runs: dict[str, Path]) -> None:
    """Rows of vectors are as long as in training too, and show what was asked."""
    out, _ = say("infill", runs["diffusion_lm"], "One [[2]] day.", "--rows", "2", "--steps", "2")
    for line in out.splitlines():
        assert line.startswith("One ")
        assert line.endswith(" day.")


def test_score_by_command(say: Say, refused: Callable[..., str], runs: dict[str, Path], tmp_path: Path) -> None:
    """What Python says, as lines and as objects; wrong texts in one line."""
    for name, kind in (("mdlm", "at most"), ("ar", "exactly")):
        out, err = say("score", runs[name], "One day.", "--json")
        (found,) = tasks.score(runs[name], "One day.")
        assert objects(out)[0]["bits"] == pytest.approx(found.bits)
        assert f"1 texts: {kind} {found.bits_per_token:.3f} bits per token" in err
    assert " bits, " in say("score", runs["mdlm"], "One day.")[0]
    assert "does not know 'zog'" in refused("score", runs["mdlm"], "zog")
    assert "is longer than the rows of this model" in refused("score", runs["mdlm"], "One " * 99)
    assert "needs a source or a class" in refused("score", runs["diffuseq"], "One")
    done = shell(f"printf 'One day.\\nOne.\\n' | $R score {runs['mdlm']} -", tmp_path)
    assert len(done.stdout.splitlines()) == 2


CHOICES = [
    ("mdlm", "One day.", ["day", "kite"], "has no hole for the answers; write [[?]]"),
    ("mdlm", "One [[0]] [[?]].", ["day", "kite"], "the hole [[0]] is invalid; write [[?]]"),
    ("mdlm", "One [[*]] [[?]].", ["day", "kite"], "the hole [[*]] is invalid"),
    ("mdlm", "One [[?]].", ["day", "day"], "give 2 to 10,000 answers without duplicates"),
    ("mdlm", "One [[?]].", ["day", ""], "the answer '' has no tokens"),
    ("mdlm", "One [[?]].", ["day", "zog"], "does not know 'zog'"),
    ("mdlm", "Zog [[?]].", ["day", "kite"], "does not know 'Zog'"),
    ("mdlm", "One [[?]].", ["day", "kite " * 500], "tokens are too many: this network has"),
    ("mdlm", "One [[?]].", ["day", "\udcff"], "is not UTF-8"),
    (
        "udlm",
        "One [[?]].",
        ["day", "kite"],
        "choose needs a model with mask noise, but this one has Interpolating; use infill",
    ),
    ("diffuseq", "One [[?]].", ["day", "kite"], "choose needs a model with mask noise, but this one has Gaussian"),
    ("ar", "One [[2]] [[?]].", ["day", "kite"], "cannot predict a hole that follows an unfilled one"),
    ("nowhere", "One [[?]].", ["day", "kite"], "nowhere"),
]


@table(("name", "template", "answers", "says"), CHOICES)
def test_wrong_choices(
    refused: Callable[..., str], runs: dict[str, Path], name: str, template: str, answers: list[str], says: str
) -> None:
    assert says in refused("choose", runs.get(name, name), template, "--answers", *answers)


def test_choices_by_command(say: Say, runs: dict[str, Path]) -> None:
    for name, kind in (("mdlm", "masked"), ("ar", "causal")):
        out, _ = say("choose", runs[name], "One [[?]] day", "--answers", "spring", "kite", "--json")
        assert objects(out)[0]["kind"] == kind
        assert sum(objects(out)[0]["probabilities"]) == pytest.approx(1)


RULES = [
    ("mdlm", ["--pattern", "("], "the pattern '(' cannot be read"),
    ("mdlm", ["--pattern", "(?=a)a"], "look-around or a backreference"),
    ("mdlm", ["--pattern", "zog"], "cannot spell any text that obeys"),
    ("mdlm", ["--pattern", "(day ){9}day"], "has at least 10 tokens, but there is room for 5"),
    ("mdlm", ["--pattern", "day", "--pattern", "kite"], "--pattern: 2 patterns for 1 prompts"),
    ("mdlm", ["--required", "kite", "--banned", "kite"], "no text obeys all of"),
    ("mdlm", ["--schema", "[1]"], "--schema [1]: neither a JSON object nor a readable file"),
    ("mdlm", ["--schema", '{"type": "tuple"}'], "'type' at # is 'tuple', which is not a JSON type"),
    ("mdlm", ["--banned", ""], "give a list of words, none of them empty"),
    ("diffusion_lm", ["--pattern", "(day ){9}day"], "has at least 10 tokens, but there is room for 5"),
    ("flex", ["--pattern", "day"], "insertion models do not support constraints"),
]


@pytest.mark.parametrize(("name", "flags", "says"), RULES, ids=[says[:30] for _, _, says in RULES])
def test_wrong_rules(
    refused: Callable[..., str], runs: dict[str, Path], name: str, flags: list[str], says: str
) -> None:
    assert says in refused("generate", runs[name], "One", "--new", "5", *flags)


def test_rules_and_profiles_by_command(say: Say, refused: Callable[..., str], runs: dict[str, Path]) -> None:
    command = ["generate", runs["mdlm"], "One", "--new", "6", "--steps", "3"]
    out, err = say(*command, "--pattern", "day, [a-zA-Z ]+[.]", "--required", "kite", "--json", "--profile")
    assert re.fullmatch(r"One day, [a-zA-Z ]*kite[a-zA-Z ]*\.", objects(out)[0]["text"])
    assert objects(out)[0]["exactness"] in ("matches", "steps")
    assert [line.split()[0] for line in err.splitlines()[-4:]] == ["network", "output", "constraint", "sampler"]
    assert "the pattern '(' cannot be read" in refused(*command, "--pattern", "(")
    vectors = ["generate", runs["diffusion_lm"], "One", "--new", "6", "--steps", "3"]
    out, err = say(*vectors, "--pattern", "day, [a-zA-Z ]+[.]", "--required", "kite", "--json", "--profile")
    assert re.fullmatch(r"One day, [a-zA-Z ]*kite[a-zA-Z ]*\.", objects(out)[0]["text"])
    assert objects(out)[0]["exactness"] == "matches"
    assert [line.split()[:2] for line in err.splitlines()[-4:] if "constraint" in line] == [["constraint", "3"]]
    assert "room for 6" in refused(*vectors, "--pattern", "(day ){9}day")
    assert "--schema x: neither a JSON object nor a readable file" in refused(*command, "--schema", "x")


def test_models_that_fill_no_holes_and_those_that_are_none(
    refused: Callable[..., str], runs: dict[str, Path], tmp_path: Path
) -> None:
    assert "answers a source and cannot fill holes" in refused("infill", runs["diffuseq"], "One [[2]] day.")
    main(["train", "tencdm_codec_tiny", *SMALL, "--out", str(tmp_path / "codec")])
    for verb in ("generate", "eval", "levels"):
        assert "is only a codec; train a diffusion model on its latents" in refused(verb, tmp_path / "codec")
    main(["noise", str(tmp_path / "codec"), "--strip", str(tmp_path / "tencdm.svg")])  # as the page of TEncDM has it
    assert (tmp_path / "tencdm.svg").read_text("utf-8").startswith("<svg")


def test_one_row_and_curves_with_holes(say: Say, runs: dict[str, Path], tmp_path: Path) -> None:
    out, err = say("eval", runs["mdlm"], "--rows", "1", "--samples", "0", "--draws", "1", "--json")
    assert {record["name"]: record for record in objects(out)}["excess_bits_per_char"]["stderr"] is None
    assert len(err.splitlines()) == 1
    shutil.copytree(runs["mdlm"], tmp_path / "odd")
    losses = [{"step": n, "train_loss_bits_per_token": loss} for n, loss in enumerate((8.0, math.nan, 7.0, math.inf))]
    lines = (json.dumps(line | {"tokens_per_second": 1}) + "\n" for line in losses)
    (tmp_path / "odd" / "metrics.jsonl").write_text("".join(lines))
    assert "training loss" in say("show", tmp_path / "odd")[0]


# Files of one's own -------------------------------------------------------------------------------------------------

OWN = {
    "raises": ("raise KeyError('x')", "raises.py, line 1: KeyError: 'x'"),
    "exits": ("import sys\nsys.exit(0)", "exits.py, line 2: SystemExit: 0"),
    "syntax": ("def f(:", "syntax.py, line 1: SyntaxError"),
    "nul": ("a\x00b", "nul.py: SyntaxError: source code string cannot contain null bytes"),
    "recursion": ("def f(): f()\nf()", "recursion.py, line 1: RecursionError"),
}


@pytest.mark.parametrize("name", OWN)
def test_files_that_cannot_be_imported(
    refused: Callable[..., str], runs: dict[str, Path], tmp_path: Path, name: str
) -> None:
    code, says = OWN[name]
    file = tmp_path / f"{name}.py"
    file.write_text(code)
    assert says in refused("check", file)
    assert says in refused("generate", runs["mdlm"], "--trust", file)
    assert says in refused("show", f"{file}:run")


def test_a_process_that_raises_in_a_law(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "my_noise.py"
    file.write_text(
        "from dataclasses import dataclass\nimport redraft\n\n@dataclass(frozen=True)\nclass Mine(redraft.Masked):\n"
        "    def noise(self, x, t, *, pad=None, rng):\n        raise KeyError('boom')\n"
    )
    _, err = say("check", file, code=2)
    assert err.splitlines() == [f"redraft: {file}, line 7: KeyError: 'boom'"]


def test_an_exit_in_a_law_is_no_success(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "my_exit.py"
    file.write_text(
        "import sys\nfrom dataclasses import dataclass\nimport redraft\n\n@dataclass(frozen=True)\n"
        "class Mine(redraft.Masked):\n    def noise(self, x, t, *, pad=None, rng):\n        sys.exit(0)\n\n"
        "def run():\n    sys.exit(0)\n"
    )
    _, err = say("check", file, code=2)
    assert err.splitlines() == [f"redraft: {file}, line 8: SystemExit: 0"]
    _, err = say("show", f"{file}:run", code=2)
    assert "my_exit.py:run raised SystemExit: 0" in err


# Streams ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "code", "says"),
    [
        ("$R --help >&-", 2, "stdout is closed, so there is nowhere to print the result"),
        ("$R shwo >&- 2>&-", 2, ""),
        ("$R shwo 2>&-", 2, ""),
        ("$R shwo 2>/dev/full", 2, ""),
        ("$R --help >/dev/full", 2, "No space left on device"),
        ("$R --version >/dev/full", 2, "No space left on device"),
        ("$R generate x - <&-", 2, "stdin has no text"),
    ],
)
def test_streams_that_are_closed_or_full(tmp_path: Path, command: str, code: int, says: str) -> None:
    done = shell(command, tmp_path)
    assert (done.returncode, done.stdout) == (code, ""), done.stderr
    assert says in done.stderr
    assert len(done.stderr.splitlines()) == bool(says)


def test_a_result_needs_no_stderr(runs: dict[str, Path], tmp_path: Path) -> None:
    done = shell(f"$R generate {runs['mdlm']} One --new 2 2>/dev/full </dev/null", tmp_path)
    assert done.returncode == 0
    assert done.stdout.startswith("One ")


ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}


def test_ascii_in_earnest(runs: dict[str, Path], tmp_path: Path) -> None:
    done = shell(
        f"$R generate {runs['mdlm']} One --new 2 --watch </dev/null; $R --help; $R infill x Grüße", tmp_path, **ASCII
    )
    assert "One # #" in done.stderr
    assert "'Gr\\xfc\\xdfe' has no hole" in done.stderr
    assert "+-" not in done.stdout.splitlines()[0]
    assert (done.stdout + done.stderr).isascii()
    assert "Error" not in done.stderr


@pytest.mark.parametrize("argv", [["show"], ["show", "mdlm"], ["eval", "mdlm", "--rows", "2", "--samples", "1"]])
def test_a_terminal_that_knows_ascii_alone(
    runs: dict[str, Path], monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    kept = {name: io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True) for name in ("stdout", "stderr")}
    for name, stream in kept.items():
        monkeypatch.setattr(sys, name, stream)
    main([str(runs.get(word, word)) for word in argv])
    assert kept["stdout"].buffer.getvalue()  # type: ignore[attr-defined]


def test_what_ascii_lacks_looks_alike() -> None:
    streams.prepare_streams()
    said = "╭─ 2 × 3 ± 0.1 ≤ … ⠑⢄⠀ ▒ Grüße \udcff 😀"
    assert said.encode("ascii", "redraft").decode() == "+- 2 x 3 +- 0.1 <= ... ..  # Gr\\xfc\\xdfe \\udcff \\U0001f600"
    assert "\udcff".encode("utf-8", "redraft") == b"\\udcff"


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    output.emit({"a": math.nan, "b": [1.0, -math.inf], "c": {"d": math.inf}}, True, "")
    assert json.loads(capsys.readouterr().out, parse_constant=pytest.fail) == {
        "a": None,
        "b": [1.0, None],
        "c": {"d": None},
    }


# Progress -----------------------------------------------------------------------------------------------------------


def test_progress_speaks_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """Also while the job does nothing but work."""
    with Progress("importing x.py", every=0.01):
        said, ends = "", time.monotonic() + 30
        while "so far" not in said and time.monotonic() < ends:
            said += capsys.readouterr().err
    assert said.splitlines()[0] == "importing x.py, 0 s so far"


def test_progress_is_a_bar_in_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Results on stdout are left alone."""
    ours, theirs = pty.openpty()
    with open(theirs, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal)
        patch.setenv("TERM", "xterm")
        with Progress("importing x.py"):
            pass
        os.set_blocking(ours, False)
        with pytest.raises(BlockingIOError):  # it did not take long
            os.read(ours, 1)
        os.set_blocking(ours, True)
        patch.setattr("redraft.training.progress._SHORT", 0.0)
        with Progress("texts written", 4) as progress:
            progress.advance(1)
            os.read(ours, 1)
            print("one result")
            with progress.paused():
                print("another")
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert "1 of 4 texts written" in shown
    assert "\N{BOX DRAWINGS HEAVY HORIZONTAL}" in shown
    assert capsys.readouterr().out == "one result\nanother\n"


def test_progress_counts(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress("texts written", 500_000) as progress:
        assert str(progress) == "0 of 500,000 texts written"
        assert list(progress.count_steps("ab")) == ["a", "b"]
        assert str(progress) == "0 of 500,000 texts written, step 2 of the next"
        progress.advance(64)
        assert str(progress).startswith("64 of 500,000 texts written, about ")
    assert capsys.readouterr().err == ""  # it did not take long


# Help ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [5, 20, 40])
def test_narrow_help_keeps_its_words(say: Say, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for verb in ([], ["generate"], ["train", "mdlm_tiny"]):
        out, _ = say(*verb, "--help")
        words = set(out.split())
        assert {"--help", "usage:"} <= words or {"-h,", "usage:"} <= words
        assert not set(out) & set("╭│╰")
        long = [line for line in out.splitlines() if len(line) > max(columns, 13)]
        assert all(len(line.split()) == 1 for line in long), "only a word that is longer than the line"
    assert os.environ["COLUMNS"] == str(columns)


def test_objections_do_not_depend_on_the_terminal(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    wide = refused("generate", "x", "--temprature", "1")
    monkeypatch.setenv("COLUMNS", "10")
    assert refused("generate", "x", "--temprature", "1") == wide
    assert "did you mean --temperature?" in wide


def test_help_names_exit_codes_and_version(say: Say) -> None:
    out, _ = say("--help")
    for code in ("0 ", "1 ", "2 ", "130", "143"):
        assert any(line.startswith(f"  {code}") for line in out.splitlines())
    assert "--version" in out
    assert say("help")[0] == out
    assert say("help", "generate")[0] == say("generate", "--help")[0]
    assert cli._ABOUT.isascii()
