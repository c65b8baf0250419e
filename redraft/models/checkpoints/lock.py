"""One writer per directory: a lock that ends with its holder."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redraft.models.checkpoints.reader import CheckpointError

LOCK_FILE = ".lock"
_TAKEN = (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES)
_UNKNOWN = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)
_log = logging.getLogger(__name__)


class DirectoryLocked(CheckpointError):
    """Another process writes into the directory."""


@contextmanager
def exclusive_lock(directory: Path) -> Iterator[None]:
    """Holds the lock of a directory, which is made if needed; `DirectoryLocked` names the process that has it.

    The lock is `flock` on an open file. The kernel drops it when the process ends, however it ends, so there are no
    stale locks, and a reused process number does no harm. The file itself stays; it says who wrote last.
    """
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / LOCK_FILE
    with open(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NONBLOCK, 0o644), "r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _TAKEN:
                raise DirectoryLocked(_taken(directory, file.read(200))) from None
            if error.errno not in _UNKNOWN:
                raise
            _log.warning("%s is on a disk without locks; let only one training write there", directory)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def _taken(directory: Path, holder: str) -> str:
    who = " ".join(holder.split()) or "another process"
    return f"{directory} is being written by {who}; wait until it ends, or choose another directory with --out"
