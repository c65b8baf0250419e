from .attention import (
    Annealed as Annealed,
    BlockCausal as BlockCausal,
    Causal as Causal,
    Full as Full,
    Mask as Mask,
    Pattern as Pattern,
    Rotary as Rotary,
    Sight as Sight,
    Slowed as Slowed,
    Turn as Turn,
    TwoStreams as TwoStreams,
    attend as attend,
    tiled as tiled,
)
from .config import Lora as Lora, Ports as Ports, TransformerConfig as TransformerConfig
from .forward_pass import Merger as Merger, Pass as Pass, States as States
from .int8 import Int8 as Int8, with_int8 as with_int8
from .kv_cache import (
    HeldStates as HeldStates,
    KeyValue as KeyValue,
    KeyValues as KeyValues,
    Shelf as Shelf,
    Stand as Stand,
)
from .layers import (
    MLP as MLP,
    RMS as RMS,
    AskedPositions as AskedPositions,
    Attention as Attention,
    Block as Block,
    CrossAttention as CrossAttention,
    GapLayer as GapLayer,
    Norm as Norm,
    PassView as PassView,
    Source as Source,
    SwiGLU as SwiGLU,
    TimeEmbedding as TimeEmbedding,
    TimeOf as TimeOf,
)
from .linear import (
    Joined as Joined,
    LoraEmbedding as LoraEmbedding,
    LoraLinear as LoraLinear,
    WithLora as WithLora,
    adapter_off as adapter_off,
    lora_layers as lora_layers,
    lora_on as lora_on,
    lora_parameters as lora_parameters,
)
from .prepacked import PackedLinear as PackedLinear, replaced_layers as replaced_layers, with_packed as with_packed
from .ragged_batch import read_out_together as read_out_together, run_together as run_together
from .transformer import (
    Deep as Deep,
    Transformer as Transformer,
    held_states as held_states,
    hidden_matrices as hidden_matrices,
    layer_states as layer_states,
)
