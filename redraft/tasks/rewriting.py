"""`rewrite`: a seq2seq model answers the text, any other model edits it in place."""

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
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import DecodingSettings, GenerationSettings, RewriteSettings, require_texts
from redraft.tasks.engine.conditions import require_source_reader
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model
from redraft.tasks.engine.plan import DecodingPlan, TextRequest, make_plan
from redraft.tasks.engine.result import TextResult, TextResults
from redraft.tasks.generation import plan_generation


def rewrite(model: ModelOrPath, texts: str | Sequence[str], **options: Any) -> TextResults:
    """Rewrite each text `n` times.

    A model trained on pairs reads the text as its source and writes an answer. Any other model edits it in place: it
    noises the text to the time `strength`, except for pinned words, and denoises it from there.

    Args:
        model: a trained model, or its directory
        texts: a text, or a list of them
        options: the fields of `RewriteSettings`, by name: strength, pinned, candidates, n, steps, seed, …
    """
    text_model, settings = as_text_model(model), settings_from(RewriteSettings, options)
    plans = plan_rewrite(text_model, texts, settings)
    return keep_best(TextResults.joined(plan.results() for plan in plans), settings.candidates)


def keep_best(results: TextResults, candidates: int) -> TextResults:
    """Keeps the minimum-Bayes-risk text of each group of candidates; the cost includes the rejected ones."""
    if candidates == 1:
        return results
    groups = [results[i : i + candidates] for i in range(0, len(results), candidates)]
    best = tuple(replace(_consensus(group), row=row) for row, group in enumerate(groups))
    return replace(results, results=best, nfe=results.nfe * candidates)


def _consensus(group: Sequence[TextResult]) -> TextResult:
    text = minimum_bayes_risk([candidate.text for candidate in group])
    return next(candidate for candidate in group if candidate.text == text)


def plan_rewrite(model: TextModel, texts: str | Sequence[str], settings: RewriteSettings) -> list[DecodingPlan]:
    """Plans the rewriting of each text, with all its candidates. Raises if the model does not support a setting."""
    texts = require_texts("texts", texts)
    _require_rewritable(model)
    plans = [_answer(model, text, settings) if model.needs_source else _edit(model, text, settings) for text in texts]
    return [plan.offset_by(i, texts[:i].count(texts[i])) for i, plan in enumerate(plans)]


def _require_rewritable(model: TextModel) -> None:
    """Raises for models that can neither edit a text nor answer one."""
    if model.classes and not model.condition_optional:
        raise ValueError("this model needs a class, which rewrite does not take; use redraft generate --label")
    require_source_reader(model)
    if model.lm.process.vectors and model.lm.block is not None:
        raise ValueError("this model writes vectors in blocks and cannot start from a draft; use redraft generate")


def _answer(model: TextModel, text: str, settings: RewriteSettings) -> DecodingPlan:
    """Plans an answer with the text as its source."""
    for name in ("strength", "pinned"):
        if getattr(settings, name) not in (None, ()):
            raise ArgumentError(
                name, f"{name}=… is for texts edited in place; this model reads the text as a source and answers it"
            )
    options = {field.name: getattr(settings, field.name) for field in fields(DecodingSettings)}
    options |= {"n": settings.n * settings.candidates, "source": text}
    plan = plan_generation(model, "", GenerationSettings(**options))
    compose = plan.request.compose
    request = replace(plan.request, prompts=[text], compose=lambda texts: compose([""] * len(texts)))
    return replace(plan, request=request)


def _edit(model: TextModel, text: str, settings: RewriteSettings) -> DecodingPlan:
    """Plans an edit: the text is noised and denoised again."""
    if settings.ruled:
        raise ValueError("rules apply to new text, but most of an edited text stays; use redraft infill with holes")
    if not text.strip():
        raise ArgumentError(
            "texts", "the text is empty, so there is nothing to edit; use redraft generate for a new text"
        )
    row = model.encode_row(text)
    fixed = _fixed(model, row, settings.pinned)
    if model.compresses and settings.pinned:
        raise ArgumentError(
            "pinned", "pinned=…: this model compresses whole texts, so single words cannot be kept; leave it out"
        )
    room = max(8, len(row) // 4) if model.lm.process.grows else 0
    request = TextRequest([text], partial(_draft, model, row, fixed, room), len(row), len(row), room=room)
    strength = 0.5 if settings.strength is None else settings.strength

    def edited(sampler: Sampler) -> Sampler:
        return SDEdit(sampler, strength)

    return make_plan(model, request, replace(settings, n=settings.n * settings.candidates), edited)


def _draft(model: TextModel, row: Sequence[int], fixed: Sequence[bool], room: int, prompts: Sequence[str]) -> Canvas:
    """A canvas that holds the text as a draft, with pinned tokens fixed."""
    lm, device = model.lm, next(model.lm.parameters()).device
    ids = torch.tensor([list(row)] * len(prompts), device=device)
    fixed_rows = torch.tensor([list(fixed)] * len(prompts), device=device)
    if lm.process.grows:
        return _with_room(model, ids, fixed_rows, room)
    if lm.codec is None:
        return Canvas(ids, fixed_rows)
    with torch.no_grad():
        clean = lm.read(Batch.of(ids))
    return Canvas(clean.x, fixed_rows if lm.codec.latents is None else torch.zeros_like(clean.learn))


def _with_room(model: TextModel, ids: Tensor, fixed: Tensor, room: int) -> Canvas:
    """A draft for insertion models, with room for the text to become longer."""
    positions = model.lm.config.network.positions
    room = room if positions is None else max(0, min(room, positions - 1 - ids.shape[1]))
    z = F.pad(ids, (0, room), value=model.lm.config.vocab.filler)
    pad = torch.arange(z.shape[1], device=ids.device).expand_as(z) >= ids.shape[1]
    gaps = torch.ones(len(z), z.shape[1] + 1, dtype=torch.bool, device=ids.device)
    return Canvas(z, F.pad(fixed, (0, room)), Context(pad=pad), open=gaps)


def _fixed(model: TextModel, row: Sequence[int], pinned: Sequence[str]) -> list[bool]:
    """Marks the tokens of a row that stay: the start token, and every occurrence of a pinned word."""
    pieces, pinned_tokens = token_texts(model.tokenizer, list(row)), set[int]()
    ends = list(accumulate(map(len, pieces)))
    text = "".join(pieces)
    for word in pinned:
        matches = list(re.finditer(rf"(?<!\w){re.escape(word.strip())}(?!\w)", text))
        if not matches:
            raise ArgumentError("pinned", f"pinned={word!r}: the text has no such word; {_nearest(word, text)}")
        pinned_tokens |= {i for match in matches for i in _overlapping_tokens(ends, *match.span())}
    return [token == model.lm.config.vocab.bos or i in pinned_tokens for i, token in enumerate(row)]


def _overlapping_tokens(ends: Sequence[int], begin: int, end: int) -> range:
    """Indices of the tokens that overlap characters begin..end."""
    return range(bisect_right(ends, begin), bisect_left(ends, end) + 1)


def _nearest(word: str, text: str) -> str:
    close = get_close_matches(word, sorted(set(split_words(text))), n=2)
    return f"did you mean {' or '.join(close)}?" if close else "pin words that are in the text"
