"""A cache of folders that take seconds to make, such as converted models.

    ~/.cache/redraft/smol-2f1c09ab37de/   config.json  model.safetensors  manifest.json

A folder is named by a digest of what it was made from. It is filled under a hidden name, synced, given a manifest with
the SHA-256 of each file, and only then renamed, so a process killed at any moment leaves no half-filled folder. Every
opener compares the files with the manifest and makes a damaged folder anew. Openers that find no folder wait for one
another, so it is made once. The cache may be deleted at any time: memory-mapped files stay readable.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from redraft.models.checkpoints.lock import exclusive_lock
from redraft.models.checkpoints.reader import MANIFEST, CheckpointError
from redraft.models.checkpoints.serialization import JSON, read_json
from redraft.models.checkpoints.writer import _discard, _draft_path, _remove_stale_drafts, _separate, _sync

_CACHE_ENV = "REDRAFT_CACHE"
_Entry = Mapping[str, JSON]  # size and SHA-256 of a file


def _cache_root() -> Path:
    """The directory of the cache: $REDRAFT_CACHE, or redraft in the user's cache directory."""
    if chosen := os.environ.get(_CACHE_ENV):
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "redraft"


def cached_folder(name: str, key: JSON, fill: Callable[[Path], None]) -> Path:
    """Return a folder of the cache whose files are intact; make it with `fill` if there is none.

    Args:
        name: how the folder's name begins
        key: all that the files depend on; another key means another folder
        fill: writes the files into an empty directory, without subdirectories
    """
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
    folder = _cache_root() / f"{name}-{digest[:12]}"
    if _is_intact(folder):
        return folder
    try:
        with exclusive_lock(folder.parent, wait=True):
            if not _is_intact(folder):  # another process may have made it meanwhile
                _make(folder, fill)
    except OSError as error:
        raise CheckpointError(
            f"cannot write the cache {folder.parent}: {error.strerror or error}; set {_CACHE_ENV} to a directory that "
            "can be written and has space"
        ) from error
    return folder


def _make(folder: Path, fill: Callable[[Path], None]) -> None:
    _remove_stale_drafts(folder.parent)
    draft = _draft_path(folder.parent)
    draft.mkdir()
    try:
        fill(draft)
        entries = {file.name: _synced_entry(file) for file in sorted(draft.iterdir())}
        with open(draft / MANIFEST, "x") as manifest:
            json.dump(entries, manifest, indent=1)
            manifest.flush()
            os.fsync(manifest.fileno())
        _sync(draft)
        _discard(folder)
        draft.rename(folder)
        _sync(folder.parent)
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _synced_entry(file: Path) -> dict[str, JSON]:
    with open(file, "rb") as stream:
        os.fsync(stream.fileno())
    return {"size": file.stat().st_size, "sha256": file_digest(file)}


def _is_intact(folder: Path) -> bool:
    """Whether a folder has exactly the files of its manifest, with these contents."""
    try:
        entries = read_json(folder / MANIFEST)
        return isinstance(entries, dict) and all(_matches(folder / file, entry) for file, entry in entries.items())
    except (OSError, ValueError):
        return False


def _matches(file: Path, entry: JSON) -> bool:
    return (
        isinstance(entry, dict)
        and file.stat().st_size == entry.get("size")
        and file_digest(file) == entry.get("sha256")
    )


def file_digest(file: Path) -> str:
    """The SHA-256 of a file."""
    with open(file, "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- tensors in the cache ---


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors for `map_tensors`."""
    save_file(_separate(tensors), file)


def map_tensors(file: Path) -> dict[str, Tensor]:
    """Memory-map the tensors of a file: pages are read when they are used; writing to a tensor changes only a copy."""
    with safe_open(file, framework="pt") as tensors:
        return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
