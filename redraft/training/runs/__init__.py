"""Runs: a whole experiment as one value, saved, loaded and varied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.models.checkpoints.adapter import AdapterOf, norms_digest, write_adapter
    from redraft.models.checkpoints.lock import Busy, only_writer
    from redraft.models.checkpoints.reader import Checkpoint, CheckpointError, Exported, JoinedTensors, latest
    from redraft.models.checkpoints.serialization import JSON, ConfigError, digest, from_json, to_json
    from redraft.models.checkpoints.writer import Alone, Team, save
    from redraft.models.formats.dit import Ratios
    from redraft.models.formats.exporter import export_as
    from redraft.models.formats.importer import convert
    from redraft.models.formats.raw import raw_gaps, raw_outputs
    from redraft.models.formats.registry import Foreign
    from redraft.training.runs import variations as vary
    from redraft.training.runs.adaptation import adaptation, merged
    from redraft.training.runs.distillation import drafting
    from redraft.training.runs.metrics import newest_values
    from redraft.training.runs.run import (
        Bundle,
        Loaded,
        Optimiser,
        Run,
        assemble,
        begin_with,
        bundled,
        describe,
        export,
        in_int8,
        in_weights,
        least_memory,
        load,
        load_with_run,
        newest,
        parameters,
        weights_form,
    )

__getattr__, __dir__, __all__ = attach(__name__)
