"""Speculation as it is asked for: who drafts for a causal model; what cannot be combined with it is refused."""

from __future__ import annotations

from pathlib import Path

import torch

from redraft.core.processes.masked import Masked
from redraft.core.text.tokenizers import Tokenizer
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.samplers.base import sampler_layers
from redraft.decoding.speculation.acceptance import ACCEPT_RULES
from redraft.decoding.speculation.drafters import DiffusionDraft, Drafter, OwnDrafter
from redraft.decoding.speculation.lookup import PromptLookup, TextLookup
from redraft.decoding.speculation.speculative import DraftCosts, SpeculativeSampler
from redraft.models.cpu_weights import weight_format, with_weight_format
from redraft.models.draft_state import DraftState
from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.arguments.settings import GenerationSettings
from redraft.tasks.engine.model import TextModel, open_model
from redraft.training.data.sources import Jsonl, TextFiles

_ELSEWHERE = {
    "sampler": "own",
    "steps": None,
    "threshold": None,
    "decode_block": None,
    "cache": "own",
    "guidance": 1.0,
    "repetition_penalty": None,
}  # settings that a draft leaves no room for, and their values if nobody sets them


def speculative_sampler(it: TextModel, asked: GenerationSettings) -> SpeculativeSampler:
    """The sampler of a causal model with somebody who drafts for it."""
    if it.lm.block != 1:
        raise ArgumentError(
            "draft", f"draft=…: {it.display_name} is not a causal model; it already writes several tokens at a time"
        )
    for name, value in _ELSEWHERE.items():
        if getattr(asked, name) != value:
            raise ArgumentError(name, f"{name}=… cannot be combined with draft=…; leave one of them out")
    if asked.ruled:
        raise ArgumentError("draft", "draft=…: rules about the text cannot be combined with it; leave one of them out")
    stop = any(part.stop for part in sampler_layers(it.sampler) if isinstance(part, Blocks))
    rule, draft = ACCEPT_RULES[asked.accept], _drafter(it, asked)
    if rule.needs_law and not draft.ordered:
        raise ArgumentError(
            "accept", f"accept={asked.accept!r}: lookup has no probabilities, which it needs; use matched"
        )
    return SpeculativeSampler(draft, rule, asked.draft_length, _costs(draft), stop=stop)


def _costs(draft: Drafter) -> DraftCosts:
    """What a draft costs, roughly, in passes of the model over one token."""
    if isinstance(draft, PromptLookup | TextLookup):
        return DraftCosts(draft=0.0)
    own = draft.memory.ahead if isinstance(draft, OwnDrafter) else 0  # tokens that the model says itself
    return DraftCosts(draft=1.2, sure=own) if own else DraftCosts()


def _drafter(it: TextModel, asked: GenerationSettings) -> Drafter:
    if asked.draft == "lookup" and not Path("lookup").is_dir():
        return PromptLookup()
    if asked.draft == "self" and not Path("self").is_dir():
        if it.lm.drafter is None:
            raise ArgumentError(
                "draft",
                f"draft='self': {it.display_name} has no drafter of its own; train one: "
                f"redraft adapt {it.display_name} --draft self --data … --out …",
            )
        return OwnDrafter(DraftState(it.lm))
    place = Path(asked.draft or "")
    if place.is_file() or place.suffix in (".txt", ".jsonl"):
        return _text_lookup(place, it.tokenizer)
    other = open_model(place)
    if other.lm.drafter is not None:
        _require_same_tokens(it, other, str(asked.draft))
        _require_same_base(it, other, str(asked.draft))
        form = weight_format(it.lm)
        return OwnDrafter(DraftState(other.lm if form is None else with_weight_format(other.lm, form)))
    process = other.lm.process
    if not isinstance(process, Masked) or other.lm.codec is not None or other.needs_source or other.classes:
        raise ArgumentError("draft", f"draft={asked.draft}: a drafter fills masks, and needs neither source nor class")
    _require_same_tokens(it, other, str(asked.draft))
    known = other.full_row_length or other.lm.config.network.positions
    window = None if known is None else max(1, known - asked.draft_length)
    return DiffusionDraft(other.lm.eval(), process, asked.draft_steps, other.full_row_length, window)


def _text_lookup(path: Path, tokenizer: Tokenizer) -> TextLookup:
    """Drafts by the texts of a file."""
    return TextLookup(tuple(tuple(tokenizer.encode(text)) for text in _texts(path)))


def _texts(path: Path) -> list[str]:
    """The paragraphs of a .txt file, or the field text or target of the lines of a .jsonl file."""
    if path.suffix not in (".txt", ".jsonl"):
        raise ArgumentError("draft", f"draft={path}: a file of texts to look words up in ends in .txt or .jsonl")
    if not path.is_file():
        raise ArgumentError("draft", f"draft={path}: there is no such file; recipes/drafts.py own writes one")
    name = str(path)
    tried = [TextFiles((name,))] if path.suffix == ".txt" else [Jsonl((name,)), Jsonl((name,), field="target")]
    found = [list(kind.read(name)) for kind in tried]
    least = min(found, key=lambda records: sum(bool(record.problem) for record in records))
    wrong = next((record for record in least if record.problem), None)
    if wrong is not None:
        raise ArgumentError("draft", f"draft={path}: {wrong.place} is {wrong.problem}; leave such lines out")
    if not least:
        raise ArgumentError("draft", f"draft={path}: it holds no text; give one with texts that the model wrote")
    return [record.text for record in least]


def _require_same_base(it: TextModel, other: TextModel, name: str) -> None:
    """Raises unless the drafter was trained for this very model: it reads the states of no other."""
    ours, theirs = (dict(each.lm.network.named_parameters()) for each in (it, other))
    both = ours.keys() & theirs.keys()
    layers = it.lm.config.network.layers == other.lm.config.network.layers
    if not layers or not both or not all(torch.equal(ours[n], theirs[n]) for n in both):
        raise ArgumentError(
            "draft",
            f"draft={name}: it was trained for another model, and reads the states of that one; train one for "
            f"{it.display_name}: redraft adapt {it.display_name} --draft beside --data … --out …",
        )


def _require_same_tokens(it: TextModel, other: TextModel, name: str) -> None:
    """Raises unless every id of the model means the same to the drafter."""
    if it.tokenizer == other.tokenizer:
        return
    ours, theirs = it.lm.config.vocab, other.lm.config.vocab
    words = [i for i in range(min(ours.size, theirs.size)) if i not in (ours.mask, theirs.mask)]
    same = abs(ours.size - theirs.size) <= 1 and all(it.tokenizer.piece(i) == other.tokenizer.piece(i) for i in words)
    if not same:
        raise ArgumentError(
            "draft",
            f"draft={name}: it has another tokenizer ({theirs.size:,} ids, the model {ours.size:,}); a drafter needs "
            "the same tokens: train or adapt one with the model's tokenizer",
        )
