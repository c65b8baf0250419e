"""Checkpoints on disk: configuration as JSON, reading, writing, locking, adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.models.checkpoints.adapter import AdapterOf, norms_digest, write_adapter
    from redraft.models.checkpoints.lock import Busy, only_writer
    from redraft.models.checkpoints.reader import Checkpoint, CheckpointError, Exported, JoinedTensors, latest
    from redraft.models.checkpoints.serialization import JSON, ConfigError, digest, from_json, to_json
    from redraft.models.checkpoints.writer import Alone, Team, save

__getattr__, __dir__, __all__ = attach(__name__)
