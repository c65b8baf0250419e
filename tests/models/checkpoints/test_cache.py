"""The cache of converted models: made once, verified at each opening, whole after any crash."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Lock

import pytest
import torch

from redraft.models import CheckpointError
from redraft.models.checkpoints import cache

FORKING = Lock()
WEIGHTS = {"w": torch.arange(6.0).view(2, 3), "n": torch.tensor(7)}


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "cache"))


def fill(folder: Path) -> None:
    with open(folder.parents[1] / "fillings", "a") as log:
        log.write("once\n")
    cache.write_tensors(folder / "model.safetensors", WEIGHTS)
    (folder / "config.json").write_text("{}")


def fillings(tmp_path: Path) -> int:
    return len((tmp_path / "fillings").read_text().splitlines())


def in_child(work: object) -> int:
    """The exit code of a child process that does the work. One thread forks at a time, as `filelock` demands."""
    with FORKING:
        child = os.fork()
    if child == 0:
        try:
            work()  # type: ignore[operator]
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_folder_is_made_once_and_per_key(tmp_path: Path) -> None:
    first, again, other = (cache.cached_folder("m", key, fill) for key in (["a", 1], ["a", 1], ["a", 2]))
    assert first == again != other
    assert fillings(tmp_path) == 2
    assert sorted(file.name for file in first.iterdir()) == ["config.json", "manifest.json", "model.safetensors"]


def test_openers_at_the_same_time_make_it_once(tmp_path: Path) -> None:
    with ThreadPoolExecutor(6) as threads:  # each waits for a process of its own
        codes = list(threads.map(lambda _: in_child(lambda: cache.cached_folder("m", 1, fill)), range(6)))
    assert codes == [0] * 6
    assert fillings(tmp_path) == 1


def test_a_process_killed_while_filling_leaves_nothing_that_opens(tmp_path: Path) -> None:
    def die(folder: Path) -> None:
        fill(folder)
        os.kill(os.getpid(), 9)

    assert in_child(lambda: cache.cached_folder("m", 1, die)) == -9
    assert [path.name[:5] for path in (tmp_path / "cache").iterdir() if path.is_dir()] == [".tmp-"]
    cache.cached_folder("m", 1, fill)
    assert [path.name[:2] for path in (tmp_path / "cache").iterdir() if path.is_dir()] == ["m-"]


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "manifest"])
def test_a_damaged_folder_is_made_anew(tmp_path: Path, damage: str) -> None:
    file = cache.cached_folder("m", 1, fill) / "model.safetensors"
    data = bytearray(file.read_bytes())
    if damage == "flip":
        data[-1] ^= 1
        file.write_bytes(data)
    elif damage == "cut":
        file.write_bytes(data[:-1])
    elif damage == "remove":
        file.unlink()
    else:
        file.with_name("manifest.json").write_text("[")
    again = cache.map_tensors(cache.cached_folder("m", 1, fill) / "model.safetensors")
    assert torch.equal(again["w"], WEIGHTS["w"])
    assert fillings(tmp_path) == 2


def test_writing_to_a_mapped_tensor_changes_neither_the_file_nor_other_readers() -> None:
    file = cache.cached_folder("m", 1, fill) / "model.safetensors"
    mine, theirs = cache.map_tensors(file), cache.map_tensors(file)
    mine["w"] += 1
    assert torch.equal(theirs["w"], WEIGHTS["w"])
    assert torch.equal(cache.map_tensors(cache.cached_folder("m", 1, fill) / "model.safetensors")["w"], WEIGHTS["w"])


def test_a_cache_that_cannot_be_written_says_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("REDRAFT_CACHE", str(tmp_path / "file" / "cache"))
    with pytest.raises(CheckpointError, match="set REDRAFT_CACHE to a directory"):
        cache.cached_folder("m", 1, fill)
