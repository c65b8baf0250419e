"""Networks: one transformer for every method, and the weights of other projects in it."""

from redraft.networks.attention import (
    Annealed,
    BlockCausal,
    Causal,
    Full,
    Mask,
    Pattern,
    Rotary,
    Sight,
    Slowed,
    Turn,
    TwoStreams,
    attend,
    tiled,
)
from redraft.networks.attributes import Attributes
from redraft.networks.cache import HeldStates, KeyValue, KeyValues, Shelf, Stand
from redraft.networks.config import Lora, Ports, TransformerConfig
from redraft.networks.drafting import (
    Beside,
    BesideNetwork,
    DraftConfig,
    DraftNetwork,
    Itself,
    MaskedItself,
    only_for_masks,
    predicting,
)
from redraft.networks.errors import Errors
from redraft.networks.int8 import Int8, with_int8
from redraft.networks.layers import (
    MLP,
    RMS,
    AskedPositions,
    Attention,
    Block,
    CrossAttention,
    GapLayer,
    Norm,
    PassView,
    Source,
    SwiGLU,
    TimeEmbedding,
    TimeOf,
)
from redraft.networks.layouts import (
    Held,
    InFile,
    Layout,
    LayoutError,
    Settings,
    Stored,
    Weights,
    dit,
    flat,
    gpt2,
    llada,
    llama,
    qwen2,
    qwen3,
    require,
    setting,
    some,
    whole_number,
)
from redraft.networks.linear import (
    Joined,
    LoraEmbedding,
    LoraLinear,
    WithLora,
    adapter_off,
    lora_layers,
    lora_on,
    lora_parameters,
)
from redraft.networks.merged import read_out_together, run_together
from redraft.networks.packed import PackedLinear, replaced_layers, with_packed
from redraft.networks.passes import Merger, Pass, States
from redraft.networks.tagger import Foresight, Kinds, Tagger
from redraft.networks.transformer import Deep, Transformer, held_states, hidden_matrices, layer_states
