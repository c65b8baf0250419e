"""Training and loading with what a careless or a hostile user gives them: one clear line, and nothing is lost."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from inspect import signature
from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import table

import redraft.training
from redraft.apps.cli import main
from redraft.apps.cli.commands.train import _remove_if_empty
from redraft.apps.cli.run_arguments import parse_source
from redraft.core import ByteTokenizer, Tokenizer, Vocab, train_bpe
from redraft.models import (
    CheckpointError,
    ConfigError,
    TransformerConfig,
    latest_checkpoint,
)
from redraft.models.checkpoints import serialization as config
from redraft.models.checkpoints.lock import LOCK_FILE, DirectoryLocked, exclusive_lock
from redraft.models.checkpoints.reader import _manifest_digest, read_checkpoint
from redraft.models.checkpoints.writer import save_checkpoint
from redraft.training import (
    DataStats,
    OptimizerConfig,
    Run,
    TextFiles,
    minimum_memory,
)
from redraft.training.presets import (
    PRESETS,
)
from redraft.training.progress import Progress

ELSEWHERE = {"stop", "start", "seed", "temperature"}  # ids are no sizes; temperatures are tested with the samplers


def preset(name: str) -> Run:
    takes = signature(PRESETS[name]).parameters
    return PRESETS[name](**({"tokenizer": ByteTokenizer()} if "tokenizer" in takes else {}))


def numbers(value: Any) -> Iterator[tuple[Any, str, int | float]]:
    """Every number at any depth of a run that a flag could set: its holder, its name, its value."""
    if not is_dataclass(value) or isinstance(value, Tokenizer | Vocab):
        return
    for field in fields(value):
        held = getattr(value, field.name)
        if type(held) in (int, float):
            yield value, field.name, held
        yield from numbers(held)


# Settings -----------------------------------------------------------------------------------------------------------


def test_no_number_of_a_preset_may_be_nonsense() -> None:
    """Not a number, and counts below zero, are refused by whatever holds them, before anything is built."""
    seen = set()
    for name in PRESETS:
        for holder, field, value in numbers(preset(name)):
            if field in ELSEWHERE or (type(holder), field) in seen:
                continue
            seen.add((type(holder), field))
            with pytest.raises(ValueError):
                replace(holder, **{field: math.nan if isinstance(value, float) else -1})
    assert len(seen) > 60


@table(
    "wrong",
    [
        *({name: number} for name in ("lr", "muon", "eps", "weight_decay") for number in (math.nan, math.inf, -1e-3)),
        *({"ema": number} for number in (math.nan, 2.0, -0.1)),
        *({"floor": number} for number in (math.nan, -1.0, 1.5)),
        *({"clip": number} for number in (math.nan, -1.0, 0.0)),
        *({"betas": pair} for pair in ((0.9, 1.0), (math.nan, 0.9), (-0.1, 0.9))),
        {"warmup": -5},
    ],
)
def test_an_optimizer_refuses(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{next(iter(wrong))}=.*must be"):
        OptimizerConfig(**wrong)


def test_an_optimizer_may_stand_still_and_need_not_clip() -> None:
    assert OptimizerConfig(lr=0.0, clip=math.inf, ema=1.0, floor=0.0, muon=0.0).warmup == 0


@pytest.mark.parametrize("seed", [-1, 2**63])
def test_a_seed_that_would_wrap_around(seed: int) -> None:
    with pytest.raises(ValueError, match=r"seed=.*from 0 to"):
        replace(PRESETS["mdlm_tiny"](), seed=seed)


SIZES = ["width", "layers", "heads", "kv_heads", "head_dim", "hidden", "positions", "time"]


@table(("name", "size"), [*product(SIZES, [0, -1, 10**12])])
def test_a_network_has_sizes_that_can_be(name: str, size: int) -> None:
    with pytest.raises(ValueError, match=f"^{name}={size}; it must be"):
        replace(TransformerConfig(), **{name: size})  # type: ignore[arg-type]


# One writer per directory -------------------------------------------------------------------------------------------

SMALL = [
    *("--steps", "4", "--batch", "4", "--eval-rows", "4", "--samples", "1", "--precision", "fp32"),
    *("--model.network.width", "16", "--model.network.layers", "1", "--model.network.heads", "2"),
]


def train(out: Path, *more: object, code: int = 0) -> None:
    """`redraft train mdlm_tiny`, as small as can be, within this process."""
    ended: object = 0
    try:
        main(["train", "mdlm_tiny", *SMALL, "--out", str(out), *map(str, more)])
    except SystemExit as end:
        ended = end.code
    assert ended == code


def test_two_trainings_never_share_a_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second one ends with one line that names the first, and leaves everything as it is; readers do not wait."""
    with exclusive_lock(tmp_path / "run"):
        train(tmp_path / "run", "--quiet", code=2)
        (said,) = capsys.readouterr().err.splitlines()
        assert f"is being written by process {os.getpid()} on {socket.gethostname()}; wait until it ends" in said
        assert [path.name for path in (tmp_path / "run").iterdir()] == [".lock"]
    train(tmp_path / "run", "--quiet")
    with exclusive_lock(tmp_path / "run"):
        before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
        train(tmp_path / "run", "--quiet", code=2)
        assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
        main(["show", str(tmp_path / "run")])
        main(["generate", str(tmp_path / "run"), "--new", "4"])


