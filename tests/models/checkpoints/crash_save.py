"""A process whose children save checkpoints until they are killed: the other half of the kill tests.

Importing torch once and forking makes a death cheap. Each line on standard input is one life:

    after COUNT SECONDS PARENT  save step after step (a few MB each); killed from outside that long after COUNT of them
    at EVENT STEP LIFE PARENT   save that one step; killed from inside just before its EVENT-th file operation

The answer is one line: the last step the life announced as saved, -1 if none.
"""

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from functools import partial
from itertools import count, islice
from pathlib import Path
from typing import TextIO

import torch
from torch import Tensor

from redraft.models import JSON
from redraft.models.checkpoints import reader as stored, writer as checkpoint

OPERATIONS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"}


def contents(step: int, life: int = 0, size: int = 500) -> tuple[dict[str, dict[str, Tensor]], dict[str, JSON]]:
    """What a checkpoint of that step must hold; no two are alike."""
    values = torch.arange(size) * 7 + step * 1000 + life
    model = {"w": values.float(), "b": values[:9].bfloat16()}
    optimizer = {"m": values, "n": values > 999}
    return {"model": model, "optimizer": optimizer}, {"state": {"step": step, "life": life, "size": size}}


def endless(parent: Path, announce: Callable[[int], object]) -> None:
    newest = stored.latest_checkpoint(parent)
    for step in count(stored.read_checkpoint(newest).step + 1 if newest else 0):
        checkpoint.save_checkpoint(parent, step, *contents(step, size=200_000))
        announce(step)


def once(parent: Path, event: int, step: int, life: int, announce: Callable[[int], object]) -> None:
    tensors, documents = contents(step, life)
    events = count(1)

    def watch(operation: str, arguments: object) -> None:
        if operation in OPERATIONS and next(events) == event:
            os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    checkpoint.save_checkpoint(parent, step, tensors, documents, keep=1)
    announce(step)


def spawn(work: Callable[[Callable[[int], object]], None]) -> tuple[int, TextIO]:
    """Fork a child that works; its process id, and the pipe on which it announces."""
    reader, writer = os.pipe()
    if child := os.fork():
        os.close(writer)
        return child, os.fdopen(reader)
    try:
        work(lambda step: os.write(writer, f"{step}\n".encode()))
    except Exception:
        traceback.print_exc()
    finally:
        os._exit(0)


def main() -> None:
    torch.set_num_threads(1)
    for line in sys.stdin:
        said = ["-1"]
        match line.split():
            case ["after", number, seconds, parent]:
                child, pipe = spawn(partial(endless, Path(parent)))
                said += islice(pipe, int(number))
                time.sleep(float(seconds))
                os.kill(child, signal.SIGKILL)
            case ["at", event, step, life, parent]:
                child, pipe = spawn(partial(once, Path(parent), int(event), int(step), int(life)))
        os.waitpid(child, 0)
        said += pipe
        pipe.close()
        print(int(said[-1]), flush=True)


if __name__ == "__main__":
    main()
