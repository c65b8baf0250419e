"""Dense: a rectangle of rows, layer by layer, for training and whole rows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import cast

from torch.utils.checkpoint import checkpoint

from redraft.core.ops import dropout
from redraft.models.networks.attention import RotaryEmbedding
from redraft.models.networks.executors.base import Executor, Network, _embedded
from redraft.models.networks.forward_pass import ForwardPass, PassOutput
from redraft.models.networks.kv_cache import KeyValue
from redraft.models.networks.layers import Block, LayerInputs


@dataclass(frozen=True)
class Dense(Executor):
    """Runs all rows of a pass as one rectangle.

    recompute: gradient checkpointing; the backward pass computes each block again instead of storing its activations.
    """

    recompute: bool = False

    def trunk(self, network: Network, forward_pass: ForwardPass) -> PassOutput:
        c, at, inputs = network.config, forward_pass.at, _layer_inputs(network, forward_pass)
        h = dropout(_embedded(network, forward_pass), c.dropout, network.blocks.training)
        key_values: list[KeyValue] = []
        for i, block in enumerate(cast("Iterable[Block]", network.blocks)):
            args = (h, inputs, forward_pass.past.layer(i), at if i == c.layers - 1 else None)
            h, new = checkpoint(block, *args, use_reentrant=False) if self.recompute else block(*args)
            key_values.append(new)
        time = inputs.time
        return PassOutput(h, time if at is None or time is None else time.at(at), key_values)


def _layer_inputs(network: Network, forward_pass: ForwardPass) -> LayerInputs:
    c, positions, context = network.config, forward_pass.positions, forward_pass.context
    rotary = None if c.rotary is None else RotaryEmbedding.of(positions.values, c.head_width, c.rotary, c.rope_scaling)
    time = network.embed_times(forward_pass.level, context.condition.label)
    mask = None if forward_pass.attention is None else forward_pass.attention.mask(c.head_width)
    source = network.encoded_source(context, forward_pass.tokens)
    return LayerInputs(positions, time, rotary, forward_pass.attention, mask, source)
