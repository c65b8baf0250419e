"""Runs: a whole experiment as one value, saved, loaded and varied."""

from redraft.runs import vary
from redraft.runs.adapter import AdapterOf, norms_digest, write_adapter
from redraft.runs.adapting import adaptation, merged
from redraft.runs.checkpoint import Alone, Team, save
from redraft.runs.config import JSON, ConfigError, digest, from_json, to_json
from redraft.runs.drafting import drafting
from redraft.runs.foreign import Foreign, Ratios, convert, export_as, raw_gaps, raw_outputs
from redraft.runs.lock import Busy, only_writer
from redraft.runs.metrics import newest_values
from redraft.runs.run import (
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
from redraft.runs.stored import Checkpoint, CheckpointError, Exported, JoinedTensors, latest
