"""Generating answers for tasks: prompts become canvases, task settings choose the sampler, stop strings end texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import torch

from redraft.core import randomness
from redraft.core.canvas import Canvas
from redraft.decoding.samplers.base import Sampler, final_canvas
from redraft.evaluation.harness.requests import AnswerRequest, RowLayout
from redraft.evaluation.harness.scoring import _BATCH_ROWS, ProgressCallback, _NoProgress, _rows_at_once
from redraft.models.canvas_builder import make_hole
from redraft.tasks.arguments.aliases import ALIASES, settings_from
from redraft.tasks.arguments.settings import DecodingSettings
from redraft.tasks.engine.sampler_choice import choose_sampler, forbid_end_token
from redraft.tasks.engine.stop_strings import StopStrings, with_stop_strings

_NEW = 256  # tokens to write if a task does not say how many
_SIZES = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")  # lm-eval's names for that number


@dataclass(frozen=True)
class _TaskGeneration:
    """How a task wants its answers to be generated."""

    new: int = _NEW  # maximum number of tokens to write
    until: tuple[str, ...] = ()  # stop strings
    decoding: DecodingSettings = DecodingSettings(temperature=0.0)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> tuple[_TaskGeneration, list[str]]:
        """Read a task's `generation_kwargs`; also returns the names of those that were ignored.

        It takes lm-eval's names, those of `DecodingSettings`, and the names of other projects for these.
        """
        sizes = [settings[name] for name in _SIZES if settings.get(name) is not None]
        if sizes and not (isinstance(sizes[0], int) and sizes[0] > 0):
            raise ValueError(f"the task asks for {sizes[0]!r} new tokens; it must ask for one or more")
        until = settings.get("until") or ()
        known = {name: value for name, value in settings.items() if _is_decoding_setting(name)}
        temperature = settings.get("temperature", 1.0) if settings.get("do_sample") else 0.0
        decoding = settings_from(DecodingSettings, {**known, "temperature": float(temperature)})
        ignored = set(settings) - set(known) - {*_SIZES, "until", "do_sample", "temperature"}
        stops = (until,) if isinstance(until, str) else tuple(text for text in until if text)
        return cls(sizes[0] if sizes else _NEW, stops, decoding), sorted(ignored)


@dataclass(frozen=True)
class _AnswerWriter:
    """Writes answers. A text depends only on its prompt, the seed, and how often the prompt has occurred before."""

    layout: RowLayout
    seed: int = 0
    steps: int | None = None  # sampling steps if the task does not set them; None for one per token with mask noise

    def __call__(
        self, requests: Sequence[tuple[AnswerRequest, _TaskGeneration]], progress: ProgressCallback = _NoProgress()
    ) -> list[str]:
        """Return one text per request, in order."""
        prompts = [self._prompt(request, generation) for request, generation in requests]
        earlier, texts = _count_earlier([prompt for prompt, _, _ in prompts]), [""] * len(requests)
        progress.begin("answers written", len(requests))
        for indices in self._batches(prompts):
            _, new, generation = prompts[indices[0]]
            answers = self._write([prompts[i][0] for i in indices], [earlier[i] for i in indices], new, generation)
            for i, text in zip(indices, answers, strict=True):
                texts[i] = text
            progress.advance(len(indices))
        return texts

    def _batches(self, prompts: Sequence[tuple[AnswerRequest, int, _TaskGeneration]]) -> Iterator[list[int]]:
        """Yield batches of indices: prompts with equal settings and answer length together, short prompts first."""
        kinds = [(new, generation.decoding, generation.until) for _, new, generation in prompts]
        for kind in dict.fromkeys(kinds):
            order = [i for i, other in enumerate(kinds) if other == kind]
            order.sort(key=lambda i: len(prompts[i][0].context))
            while order:
                longest = max(len(self.layout.prefix(prompts[i][0])) for i in order[:_BATCH_ROWS])
                rows = _rows_at_once(self.layout.model, self.layout.row_length(longest + kind[0]))
                yield order[:rows]
                order = order[rows:]

    def _prompt(
        self, request: AnswerRequest, generation: _TaskGeneration
    ) -> tuple[AnswerRequest, int, _TaskGeneration]:
        """Return the truncated prompt, the number of tokens to write, and the settings.

        If the context is too long, the answer gets at most half of the row.
        """
        capacity = self.layout.capacity
        new = min(generation.new, max(1, capacity // 2, capacity - self.layout.context_size(request)))
        return self.layout.prompt(request, new), new, generation

    def _write(
        self, prompts: Sequence[AnswerRequest], earlier: Sequence[int], new: int, generation: _TaskGeneration
    ) -> list[str]:
        """Write the answers to a batch of prompts; `earlier` of them have occurred before."""
        lm, tokenizer = self.layout.lm, self.layout.model.tokenizer
        canvas = with_stop_strings(self._canvas(prompts, new), generation.until, tokenizer)
        canvas = forbid_end_token(canvas) if generation.decoding.end_token == "never" else canvas
        samples = torch.tensor([prompt.sample for prompt in prompts], device=canvas.z.device)
        keys = randomness.rng(self.seed, samples).fold(torch.tensor(earlier, device=canvas.z.device))
        sampler = self._sampler(generation.decoding, int((~canvas.fixed).sum(-1).max()))
        with torch.no_grad():
            final = lm.to_tokens(final_canvas(sampler(lm, lm.process, canvas, rng=keys)))
        stop = StopStrings(generation.until, tokenizer)
        prefixes = [self.layout.prefix(prompt) for prompt in prompts]
        return [stop.text_before(self._answer(final, row, len(ids), new), ids) for row, ids in enumerate(prefixes)]

    def _canvas(self, prompts: Sequence[AnswerRequest], new: int) -> Canvas:
        """Lay out the prompts, each followed by a hole for at least `new` tokens."""
        layout, rows = self.layout, []
        for prompt in prompts:
            prefix = tuple(layout.prefix(prompt))
            size = layout.row_length(len(prefix) + new) - len(prefix)
            rows.append([prefix, make_hole(layout.lm.process, size)])
        has_encoder = "encoder" in layout.lm.parts
        return layout.lm.compose(rows, [prompt.context for prompt in prompts] if has_encoder else None)

    def _answer(self, final: Canvas, row: int, start: int, new: int) -> list[int]:
        """Return the ids written in a row from column `start` on, up to the end token."""
        pad, vocab = final.context.pad, self.layout.lm.config.vocab
        present = torch.ones_like(final.fixed[row]) if pad is None else ~pad[row]
        ids: list[int] = final.z[row][present].tolist()[start : start + new]
        return ids[: ids.index(vocab.eos)] if vocab.eos in ids else ids

    def _sampler(self, decoding: DecodingSettings, hidden: int) -> Sampler:
        """Choose the sampler for rows with up to `hidden` tokens to write.

        With mask noise it writes the most confident token first, in the blocks of the network or of the run's sampler.
        Other noise uses the run's sampler, which takes no temperature.
        """
        model, steps = self.layout.model, decoding.steps or self.steps
        if not model.lm.process.fills_masks:
            return choose_sampler(model, replace(decoding, steps=steps, temperature=None), hidden)[0]
        block = decoding.decode_block or model.sampler.block_size
        kind = "confidence" if decoding.sampler == "own" else decoding.sampler
        ranked = kind in ("confidence", "margin", "entropy")
        block_size = min(hidden, model.lm.block or block or hidden)
        return choose_sampler(
            model,
            replace(
                decoding,
                sampler=kind,
                steps=steps or block_size,
                decode_block=block,
                temperature=decoding.temperature if ranked else None,
            ),
            hidden,
        )[0]


def _is_decoding_setting(name: str) -> bool:
    """Whether a name is one of `DecodingSettings` or an alias; lm-eval itself sets the count, seed and temperature."""
    known = {field.name for field in fields(DecodingSettings)} - {"n", "seed", "temperature"}
    return name in known or (name in ALIASES and ALIASES[name].name in known)


def _count_earlier(prompts: Sequence[AnswerRequest]) -> list[int]:
    """Return how often each prompt occurs earlier in the list."""
    seen: Counter[AnswerRequest] = Counter()
    earlier = []
    for prompt in prompts:
        earlier.append(seen[prompt])
        seen[prompt] += 1
    return earlier
