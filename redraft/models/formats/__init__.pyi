from .checkpoint import Original as Original
from .dit import Ratios as Ratios
from .dit_layout import dit as dit
from .exporter import OUTWARD as OUTWARD, export_as as export_as
from .gpt2 import gpt2 as gpt2
from .importer import convert as convert, in_package as in_package
from .layout import (
    Layout as Layout,
    LayoutError as LayoutError,
    flat as flat,
    require as require,
    setting as setting,
    some as some,
    whole_number as whole_number,
)
from .llada import llada as llada
from .llama import llama as llama, qwen2 as qwen2, qwen3 as qwen3
from .raw import raw_gaps as raw_gaps, raw_outputs as raw_outputs
from .registry import (
    FORMATS as FORMATS,
    Foreign as Foreign,
    read_foreign as read_foreign,
    recognised as recognised,
    understood as understood,
)
from .storage.files import refuse_pickles as refuse_pickles, settings as settings
from .storage.hub import local_folder as local_folder
from .storage.tensors import Held as Held, InFile as InFile, Settings as Settings, Stored as Stored, Weights as Weights
