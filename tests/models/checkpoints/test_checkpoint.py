"""Checkpoints survive kills, full disks and damage; what is damaged or forged is refused."""

import errno
import hashlib
import json
import logging
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from redraft.apps.cli.user_code import load_module
from redraft.models import CheckpointError
from redraft.models.checkpoints import reader, writer as checkpoint

CHILD = Path(__file__).with_name("crash_save.py")
contents = load_module(CHILD).contents
torch.set_num_threads(1)


def save(parent: Path, step: int, life: int = 0, keep: int = 2) -> Path:
    tensors, documents = contents(step, life)
    return checkpoint.save_checkpoint(parent, step, tensors, documents, keep)


def assert_right(path: Path | None, step: int, life: int | None = None) -> None:
    """The checkpoint holds exactly what `contents` says of that step and of the life that wrote it."""
    assert path is not None
    held = reader.read_checkpoint(path)
    state = held.documents["state"]
    tensors, documents = contents(**state)
    assert held.step == state["step"] == step
    assert life is None or state["life"] == life
    assert held.documents == documents
    assert_same(held.tensors, tensors)


def assert_same(a: dict[str, dict[str, Tensor]], b: dict[str, dict[str, Tensor]]) -> None:
    assert a.keys() == b.keys()
    for stem in a:
        assert a[stem].keys() == b[stem].keys()
        for name in a[stem]:
            assert a[stem][name].dtype == b[stem][name].dtype
            assert torch.equal(a[stem][name], b[stem][name])


def names(parent: Path) -> list[str]:
    return sorted(path.name for path in parent.iterdir())


# Saving and reading


def test_round_trip_of_unusual_tensors(tmp_path: Path) -> None:
    base = torch.arange(24.0).reshape(4, 6)
    tensors = {
        "half": torch.randn(3, 5).bfloat16(),
        "count": torch.tensor(2**62),
        "flag": torch.tensor([True, False]),
        "scalar": torch.tensor(-0.0),
        "empty": torch.zeros(0, 7),
        "turned": base.T,
        "tied": base,
        "tied_too": base,
        "overlap": base[1:3],
        "strided": base[:, ::2],
        "expanded": torch.ones(1).expand(5),
        "parameter": torch.nn.Parameter(torch.randn(2)),
        "special": torch.tensor([torch.inf, -torch.inf, torch.nan]),
        "class": torch.tensor(1, dtype=torch.uint8),
    }
    path = checkpoint.save_checkpoint(tmp_path, 3, {"model": tensors, "none": {}}, {})
    held = reader.read_checkpoint(path, device=torch.device("cpu"))
    assert held.step == 3
    assert held.documents == {}
    assert held.tensors["none"] == {}
    loaded = held.tensors["model"]
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name].nan_to_num(7.0), tensor.detach().nan_to_num(7.0)), name
    assert torch.signbit(loaded["scalar"])


def test_documents_come_back_equal(tmp_path: Path) -> None:
    documents = {"a": {"x": [1, 2.5, None, True, "é"], "pi": 0.1 + 0.2}, "b": [], "c.d": "text"}
    held = reader.read_checkpoint(checkpoint.save_checkpoint(tmp_path, 0, {}, documents))
    assert held.documents == documents


@pytest.mark.parametrize(
    "document", [{"x": (1, 2)}, {1: 2}, float("nan"), [float("inf")], {"x": torch.zeros(1)}, {1, 2}]
)
def test_documents_that_json_would_change_are_refused(tmp_path: Path, document: object) -> None:
    with pytest.raises(ValueError, match="document 'state'"):
        checkpoint.save_checkpoint(tmp_path, 0, {}, {"state": document})
    assert names(tmp_path) == []


@pytest.mark.parametrize("stem", ["../up", "/abs", "", "a/b", ".hidden", "nul\0", "manifest"])
def test_names_that_cannot_be_files_are_refused(tmp_path: Path, stem: str) -> None:
    with pytest.raises(ValueError, match="cannot be a file"):
        checkpoint.save_checkpoint(tmp_path, 0, {}, {stem: 1})
    assert names(tmp_path) == []


