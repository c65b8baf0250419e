"""A lock that lets only one process write to a directory, released when that process ends."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from redraft.models.checkpoints.reader import CheckpointError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

LOCK_FILE = ".lock"
_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
_UNKNOWN = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_log = logging.getLogger(__name__)


class DirectoryLocked(CheckpointError):
    """Raised when another process is writing to the directory."""


@contextmanager
def exclusive_lock(directory: Path, *, wait: bool = False) -> Iterator[None]:
    """Hold the lock of a directory, creating the directory if needed.

    If the lock is taken, wait for it, or raise `DirectoryLocked`, which names the other process.

    The lock is `flock` on an open file. The kernel drops it when the process ends, however it ends, so there are no
    stale locks, and a reused process id does no harm. The file itself stays and names the last process that held it.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / LOCK_FILE
    with open(os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NONBLOCK", 0), 0o644), "r+") as file:
        _lock(file, directory, wait)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def _lock(file: TextIO, directory: Path, wait: bool) -> None:
    """Lock an open file; where there are no locks, warn and go on."""
    try:
        if fcntl is None:
            raise OSError(errno.ENOSYS, "no flock")
        fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except OSError as error:
        if error.errno in _TAKEN:
            raise DirectoryLocked(_locked_message(directory, file.read(200))) from None
        if error.errno not in _UNKNOWN:
            raise
        _log.warning("%s is on a system without file locks; let only one process write there", directory)


def _locked_message(directory: Path, holder: str) -> str:
    process = " ".join(holder.split()) or "another process"
    return f"{directory} is being written by {process}; wait until it ends, or choose another directory with --out"
