"""What checkpoints of language models mean: plain causal ones, and those that fill masks."""

from __future__ import annotations

from dataclasses import replace

from redraft.core.processes.masked import Masked
from redraft.models.config import DiffusionLMConfig
from redraft.models.formats.checkpoint import (
    ForeignCheckpoint,
    _causal_vocab,
    _embedding_rows,
    _InterpretedModel,
    _parse_attention,
    _vocab_with_mask,
)
from redraft.models.formats.storage.tensors import LayoutError
from redraft.models.heads import Shift, Subs
from redraft.models.networks.attention import AttentionPattern, Causal, Full
from redraft.models.networks.config import TransformerConfig

_MASKS = {  # words that published models use for the mask, without saying so
    "diffusionfamily/diffullama": 811,
    "diffusionfamily/diffugpt-s": 10541,
    "diffusionfamily/diffugpt-m": 50257,
}


def _causal_model(original: ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """GPT-2, Llama, Qwen: each token from those before it. Under other attention they fill masks, as DiffuLLaMA."""
    if original.attention in (None, "causal"):
        known = _causal_vocab(original, _embedding_rows(network))
        network = replace(network, pattern=Causal())
        return _InterpretedModel.of(DiffusionLMConfig(Masked(known.vocab), network, Shift(Subs())), known)
    return _mask_filling_model(
        original, network, Full(), "its settings are those of a causal model; taken for one that fills masks"
    )


def _mask_filling_model(
    original: ForeignCheckpoint,
    network: TransformerConfig,
    usual: AttentionPattern,
    *assumed: str,
    shift: bool = True,
    last: bool = False,
) -> _InterpretedModel:
    """A model that fills masks; of those that began as causal ones each state still predicts the next token."""
    chosen = usual if original.attention is None else _parse_attention(original.attention)
    if isinstance(chosen, Causal) and shift:
        return _causal_model(original, network)
    if isinstance(chosen, Causal):
        raise LayoutError("attention=causal was asked for, but its states do not predict the next token")
    stated = original.settings.get("mask_token_id")
    if stated is None and original.mask is None and original.name in _MASKS:
        original, assumed = (
            replace(original, mask=_MASKS[original.name]),
            (*assumed, f"the mask is that of {original.name}"),
        )
    known = _vocab_with_mask(original, _embedding_rows(network), stated, last=last)
    model = DiffusionLMConfig(Masked(known.vocab), replace(network, pattern=chosen), Shift(Subs()) if shift else Subs())
    return _InterpretedModel.of(model, known, *assumed)


def _refuse_other_attention(original: ForeignCheckpoint, known: str) -> None:
    if original.attention not in (None, known):
        raise LayoutError(f"attention={original.attention} was asked for, but it has attention={known}")
