"""How other projects store a transformer: tables from our names of tensors to theirs, a file for each family.

A layout turns a state dict and the settings of its `config.json` into our config and our state dict. It says what the
weights are, not how they are used: attention is full (blocks where the settings name them), dropout zero;
`replace(config, pattern=…)` for another.
"""

from redraft.networks.layouts.dit import dit
from redraft.networks.layouts.gpt2 import gpt2
from redraft.networks.layouts.llada import llada
from redraft.networks.layouts.llama import llama, qwen2, qwen3
from redraft.networks.layouts.tables import Layout, LayoutError, flat, require, setting, some, whole_number
from redraft.networks.layouts.tensors import Held, InFile, Settings, Stored, Weights
