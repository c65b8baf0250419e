"""Describes a foreign checkpoint before its weights are read, and infers its vocabulary and mask token.

Some settings name neither the mask token nor the attention: causal, full or in blocks. We infer what we can, take the
rest from the caller, and report every assumption.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from redraft.core.text.tokenizers import HubTokenizer
from redraft.core.vocab import Vocab
from redraft.models.config import DiffusionLMConfig
from redraft.models.formats.layout import _Layout
from redraft.models.formats.storage.tensors import ForeignSettings, LayoutError
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.patterns import AttentionPattern, BlockCausal, Causal, Full


@dataclass(frozen=True)
class _ForeignCheckpoint:
    """A checkpoint of another project: its settings, and options given by the caller."""

    settings: ForeignSettings
    name: str = ""  # name of its repository or directory, which may say what the settings leave out
    tokenizer: HubTokenizer | None = None
    mask: int | str | None = None  # id or text of the mask token; None to infer it
    attention: str | None = None  # causal, full or block:SIZE; None to infer it


class _InferredVocab(NamedTuple):
    """The vocabulary of a checkpoint, and what was assumed about it."""

    vocab: Vocab
    tokenizer: HubTokenizer | None
    assumed: tuple[str, ...] = ()  # assumptions, as notes for the user


class _InterpretedModel(NamedTuple):
    """Our config for a checkpoint: the process, head and attention that its weights were trained with."""

    model: DiffusionLMConfig
    tokenizer: HubTokenizer | None
    assumed: tuple[str, ...] = ()  # assumptions, as notes for the user

    @classmethod
    def of(cls, model: DiffusionLMConfig, inferred: _InferredVocab, *assumed: str) -> _InterpretedModel:
        return cls(model, inferred.tokenizer, (*inferred.assumed, *assumed))


_Interpreter: TypeAlias = Callable[[_ForeignCheckpoint, TransformerConfig], _InterpretedModel]


@dataclass(frozen=True)
class _Format:
    """A checkpoint format: how its weights are stored, and how to interpret them."""

    layout: _Layout
    interpret: _Interpreter


def _parse_attention(attention: str) -> AttentionPattern:
    """Parse causal, full or block:SIZE."""
    if block := re.fullmatch(r"block:([1-9]\d{0,6})", attention):
        return BlockCausal(int(block[1]))
    if attention not in ("causal", "full"):
        raise LayoutError(f"attention={attention!r}; it must be causal, full or block:SIZE, such as block:32")
    return Causal() if attention == "causal" else Full()


def _embedding_rows(network: TransformerConfig) -> int:
    """Return the number of embedding rows; every layout sets it."""
    assert network.padded_vocab is not None
    return network.padded_vocab


def _vocab_with_mask(
    original: _ForeignCheckpoint, size: int, stated: object = None, *, last: bool = False
) -> _InferredVocab:
    """Infer the vocabulary of a mask-filling model.

    size: rows of the embedding.
    stated: mask id in the settings; None if they name none.
    last: assume that the mask is the last id if neither settings nor tokenizer name it.
    """
    requested, hub = _requested_mask(original), original.tokenizer
    tokenizer_mask = None if hub is None or hub.mask is None else hub.id_of(hub.mask)
    if stated is not None and type(stated) is not int:
        raise LayoutError(f"its settings give {stated!r:.40} as the mask; it must be a token id, an integer")
    if requested is not None and stated not in (None, requested):
        raise LayoutError(f"mask={requested} contradicts its settings, which give {stated}; leave mask out")
    mask = requested if stated is None else stated
    if mask is not None or tokenizer_mask is not None:
        assumed = () if mask is not None else (f"the mask is {hub.mask} of its tokenizer, id {tokenizer_mask}",)  # type: ignore[union-attr]
        return _InferredVocab(
            *_match_tokenizer(hub, size, tokenizer_mask if mask is None else mask, own=requested is not None), assumed
        )
    if not last:
        raise LayoutError(
            "neither config.json nor tokenizer.json names the mask token; give its id: mask=ID, or --mask ID on the "
            "command line"
        )
    return _InferredVocab(
        *_match_tokenizer(hub, size, size - 1 if hub is None else hub.vocab.mask), _note_last_id(hub, size)
    )


def _note_last_id(hub: HubTokenizer | None, size: int) -> tuple[str, ...]:
    return (f"the mask is the last id, {size - 1 if hub is None else hub.vocab.mask}",)


def _requested_mask(original: _ForeignCheckpoint) -> int | None:
    """Return the mask id that the caller requests; None if the caller requests none."""
    if not isinstance(original.mask, str):
        return original.mask
    if original.mask.isdecimal():
        return int(original.mask)
    mask = None if original.tokenizer is None else original.tokenizer.id_of(original.mask)
    if mask is None:
        raise LayoutError(f"mask={original.mask!r} is not a token of its tokenizer; give an id")
    return mask


def _match_tokenizer(
    hub: HubTokenizer | None, size: int, mask: int | None, *, own: bool = False
) -> tuple[Vocab, HubTokenizer | None]:
    """Return the vocabulary and tokenizer; raise unless weights, mask and tokenizer belong together.

    If the tokenizer names no mask, the mask may be any of its special tokens, or any token if the caller chose it
    (`own`).
    """
    if hub is None:
        return Vocab(size, mask=mask), None
    if mask is not None and hub.vocab.mask != mask and (hub.mask is None or hub.id_of(hub.mask) is None):
        token = hub.token_of(mask)
        if token is not None and (own or hub.is_special(mask)):
            hub = replace(hub, mask=token)
    if hub.vocab.size > size or hub.vocab.mask != mask:
        raise LayoutError(
            f"its tokenizer.json has {hub.vocab.size} ids and the mask {hub.vocab.mask}, where the weights have {size} "
            f"and {mask}; put the tokenizer that belongs to the weights into the directory"
        )
    return hub.vocab, hub


def _vocab_without_mask(original: _ForeignCheckpoint, size: int) -> _InferredVocab:
    """Infer the vocabulary of a model without a mask token."""
    _refuse_mask(original, "has no mask token")
    hub = original.tokenizer
    return _InferredVocab(*_match_tokenizer(None if hub is None else replace(hub, mask=None), size, None))


def _causal_vocab(original: _ForeignCheckpoint, size: int) -> _InferredVocab:
    """Infer the vocabulary of a plain autoregressive model, and add a mask token for positions not yet written."""
    _refuse_mask(original, "predicts the next token and has no mask token")
    hub = original.tokenizer
    if hub is None:
        return _InferredVocab(Vocab(size + 1, mask=size), None)
    mask = next(name for name in map("<|mask{}|>".format, ("", *range(99))) if hub.id_of(name) is None)
    hub = replace(hub, mask=mask, bos=hub.bos if hub.begins else None)
    vocab = hub.vocab
    if vocab.size - 1 > size or vocab.mask != vocab.size - 1:
        raise LayoutError(
            f"its tokenizer.json has {vocab.size - 1} ids, where the weights have {size}; put the tokenizer that "
            "belongs to the weights into the directory"
        )
    return _InferredVocab(vocab, hub)


def _refuse_mask(original: _ForeignCheckpoint, reason: str) -> None:
    if original.mask is not None:
        raise LayoutError(f"mask={original.mask} was given, but this model {reason}; leave mask out")
