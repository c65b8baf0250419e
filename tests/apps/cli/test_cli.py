"""The real command line: every verb, what it prints and where, how it refuses what is wrong."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Say, table

import redraft
from redraft import tasks
from redraft.apps.cli import VERBS, main
from redraft.apps.cli.arguments import parse_verb, suggest
from redraft.apps.cli.commands.train import (
    Train,
)
from redraft.apps.cli.models import open_model
from redraft.apps.cli.output import emit, print_note
from redraft.apps.cli.plot import plot
from redraft.apps.cli.run_arguments import parse_run, parse_source
from redraft.apps.cli.run_settings import parse_settings
from redraft.core import (
    ByteTokenizer,
    CharTokenizer,
    HubTokenizer,
    PiecewiseLogSnr,
    Tokenizer,
    Vocab,
    WordTokenizer,
    train_bpe,
)
from redraft.decoding import SAMPLER_NAMES, Ancestral, Blocks, DualCache, Entropy, FirstHitting, Sampler, Unmask
from redraft.evaluation import Law
from redraft.models import Causal, DiffusionLM
from redraft.models.checkpoints import serialization
from redraft.tasks.engine.sampler_choice import choose_sampler
from redraft.training import (
    STORY_LANGUAGE,
    Bound,
    DocumentRows,
    Jsonl,
    PackedRows,
    Parquet,
    Sotu,
    StoryCorpus,
    TextFiles,
    first_batches,
    load_rows,
    make_tokenizer,
    parameter_count,
)
from redraft.training.presets import (
    PRESETS,
    PURPOSES,
)
from redraft.training.runs import run

SMALL = [
    *("--steps", "3", "--batch", "4", "--eval-rows", "4", "--samples", "1", "--quiet"),
    *("--model.network.width", "16", "--model.network.layers", "1", "--model.network.heads", "2"),
]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


def shell(*argv: object, text: str | None = None, code: int = 0, cwd: Path | None = None) -> tuple[str, str]:
    """What a real `redraft` prints on stdout and stderr."""
    command = [sys.executable, "-m", "redraft.apps.cli", *map(str, argv)]
    source: dict[str, Any] = {"stdin": subprocess.DEVNULL} if text is None else {"input": text}
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=cwd, **source)
    assert done.returncode == code, done.stderr
    return done.stdout, done.stderr


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Three small runs on the stories: masked, block by block, left to right."""
    folder = tmp_path_factory.mktemp("runs")
    for name in ("mdlm_tiny", "bd3_tiny", "ar_tiny"):
        main(["train", name, *SMALL, "--out", str(folder / name)])
    return {path.name: path for path in folder.iterdir()}


