"""Checkpoints of other projects → our model, recognised by their settings.

`networks.layouts` knows what the tensors are; here stands what their numbers mean: the process, the head, and what the
network is told of the time. Read are `config.json`, safetensors (whole or in shards) and, where it lies beside them,
`tokenizer.json` with its chat template; nothing is unpickled or executed.
"""

from redraft.runs.foreign.dit import Ratios
from redraft.runs.foreign.exports import OUTWARD, export_as
from redraft.runs.foreign.files import refuse_pickles, settings
from redraft.runs.foreign.formats import FORMATS, Foreign, read_foreign, recognised, understood
from redraft.runs.foreign.hub import local_folder
from redraft.runs.foreign.original import Original
from redraft.runs.foreign.raw import raw_gaps, raw_outputs
from redraft.runs.foreign.sources import convert, in_package