def test_a_lock_ends_with_its_holder(tmp_path: Path) -> None:
    """Killed without mercy, a holder leaves a file behind, but no lock."""
    code = "import sys\nfrom pathlib import Path\nfrom redraft.models.checkpoints.lock import exclusive_lock\n"
    code += "with exclusive_lock(Path(sys.argv[1])):\n print(1, flush=True)\n input()"
    holder = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    assert holder.stdout.readline() == "1\n"
    with pytest.raises(DirectoryLocked, match=f"written by process {holder.pid} on "), exclusive_lock(tmp_path):
        raise AssertionError
    holder.kill()
    holder.communicate()
    assert str(holder.pid) in (tmp_path / LOCK_FILE).read_text()
    with exclusive_lock(tmp_path):
        assert (tmp_path / LOCK_FILE).read_text() == f"process {os.getpid()} on {socket.gethostname()}\n"


def test_a_training_that_cannot_begin_leaves_the_directory_of_another_alone(tmp_path: Path) -> None:
    """It has no claim on it yet, so that it looks fresh."""
    with exclusive_lock(tmp_path / "run"):
        _remove_if_empty(tmp_path / "run")
        assert (tmp_path / "run" / LOCK_FILE).exists()
    _remove_if_empty(tmp_path / "run")
    assert not (tmp_path / "run").exists()


# Being asked to stop, and how far it is -------------------------------------------------------------------------------


def stopping(patch: pytest.MonkeyPatch, number: int) -> None:
    """A signal after the second step."""
    update = redraft.training.loop._optimizer_step

    def signaled(run: Run, state: Any, *rest: Any) -> float:
        norm = update(run, state, *rest)
        if state.step == 2:
            os.kill(os.getpid(), number)
        return norm

    patch.setattr(redraft.training.loop, "_optimizer_step", signaled)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stopped_training_says_what_it_saved(
    number: int, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    with monkeypatch.context() as patch:
        stopping(patch, number)
        train(tmp_path, code=code)
    signal.signal(signal.SIGINT, before)
    assert f"stopped, with a checkpoint at step 2 in {tmp_path}; the same command continues" in capsys.readouterr().err
    train(tmp_path)
    assert "continuing at step 2 of 4" in capsys.readouterr().err


def test_progress_without_a_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path / "loud")
    told = [line for line in capsys.readouterr().err.splitlines() if " training steps" in line]
    assert len(told) == 1  # a run of less than ten seconds: only its end
    assert re.fullmatch(
        r"4 of 4 training steps, loss \S+ bits/token, \S+ tokens/s; held out \S+ bits/char \(\+\S+\), in \d+ s",
        told[0],
    )
    train(tmp_path / "quiet", "--quiet")
    assert "training steps" not in capsys.readouterr().err


