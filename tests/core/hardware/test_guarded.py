"""A child may die, hang, fail or chatter: its parent hears of it and goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from redraft.core import run_forked
from redraft.core.hardware import forked
from redraft.core.hardware.forked import _ForkedResult

pytestmark = pytest.mark.skipif(not forked._can_fork(), reason="no fork")


def die(number: int = signal.SIGILL) -> NoReturn:
    os.kill(os.getpid(), number)
    raise AssertionError("unreachable")


def fail() -> None:
    raise RuntimeError("no such kernel")


def test_a_result_comes_back() -> None:
    assert run_forked(lambda: {"threads": torch.get_num_threads(), "pid": os.getpid()}).value["threads"] == 1
    assert run_forked(os.getpid).value != os.getpid()


@pytest.mark.parametrize("number", [signal.SIGILL, signal.SIGSEGV, signal.SIGABRT])
def test_a_signal_kills_the_child_alone(number: signal.Signals) -> None:
    assert run_forked(lambda: die(number)) == _ForkedResult(trouble=f"dies of {number.name}")


def children() -> set[str]:
    said = subprocess.run(["pgrep", "-P", str(os.getpid())], capture_output=True, text=True, check=False)
    return set(said.stdout.split())


def test_a_child_that_hangs_is_killed() -> None:
    before = children()
    assert run_forked(lambda: time.sleep(60), seconds=0.2) == _ForkedResult(trouble="does not end within 0.2 seconds")
    assert children() == before  # nobody is left behind


def test_an_error_is_told() -> None:
    assert run_forked(fail) == _ForkedResult(trouble="fails (RuntimeError: no such kernel)")


def test_a_child_without_a_word() -> None:
    assert run_forked(lambda: os._exit(0)) == _ForkedResult(trouble="ends without a word")


def test_it_is_silent_and_leaves_no_file(tmp_path: Path) -> None:
    """Even with faulthandler on, as under pytest, and with core files allowed."""
    code = (
        "import faulthandler, os, signal; faulthandler.enable(); from redraft.core import run_forked\n"
        "print('before', end=''); print(run_forked(lambda: os.kill(os.getpid(), signal.SIGILL)).trouble)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path)
    assert (result.stdout, result.stderr) == ("beforedies of SIGILL\n", "")
    assert list(tmp_path.iterdir()) == []


def test_after_two_threads_of_openmp_and_from_another_thread() -> None:
    """A forked child that used two threads of OpenMP would hang for ever."""
    code = (
        "import threading, torch; from redraft.core import run_forked\n"
        "torch.set_num_threads(2); torch.ones(3000, 3000).softmax(-1); torch.ones(500, 500) @ torch.ones(500, 500)\n"
        "work = lambda: float((torch.ones(500, 500) @ torch.ones(500, 500)).softmax(-1).sum())\n"
        "found = [run_forked(work)]\n"
        "other = threading.Thread(target=lambda: found.append(run_forked(work))); other.start(); other.join()\n"
        "print([round(f.value) for f in found], torch.get_num_threads())"
    )
    result = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (result.stdout, result.stderr) == ("[500, 500] 2\n", "")


def test_children_that_somebody_else_collects() -> None:
    usual = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert run_forked(lambda: 7) == _ForkedResult(7)
        assert run_forked(die) == _ForkedResult(trouble="ends without a word")
    finally:
        signal.signal(signal.SIGCHLD, usual)


def test_no_fork_no_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    found = run_forked(lambda: 7)
    assert not found.tried
    assert "no fork" in found.trouble


def test_no_room_for_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    assert run_forked(lambda: 7) == _ForkedResult(
        trouble="cannot be tried (Resource temporarily unavailable)", tried=False
    )


def test_two_threads_at_a_time() -> None:
    found: list[_ForkedResult] = []
    work = lambda: float(torch.ones(64, 64).matmul(torch.ones(64, 64)).sum())  # noqa: E731
    threads = [threading.Thread(target=lambda: found.append(run_forked(work))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [_ForkedResult(64.0**3)] * 3
