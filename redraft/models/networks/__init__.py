"""Networks: one transformer for every method, and the weights of other projects in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.models.networks.attention import (
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
    from redraft.models.networks.config import Lora, Ports, TransformerConfig
    from redraft.models.networks.forward_pass import Merger, Pass, States
    from redraft.models.networks.int8 import Int8, with_int8
    from redraft.models.networks.kv_cache import HeldStates, KeyValue, KeyValues, Shelf, Stand
    from redraft.models.networks.layers import (
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
    from redraft.models.networks.linear import (
        Joined,
        LoraEmbedding,
        LoraLinear,
        WithLora,
        adapter_off,
        lora_layers,
        lora_on,
        lora_parameters,
    )
    from redraft.models.networks.prepacked import PackedLinear, replaced_layers, with_packed
    from redraft.models.networks.ragged_batch import read_out_together, run_together
    from redraft.models.networks.transformer import Deep, Transformer, held_states, hidden_matrices, layer_states

__getattr__, __dir__, __all__ = attach(__name__)
