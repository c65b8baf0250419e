"""Two workers compute what one does, take over from one another, and survive the death of one of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from redraft import checkpoint
from redraft.checkpoint import CheckpointError
from redraft.config import load_module
from redraft.distributed import Workers, asked_to_stop, best_device, local, same_bits, spread, whole, workers
from redraft.run import load, newest

CHILD = Path(__file__).with_name("train_child.py")
child = load_module(CHILD)
tests_of_training = load_module(Path(__file__).with_name("test_train.py"))
assert_close, assert_ledger, assert_same_bits, metrics = (
    getattr(tests_of_training, name) for name in ("assert_close", "assert_ledger", "assert_same_bits", "metrics")
)
DDP: dict[str, Any] = {"steps": 12}
FSDP: dict[str, Any] = {"steps": 12, "shard": True}
PARTS: dict[str, Any] = {"muon": 0.02, "micro": 2, "time": 8, "recompute": True}
RUNS = {"ddp": DDP, "ddp-muon": DDP | PARTS, "fsdp": FSDP, "fsdp-muon": FSDP | PARTS}
HANDS = {name: RUNS[name] for name in ("ddp", "fsdp-muon")}  # runs that change hands in the middle
TOLERANCE = 1e-5  # of the largest entry of a tensor; measured after 20 steps: AdamW 5e-7, Muon 3e-6


def torchrun(folder: Path, jobs: list[dict[str, Any]], restarts: int = 0) -> None:
    """All jobs in one launch of two workers."""
    file = folder / f"jobs-{len(jobs)}.json"
    file.write_text(json.dumps(jobs))
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    arguments = [f"--max-restarts={restarts}", str(CHILD), str(file)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    found = subprocess.run(command + arguments, env=environment, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr[-4000:]


def job(out: Path, run: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"out": str(out), "run": run, **more}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of one worker, runs of two, and such that change hands in both directions."""
    folder = tmp_path_factory.mktemp("workers")
    for name, run in RUNS.items():
        assert child.live(job(folder / f"{name}-1", run)) == 0
    for name, run in HANDS.items():
        assert child.live(job(folder / f"{name}-up", run, term=7)) == 143
    two = [job(folder / f"{name}-2", run) for name, run in RUNS.items()]
    two += [job(folder / f"{name}-up", run) for name, run in HANDS.items()]
    two += [job(folder / f"{name}-down", run, term=7, rank=1) for name, run in HANDS.items()]
    two += [job(folder / "fsdp-again", FSDP, term=7), job(folder / "fsdp-again", FSDP)]
    torchrun(folder, two)
    for name, run in HANDS.items():
        assert newest(folder / f"{name}-down").step == 7
        assert child.live(job(folder / f"{name}-down", run)) == 0
    return folder


@pytest.mark.parametrize("name", RUNS)
def test_two_workers_compute_what_one_does(folder: Path, name: str) -> None:
    assert_close(folder / f"{name}-1", folder / f"{name}-2", TOLERANCE)
    for one, two in zip(metrics(folder / f"{name}-1"), metrics(folder / f"{name}-2"), strict=True):
        assert one.keys() == two.keys()
        for key in one.keys() - {"samples"}:
            assert two[key] == pytest.approx(one[key], rel=1e-4), key


@pytest.mark.parametrize("name", HANDS)
@pytest.mark.parametrize("way", ["up", "down"])
def test_a_run_changes_hands(folder: Path, name: str, way: str) -> None:
    """From one worker to two, and from two to one, in the middle: the same samples, the same end."""
    assert_close(folder / f"{name}-1", folder / f"{name}-{way}", TOLERANCE)
    assert_ledger(folder / f"{name}-{way}", 12)
    ranks = {json.loads(line)["rank"] for line in child.ledger(folder / f"{name}-{way}").read_text().splitlines()}
    assert ranks == {0, 1}


def test_a_sharded_run_resumes_bit_for_bit(folder: Path) -> None:
    assert_same_bits(folder / "fsdp-again", folder / "fsdp-2")