@pytest.mark.parametrize(("step", "keep"), [(-1, 2), (0, 0)])
def test_senseless_numbers_are_refused(tmp_path: Path, step: int, keep: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        save(tmp_path, step, keep=keep)


def test_nothing_saved_is_none(tmp_path: Path) -> None:
    assert reader.latest_checkpoint(tmp_path) is None
    assert reader.latest_checkpoint(tmp_path / "nowhere") is None


def test_files_obey_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        path = save(tmp_path, 1)
    finally:
        os.umask(before)
    assert {oct(file.stat().st_mode & 0o777) for file in path.iterdir()} == {"0o640"}
    assert oct(path.stat().st_mode & 0o777) == "0o750"


def test_extra_files_are_ignored(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "notes.txt").write_text("mine")
    (path / "weights.pt").write_bytes(b"\x80\x04.")
    assert_right(path, 1)


# Which ones stay


@pytest.mark.parametrize(("keep", "left"), [(1, [5]), (2, [4, 5]), (3, [3, 4, 5]), (9, [1, 2, 3, 4, 5])])
def test_keep(tmp_path: Path, keep: int, left: list[int]) -> None:
    for step in range(1, 6):
        save(tmp_path, step, keep=keep)
    assert names(tmp_path) == [f"step-{step:08d}" for step in left]
    assert_right(reader.latest_checkpoint(tmp_path), 5)


def test_only_verified_ones_count_as_kept(tmp_path: Path) -> None:
    save(tmp_path, 1)
    flip(save(tmp_path, 2) / "model.safetensors", 100)
    save(tmp_path, 3)
    assert names(tmp_path) == ["step-00000001", "step-00000002", "step-00000003"]
    save(tmp_path, 4)
    assert names(tmp_path) == ["step-00000003", "step-00000004"]


def test_later_steps_are_not_touched(tmp_path: Path) -> None:
    for step in (10, 20, 5):
        save(tmp_path, step, keep=1)
    assert names(tmp_path) == ["step-00000005", "step-00000020"]


def test_nothing_is_pruned_when_the_new_one_does_not_verify(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)
    save(tmp_path, 2)
    rename = Path.rename

    def damage(self: Path, target: Path) -> Path:
        flip(self / "model.safetensors", 200)
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", damage)
    with pytest.raises(CheckpointError, match="SHA-256"):
        save(tmp_path, 3, keep=1)
    monkeypatch.undo()
    assert names(tmp_path) == ["step-00000001", "step-00000002", "step-00000003"]
    assert_right(reader.latest_checkpoint(tmp_path), 2)


def test_saving_a_step_again_replaces_it(tmp_path: Path) -> None:
    for life in range(3):
        assert_right(save(tmp_path, 7, life, keep=1), 7, life)
    assert names(tmp_path) == ["step-00000007"]


def test_a_damaged_one_is_replaced(tmp_path: Path) -> None:
    (save(tmp_path, 7) / "manifest.json").unlink()
    assert_right(save(tmp_path, 7, life=1), 7, 1)
    assert names(tmp_path) == ["step-00000007"]


def test_drafts_of_dead_writers_are_swept_and_of_living_ones_left(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    for process in (ended.pid, os.getpid(), os.getppid()):
        draft = tmp_path / f".tmp-redraft-{process}-ab"
        draft.mkdir()
        (draft / "model.safetensors").write_bytes(b"half")
    (tmp_path / ".tmp-of-somebody-else").mkdir()
    save(tmp_path, 1)
    assert names(tmp_path) == [".tmp-of-somebody-else", f".tmp-redraft-{os.getppid()}-ab", "step-00000001"]


def test_every_file_is_synced_before_the_name_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    fsync, rename = os.fsync, Path.rename

    def watched_fsync(descriptor: int) -> None:
        log.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        fsync(descriptor)

    def watched_rename(self: Path, target: Path) -> Path:
        log.append(f"rename to {target.name}")
        return rename(self, target)

    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc to name a file descriptor")
    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(Path, "rename", watched_rename)
    save(tmp_path, 1)
    assert log[3] == "manifest.json"
    assert log[4].startswith(".tmp-redraft-")
    assert log[:3] + log[5:] == [
        *("model.safetensors", "optimizer.safetensors", "state.json"),
        *("rename to step-00000001", tmp_path.name),
    ]


# Kills


@pytest.fixture(scope="module")
def live() -> Iterator[Callable[..., int]]:
    """A function that lets a child live as told, and gives the last step it announced."""
    environment = os.environ | {"PYTHONPATH": str(CHILD.parents[2]), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen([sys.executable, CHILD], stdin=-1, stdout=-1, text=True, env=environment) as server:
        orders, answers = server.stdin, server.stdout
        assert orders is not None
        assert answers is not None

        def live(*command: object) -> int:
            print(*command, file=orders, flush=True)
            return int(answers.readline())

        yield live
        orders.close()


def test_kill_during_save(tmp_path: Path, live: Callable[..., int]) -> None:
    draws = random.Random(0)
    announced, interrupted, total = -1, 0, 0
    for _ in range(20):
        number = draws.randrange(3)
        announced = max(announced, live("after", number, draws.uniform(0, 0.05), tmp_path))
        total += number
        interrupted += any(name.startswith(".tmp-") for name in names(tmp_path))
        newest = reader.latest_checkpoint(tmp_path)
        if newest is None:
            assert announced == -1
        else:
            step = reader.read_checkpoint(newest).step
            assert announced <= step <= announced + 1
            assert_right(newest, step)
            announced = step  # killed between the name and the word: saved, and never announced
    assert announced >= total - 1
    assert interrupted >= 3  # or the kills came at the wrong moments and showed nothing
    save(tmp_path, announced + 2)
    assert not any(name.startswith(".tmp-") for name in names(tmp_path))


@pytest.mark.parametrize("step", [6, 5])
def test_kill_at_every_file_operation(tmp_path: Path, live: Callable[..., int], step: int) -> None:
    """A new step, and one that replaces itself, with nothing older to fall back on: a copy is always there."""
    life, announced = 0, -1
    save(tmp_path, 5)
    while announced == -1 and life < 100:
        life += 1
        if step == 6:
            shutil.rmtree(tmp_path / "step-00000006", ignore_errors=True)
            save(tmp_path, 5)
        announced = live("at", life, step, life, tmp_path)
        newest = reader.latest_checkpoint(tmp_path)
        assert newest is not None
        held = reader.read_checkpoint(newest)
        assert held.step in (5, step)
        assert_right(newest, held.step)
        for path in tmp_path.glob("step-*"):  # nothing half-written or half-removed has the name of a checkpoint
            reader._verify(path)
    assert life > 20  # that many moments were tried
    assert held.documents["state"]["life"] == life
    assert names(tmp_path) == [f"step-{step:08d}"]


# A full disk, a read-only disk


class Half:
    """A file on which only half of what is written fits."""

    def __init__(self, path: Path, mode: str) -> None:
        self.file = open(path, mode)  # noqa: SIM115

    def __enter__(self) -> "Half":
        return self

    def __exit__(self, *_: object) -> None:
        self.file.close()

    def write(self, data: bytes) -> None:
        self.file.write(data[: len(data) // 2])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_part_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 1)
    for broken in ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"):

        def half(path: Path, mode: str, broken: str = broken) -> Any:
            return Half(path, mode) if path.name == broken and "x" in mode else open(path, mode)

        monkeypatch.setattr(checkpoint, "open", half, raising=False)
        with pytest.raises(CheckpointError, match="No space left on device; free some space"):
            save(tmp_path, 2)
        assert names(tmp_path) == ["step-00000001"]
    monkeypatch.undo()
    assert_right(reader.latest_checkpoint(tmp_path), 1)


@pytest.mark.parametrize("call", range(1, 7))
def test_full_disk_at_any_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int) -> None:
    """Delayed allocation reports a full disk only here. The sixth call syncs the parent: the name is given by then."""
    save(tmp_path, 1)
    calls = iter(range(1, 100))

    def full(descriptor: int) -> None:
        if next(calls) == call:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CheckpointError, match="free some space"):
        save(tmp_path, 2)
    assert names(tmp_path) == ["step-00000001", "step-00000002"][: 1 + (call == 6)]
    assert_right(tmp_path / "step-00000001", 1)


@pytest.mark.parametrize(("number", "advice"), [(errno.EROFS, "can be written"), (errno.EACCES, "can be written")])
def test_read_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, advice: str) -> None:
    save(tmp_path, 1)

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(CheckpointError, match=advice):
        save(tmp_path, 2)
    monkeypatch.undo()
    assert names(tmp_path) == ["step-00000001"]


def test_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for parent in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(CheckpointError, match="a part of this path is a file"):
            save(parent, 1)
    assert (tmp_path / "file").read_text() == "mine"


@contextmanager
def tiny_disk(path: Path) -> Iterator[Path]:
    """A real file system of 256 kB; only an administrator may mount one."""
    path.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", path], capture_output=True).returncode:
        pytest.skip("mounting a small tmpfs is not permitted here")
    try:
        yield path
    finally:
        subprocess.run(["umount", path], check=True)


@pytest.mark.skipif(shutil.which("mount") is None, reason="there is no mount command")
def test_real_full_and_read_only_disk(tmp_path: Path) -> None:
    with tiny_disk(tmp_path / "disk") as disk:
        save(disk, 1)
        with pytest.raises(CheckpointError, match="No space left on device; free some space"):
            checkpoint.save_checkpoint(disk, 2, *contents(2, size=60_000))
        assert names(disk) == ["step-00000001"]
        assert_right(reader.latest_checkpoint(disk), 1)
        assert_right(save(disk, 3), 3)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(CheckpointError, match="Read-only file system; choose a directory"):
            save(disk, 4)
        assert_right(reader.latest_checkpoint(disk), 3)


# Damage and forgery


def flip(file: Path, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    file.write_bytes(data)


def forge(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Edit a manifest as somebody would who knows how it is sealed."""
    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    del manifest["digest"]
    seal = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (path / "manifest.json").write_text(json.dumps(manifest | {"digest": seal}))


def admit(path: Path, name: str) -> None:
    """Make the manifest say the truth about the bytes of a changed file."""
    data = (path / name).read_bytes()
    truth = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    forge(path, lambda manifest: manifest["files"][name].update(truth))


def rewrite(path: Path, **tensors: Tensor) -> None:
    """Other tensors in a valid file, and a manifest that knows all but their shapes."""
    save_file(reader.read_checkpoint(path).tensors["model"] | tensors, path / "model.safetensors")
    admit(path, "model.safetensors")


def huge_header(path: Path) -> None:
    file = path / "model.safetensors"
    file.write_bytes((2**60).to_bytes(8, "little") + file.read_bytes()[8:])
    admit(path, "model.safetensors")


def edit(path: Path, old: str, new: str) -> None:
    file = path / "manifest.json"
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


def empty(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()


def directory(path: Path) -> None:
    (path / "state.json").unlink()
    (path / "state.json").mkdir()


def link_out(path: Path) -> None:
    outside = path.parent / "outside.json"
    (path / "state.json").rename(outside)
    (path / "state.json").symlink_to(outside)


DAMAGE: dict[str, tuple[Callable[[Path, Path], object], str]] = {
    "truncated tensors": (lambda new, old: os.truncate(new / "model.safetensors", 900), "has 900 bytes"),
    "truncated document": (lambda new, old: os.truncate(new / "state.json", 5), "has 5 bytes"),
    "truncated manifest": (lambda new, old: os.truncate(new / "manifest.json", 50), "cannot be read"),
    "empty tensors": (lambda new, old: os.truncate(new / "optimizer.safetensors", 0), "has 0 bytes"),
    "empty document": (lambda new, old: os.truncate(new / "state.json", 0), "has 0 bytes"),
    "empty manifest": (lambda new, old: os.truncate(new / "manifest.json", 0), "cannot be read"),
    "longer tensors": (lambda new, old: os.truncate(new / "model.safetensors", 9000), "has 9000 bytes"),
    "missing tensors": (lambda new, old: (new / "model.safetensors").unlink(), "model.safetensors is missing"),
    "missing document": (lambda new, old: (new / "state.json").unlink(), "state.json is missing"),
    "missing manifest": (lambda new, old: (new / "manifest.json").unlink(), "manifest.json is missing"),
    "empty directory": (lambda new, old: empty(new), "manifest.json is missing"),
    "bit in the header": (lambda new, old: flip(new / "model.safetensors", 150), "SHA-256"),
    "bit in a tensor": (lambda new, old: flip(new / "model.safetensors", 8000), "SHA-256"),
    "bit in a document": (lambda new, old: flip(new / "state.json", 20), "SHA-256"),
    "other shape": (lambda new, old: rewrite(new, w=torch.zeros(5, 100)), "not those that the manifest lists"),
    "other dtype": (lambda new, old: rewrite(new, w=torch.zeros(500).int()), "not those that the manifest lists"),
    "one tensor more": (lambda new, old: rewrite(new, extra=torch.zeros(1)), "not those that the manifest lists"),
    "valid file of another shape": (
        lambda new, old: save_file({"w": torch.zeros(5, 100)}, new / "model.safetensors"),
        "model.safetensors has",
    ),
    "tensors of another step": (
        lambda new, old: shutil.copy(old / "model.safetensors", new / "model.safetensors"),
        "SHA-256",
    ),
    "document of another step": (lambda new, old: shutil.copy(old / "state.json", new / "state.json"), "SHA-256"),
    "manifest of another step": (
        lambda new, old: shutil.copy(old / "manifest.json", new / "manifest.json"),
        "holds step 1",
    ),
    "another step under this name": (
        lambda new, old: shutil.copytree(old, new, dirs_exist_ok=True),
        "holds step 1; it is damaged or renamed",
    ),
    "edited step": (lambda new, old: edit(new, '"step": 2', '"step": 3'), "damaged or edited"),
    "edited size": (lambda new, old: edit(new, '"size": ', '"size": 1'), "damaged or edited"),
    "entry renamed": (lambda new, old: edit(new, "state.json", "other.json"), "damaged or edited"),
    "manifest without digest": (lambda new, old: edit(new, '"digest"', '"digits"'), "not a manifest"),
    "manifest of a newer format": (lambda new, old: edit(new, '"format": 1', '"format": 2'), "upgrade redraft"),
    "manifest is a list": (lambda new, old: (new / "manifest.json").write_text("[]"), "not a manifest"),
    "manifest too deep": (lambda new, old: (new / "manifest.json").write_text("[" * 100_000), "cannot be read"),
    "manifest not text": (lambda new, old: (new / "manifest.json").write_bytes(b"\xff\xfe\x00"), "cannot be read"),
    "huge header": (lambda new, old: huge_header(new), "header too large"),
    "directory in place of a file": (lambda new, old: directory(new), "state.json is missing or not a regular file"),
    "link that leaves": (lambda new, old: link_out(new), "link that leaves the directory"),
    "path upwards": (
        lambda new, old: forge(new, lambda m: m["files"].update({"../outside.json": m["files"].pop("state.json")})),
        "an invalid name or entry for a file, '../outside.json'",
    ),
    "absolute path": (
        lambda new, old: forge(new, lambda m: m["files"].update({"/etc/x.json": m["files"].pop("state.json")})),
        "an invalid name or entry for a file, '/etc/x.json'",
    ),
    "pickle": (
        lambda new, old: forge(new, lambda m: m["files"].update({"model.pt": m["files"].pop("model.safetensors")})),
        "an invalid name or entry for a file, 'model.pt'",
    ),
    "entry of another shape": (
        lambda new, old: forge(new, lambda m: m["files"].update({"a.json": 5})),
        "an invalid name or entry for a file, 'a.json'",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_and_the_older_one_used(tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str) -> None:
    old, new = save(tmp_path, 1), save(tmp_path, 2)
    damage, message = DAMAGE[kind]
    damage(new, old)
    with pytest.raises(CheckpointError, match=message):
        reader._verify(new)
    with pytest.raises(CheckpointError):
        reader.read_checkpoint(new)
    with caplog.at_level(logging.WARNING):
        assert reader.latest_checkpoint(tmp_path) == old
    assert "step-00000002" in caplog.text
    assert_right(old, 1)


def test_every_flipped_bit_is_found(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    draws = random.Random(0)
    for file in sorted(path.iterdir()):
        whole = file.read_bytes()
        for _ in range(40):
            flip(file, draws.randrange(8 * len(whole)))
            with pytest.raises(CheckpointError):
                reader._verify(path)
            file.write_bytes(whole)
    assert_right(path, 1)


def test_all_damaged_is_an_error_not_a_fresh_start(tmp_path: Path) -> None:
    for step in (1, 2):
        (save(tmp_path, step) / "state.json").unlink()
    with pytest.raises(CheckpointError, match="none of the 2 checkpoints"):
        reader.latest_checkpoint(tmp_path)


def test_a_link_within_the_directory_is_allowed(tmp_path: Path) -> None:
    path = save(tmp_path, 1)
    (path / "state.json").rename(path / "blob")
    (path / "state.json").symlink_to("blob")
    assert_right(path, 1)


# Model directories


MODEL = {"w": torch.arange(6.0).reshape(2, 3), "b": torch.ones(2).bfloat16()}


@pytest.mark.parametrize("tokenizer", [None, {"model": {"vocab": {"a": 0}}}])
def test_export_and_import(tmp_path: Path, tokenizer: dict[str, Any] | None) -> None:
    path = checkpoint.write_export(tmp_path / "out" / "model", MODEL, {"class": "x"}, tokenizer, "# A model\n")
    optional = ["tokenizer.json"] if tokenizer else []
    assert names(path) == ["README.md", "config.json", "manifest.json", "model.safetensors", *optional]
    assert names(path.parent) == ["model"]
    assert (path / "README.md").read_text() == "# A model\n"
    held = reader.read_export(path)
    assert (held.config, held.tokenizer) == ({"class": "x"}, tokenizer)
    assert_same({"": held.tensors}, {"": MODEL})
    with pytest.raises(CheckpointError, match="read_export"):
        reader.read_checkpoint(path)


def test_export_replaces_nothing(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(CheckpointError, match="exists already"):
        checkpoint.write_export(tmp_path, MODEL, {}, None, "")
    assert names(tmp_path) == ["mine.txt"]


def test_import_verifies_if_there_is_a_manifest(tmp_path: Path) -> None:
    path = checkpoint.write_export(tmp_path / "model", MODEL, {}, None, "card")
    (path / "tokenizer.json").write_text("{}")  # not listed: not read
    assert reader.read_export(path).tokenizer is None
    flip(path / "model.safetensors", 8 * (path / "model.safetensors").stat().st_size - 1)
    with pytest.raises(CheckpointError, match="SHA-256"):
        reader.read_export(path)
    (path / "manifest.json").unlink()
    assert reader.read_export(path).tokenizer == {}


@pytest.mark.parametrize("spoil", ["pickle", "header", "link", "nothing"])
def test_foreign_directories_are_read_with_care(tmp_path: Path, spoil: str) -> None:
    path = tmp_path / "foreign"
    path.mkdir()
    (path / "config.json").write_text("{}")
    (path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    if spoil == "header":
        (path / "model.safetensors").write_bytes(b"\xff" * 16)
    if spoil == "link":
        save_file(MODEL, tmp_path / "outside.safetensors")
        (path / "model.safetensors").symlink_to(tmp_path / "outside.safetensors")
    if spoil == "nothing":
        save_file(MODEL, path / "model.safetensors")
        assert_same({"": reader.read_export(path).tensors}, {"": MODEL})
        return
    message = {"pickle": "lacks model.safetensors; pickled", "header": "too large", "link": "link that leaves"}[spoil]
    with pytest.raises(CheckpointError, match=message):
        reader.read_export(path)
