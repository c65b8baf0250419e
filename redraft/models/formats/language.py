"""Interprets checkpoints of language models: plain causal models, and mask-filling models."""

from __future__ import annotations

from dataclasses import replace

from redraft.core.processes.masked import Masked
from redraft.models.config import DiffusionLMConfig
from redraft.models.formats.checkpoint import (
    _causal_vocab,
    _embedding_rows,
    _ForeignCheckpoint,
    _InterpretedModel,
    _parse_attention,
    _vocab_with_mask,
)
from redraft.models.formats.storage.tensors import LayoutError
from redraft.models.heads import Shift, Subs
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.patterns import AttentionPattern, Causal, Full

_MASK_IDS = {  # mask ids of published models whose files do not name them
    "diffusionfamily/diffullama": 811,
    "diffusionfamily/diffugpt-s": 10541,
    "diffusionfamily/diffugpt-m": 50257,
}


def _interpret_causal(original: _ForeignCheckpoint, network: TransformerConfig) -> _InterpretedModel:
    """Interpret GPT-2, Llama or Qwen as a causal model; if another attention is requested, as a mask-filling model.

    DiffuLLaMA is a mask-filling model of this kind: adapted from a causal one, with the settings of a causal one.
    """
    if original.attention in (None, "causal"):
        inferred = _causal_vocab(original, _embedding_rows(network))
        network = replace(network, pattern=Causal())
        return _InterpretedModel.of(DiffusionLMConfig(Masked(inferred.vocab), network, Shift(Subs())), inferred)
    return _interpret_masked(
        original, network, Full(), "read as a mask-filling model, although its settings are those of a causal model"
    )


def _interpret_masked(
    original: _ForeignCheckpoint,
    network: TransformerConfig,
    default: AttentionPattern,
    *assumed: str,
    shift: bool = True,
    last: bool = False,
) -> _InterpretedModel:
    """Interpret a mask-filling model.

    default: attention if the caller requests none.
    assumed: assumptions, as notes for the user.
    shift: each state predicts the next token, as in models adapted from causal ones.
    last: assume that the mask is the last id if the files do not name it.
    """
    pattern = default if original.attention is None else _parse_attention(original.attention)
    if pattern.causal and shift:
        return _interpret_causal(original, network)
    if pattern.causal:
        raise LayoutError(
            "attention=causal was given, but its states do not predict the next token; leave attention out"
        )
    stated = original.settings.get("mask_token_id")
    if stated is None and original.mask is None and original.name in _MASK_IDS:
        original = replace(original, mask=_MASK_IDS[original.name])
        assumed = (*assumed, f"the mask is the one published for {original.name}")
    inferred = _vocab_with_mask(original, _embedding_rows(network), stated, last=last)
    head = Shift(Subs()) if shift else Subs()
    model = DiffusionLMConfig(Masked(inferred.vocab), replace(network, pattern=pattern), head)
    return _InterpretedModel.of(model, inferred, *assumed)


def _refuse_other_attention(original: _ForeignCheckpoint, attention: str) -> None:
    if original.attention not in (None, attention):
        raise LayoutError(
            f"attention={original.attention} was given, but this model has {attention} attention; leave attention out"
        )
