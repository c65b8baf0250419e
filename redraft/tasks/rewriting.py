"""`rewrite`: a text becomes another one, by a model that answers sources, or edited in place."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import fields, replace
from difflib import get_close_matches
from functools import partial
from itertools import accumulate
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from redraft.core.batch import Batch
from redraft.core.canvas import Canvas, Context
from redraft.core.text.bleu import minimum_bayes_risk
from redraft.core.text.tokenizers import split_words, token_texts
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.editing import SDEdit
from redraft.models.canvas_builder import inserts_tokens
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.arguments.settings import DecodingSettings, GenerationSettings, RewriteSettings, require_texts
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model
from redraft.tasks.engine.plan import DecodingPlan, TextRequest, make_plan
from redraft.tasks.engine.result import TextResult, TextResults
from redraft.tasks.generation import plan_generation


def rewrite(model: ModelOrPath, texts: str | Sequence[str], **options: Any) -> TextResults:
    """Each text rewritten, `n` times.

    A model that was trained on pairs reads the text as its source and writes the answer. Any other edits it in place:
    the text is noised to the time `strength` and written again from there, and pinned words stay.

    Args:
        model: a trained model, or the directory of one
        texts: a text, or a list of them
        options: the fields of `RewriteSettings`, by name: strength, pinned, candidates, n, steps, seed, …
    """
    it, asked = as_text_model(model), settings_from(RewriteSettings, options)
    found = require_texts("texts", texts)
    return keep_best(TextResults.joined(made.results() for made in plan_rewrite(it, found, asked)), asked.candidates)


def keep_best(record: TextResults, candidates: int) -> TextResults:
    """Of every so many texts the one most like all of them (minimum Bayes risk); what the others cost counts too."""
    if candidates == 1:
        return record
    groups = [record.written[i : i + candidates] for i in range(0, len(record), candidates)]
    best = tuple(replace(_consensus(group), row=row) for row, group in enumerate(groups))
    return replace(record, written=best, nfe=record.nfe * candidates)


def _consensus(group: Sequence[TextResult]) -> TextResult:
    text = minimum_bayes_risk([each.text for each in group])
    return next(each for each in group if each.text == text)


def plan_rewrite(it: TextModel, texts: str | Sequence[str], asked: RewriteSettings) -> list[DecodingPlan]:
    """How to rewrite each text, with all candidates to choose from; whatever the model cannot do is refused here."""
    found = require_texts("texts", texts)
    if it.classes and not it.condition_optional:
        raise ValueError("this model writes texts of a class, and rewrite takes none; use redraft generate --label")
    made = [_answer(it, text, asked) if it.needs_source else _edit(it, text, asked) for text in found]
    return [each.offset_by(number, found[:number].count(found[number])) for number, each in enumerate(made)]


def _answer(it: TextModel, text: str, asked: RewriteSettings) -> DecodingPlan:
    """The text as the source of a new one."""
    for name in ("strength", "pinned"):
        if getattr(asked, name) not in (None, ()):
            raise ArgumentError(
                name, f"{name}=… is for texts edited in place; this model reads the text as a source and answers it"
            )
    shared = {field.name: getattr(asked, field.name) for field in fields(DecodingSettings)}
    made = plan_generation(it, "", GenerationSettings(**shared | {"n": asked.n * asked.candidates}, source=text))
    order = made.request
    return replace(made, request=replace(order, prompts=[text], compose=lambda some: order.compose([""] * len(some))))


def _edit(it: TextModel, text: str, asked: RewriteSettings) -> DecodingPlan:
    """The text noised and written again."""
    if asked.ruled:
        raise ValueError("rules are for new text, and here most of it stays; use redraft infill with holes to fill")
    if not text.strip():
        raise ArgumentError("texts", "the text is empty: there is nothing to edit; redraft generate writes a new one")
    row = it.encode_row(text)
    fixed = _fixed(it, row, asked.pinned)
    if it.lm.codec is not None and it.lm.codec.latents is not None and asked.pinned:
        raise ArgumentError("pinned", "pinned=…: this model compresses whole texts, so no word has a place of its own")
    room = max(8, len(row) // 4) if inserts_tokens(it.lm.process) else 0
    order = TextRequest([text], partial(_draft, it, row, fixed, room), len(row), len(row), room=room)
    strength = 0.5 if asked.strength is None else asked.strength

    def edited(sampler: Sampler) -> Sampler:
        return SDEdit(sampler, strength)

    return make_plan(it, order, replace(asked, n=asked.n * asked.candidates), edited)


def _draft(it: TextModel, row: Sequence[int], fixed: Sequence[bool], room: int, some: Sequence[str]) -> Canvas:
    """A canvas on which the text stands, and pinned tokens are fixed."""
    model, device = it.lm, next(it.lm.parameters()).device
    ids = torch.tensor([list(row)] * len(some), device=device)
    held = torch.tensor([list(fixed)] * len(some), device=device)
    if inserts_tokens(model.process):
        return _roomy(it, ids, held, room)
    if model.codec is None:
        return Canvas(ids, held)
    with torch.no_grad():
        encoded = model.encode(Batch.of(ids))
    return Canvas(encoded.x, held if model.codec.latents is None else torch.zeros_like(encoded.learn))


def _roomy(it: TextModel, ids: Tensor, held: Tensor, room: int) -> Canvas:
    """The same for insertion: the text may become longer."""
    positions = it.lm.config.network.positions
    room = room if positions is None else max(0, min(room, positions - 1 - ids.shape[1]))
    z = F.pad(ids, (0, room), value=it.lm.config.vocab.filler)
    pad = torch.arange(z.shape[1], device=ids.device).expand_as(z) >= ids.shape[1]
    gaps = torch.ones(len(z), z.shape[1] + 1, dtype=torch.bool, device=ids.device)
    return Canvas(z, F.pad(held, (0, room)), Context(pad=pad), open=gaps)


def _fixed(it: TextModel, row: Sequence[int], pinned: Sequence[str]) -> list[bool]:
    """Which tokens of a row stay: the start token, and all that pinned words touch, wherever they stand."""
    pieces, places = token_texts(it.tokenizer, list(row)), set[int]()
    ends = list(accumulate(map(len, pieces)))
    text = "".join(pieces)
    for word in pinned:
        found = list(re.finditer(rf"(?<!\w){re.escape(word.strip())}(?!\w)", text))
        if not found:
            raise ArgumentError("pinned", f"pinned={word!r}: the text has no such word; {_nearest(word, text)}")
        places |= {i for match in found for i in _touched(ends, *match.span())}
    return [token == it.lm.config.vocab.bos or i in places for i, token in enumerate(row)]


def _touched(ends: Sequence[int], begin: int, end: int) -> range:
    """The tokens that write characters begin..end."""
    return range(bisect_right(ends, begin), bisect_left(ends, end) + 1)


def _nearest(word: str, text: str) -> str:
    close = get_close_matches(word, sorted(set(split_words(text))), n=2)
    return f"did you mean {' or '.join(close)}?" if close else "pin words that it has"
