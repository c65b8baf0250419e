"""Runs work that might kill or hang this process in a forked child: only a trial reveals an illegal instruction."""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

import torch

_NO_FORK = "cannot be tried safely on this system (no fork)"


@dataclass(frozen=True)
class _ForkedResult:
    """The result of a forked child process."""

    value: Any = None  # the result of its work; None if it has none
    trouble: str = ""  # what went wrong, as the end of a sentence: "dies of SIGILL"; empty if all went well
    tried: bool = True  # False if no child could be started


def run_forked(work: Callable[[], Any], seconds: float = 10.0) -> _ForkedResult:
    """Does the work in a forked child with one torch thread; the result travels as JSON.

    With more threads a child hangs if its parent has used OpenMP. It inherits everything else, so oneDNN behaves in the
    child as it would here. After `seconds` the child is killed.
    """
    if not _can_fork():
        return _ForkedResult(trouble=_NO_FORK, tried=False)
    reader, writer = os.pipe()
    try:
        child = _fork()
        if child == 0:
            _run_in_child(work, writer, seconds)
        trouble = _wait(child, seconds)
        return _result(_read(reader), trouble)
    except OSError as error:  # too many processes, or too little memory
        return _ForkedResult(trouble=f"cannot be tried ({error.strerror})", tried=False)
    finally:
        os.close(reader)
        os.close(writer)


def _fork() -> int:
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", DeprecationWarning
        )  # about forking while other threads run; the child needs none of them
        return os.fork()


def _can_fork() -> bool:
    """Whether forking is safe; macOS has fork, but its libraries do not survive it."""
    return hasattr(os, "fork") and sys.platform != "darwin"


def _run_in_child(work: Callable[[], Any], writer: int, seconds: float) -> NoReturn:
    """Runs the work in the child process: without output or core dumps, and never returns into the parent's code."""
    try:
        import resource

        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(int(seconds) + 2)  # if the parent dies, the child soon follows
        faulthandler.disable()
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        os.dup2(nowhere, 2)
        torch.set_num_threads(1)
        try:
            answer = {"value": work()}
        except Exception as error:
            answer = {"error": f"{type(error).__name__}: {error}"}
        os.write(writer, json.dumps(answer).encode())
    finally:
        os._exit(0)


def _wait(child: int, seconds: float) -> str:
    """Waits until the child has ended; returns what went wrong, if anything."""
    deadline, status, ended = time.monotonic() + seconds, 0, 0
    try:
        while not ended and time.monotonic() < deadline:
            time.sleep(0.002)
            ended, status = os.waitpid(child, os.WNOHANG)
    except ChildProcessError:  # someone else collects our children: rely on what it wrote
        ended = child
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if not ended:
        return f"does not end within {seconds:g} seconds"
    return f"dies of {_signal(os.WTERMSIG(status))}" if os.WIFSIGNALED(status) else ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals have no name
        return f"signal {number}"


def _read(reader: int) -> bytes:
    """Reads what the child has written, without waiting for more: another fork may keep the other end open."""
    os.set_blocking(reader, False)
    try:
        return os.read(reader, 65536)
    except BlockingIOError:
        return b""


def _result(output: bytes, trouble: str) -> _ForkedResult:
    if trouble or not output:
        return _ForkedResult(trouble=trouble or "ends without a word")
    answer = json.loads(output)
    return _ForkedResult(answer["value"]) if "value" in answer else _ForkedResult(trouble=f"fails ({answer['error']})")
