"""What is known of a foreign checkpoint before its weights are read, and how its vocabulary is found.

Some settings do not name the mask token, or whether attention is causal, full or in blocks. What can be recognised is;
for the rest the caller's word is taken, and what had to be assumed is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

from redraft.core.text.tokenizers import HubTokenizer
from redraft.core.vocab import Vocab
from redraft.models.config import DiffusionLMConfig
from redraft.models.formats.layout import Layout
from redraft.models.formats.storage.tensors import ForeignSettings, LayoutError
from redraft.models.networks.attention import AttentionPattern, BlockCausal, Causal, Full
from redraft.models.networks.config import TransformerConfig


@dataclass(frozen=True)
class ForeignCheckpoint:
    """A checkpoint of another project: its settings, and what the caller says of it."""

    settings: ForeignSettings
    name: str = ""  # of its repository or directory, which may say what the settings do not
    tokenizer: HubTokenizer | None = None
    mask: int | str | None = None  # the mask token, as its id or as it is spelt; None: to be found
    attention: str | None = None  # causal, full or block:SIZE; None: to be found


class _InferredVocab(NamedTuple):
    """The vocabulary of a checkpoint."""

    vocab: Vocab
    tokenizer: HubTokenizer | None
    assumed: tuple[str, ...] = ()


class _InterpretedModel(NamedTuple):
    """What a checkpoint means, in our terms."""

    model: DiffusionLMConfig
    tokenizer: HubTokenizer | None
    assumed: tuple[str, ...] = ()  # what its files do not say, a sentence for each

    @classmethod
    def of(cls, model: DiffusionLMConfig, known: _InferredVocab, *assumed: str) -> _InterpretedModel:
        return cls(model, known.tokenizer, (*known.assumed, *assumed))


_Interpreter: TypeAlias = Callable[[ForeignCheckpoint, TransformerConfig], _InterpretedModel]


@dataclass(frozen=True)
class _Format:
    """How a project stores its weights, and what they mean."""

    layout: Layout
    meaning: _Interpreter


def _parse_attention(attention: str) -> AttentionPattern:
    """causal, full or block:32 as a pattern."""
    if block := re.fullmatch(r"block:([1-9]\d{0,6})", attention):
        return BlockCausal(int(block[1]))
    if attention not in ("causal", "full"):
        raise LayoutError(f"attention={attention!r}; it must be causal, full or block:SIZE, say block:32")
    return Causal() if attention == "causal" else Full()


def _embedding_rows(network: TransformerConfig) -> int:
    """How many ids the weights have rows for, which every layout says."""
    assert network.ids is not None
    return network.ids


def _vocab_with_mask(
    original: ForeignCheckpoint, size: int, stated: object = None, *, last: bool = False
) -> _InferredVocab:
    """The vocabulary of a model that fills masks.

    stated: the mask by the settings, if they name it.
    last: whether the mask is known to be the last id where neither settings nor tokenizer name it.
    """
    chosen, hub = _chosen(original), original.tokenizer
    named = None if hub is None or hub.mask is None else hub.id_of(hub.mask)
    if stated is not None and type(stated) is not int:
        raise LayoutError(f"its settings name the mask {stated!r:.40}; it must be an id, a whole number")
    if chosen is not None and stated not in (None, chosen):
        raise LayoutError(f"mask={chosen} was asked for, but its settings name {stated}")
    mask = chosen if stated is None else stated
    if mask is not None or named is not None:
        assumed = () if mask is not None else (f"the mask is {hub.mask} of its tokenizer, id {named}",)  # type: ignore[union-attr]
        return _InferredVocab(*_agreed(hub, size, named if mask is None else mask, own=chosen is not None), assumed)
    if not last:
        raise LayoutError(
            "neither its config.json nor a tokenizer.json beside it names the mask token; say which it is: mask=ID, "
            "on the command line --mask ID"
        )
    return _InferredVocab(*_agreed(hub, size, size - 1 if hub is None else hub.vocab.mask), _last(hub, size))


def _last(hub: HubTokenizer | None, size: int) -> tuple[str, ...]:
    return (f"the mask is the last id, {size - 1 if hub is None else hub.vocab.mask}",)


def _chosen(original: ForeignCheckpoint) -> int | None:
    """The id of the mask that the caller asks for."""
    if not isinstance(original.mask, str):
        return original.mask
    if original.mask.isdecimal():
        return int(original.mask)
    found = None if original.tokenizer is None else original.tokenizer.id_of(original.mask)
    if found is None:
        raise LayoutError(f"mask={original.mask!r} is no token of its tokenizer; give an id")
    return found


def _agreed(
    hub: HubTokenizer | None, size: int, mask: int | None, *, own: bool = False
) -> tuple[Vocab, HubTokenizer | None]:
    """The vocabulary, if weights, mask and tokenizer belong together.

    A tokenizer without a mask may spell it as any special token; as an ordinary one if the caller says so.
    """
    if hub is None:
        return Vocab(size, mask=mask), None
    if mask is not None and hub.vocab.mask != mask and (hub.mask is None or hub.id_of(hub.mask) is None):
        spelt = hub.token_of(mask)
        if spelt is not None and (own or hub.is_special(mask)):
            hub = replace(hub, mask=spelt)
    if hub.vocab.size > size or hub.vocab.mask != mask:
        raise LayoutError(
            f"its tokenizer.json has {hub.vocab.size} ids and the mask {hub.vocab.mask}, where the weights have {size} "
            f"and {mask}; put the tokenizer that belongs to them into the directory"
        )
    return hub.vocab, hub


def _vocab_without_mask(original: ForeignCheckpoint, size: int) -> _InferredVocab:
    """The vocabulary of a model whose noise knows no mask."""
    _refuse_mask(original, "has no mask token")
    hub = original.tokenizer
    return _InferredVocab(*_agreed(None if hub is None else replace(hub, mask=None), size, None))


def _causal_vocab(original: ForeignCheckpoint, size: int) -> _InferredVocab:
    """The vocabulary of a plain autoregressive model, and one id more: the mask, for what is still to be written."""
    _refuse_mask(original, "predicts the next token and has no mask token")
    hub = original.tokenizer
    if hub is None:
        return _InferredVocab(Vocab(size + 1, mask=size), None)
    new = next(name for name in map("<|mask{}|>".format, ("", *range(99))) if hub.id_of(name) is None)
    hub = replace(hub, mask=new, bos=hub.bos if hub.begins else None)
    vocab = hub.vocab
    if vocab.size - 1 > size or vocab.mask != vocab.size - 1:
        raise LayoutError(
            f"its tokenizer.json has {vocab.size - 1} ids, where the weights have {size}; put the tokenizer that "
            "belongs to them into the directory"
        )
    return _InferredVocab(vocab, hub)


def _refuse_mask(original: ForeignCheckpoint, why: str) -> None:
    if original.mask is not None:
        raise LayoutError(f"mask={original.mask} was asked for, but this model {why}")