def test_each_worker_writes_what_it_holds(folder: Path) -> None:
    end = checkpoint.latest(folder / "fsdp-2")
    assert end is not None
    files = [f"{stem}-{n}of2.safetensors" for stem in ("model", "optimiser", "raw") for n in (1, 2)]
    assert sorted(path.name for path in end.iterdir()) == sorted([*files, "config.json", "manifest.json", "state.json"])
    sizes = [(end / f"optimiser-{n}of2.safetensors").stat().st_size for n in (1, 2)]
    assert max(sizes) < 0.6 * sum(sizes)
    one, two = load(folder / "fsdp-1"), load(folder / "fsdp-2")
    assert {n: p.shape for n, p in one.named_parameters()} == {n: p.shape for n, p in two.named_parameters()}


def test_a_killed_worker_is_replaced(folder: Path) -> None:
    """torchrun starts both anew; they go on from the last checkpoint to the very end of the unbroken run."""
    out = folder / "killed"
    torchrun(folder, [job(out, DDP, kill=6, rank=1)], restarts=1)
    steps = [json.loads(line)["step"] for line in child.ledger(out).read_text().splitlines()]
    assert steps.count(5) == 4  # both workers, in both lives
    assert_ledger(out, 12)
    assert_same_bits(out, folder / "ddp-2")


# --- in one process ---


class Pair:
    """One of two threads that save together."""

    world, barrier = 2, threading.Barrier(2, timeout=10)
    told: int

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def agree(self, number: int) -> int:
        if self.rank == 0:
            Pair.told = number
        self.wait()
        told = Pair.told
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
        checkpoint.save(parent, step, {"model": parts[rank]}, document, keep, Pair(rank))

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_parts_are_joined_again(tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save_together(tmp_path, step)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step-00000002", "step-00000003"]
    found = newest(tmp_path)
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
        checkpoint.read(tmp_path / "step-00000002")
    assert newest(tmp_path).step == 1


def test_one_worker_is_all_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("WORLD_SIZE", "RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with workers() as team:
        assert team == Workers(0, 1, best_device())
        assert team.first
        assert torch.equal(team.sum(torch.tensor([2, 3])), torch.tensor([2, 3]))
        assert (team.any(True), team.any(False), team.agree(5)) == (True, False, 5)
        team.wait()
    tensor = torch.arange(3)
    assert local(tensor) is whole(tensor) is spread(tensor, tensor) is tensor


def test_kernels_that_add_in_any_order_are_avoided() -> None:
    """The gradient of an index, as the time embedding has it, depends on which of two threads comes first."""
    which = torch.randint(0, 40, (64, 104), generator=torch.Generator().manual_seed(0))
    weight = torch.randn(64, 104, 256, generator=torch.Generator().manual_seed(1))

    def gradient() -> torch.Tensor:
        embedded = torch.zeros(40, 256, requires_grad=True)
        (embedded[which] * weight).sum().backward()
        assert embedded.grad is not None
        return embedded.grad

    torch.set_num_threads(2)
    try:
        with same_bits():
            first = gradient()
            assert all(torch.equal(gradient(), first) for _ in range(5))
            assert not torch.utils.deterministic.fill_uninitialized_memory
    finally:
        torch.set_num_threads(1)
    assert torch.get_deterministic_debug_mode() == 0
    assert torch.utils.deterministic.fill_uninitialized_memory


def test_signals_are_noted_in_the_main_thread_only() -> None:
    usual = signal.getsignal(signal.SIGTERM)
    with asked_to_stop() as asked:
        os.kill(os.getpid(), signal.SIGTERM)
        assert asked == [signal.SIGTERM]
        assert signal.getsignal(signal.SIGTERM) is usual  # a second one acts at once
    seen: list[list[int]] = []

    def elsewhere() -> None:
        with asked_to_stop() as asked:
            seen.append(asked)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [[]]
