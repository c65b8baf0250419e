"""Two workers compute what one does, take over from one another, and survive the death of one of them."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import train_child as child

from redraft.apps.cli.user_code import load_module
from redraft.core import best_device
from redraft.models import CheckpointError
from redraft.models.checkpoints import reader, writer
from redraft.training import (
    load,
)
from redraft.training.distributed import (
    _deterministic_kernels,
    _gather_rows,
    _join_workers,
    _local_rows,
    _shard_like,
    _stop_signals,
    _Workers,
)
from redraft.training.runs.loading import (
    load_newest,
)

training = load_module(Path(__file__).with_name("test_train.py"))
DDP: dict[str, Any] = {"steps": 12}
FSDP: dict[str, Any] = {"steps": 12, "shard": True}
PARTS: dict[str, Any] = {"muon": 0.02, "micro_batches": 2, "time": 8, "recompute": True}
RUNS = {"ddp": DDP, "ddp-muon": DDP | PARTS, "fsdp": FSDP, "fsdp-muon": FSDP | PARTS}
AUTO: dict[str, Any] = {"steps": 2, "precision": "auto"}
HANDS = {name: RUNS[name] for name in ("ddp", "fsdp-muon")}  # runs that change hands in the middle
TOLERANCE = 1e-5  # of the largest entry of a tensor; measured after 20 steps: AdamW 5e-7, Muon 3e-6


def job(out: Path, run: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"out": str(out), "run": run, **more}


def test_one_worker_and_two(tmp_path: Path) -> None:
    """One launch for all, since it costs ten seconds: runs of one worker, of two, and such that change hands."""
    for name, run in RUNS.items():
        assert child.live(job(tmp_path / f"{name}-1", run)) == 0
    for name, run in HANDS.items():
        assert child.live(job(tmp_path / f"{name}-up", run, term=7)) == 143
    two = [job(tmp_path / f"{name}-2", run) for name, run in RUNS.items()]
    two += [job(tmp_path / f"{name}-up", run) for name, run in HANDS.items()]
    two += [job(tmp_path / f"{name}-down", run, term=7, rank=1) for name, run in HANDS.items()]
    two += [job(tmp_path / "fsdp-again", FSDP, term=7), job(tmp_path / "fsdp-again", FSDP)]
    two += [job(tmp_path / "auto", AUTO)]
    child.torchrun(tmp_path, two)
    for name, run in HANDS.items():
        assert load_newest(tmp_path / f"{name}-down").step == 7
        assert child.live(job(tmp_path / f"{name}-down", run)) == 0

    for name in RUNS:
        assert_two_compute_what_one_does(tmp_path / f"{name}-1", tmp_path / f"{name}-2")
    for name in HANDS:
        assert_changed_hands(tmp_path / f"{name}-1", tmp_path / f"{name}-up", [1] * 7 + [2] * 5)
        assert_changed_hands(tmp_path / f"{name}-1", tmp_path / f"{name}-down", [2] * 7 + [1] * 5)
    training.assert_same_bits(tmp_path / "fsdp-again", tmp_path / "fsdp-2")
    assert_each_worker_wrote_its_rows(tmp_path / "fsdp-1", tmp_path / "fsdp-2")
    assert json.loads((tmp_path / "auto" / "run.json").read_text())["precision"]["name"] in ("fp32", "bf16")


def assert_two_compute_what_one_does(one: Path, two: Path) -> None:
    training.assert_close(one, two, TOLERANCE)
    for a, b in zip(child.metrics(one), child.metrics(two), strict=True):
        assert a.keys() == b.keys()
        for key in a.keys() - {"samples", "precision"}:
            assert b[key] == pytest.approx(a[key], rel=1e-4), key


def assert_changed_hands(one: Path, changed: Path, workers: list[int]) -> None:
    """The same samples and the same end, whoever did the steps."""
    training.assert_close(one, changed, TOLERANCE)
    training.assert_every_sample_once(changed, 12)
    assert [len(ranks) for _, ranks in sorted(child.taken(changed).items())] == workers


def assert_each_worker_wrote_its_rows(one: Path, two: Path) -> None:
    end = reader.latest_checkpoint(two)
    assert end is not None
    files = [f"{stem}-{n}of2.safetensors" for stem in ("model", "optimizer", "raw") for n in (1, 2)]
    assert sorted(path.name for path in end.iterdir()) == sorted([*files, "config.json", "manifest.json", "state.json"])
    sizes = [(end / f"optimizer-{n}of2.safetensors").stat().st_size for n in (1, 2)]
    assert max(sizes) < 0.6 * sum(sizes)
    shapes = [{n: p.shape for n, p in load(out).named_parameters()} for out in (one, two)]
    assert shapes[0] == shapes[1]


def test_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    """torchrun starts both anew; they go on from the last checkpoint to the very end of the unbroken run."""
    whole, out = tmp_path / "whole", tmp_path / "killed"
    child.torchrun(tmp_path, [job(whole, DDP), job(out, DDP, kill=6, rank=1)], restarts=1)
    assert out.with_suffix(".ledger").read_text().count('"step": 5,') == 4  # both workers, in both lives
    training.assert_every_sample_once(out, 12)
    training.assert_same_bits(out, whole)


# --- in one process ---


class Pair:
    """One of two threads that save together."""

    world, barrier = 2, threading.Barrier(2, timeout=10)
    told: int

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def agree(self, number: int) -> int:
        if self.rank == 0:
            Pair.with_source = number
        self.wait()
        told = Pair.with_source
        self.wait()
        return told

    def wait(self) -> None:
        self.barrier.wait()


def save_together(parent: Path, step: int, keep: int = 2) -> None:
    """Matrices of five and of one row, of which the second worker has two and none, and a scalar."""
    rows, single, count = torch.arange(10.0).view(5, 2) + step, torch.ones(1, 3), torch.tensor(7)
    parts = [{"w": rows[:3], "u": single, "n": count}, {"w": rows[3:], "u": single[:0], "n": count}]

    def work(rank: int) -> None:
        document = {"state": {"step": step, "rank": rank}}
        writer.save_checkpoint(parent, step, {"model": parts[rank]}, document, keep, Pair(rank))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_parts_are_joined_again(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_together(tmp_path, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]
    found = load_newest(tmp_path)
    assert (found.step, found.documents) == (3, {"state": {"step": 3, "rank": 0}})
    model = found.tensors["model"]
    assert set(model) == {"w", "u", "n"}
    assert len(model) == 3
    assert torch.equal(model["w"], torch.arange(10.0).view(5, 2) + 3)
    assert torch.equal(model["u"], torch.ones(1, 3))
    assert torch.equal(model["n"], torch.tensor(7))


@pytest.mark.parametrize("part", [1, 2])
def test_a_damaged_part_damages_the_whole(tmp_path: Path, part: int) -> None:
    save_together(tmp_path, 1)
    save_together(tmp_path, 2)
    (tmp_path / "step-00000002" / f"model-{part}of2.safetensors").unlink()
    with pytest.raises(CheckpointError, match="is missing"):
        reader.read_checkpoint(tmp_path / "step-00000002")
    assert load_newest(tmp_path).step == 1


def test_one_worker_is_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with _join_workers() as team:
        assert team == _Workers(0, 1, best_device())
        assert team.first
        assert torch.equal(team.sum(torch.tensor([2, 3])), torch.tensor([2, 3]))
        assert (team.any(True), team.any(False), team.agree(5)) == (True, False, 5)
        team.wait()
    tensor = torch.arange(3)
    assert _local_rows(tensor) is _gather_rows(tensor) is _shard_like(tensor, tensor) is tensor


def test_kernels_that_add_in_any_order_are_avoided() -> None:
    """The gradient of an index, as the time embedding has it, depends on which of two threads comes first."""
    which = torch.randint(0, 40, (64, 104), generator=torch.Generator().manual_seed(0))
    weight = torch.randn(64, 104, 256, generator=torch.Generator().manual_seed(1))
    memory: Any = torch.utils.deterministic

    def gradient() -> torch.Tensor:
        embedded = torch.zeros(40, 256, requires_grad=True)
        (embedded[which] * weight).sum().backward()
        assert embedded.grad is not None
        return embedded.grad

    torch.set_num_threads(2)
    try:
        with _deterministic_kernels():
            first = gradient()
            assert all(torch.equal(gradient(), first) for _ in range(5))
            assert not memory.fill_uninitialized_memory
    finally:
        torch.set_num_threads(1)
    assert torch.get_deterministic_debug_mode() == 0
    assert memory.fill_uninitialized_memory


def test_signals_are_noted_in_the_main_thread_only() -> None:
    usual = signal.getsignal(signal.SIGTERM)
    with _stop_signals() as asked:
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is usual  # a second one acts at once
    seen: list[list[int]] = []

    def elsewhere() -> None:
        with _stop_signals() as asked:
            seen.append(asked)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [[]]