def test_a_line_of_progress_comes_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    bar = Progress("training steps", 3, every=0.01, stays=True).start()
    bar.note = "loss 2 bits/token"
    bar.advance(1)
    said, ends = "", time.monotonic() + 30
    while "1 of 3 training steps, loss 2 bits/token, about 0 s left\n" not in said and time.monotonic() < ends:
        said += capsys.readouterr().err
    assert time.monotonic() < ends
    bar.done = 3
    bar.close()
    assert capsys.readouterr().err.endswith("3 of 3 training steps, loss 2 bits/token, in 0 s\n")
    with Progress("training steps", 3, shown=False, every=0.01) as quiet:
        time.sleep(0.05)
        quiet.advance(3)
    assert capsys.readouterr().err == ""


def test_a_missing_package_is_told_before_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    train(tmp_path / "run", "--tensorboard", code=2)
    assert "tensorboard=True needs tensorboard: pip install" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


# Damaged and hostile directories ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained") / "run"
    train(out, "--quiet")
    return out


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of a trained run, to be spoilt."""
    return Path(shutil.copytree(trained, tmp_path / "run"))


@pytest.fixture
def exported(trained: Path, tmp_path: Path) -> Path:
    """The same as a directory without a manifest: nothing but its own contents tells what is wrong with it."""
    newest = latest_checkpoint(trained)
    assert newest is not None
    (tmp_path / "model").mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(newest / name, tmp_path / "model" / name)
    return tmp_path / "model"


def refused(argv: list[object], capsys: pytest.CaptureFixture[str], code: int = 2) -> str:
    """The one line that a command ends with."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(list(map(str, argv)))
    err = capsys.readouterr().err
    assert ended.value.code == code, err
    assert "Traceback" not in err
    return err.splitlines()[-1]


def rewrite(run: Path, **contents: dict[str, Any]) -> None:
    """Another checkpoint of the same step, with other documents or tensors and a manifest that fits them."""
    path = latest_checkpoint(run)
    assert path is not None
    saved = read_checkpoint(path)
    shutil.rmtree(path)
    tensors = {name: {**named, **contents.get(name, {})} for name, named in saved.tensors.items()}
    documents = {name: contents.get(name, document) for name, document in saved.documents.items()}
    save_checkpoint(run, saved.step, tensors, documents)