@pytest.fixture
def mdlm(runs: dict[str, Path]) -> Path:
    return runs["mdlm_tiny"]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory, runs: dict[str, Path]) -> Path:
    """A directory full of things that are wrong, and of some that are right."""
    folder = tmp_path_factory.mktemp("place")
    shutil.copytree(runs["mdlm_tiny"], folder / "trained")
    shutil.copytree(runs["mdlm_tiny"], folder / "damaged")
    weights = next((folder / "damaged").glob("step-*/model.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    (folder / "hollow").mkdir()
    (folder / "torn").mkdir()
    (folder / "torn" / "run.json").write_text("{")
    (folder / "empty.txt").write_text("")
    (folder / "latin.txt").write_bytes("Grüße".encode("latin-1"))
    (folder / "short.txt").write_text("one two three\n")
    (folder / "wrong.jsonl").write_text('{"title": "x"}\n')
    (folder / "wrong.json").write_text("{")
    (folder / "broken.py").write_text("def run(:\n")
    (folder / "own.py").write_text(
        "def boom():\n    raise KeyError('x')\n\ndef three():\n    return 3\n\ndef needs(it):\n    return it\n"
    )
    return folder


# Help ---------------------------------------------------------------------------------------------------------------


def test_help_wrong_verbs_and_wrong_flags_need_no_torch() -> None:
    """All in one process, which would show whether any of them imports torch."""
    asked = [[], ["--help"], ["--version"], ["trian"], ["choose"], ["show", "--jsn"], ["infill", "x", "y"]]
    asked += [[verb, "--help"] for verb in VERBS]
    code = (
        "import sys, json\nfrom redraft.apps.cli import main\ncodes = []\n"
        f"for argv in {asked!r}:\n try:\n  main(argv)\n except SystemExit as end:\n  codes.append(end.code)\n"
        "assert 'torch' not in sys.modules\nprint(json.dumps(codes))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [0, 0, 0, 2, 2, 2, 2] + [0] * len(VERBS)
    assert "redraft 0." in done.stdout
    for verb in VERBS:
        assert f"usage: redraft {verb}" in done.stdout
    assert len(done.stderr.splitlines()) == 4


def test_every_flag_says_what_it_does(say: Say) -> None:
    for verb, kind in VERBS.items():
        out, _ = say(verb, "--help")
        assert "(default: None)" not in out
        assert "--json" in out or verb in ("serve", "play", "completion")  # the first two answer by HTTP
        assert kind.__doc__
        assert kind.__doc__.split()[0] in out


def test_a_preset_lists_its_settings(say: Say) -> None:
    out, _ = say("train", "bd3_tiny", "--help")
    for flag in ("--optimizer.lr FLOAT", "--model.network.width INT", "--sampler.sampler.steps INT", "--data.seed INT"):
        assert flag in out
    assert "vocab.mask" not in out  # it follows from the tokenizer
    assert "tokenizer.words" not in out


# Settings -----------------------------------------------------------------------------------------------------------


def settings(value: Any, *argv: str) -> Any:
    return parse_settings(value, argv, "redraft", "", whole=(Tokenizer, Vocab))


def test_settings_replace_what_they_name_and_nothing_else() -> None:
    flags = ["--steps", "7", "--precision", "fp32", "--optimizer.lr", "1e-5", "--optimizer.muon", "None"]
    for name in ("mdlm_tiny", "bd3_tiny", "diffusion_lm_tiny", "planner_tiny", "flex_tiny"):
        preset = PRESETS[name]()
        slow = replace(preset, steps=7, precision="fp32", optimizer=replace(preset.optimizer, lr=1e-5, muon=None))
        assert settings(preset, *flags) == slow, name


def test_settings_reach_what_a_protocol_annotates() -> None:
    preset = PRESETS["bd3_tiny"]()
    assert settings(preset, "--sampler.sampler.steps", "3", "--data.seed", "5") == replace(
        preset, sampler=replace(preset.sampler, sampler=Ancestral(3)), data=StoryCorpus(5)
    )


def training(*argv: str) -> run.Run:
    """The run that a command line means."""
    verb = parse_verb(VERBS, ["train", *argv])
    assert isinstance(verb, Train)
    return verb._run()


@pytest.fixture
def texts(tmp_path: Path) -> dict[str, Path]:
    """The same forty short documents in three kinds of file."""
    import pyarrow
    import pyarrow.parquet

    documents = [f"line {i} says öne" for i in range(40)]
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("\n\n".join(documents[:20]))
    (tmp_path / "folder" / "b.txt").write_text("\n\n".join(documents[20:]))
    (tmp_path / "lines.jsonl").write_text("".join(json.dumps({"text": d}) + "\n" for d in documents))
    pyarrow.parquet.write_table(pyarrow.table({"text": documents}), tmp_path / "rows.parquet")
    return {path.name: path for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    ("name", "kind"), [("folder", TextFiles), ("lines.jsonl", Jsonl), ("rows.parquet", Parquet)], ids=lambda v: str(v)
)
def test_data_of_ones_own(texts: dict[str, Path], name: str, kind: type) -> None:
    found = training("mdlm_tiny", "--data", str(texts[name]), "--length", "9")
    assert type(found.data) is kind
    assert found.framing == PackedRows(9)
    assert found.model.network.rotary == 10_000.0  # rows that begin anywhere
    assert isinstance(found.tokenizer, HubTokenizer)  # the words of the stories would not fit
    rows = load_rows(found.data, "valid", found.tokenizer, found.framing)
    assert rows.tally.documents == 2  # numbers 18 and 38
    assert all("öne" in text for text in kind(found.data.paths).documents("train", rows.tally))


def test_several_files_and_their_own_settings(texts: dict[str, Path]) -> None:
    both = [str(path) for path in sorted(texts["folder"].iterdir())]
    found = training("mdlm_tiny", "--data", *both, "--data.split-by", "file", "--tokenizer", "bytes")
    assert found.data == TextFiles(tuple(both), split_by="file")
    assert parse_source(["stories"]) == StoryCorpus()
    assert parse_source(["sotu"]) == Sotu()
    assert parse_source(both[:1], undivided=True) == TextFiles((both[0],), (both[0],), (both[0],))


@pytest.mark.parametrize("preset", ["mdlm_tiny", "ar_tiny", "bd3_tiny"])
@pytest.mark.parametrize(
    ("choice", "kind", "size"),
    [
        ("chars", CharTokenizer, 0),
        ("bytes", ByteTokenizer, 259),
        ("words", WordTokenizer, 0),
        ("words:5", WordTokenizer, 9),
        ("bpe:270", HubTokenizer, 270),
    ],
)
def test_everything_follows_the_tokenizer(
    texts: dict[str, Path], preset: str, choice: str, kind: type, size: int
) -> None:
    found = training(preset, "--data", str(texts["lines.jsonl"]), "--tokenizer", choice)
    vocab = found.tokenizer.vocab
    assert type(found.tokenizer) is kind
    assert not size or vocab.size == size
    assert found.model.process.vocab == vocab
    assert (found.model.io.reads, found.model.io.writes) == (vocab.size, vocab.size)
    assert not isinstance(found.model.network.pattern, Causal) or found.model.io.start == vocab.mask
    assert parameter_count(found.model) == sum(p.numel() for p in DiffusionLM(found.model).parameters())


def test_a_tokenizer_may_be_a_file(texts: dict[str, Path], tmp_path: Path) -> None:
    made = train_bpe(["one two three"] * 3, 270)
    (tmp_path / "tokenizer.json").write_text(made._backend.to_str())
    found = training("mdlm_tiny", "--data", str(texts["lines.jsonl"]), "--tokenizer", str(tmp_path / "tokenizer.json"))
    assert found.tokenizer.vocab == made.vocab
    published = training("mdlm_owt", "--tokenizer", str(tmp_path))  # a folder that holds one
    assert published.tokenizer == found.tokenizer
    assert published.model.io.reads == made.vocab.size
    assert training("llada_8b", "--tokenizer", "bytes").model.network.padded_vocab == 126_464  # outputs to spare


def test_the_stories_keep_their_words() -> None:
    assert training("mdlm_tiny", "--data", "stories") == PRESETS["mdlm_tiny"]()
    letters = training("mdlm_tiny", "--tokenizer", "chars")
    assert set("".join(STORY_LANGUAGE.words())) < set(letters.tokenizer.alphabet)  # type: ignore[attr-defined]
    assert isinstance(letters.framing, DocumentRows)


def test_data_and_path_of_text8(tmp_path: Path) -> None:
    (tmp_path / "text8").write_text("x")
    assert training("mdlm_text8", "--data", str(tmp_path / "text8")).data.path == str(tmp_path / "text8")  # type: ignore[union-attr]
    assert training("mdlm_text8", "--data", "stories").data == StoryCorpus()


def test_learned_positions_follow_the_length() -> None:
    preset = PRESETS["mdlm_tiny"]()
    longer = training("mdlm_tiny", "--length", str(preset.framing.length + 10))
    assert longer.framing.length == preset.framing.length + 10
    network = replace(preset.model.network, rotary=None, positions=80)
    learned = replace(preset, model=replace(preset.model, network=network))
    assert learned.with_length(preset.framing.length - 4).model.network.positions == 76


def test_a_function_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "my_recipe.py").write_text("from redraft import presets\nrun = small = presets.ar_tiny\n")
    assert parse_run(f"{tmp_path / 'my_recipe.py'}:small") == PRESETS["ar_tiny"]()
    assert Train(f"{tmp_path / 'my_recipe.py'}:run")._name == "my_recipe"
    assert Train("a.py:small")._name == "small"
    assert Train("mdlm_tiny")._name == "mdlm_tiny"


# Train --------------------------------------------------------------------------------------------------------------


def test_train_prints_its_records_and_the_result_and_resumes(say: Say, tmp_path: Path) -> None:
    """In a real process; then again, with nothing left to do; then a command that means another run."""
    command = ["train", "mdlm_tiny", *SMALL, "--save-every", "2"]
    out, err = shell(*command, "--json", "--log-every", "1", cwd=tmp_path)
    *records, result = objects(out)
    where = tmp_path / "runs" / "mdlm_tiny"
    assert [record["step"] for record in records] == [1, 2, 3, 3]
    assert result["step"] == 3
    assert result["out"] == "runs/mdlm_tiny"
    assert result["valid_bits_per_char"] == records[-1]["valid_bits_per_char"]
    assert result["valid_excess_bits_per_char"] == records[-1]["valid_excess_bits_per_char"]
    assert result["run"] == json.loads((where / "run.json").read_text())["hash"]
    assert result["parameters"] == sum(p.numel() for p in redraft.training.load(where).parameters())
    assert "3 steps in runs/mdlm_tiny" in err
    again = [*command, "--log-every", "1", "--out", where]
    out, err = say(*again, "--json")
    assert [line.get("out") for line in objects(out)] == [str(where)]  # no new record
    assert "finished" in err
    _, err = say(*again, "--batch", "5", code=2)
    assert "holds another run (batch 4 → 5)" in err
    assert "--out" in err


def test_train_goes_on_where_it_stopped(say: Say, mdlm: Path, tmp_path: Path) -> None:
    command = ["train", "mdlm_tiny", *SMALL, "--save-every", "2", "--keep-checkpoints", "5"]
    say(*command, "--out", tmp_path / "whole")
    shutil.copytree(tmp_path / "whole", tmp_path / "part")
    shutil.rmtree(tmp_path / "part" / "step-00000003")
    out, err = say(*command, "--out", tmp_path / "part", "--json")
    assert "continuing at step 2 of 3" in err
    assert [record["step"] for record in objects(out)] == [3, 3, 3]
    ours, theirs = (redraft.training.load(tmp_path / name).state_dict() for name in ("part", "whole"))
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)


def test_a_training_that_could_not_begin_leaves_nothing(say: Say, place: Path, tmp_path: Path) -> None:
    out = tmp_path / "new"
    _, err = say("train", "mdlm_tiny", "--data", place / "short.txt", "--out", out, code=2)
    assert "redraft: the training text has 3 tokens" in err
    assert not out.exists()
    say("train", "mdlm_tiny", *SMALL, "--out", out)  # the mended command may have the directory


@pytest.mark.parametrize("name", ["mdlm_tiny", "genie_tiny", "ld4tg_class_tiny"])
def test_what_comes_next_can_be_typed(say: Say, tmp_path: Path, name: str) -> None:
    """A model that answers is given a source, others write from nothing."""
    small = [arg for arg in SMALL if arg != "--quiet"]
    if name.startswith("ld4tg"):
        say("train", "ld4tg_codec_tiny", *small, "--out", tmp_path / "codec")
        small += ["--base", str(tmp_path / "codec")]
    _, err = say("train", name, *small, "--out", tmp_path / "run")
    (said,) = (line for line in err.splitlines() if line.startswith("next: redraft generate"))
    told = shlex.split(said.removeprefix("next: redraft "))
    out, _ = say(*[arg.replace("TEXT", "who Emma, where lake") for arg in told], "--steps", "2")
    assert out


def test_divergence_is_a_failed_job(say: Say, tmp_path: Path) -> None:
    _, err = say("train", "mdlm_tiny", *SMALL, "--optimizer.lr", "1e38", "--out", tmp_path, code=1)
    assert err.splitlines()[-1].startswith("redraft: step 2 has a loss of inf")


def test_an_interrupted_training_says_what_is_left(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("redraft.training.loop.fit", interrupted)
    _, err = say("train", "mdlm_tiny", "--out", tmp_path, code=130)
    assert err.splitlines()[-1].startswith("stopped before the first step; nothing was saved")


def test_of_several_workers_one_speaks(tmp_path: Path) -> None:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command = [*torchrun, "-m", "redraft.apps.cli", "train", "mdlm_tiny", *SMALL, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [record["step"] for record in objects(done.stdout)] == [3, 3, 3]
    assert done.stderr.count("steps in runs/mdlm_tiny") == 1


def test_the_others_are_silent(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("RANK", "1")
    emit({}, True, "text")
    print_note("text")
    assert capsys.readouterr() == ("", "")
    with pytest.raises(SystemExit):
        main(["trian"])
    assert capsys.readouterr().err.startswith("redraft, worker 1: ")


# Generate and infill ------------------------------------------------------------------------------------------------


def test_generate_is_what_python_would_write(say: Say, mdlm: Path) -> None:
    """Texts on stdout, one JSON object each, the cost on stderr."""
    out, err = say("generate", mdlm, "One", "--rows", "2", "--seed", "5", "--new", "9", "--json")
    it = open_model(mdlm)
    written = tasks.sample_canvases(it.lm, it.sampler, it.lm.canvas("One", new=9, rows=2), seed=5)
    assert [record["text"] for record in objects(out)] == written.texts
    assert {(r["prompt"], r["seed"], r["run"], r["nfe"]) for r in objects(out)} == {("One", 5, it.name, written.nfe)}
    assert "network calls per text" in err
    assert it.name == json.loads((mdlm / "run.json").read_text())["hash"]


def test_texts_are_plain_lines_that_a_seed_repeats(say: Say, mdlm: Path) -> None:
    first, again, other = (say("generate", mdlm, "--rows", "2", "--seed", seed)[0] for seed in (1, 1, 2))
    assert first == again != other
    assert len(first.splitlines()) == 2


def test_a_row_is_as_long_as_in_training(say: Say, mdlm: Path) -> None:
    length = PRESETS["mdlm_tiny"]().framing.length
    out, _ = say("generate", mdlm, "One spring day", "--sampler", "first-hitting", "--json")
    assert objects(out)[0]["nfe"] == length - 3  # one call for each token, the tail after an end token included


@pytest.mark.parametrize("name", ["mdlm_tiny", "bd3_tiny", "ar_tiny"])
def test_every_sampler_with_every_network(say: Say, runs: dict[str, Path], name: str) -> None:
    for sampler in ("own", *SAMPLER_NAMES):
        out, _ = say("generate", runs[name], "One", "--new", "6", "--sampler", sampler)
        assert out.startswith("One"), sampler
        assert "▒" not in out, sampler


def test_steps_and_temperature_reach_the_sampler(runs: dict[str, Path]) -> None:
    full, blocks = open_model(runs["mdlm_tiny"]), open_model(runs["bd3_tiny"])

    def chosen(it: tasks.TextModel, **options: Any) -> Sampler:
        return choose_sampler(it, tasks.DecodingSettings(**options))[0]

    assert chosen(full) == full.sampler
    assert chosen(full, steps=3) == replace(full.sampler, steps=3)
    assert chosen(full, sampler="ancestral", steps=3) == Ancestral(3)
    assert chosen(full, sampler="entropy", steps=3, temperature=0.5) == Unmask(3, Entropy(0.5))
    assert chosen(blocks, sampler="ancestral", steps=3) == Blocks(Ancestral(3), stop=True)
    assert chosen(blocks, sampler="first-hitting") == Blocks(FirstHitting(), stop=True)
    assert chosen(full, sampler="ancestral", decode_block=4) == Blocks(Ancestral(), decode_block=4, stop=True)
    dual = chosen(full, sampler="ancestral", decode_block=4, cache="dual", refresh=2)
    assert dual == Blocks(Ancestral(), decode_block=4, cache=DualCache(2), stop=True)
    assert chosen(full, sampler=Unmask(7)) == Unmask(7)


def test_prompts_come_through_a_pipe(mdlm: Path) -> None:
    out, _ = shell("generate", mdlm, "--new", "3", "--rows", "2", "--json", text="One spring day,\n\nAnna\n")
    assert [record["prompt"] for record in objects(out)] == ["One spring day,"] * 2 + ["Anna"] * 2
    assert all(record["text"].startswith(record["prompt"]) for record in objects(out))


def test_a_reader_that_leaves_is_no_error(mdlm: Path) -> None:
    command = (
        f"{sys.executable} -m redraft.apps.cli generate {mdlm} --rows 64 --new 2 | head -1; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(
        ["bash", "-c", command], capture_output=True, text=True, env=ENVIRONMENT, stdin=subprocess.DEVNULL
    )
    assert len(done.stdout.splitlines()) == 2
    assert done.stdout.splitlines()[1] == "0"
    assert "Traceback" not in done.stderr
    assert "Exception" not in done.stderr


def test_infill_keeps_what_is_given(say: Say, mdlm: Path) -> None:
    out, _ = say("infill", mdlm, "One [[2]] day, [[1]].", "--rows", "3", "--json")
    for record in objects(out):
        words = record["text"].replace(",", " ,").replace(".", " .").split()
        assert (words[0], words[3:5], words[6:], len(words)) == ("One", ["day", ","], ["."], 7)
        assert record["prompt"] == "One [[2]] day, [[1]]."


def test_infill_writes_whole_rows_and_shows_what_was_asked(say: Say, runs: dict[str, Path]) -> None:
    """A network of full attention that knows rows of one length only gets such rows; left to right it needs none."""
    length = PRESETS["mdlm_tiny"]().framing.length
    command = ["One [[2]] day.", "--sampler", "first-hitting", "--json"]
    (full,) = objects(say("infill", runs["mdlm_tiny"], *command)[0])
    (causal,) = objects(say("infill", runs["ar_tiny"], *command)[0])
    assert full["nfe"] == length - 3
    assert causal["nfe"] < 6
    assert len(full["text"].replace(".", " .").split()) == 5
    whole, err = say("infill", runs["mdlm_tiny"], "One [[2]] day.", "--watch")
    assert err.splitlines()[-2] == whole.strip()
    rows = f"One [[2]] day.[[{length - 5}]]"  # what is written anyway, asked for
    assert objects(say("infill", runs["mdlm_tiny"], rows, *command[1:])[0])[0]["text"].startswith(full["text"])


def test_infill_reads_templates_from_a_pipe(mdlm: Path) -> None:
    out, _ = shell("infill", mdlm, "-", text="One [[1]] day.\nAnna [[2]]\n")
    assert [line.split()[0] for line in out.splitlines()] == ["One", "Anna"]


def test_watching_shows_the_way_and_changes_no_text(say: Say, mdlm: Path) -> None:
    command = ["generate", mdlm, "One", "--new", "5", "--steps", "4"]
    plain, _ = say(*command)
    watched, err = say(*command, "--watch")
    *lines, _cost = err.splitlines()
    assert watched == plain
    assert lines[0] == "One ▒ ▒ ▒ ▒ ▒"
    assert lines[-1] == plain.strip()
    hidden = [line.count("▒") for line in lines]
    assert hidden == sorted(hidden, reverse=True)


def test_models_of_foreign_classes_need_trust(say: Say, tmp_path: Path) -> None:
    file = tmp_path / "my_schedule.py"
    file.write_text(
        "from dataclasses import dataclass, replace\nimport redraft\nfrom redraft import presets\n\n"
        "@dataclass(frozen=True)\nclass Mine(redraft.Linear):\n    pass\n\n"
        "def run():\n    base = presets.mdlm_tiny()\n"
        "    process = replace(base.model.process, schedule=Mine())\n"
        "    return replace(base, model=replace(base.model, process=process))\n"
    )
    say("train", f"{file}:run", *SMALL, "--out", tmp_path / "out")
    _, err = say("generate", tmp_path / "out", code=2)
    assert "--trust" in err
    out, _ = say("generate", tmp_path / "out", "One", "--new", "2", "--trust", file)
    assert out.startswith("One")
    assert "Masked" in say("show", tmp_path / "out", "--trust", file)[0]


# Eval ---------------------------------------------------------------------------------------------------------------


def test_eval_measures_against_the_truth(mdlm: Path) -> None:
    out, _ = shell("eval", mdlm, "--rows", "6", "--draws", "2", "--samples", "3", "--seed", "4", "--json")
    found = {record["name"]: record for record in objects(out)}
    it = open_model(mdlm)
    assert it.run is not None
    rows = first_batches(load_rows(it.run.data, "valid", it.run.tokenizer, it.run.framing), 6)
    direct = redraft.training.likelihood(it.lm, rows, draws=2, seed=4)
    assert found["bits_per_token"]["value"] == pytest.approx(direct.bits_per_token)
    assert found["bits_per_token"]["stderr"] == pytest.approx(direct.stderr)
    assert found["bits_per_char"]["value"] == pytest.approx(direct.bits_per_char)
    stories = [StoryCorpus().document("valid", index) for index in range(6)]
    over, error = redraft.training.excess_bits(direct, [STORY_LANGUAGE.log_prob(story) for story in stories])
    assert found["excess_bits_per_char"]["value"] == pytest.approx(over)
    assert found["excess_bits_per_char"]["stderr"] == pytest.approx(error)
    assert found["entropy_bits_per_char"]["value"] == pytest.approx(
        STORY_LANGUAGE.entropy_per_char() / redraft.training.NATS_PER_BIT
    )
    assert found["grammatical"]["value"] == 0  # after three steps
    assert found["nfe"]["value"] > 0
    assert found["tokens_per_second"]["value"] > 0
    assert {(record["run"], record["seed"]) for record in found.values()} == {(it.name, 4)}


def test_eval_measures_the_bound_of_a_chain(say: Say, mdlm: Path) -> None:
    out, _ = say("eval", mdlm, "--rows", "2", "--draws", "2", "--samples", "0", "--steps", "5", "--json")
    it = open_model(mdlm)
    assert it.run is not None
    rows = first_batches(load_rows(it.run.data, "valid", it.run.tokenizer, it.run.framing), 2)
    chain = redraft.training.likelihood(it.lm, rows, draws=2, bound=Bound(steps=5))
    first = objects(out)[0]
    assert (first["name"], first["steps"]) == ("bits_per_token", 5)
    assert first["value"] == pytest.approx(chain.bits_per_token)


def test_eval_on_other_text_and_other_splits(say: Say, mdlm: Path, tmp_path: Path) -> None:
    (tmp_path / "held.txt").write_text("One spring day, Anna walked.\n\nAnna sat.\n")
    out, _ = say("eval", mdlm, "--data", tmp_path / "held.txt", "--samples", "0", "--json")
    assert [(r["name"], r.get("rows")) for r in objects(out)] == [
        ("bits_per_token", 2),  # all of the file, not a twentieth of it
        ("bits_per_char", 2),
        ("perplexity", 2),
    ]
    valid, test = (say("eval", mdlm, "--rows", "4", "--samples", "0", "--split", s)[0] for s in ("valid", "test"))
    assert valid.splitlines()[0].startswith("bits per token")
    assert valid != test
    assert "grammatical" not in valid


# Levels -------------------------------------------------------------------------------------------------------------


def test_levels_tell_where_there_is_something_to_learn(say: Say, mdlm: Path, tmp_path: Path) -> None:
    run, picture = tmp_path / "vectors", tmp_path / "levels.svg"
    say("train", "diffusion_lm_tiny", *SMALL, "--out", run)
    out, _ = say("levels", run, "--rows", "4", "--levels", "5", "--json")
    *table, fitted = objects(out)
    assert [row["t"] for row in table] == [1e-6, 0.25, 0.5, 0.75, 1.0]
    assert [row["logsnr"] for row in table] == sorted((row["logsnr"] for row in table), reverse=True)
    assert table[0]["accuracy"] > 0.8 > 0.1 > table[-1]["accuracy"]  # of z: most at first, nothing at last
    schedule = serialization.from_json(fitted["schedule"])
    assert isinstance(schedule, PiecewiseLogSnr)
    assert schedule.logsnrs[0] == pytest.approx(table[0]["logsnr"])
    out, err = say("levels", run, "--rows", "4", "--levels", "5", "--picture", picture)
    assert "schedule = PiecewiseLogSnr" in out
    assert "time" in err
    assert picture.read_text().startswith("<?xml")
    _, err = say("levels", mdlm, code=2)
    assert "is not a run of a vector diffusion model" in err


# Show ---------------------------------------------------------------------------------------------------------------


def test_show_lists_all_presets(say: Say) -> None:
    found = {record["name"]: record for record in objects(say("show", "--json")[0])}
    assert found.keys() == PRESETS.keys()
    assert found["mdlm_tiny"]["parameters"] == parameter_count(PRESETS["mdlm_tiny"]().model)
    assert found["mdlm_owt"]["parameters"] is None  # its tokenizer decides
    text, _ = say("show")
    *_, last = groups = text.split("\n\n")
    assert [group.splitlines()[0] for group in groups] == list(PURPOSES)
    assert [line.split()[0] for group in groups for line in group.splitlines()[1:]] == list(PRESETS)
    assert "planner_reviews" in last
    assert all(record["about"] in text for record in found.values())
    assert {record["purpose"] for record in found.values()} == set(PURPOSES)


def test_show_a_preset(say: Say) -> None:
    (record,) = objects(say("show", "bd3_tiny", "--json")[0])
    assert serialization.from_json(record["config"]) == PRESETS["bd3_tiny"]()
    assert record["run"] == PRESETS["bd3_tiny"]().digest
    text, _ = say("show", "bd3_tiny")
    assert "pattern=BlockCausal(block=8)" in text
    assert f"{record['parameters']:,} parameters" in text
    assert max(map(len, text.splitlines())) <= 120
    assert "byte tokenizer" in say("show", "mdlm_owt")[1]  # stands for a tokenizer that is not here


def test_show_a_run_its_checkpoint_and_its_curves(say: Say, place: Path, mdlm: Path) -> None:
    out, _ = shell("show", mdlm, "--json")
    (record,) = objects(out)
    assert (record["step"], record["steps"]) == (3, 3)
    assert record["run"] == json.loads((mdlm / "run.json").read_text())["hash"]
    lines = objects((mdlm / "metrics.jsonl").read_text())
    assert record["last"]["valid_bits_per_char"] == lines[-1]["valid_bits_per_char"]
    (checkpoint,) = objects(say("show", mdlm / "step-00000003", "--json")[0])
    assert {**checkpoint, "path": record["path"]} == record
    trained = place / "trained"
    more = [{"step": s, "train_loss_bits_per_token": 9.0 - s, "tokens_per_second": 1.0} for s in (1, 2, 3)]
    over = {"valid_excess_stderr": 0.0123, "entropy_bits_per_char": 0.25}
    more += [{"step": s, "valid_bits_per_char": 1 / s, "valid_excess_bits_per_char": s / 8, **over} for s in (2, 3)]
    (trained / "metrics.jsonl").write_text("".join(json.dumps(m) + "\n" for m in more) + '{"step": 4, "tr')
    text, _ = say("show", trained)
    assert "loss of 6.0000 bits per token" in text
    assert "0.3333 bits per character of held-out text, 0.3750 ± 0.0123 above the truth" in text
    assert "   8.000 " in text  # the highest value beside the curve
    assert "   0.000 " in text  # the truth, below the held-out curve


def test_show_a_run_that_has_saved_nothing_yet(say: Say, mdlm: Path, tmp_path: Path) -> None:
    shutil.copy(mdlm / "run.json", tmp_path)
    (record,) = objects(say("show", tmp_path, "--json")[0])
    assert (record["step"], record["last"]) == (0, {})


def test_a_model_without_its_run(say: Say, mdlm: Path, tmp_path: Path) -> None:
    """As others give them away: nobody knows the data, nor how long its texts are."""
    model = redraft.training.load(mdlm)
    redraft.export(tmp_path / "given", model)
    (record,) = objects(say("show", tmp_path / "given", "--json")[0])
    assert record["parameters"] == sum(p.numel() for p in model.parameters())
    assert serialization.from_json(record["config"]) == model.config
    assert say("generate", tmp_path / "given", "One", "--new", "3")[0].startswith("One")
    assert "64 tokens by" in say("generate", tmp_path / "given")[1]
    _, err = say("eval", tmp_path / "given", code=2)
    assert "has no run" in err


def test_a_plot_has_the_dots_of_its_curve() -> None:
    falling = plot([(0, 4.0), (10, 0.0)], width=4, height=2)
    assert falling == ["   4.000 ⠑⢄", "   0.000 ⠀⠀⠑⢄", "    step 0 10"]
    flat = plot([(1, 2.0), (5, 2.0)], level=1.0, width=3, height=2)
    assert flat[0].endswith("⠉⠉⠉")
    assert flat[1] == "   1.000 ⡀⠀⡀"


# Check and demo -----------------------------------------------------------------------------------------------------


def test_check_tells_laws_that_fail(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    from redraft.evaluation.laws import suite

    rows = [Law("Bayes", "Mine", ok, 0.5, 0.25, "=", 0.1) for ok in (True, False)]
    monkeypatch.setattr(suite, "check_built_in", lambda: iter(rows))
    out, _ = say("check", "--json", code=1)
    assert [(record["law"], record["ok"]) for record in objects(out)] == [("Bayes", True), ("Bayes", False)]
    out, _ = say("check", code=1)
    assert [line.split()[0] for line in out.splitlines()] == ["ok", "FAIL"]
    monkeypatch.setattr(suite, "check_built_in", lambda: iter(rows[:1]))
    say("check")


def test_demo_gets_its_flags(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    from redraft.apps.reports import demo

    got: list[Any] = []
    monkeypatch.setattr(demo, "demo", lambda out, **more: got.append((out, more)))
    say("demo")
    say("demo", "--out", "here", "--seed", "3", "--minutes", "0.5", "--json", "--quiet")
    assert got == [
        (Path("runs/demo"), {"seed": 0, "minutes": 4.0, "json": False, "quiet": False}),
        (Path("here"), {"seed": 3, "minutes": 0.5, "json": True, "quiet": True}),
    ]


# What is wrong ------------------------------------------------------------------------------------------------------

WRONG = [
    ("trian", "no command 'trian'; did you mean train?"),
    ("--jsn", "--jsn is not an option of this command"),
    ("train", "PRESET|FILE.py:FN is missing"),
    ("train mdlm_tny", "no preset 'mdlm_tny'; did you mean mdlm_tiny"),
    ("train xyzzy", "there are mdlm_tiny, "),
    ("train --steps 5 mdlm_tiny", "--steps comes before the preset"),
    ("train mdlm_tiny --steps 0", "--steps 0: it must be from 1 to 100,000,000"),
    ("train mdlm_tiny --steps many", "--steps 'many': it must be a whole number"),
    ("train mdlm_tiny --steps", "--steps needs a value"),
    ("train mdlm_tiny --stesp 3", "did you mean --steps?"),
    ("train mdlm_tiny --optimizer.lr fast", "--optimizer.lr 'fast': it must be a number"),
    ("train mdlm_tiny --model.network.heads 3", "does not split into 3 heads"),
    ("train mdlm_tiny --precision fp8", "--precision 'fp8': choose from 'auto', 'fp32', 'bf16'"),
    ("train mdlm_tiny --length 0", "--length 0: it must be at least 1"),
    ("train mdlm_tiny again", "again is not an option of this command"),
    ("train mdlm_tiny --data nowhere.txt", "--data nowhere.txt is neither a corpus (sotu, stories)"),
    ("train mdlm_tiny --data empty.txt", "empty.txt: the file has no text"),
    ("train mdlm_tiny --data latin.txt", "latin.txt:1: byte 3 of the line is not UTF-8"),
    ("train mdlm_tiny --data wrong.jsonl", "wrong.jsonl:1: not an object with a string in the field 'text'"),
    ("train mdlm_tiny --data hollow", "--data hollow has no files that end in"),
    ("train mdlm_tiny --data short.txt wrong.jsonl", "files of several kinds (.jsonl, .txt)"),
    ("train mdlm_tiny --tokenizer bpx", "--tokenizer bpx is neither chars, bytes, words:N, bpe:N"),
    ("train mdlm_tiny --tokenizer bpe:10", "size=10 has no room for 256 bytes"),
    ("train mdlm_tiny --tokenizer wrong.json", "--tokenizer wrong.json cannot be used: not a tokenizer.json"),
    ("train mdlm_tiny --tokenizer latin.txt", "--tokenizer latin.txt cannot be used: 'utf-8'"),
    ("train mdlm_owt", "mdlm_owt reads tokenizer.json, which does not exist here; give its path: --tokenizer"),
    ("train mdlm_text8", "mdlm_text8 reads text8, which does not exist here; give its path: --data"),
    ("train own.py", "'own.py' does not name a function; write file.py:function"),
    ("train nofile.py:run", "nofile.py is not a Python file"),
    ("train own.py:nothing", "own.py has no function 'nothing'; it has: boom, three, needs"),
    ("train own.py:boom", "own.py:boom raised KeyError: 'x'"),
    ("train own.py:three", "own.py:three returned '3'; it must return a redraft.Run"),
    ("train own.py:needs", "missing 1 required positional argument: 'it'"),
    ("train broken.py:run", "broken.py, line 1: SyntaxError"),
    ("train mdlm_tiny --out trained", "trained holds another run (model.network.width 16 → 128"),
    ("train mdlm_tiny --out torn", "torn/run.json is damaged"),
    ("train mdlm_tiny --out empty.txt", "empty.txt: File exists; check the path"),
    ("train mdlm_tiny --out empty.txt/below", "empty.txt/below: Not a directory; check the path"),
    ("eval nowhere", "nowhere is not a directory; give the directory of a run"),
    ("eval hollow", "hollow is not a model: it holds neither step-… directories nor config.json"),
    ("eval trained --rows 0", "--rows 0: it must be from 1 to 1,000,000"),
    ("eval trained --draws 0", "--draws 0: it must be from 1 to 4,096"),
    ("eval trained --samples -1", "--samples -1: it must be from 0 to 100,000"),
    ("eval trained --split all", "--split 'all': choose from 'train', 'valid', 'test'"),
    ("eval trained --data nowhere", "--data nowhere is neither a corpus (sotu, stories)"),
    ("generate nowhere", "a model that ships with Redraft (story, smol)"),
    ("choose", "give a hole and two or more answers: redraft choose"),
    ("generate mdlm_tiny", "mdlm_tiny is a preset, not a trained model; train it first: redraft train mdlm_tiny"),
    ("generate trained --new 0", "--max-new-tokens 0: it must be at least 1"),
    ("generate trained --new 9999", "too many: this network has"),
    ("generate trained --rows 0", "--n 0: it must be from 1 to 1,000,000,000"),
    ("generate trained --steps 0", "--steps 0: it must be from 1 to 1,000,000"),
    ("generate trained --sampler best", "--sampler 'best': choose from 'own', 'ancestral'"),
    (
        "generate trained --sampler ancestral --temperature 0",
        "has no temperature; use --sampler to choose one with a pick, such as confidence",
    ),
    ("generate trained --sampler entropy --temperature -1", "--temperature -1.0: it must be from 0 to 1,000,000"),
    ("generate trained --sampler first-hitting --steps 3", "FirstHitting() has no steps"),
    ("generate trained --seed x", "--seed 'x': it must be a whole number"),
    ("generate trained|Anna Ana, Zog", "does not know 'Ana', 'Zog'; use words from its vocabulary, such as Anna"),
    ("generate trained|Anna: Zog.", "does not know 'Anna:', 'Zog'; use words from its vocabulary, such as Anna"),
    ("generate trained|xyzzy", "without a prompt shows some"),
    ("generate trained|" + "One " * 99, "the prompt fills all"),
    ("generate trained|One|day", "day is not an option of this command"),
    ("generate trained --trust nofile.py", "nofile.py is not a Python file"),
    ("infill trained", "give a text with holes: redraft infill"),
    ("infill trained|One day.", "'One day.' has no hole; write [[?]]"),
    ("infill trained|One [[5-2]] day.", "the hole [[5-2]] has an empty range of lengths"),
    ("infill trained --draws 0|One [[*]] day.", "--draws 0: it must be from 1 to 4,096"),
    ("infill trained|One [[0]] day.", "the hole [[0]] has no length"),
    ("infill trained|One [[some]] day.", "the hole [[some]] has no length"),
    ("show mdlm_tni", "no preset 'mdlm_tni'; did you mean mdlm_tiny"),
    ("show hollow", "hollow is neither a run nor a model: it has neither run.json"),
    ("show no/where", "no/where is neither a run nor a model: it is not a directory"),
    ("show torn", "torn/run.json is damaged"),
    ("check nofile.py", "nofile.py is not a Python file"),
    ("check own.py", "defines no subclass of redraft.TokenProcess"),
    ("demo --minutes soon", "--minutes 'soon': it must be a number"),
]


def words(line: str) -> list[str]:
    """A prompt may have spaces: it stands behind a bar."""
    plain, *prompts = line.split("|")
    return [*plain.split(), *prompts]


@table(("line", "says"), WRONG)
def test_wrong_input_ends_in_one_line(
    say: Say, place: Path, monkeypatch: pytest.MonkeyPatch, line: str, says: str
) -> None:
    monkeypatch.chdir(place)
    out, err = say(*words(line), code=2)
    assert out == ""
    (message,) = err.splitlines()
    assert message.startswith("redraft: ")
    assert says in message


IN_EARNEST = [
    *("trian", "--jsn", "train", "train --steps 5 mdlm_tiny", "eval trained --rows 0", "eval trained --split all"),
    *("choose", "generate trained --new 0", "generate trained --rows 0", "generate trained --sampler best"),
    *("generate trained --seed x", "infill trained|One day.", "infill trained", "demo --minutes soon"),
    *("train mdlm_tiny --stesp 3", "eval hollow"),  # these two load torch
]


@pytest.mark.parametrize("line", IN_EARNEST)
def test_wrong_input_in_a_real_process(place: Path, line: str) -> None:
    out, err = shell(*words(line), code=2, cwd=place)
    assert (out, len(err.splitlines())) == ("", 1)
    assert dict(WRONG)[line] in err


def test_a_damaged_checkpoint_is_named(say: Say, place: Path) -> None:
    _, err = say("generate", place / "damaged", code=2)
    assert err.splitlines()[-1] == (
        f"redraft: none of the 1 checkpoints in {place / 'damaged'} verifies; remove them to start anew"
    )
    assert "Traceback" not in err


def test_a_full_disk_is_named(say: Say, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "metrics.jsonl"))

    monkeypatch.setattr("redraft.training.loop.fit", full)
    _, err = say("train", "mdlm_tiny", "--out", tmp_path, code=2)
    assert err.splitlines()[-1] == (
        f"redraft: {tmp_path}/metrics.jsonl: No space left on device; "
        "check the path, its permissions and the free disk space"
    )


def test_a_bug_keeps_its_traceback(say: Say, monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr("redraft.apps.reports.demo.demo", bug)
    with pytest.raises(RuntimeError, match="a bug"):
        say("demo")


def test_nearest_names_or_all() -> None:
    assert suggest("trian", ["train", "eval"]) == "did you mean train?"
    assert suggest("zzz", ["train", "eval"]) == "there are train, eval"


def test_tokenizers_learn_from_the_training_split_alone(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("\n\n".join("b" if i == 18 else "a" for i in range(20)))
    letters = make_tokenizer("chars", parse_source([str(tmp_path / "x.txt")]))
    assert isinstance(letters, CharTokenizer)
    assert letters.alphabet == "a"
    changed = PRESETS["mdlm_tiny"]().with_tokenizer(letters)
    assert {f.name for f in fields(changed) if getattr(changed, f.name) != getattr(PRESETS["mdlm_tiny"](), f.name)} == {
        "model",
        "tokenizer",
    }