@pytest.mark.parametrize("size", [0, -1, 10**9, 10**30])
@pytest.mark.parametrize("name", ["width", "heads", "layers", "vocab"])
def test_absurd_sizes_in_a_config(size: int, name: str, exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = exported / "config.json"
    document = json.loads(file.read_text())
    document["model"]["network"][name] = size
    file.write_text(json.dumps(document))
    assert name in refused(["generate", exported], capsys) or name == "vocab"


def test_a_config_and_weights_of_another_size(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = exported / "config.json"
    document = json.loads(file.read_text())
    document["model"]["network"] |= {"width": 2**20, "layers": 64}  # 10¹⁵ parameters, never made
    file.write_text(json.dumps(document))
    assert "weights and config do not match" in refused(["generate", exported], capsys)


@pytest.mark.parametrize("verb", ["show", "generate", "eval"])
def test_a_config_that_never_ends(verb: str, exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = exported / "config.json"
    for make, said in (
        (lambda: os.mkfifo(file), "not a regular file"),
        (lambda: file.symlink_to("/dev/zero"), "not a regular file"),
        (lambda: file.write_text("[" * 100_000 + "]" * 100_000), "nested too deeply"),
        (
            lambda: file.write_text('{"class": "redraft.core.vocab.Vocab", "size": ' + "[" * 900 + "]" * 900 + "}"),
            "deeply|be",
        ),
        (lambda: file.mkdir(), "director"),
        (lambda: os.truncate(os.open(file, os.O_CREAT | os.O_RDWR), 2**40), "the limit is 268,435,456"),
        (lambda: file.write_bytes(b"\xff\xfe\x00"), "decode"),
    ):
        file.unlink()
        make()
        assert re.search(said, refused([verb, exported], capsys))
        if file.is_dir():
            file.rmdir()
            file.touch()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_weights_that_are_no_numbers(value: float, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = latest_checkpoint(run)
    assert path is not None
    weights = dict(read_checkpoint(path).tensors["model"])
    name = "network.blocks.0.norm1.weight"
    weights[name] = weights[name].clone()
    weights[name][3] = value
    rewrite(run, model=weights)
    for verb in ("generate", "eval"):
        assert f"{name} has values that are nan or infinite" in refused([verb, run], capsys)


def test_weights_that_are_no_numbers_are_not_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    update = redraft.training.loop._optimizer_step

    def spoilt(run: Run, state: Any, *rest: Any) -> float:
        norm = update(run, state, *rest)
        if state.step == 4:
            next(state.model.network.parameters()).data[0, 0] = math.nan
        return norm

    monkeypatch.setattr(redraft.training.loop, "_optimizer_step", spoilt)
    argv = ["train", "mdlm_tiny", *SMALL, "--save-every", "2", "--eval-every", "100", "--out", tmp_path, "--quiet"]
    monkeypatch.setattr(redraft.training.loop, "_validate", lambda *_: {"step": 4, "valid_bits_per_char": 0.0})
    assert "after step 4 network.embed" in refused(argv, capsys, code=1)
    assert [path.name for path in sorted(tmp_path.glob("step-*"))] == ["step-00000002"]


@pytest.mark.parametrize("state", [{}, {"step": "3", "nats": 0.0, "tokens": 0}, {"step": 3, "nats": None, "tokens": 1}])
def test_a_state_that_lacks_its_numbers(state: dict[str, Any], run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rewrite(run, state=state)
    argv: list[object] = ["train", "mdlm_tiny", *SMALL, "--out", run, "--quiet"]
    assert re.search(r"state.json .*(lacks nats|no step)", refused(argv, capsys))


@pytest.mark.parametrize("line", ["[1]", "{}", '{"step": "x"}', "nothing", "[" * 10_000, "\udcff"])
def test_a_log_with_a_line_that_is_no_record(line: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = run / "metrics.jsonl"
    log.write_bytes(line.encode("utf-8", "surrogateescape") + b"\n" + log.read_bytes())
    assert "metrics.jsonl:1 is not a training record; fix or remove this line" in refused(["show", run], capsys)
    before = log.read_bytes()
    shutil.rmtree(next(run.glob("step-*")))
    assert "metrics.jsonl:1 is not a training record" in refused(
        ["train", "mdlm_tiny", *SMALL, "--out", run, "--quiet"], capsys
    )
    assert log.read_bytes() == before


@pytest.mark.parametrize("name", ["../outside.json", "/etc/passwd.json", "a/../b.json", "..", "sub/x.json", "\0.json"])
def test_a_manifest_that_leads_out(name: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = latest_checkpoint(run)
    assert path is not None
    (run / "outside.json").write_text("{}")
    manifest = json.loads((path / "manifest.json").read_text())
    manifest.pop("digest")
    manifest["files"][name] = {"size": 2, "sha256": hashlib.sha256(b"{}").hexdigest(), "tensors": {}}
    (path / "manifest.json").write_text(json.dumps(manifest | {"digest": _manifest_digest(manifest)}))
    with pytest.raises(CheckpointError, match="has an invalid name or entry for a file"):
        read_checkpoint(path)
    assert "has an invalid name or entry for a file" in refused(["generate", path], capsys)


@pytest.mark.parametrize("file", ["run.json", "metrics.jsonl", ".lock"])
def test_directories_and_pipes_in_the_place_of_files(file: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv: list[object] = ["train", "mdlm_tiny", *SMALL, "--out", run, "--quiet"]
    (run / file).unlink()
    (run / file).mkdir()
    assert file in refused(argv, capsys)
    (run / file).rmdir()
    os.mkfifo(run / file)
    if file != ".lock":  # a lock may well be on a pipe
        assert file in refused(argv, capsys)


# Kinds of pieces ------------------------------------------------------------------------------------------------------

WRONG: dict[str, list[dict[str, Any]]] = {
    "sampler": [
        {"class": "redraft.apps.cli.commands.show.Show"},
        {"class": "redraft.core.schedules.tokens.Linear"},
        {"class": "redraft.training.PackedRows", "length": 3},
    ],
    "data": [{"class": "redraft.decoding.samplers.ancestral.Ancestral"}, {"class": "redraft.training.OptimizerConfig"}],
    "framing": [{"class": "redraft.core.schedules.tokens.Linear"}],
    "tokenizer": [{"class": "redraft.core.vocab.Vocab", "size": 3}],
    "objective": [{"class": "redraft.training.Bound"}],
}


@pytest.mark.parametrize(("field", "wrong"), [(field, each) for field in WRONG for each in WRONG[field]], ids=str)
def test_a_config_holds_pieces_of_the_right_kind(field: str, wrong: dict[str, Any]) -> None:
    document = config.to_json(preset("mdlm_tiny"))
    with pytest.raises(ConfigError, match=rf"config\.{field}.*(must be|cannot be part of a config)"):
        config.from_json(document | {field: wrong})


@pytest.mark.parametrize(
    "name", ["redraft.apps.cli.commands.train.Train", "redraft.report.Section", "redraft.evaluation.Law"]
)
def test_only_pieces_of_a_run_are_built(name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be part of a config"):
        config.from_json({"class": name})


# Text that is none ----------------------------------------------------------------------------------------------------

PDF = b"%PDF-1.4\n1 0 obj << /Type /Catalog >> endobj\ntrailer << /Root 1 0 R >>\n%%EOF\n"
BINARIES = {
    "paper.pdf": (PDF, "the file is a PDF"),
    "paper.txt": (PDF, "the file is a PDF"),
    "letter.txt": (b"{\\rtf1\\ansi Dear all,\\par}", "rich text"),
    "book.txt": (b"PK\x03\x04" + b"x" * 100, "a zip archive"),
    "book.txt.gz": (gzip.compress(b"Once upon a time."), "compressed by gzip"),
    "rows.jsonl": (gzip.compress(b'{"text": "Once."}\n'), "compressed by gzip"),
    "noise.txt": (bytes(range(1, 128)) * 9, "the file is binary"),
    "void.txt": (b"\0" * 100, "NUL characters"),
    "utf16.txt": ("Once upon a time.\n".encode("utf-16"), "not UTF-8"),
    "blank.txt": (b" \n\n\t\n", "the file has no text"),
}


@pytest.mark.parametrize("name", BINARIES)
def test_what_is_no_text_is_not_learned(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content, said = BINARIES[name]
    (tmp_path / name).write_bytes(content)
    for tokenizer in ("bytes", "bpe:300"):
        argv: list[object] = ["train", "mdlm_tiny", "--data", tmp_path / name, "--tokenizer", tokenizer]
        line = refused([*argv, "--out", tmp_path / "run"], capsys)
        assert said in line
        assert name in line
    assert not (tmp_path / "run").exists()


def test_what_is_no_text_can_be_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(PDF)
    (tmp_path / "b.txt").write_text("Once upon a time.\f\n\nThere was \x1b[1mone\x1b[0m.")
    tally = DataStats()
    files = TextFiles((str(tmp_path / "a.txt"), str(tmp_path / "b.txt")), on_bad="skip")
    assert len(list(files.documents("train", tally))) == 2
    assert tally.bad == 1


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ("", "--data '' is an empty name"),
        (" ", "--data ' ' is an empty name"),
        ("/", "is a system directory"),
        ("/proc", "is a system directory"),
        ("/../.", "is a system directory"),
        ("/dev/zero", "nor an existing file"),
        ("nowhere", "nor an existing file"),
        ("a" * 5000, "name too long|nor an existing file"),
        ("nul\0byte", "null|nor an existing file"),
    ],
)
@pytest.mark.parametrize("verb", ["train", "eval"])
def test_places_without_text(
    verb: str, data: str, said: str, trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    what = ["mdlm_tiny", "--out", tmp_path / "run"] if verb == "train" else [trained]
    assert re.search(said, refused([verb, *what, "--data", data], capsys), re.IGNORECASE)


def test_a_directory_is_searched_within_limits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.txt", "sub/b.txt", ".git/c.txt", "sub/.d.txt", "e.bin"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("Once.")
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "zero.txt").symlink_to("/dev/zero")
    (tmp_path / "loop").symlink_to(tmp_path)
    found = parse_source([str(tmp_path)])
    assert isinstance(found, TextFiles)
    assert [Path(path).name for path in found.paths] == ["a.txt", "b.txt"]
    monkeypatch.setattr("redraft.training.data.local._MOST_FILES", 3)
    with pytest.raises(ValueError, match="has more than 3 files; give a smaller directory"):
        parse_source([str(tmp_path)])


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("words:0", "0 is not a number of words to keep"),
        ("bpe:10000000000", "too large for a vocabulary"),
        ("bpe:99999999999999999999999", "too large for a vocabulary"),
        ("bpe:10", "has no room for 256 bytes"),
        ("words:-1", "neither chars, bytes"),
        ("bpe:nan", "neither chars, bytes"),
        ("", "not chars, bytes|no tokenizer at"),
    ],
)
def test_sizes_of_tokenizers(choice: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.txt").write_text("Once upon a time.\n\n" * 50)
    argv: list[object] = ["train", "mdlm_tiny", "--data", tmp_path / "a.txt", "--out", tmp_path / "run"]
    assert re.search(said, refused([*argv, "--tokenizer", choice], capsys))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("stated", ["[1]", "3", '{"eos_token": 3}', '{"eos_token": {"id": 3}}', "{", '"x"'])
def test_a_tokenizer_with_nonsense_beside_it(stated: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tokenizer.json").write_text(train_bpe(["Once upon a time."], 259).definition)
    (tmp_path / "tokenizer_config.json").write_text(stated)
    (tmp_path / "a.txt").write_text("Once upon a time.\n\n" * 50)
    argv: list[object] = ["train", "mdlm_tiny", "--data", tmp_path / "a.txt", "--out", tmp_path / "run"]
    assert "cannot be used" in refused([*argv, "--tokenizer", tmp_path], capsys)


# Sizes that no memory holds -------------------------------------------------------------------------------------------


@table(
    ("flags", "said"),
    [
        (["--length", "100000000"], "length=100000000; it must be"),
        (["--length", "10000000", "--batch", "100000"], "training needs at least.*for batch"),
        (["--batch", "100000000"], "for batch: choose a smaller batch"),
        (["--batch", "10000000000000000000000000"], "for batch: choose a smaller batch"),
        (["--eval-rows", "1000000000000"], "choose a smaller eval_rows"),
        (["--samples", "1000000000000"], "choose a smaller samples"),
        (["--model.network.width", "1048576"], "for model: choose a smaller network"),
        (["--model.network.layers", "1000000000"], "--model.network.layers 1000000000: it must be"),
        (["--model.network.heads", "0"], "--model.network.heads 0: it must be"),
        (["--steps", "0"], "--steps 0: it must be"),
        (["--micro-batches", "1000"], "leaves a micro-batch empty"),
        (["--seed", "18446744073709551616"], "--seed 18446744073709551616: it must be"),
        (["--length", "nan"], "--length 'nan': it must be a whole number"),
        (["--optimizer.ema", "nan"], "ema nan: it must be a finite number"),
        (["--optimizer.clip", "0"], "--optimizer.clip 0.0: it must be above 0"),
        (["--optimizer.warmup", "-5"], "--optimizer.warmup -5: it must be"),
    ],
)
def test_sizes_are_checked_before_anything_is_built(
    flags: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("redraft.training.loop.free_memory", lambda _: 10**12)
    line = refused(["train", "mdlm_tiny", *flags, "--out", tmp_path / "run"], capsys)
    assert re.search(said, line)
    assert not (tmp_path / "run").exists()


def test_every_preset_says_what_it_needs() -> None:
    for name in ("mdlm_tiny", "mdlm_owt", "llada_8b"):
        if name in PRESETS:
            need = minimum_memory(preset(name))
            assert all(part > 0 for part in need.values())
    run = preset("mdlm_tiny")
    assert minimum_memory(replace(run, micro_batches=4))["batch"] * 4 == minimum_memory(run)["batch"]
    assert minimum_memory(replace(run, shard=True), 4)["model"] * 4 == minimum_memory(run)["model"]


@pytest.mark.parametrize(
    ("log", "said"),
    [
        ("", "4 steps|step 4 of 4"),
        ('{"step": 1, "train_loss_bits_per_token": 2.0}\n', "loss of 2.0000 bits per token, nan tokens/s"),
        (
            '{"step": 1, "valid_bits_per_char": 2.0, "valid_excess_bits_per_char": 1.0}\n' * 2,
            "2.0000 bits per character",
        ),
        ('{"step": 1, "train_loss_bits_per_token": NaN, "tokens_per_second": 1}\n' * 3, "loss of nan"),
    ],
)
def test_a_log_that_lacks_figures(log: str, said: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "metrics.jsonl").write_text(log)
    main(["show", str(run)])
    assert re.search(said, capsys.readouterr().out)
    (run / "metrics.jsonl").write_text("")
    train(run, "--quiet")  # finished: nothing is left to do but to say so
    assert "metrics.jsonl has no held-out metrics; `redraft eval` measures them" in capsys.readouterr().out


def test_a_figure_that_is_no_number(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (run / "metrics.jsonl").write_text('{"step": 1, "train_loss_bits_per_token": "x"}\n')
    assert "metrics.jsonl:1 is not a training record" in refused(["show", run], capsys)


@pytest.mark.parametrize("steps", [0, -1, 10**15])
def test_samplers_of_absurdly_many_steps(steps: int, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = latest_checkpoint(run)
    assert path is not None
    document = read_checkpoint(path).documents["config"]
    document["sampler"]["steps"] = steps
    rewrite(run, config=document)
    assert f"steps={steps}; a sampler" in refused(["eval", run], capsys)


def test_a_claim_that_describes_no_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(next(run.glob("step-*")))
    (run / "run.json").write_text('{"hash": "x", "run": {"class": "redraft.training.OptimizerConfig"}}')
    assert "describes a OptimizerConfig; it must describe a Run" in refused(["show", run], capsys)


def spoil(part: str, saved: Any) -> dict[str, Any]:
    """Other contents for a checkpoint from which no training can go on."""
    raw, moments = saved.tensors["raw"], saved.tensors["optimizer"]
    weight, moment = next(iter(raw)), next(iter(moments))
    return {
        "weights of another shape": {"raw": {weight: torch.zeros(3)}},
        "weights that are no numbers": {"raw": {weight: raw[weight] * math.nan}},
        "moments that are no numbers": {"optimizer": {moment: moments[moment] * math.nan}},
        "moments of another shape": {"optimizer": {moment: torch.zeros(3)}},
        "moments of nothing": {"optimizer": {"nothing": torch.zeros(3)}},
        "another step": {"state": {"step": 3, "nats": 0.0, "tokens": 0}},
        "an absurd step": {"state": {"step": 10**30, "nats": 0.0, "tokens": 0}},
    }[part]


@pytest.mark.parametrize(
    "part",
    [
        *("weights of another shape", "weights that are no numbers", "moments that are no numbers"),
        *("moments of another shape", "moments of nothing", "another step", "an absurd step"),
    ],
)
def test_a_checkpoint_from_which_no_training_goes_on(part: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = latest_checkpoint(run)
    assert path is not None
    rewrite(run, **spoil(part, read_checkpoint(path)))
    log = (run / "metrics.jsonl").read_bytes()
    assert "of step 4" in refused(["train", "mdlm_tiny", *SMALL, "--out", run, "--quiet"], capsys)
    assert (run / "metrics.jsonl").read_bytes() == log


def test_words_that_nobody_knows_are_told(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A short list of words makes all text alike: its figures are flattering. One word is refused, five are noted."""
    (tmp_path / "a.txt").write_text("\n\n".join(f"Xylophones {number} quarrel with zebras." for number in range(300)))
    few = ["train", "mdlm_tiny", *SMALL, "--out", tmp_path / "few", "--data", tmp_path / "a.txt"]
    assert "83% of the words of the text are not among the 1 words" in refused([*few, "--tokenizer", "words:1"], capsys)
    train(tmp_path / "run", "--data", tmp_path / "a.txt", "--tokenizer", "words:5", "--quiet")
    assert "17% of the words are not among the tokenizer's 5" in capsys.readouterr().err
    train(tmp_path / "more", "--data", tmp_path / "a.txt", "--tokenizer", "words:1000", "--quiet")
    assert "are not among" not in capsys.readouterr().err
    main(["eval", str(trained), "--data", str(tmp_path / "a.txt"), "--rows", "2", "--samples", "0"])
    assert "of the words are not among" in capsys.readouterr().err
