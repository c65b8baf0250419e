"""Speculative decoding: a drafter proposes several tokens, and a causal model verifies them in a single pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.processes.masked import Masked
from redraft.core.randomness import Rng
from redraft.core.vocab import require_range
from redraft.decoding.picks.order import require_temperature
from redraft.decoding.samplers.base import CacheKind, DraftStats, Sampler, require_unconstrained
from redraft.decoding.samplers.stopping import stop_rows
from redraft.decoding.speculation.acceptance import (
    AcceptRule,
    MatchRule,
    Proposal,
    _Acceptance,
    _GreedyRule,
    _RoundNoise,
)
from redraft.decoding.speculation.costs import DraftCosts, _AcceptanceEstimate
from redraft.decoding.speculation.drafters import Drafter, DraftRequest, NoDraft
from redraft.decoding.speculation.lookup import PromptLookup


@dataclass(frozen=True)
class SpeculativeSampler(Sampler):
    """Speculative decoding of a causal model: several tokens per pass, drawn exactly from the model's distribution.

    In each round `draft` proposes up to `length` tokens, the model reads them in one pass after its cached tokens, and
    `rule` accepts a prefix of them and adds one token. Rows are written one after the other, independently of each
    other: in a batch, all rows already share each pass, so speculation would gain little.

    Raises if the rule is not exact for the drafter. At temperature 0 every rule takes the most likely tokens.
    """

    draft: Drafter = PromptLookup()
    rule: AcceptRule = MatchRule()
    length: int = 8  # maximum number of tokens in a draft
    costs: DraftCosts | None = DraftCosts()  # choose the length of each draft; None always drafts `length` tokens
    temperature: float = 1.0
    stop: bool = False  # whether a row ends at its first end token
    tally: DraftStats = field(default_factory=DraftStats, repr=False, compare=False)  # counts over all calls
    writes_once = True
    obeys_rules = False

    def __post_init__(self) -> None:
        require_range(self, 1, 1024, "length")
        require_temperature(self.temperature)
        if self.rule.needs_log_q and not self.draft.ordered and self.temperature:
            raise ValueError(
                f"{self.rule} needs the probability of each drafted token given those to its left, which "
                f"{type(self.draft).__name__} does not know; probabilities from another order would bias the text: "
                "use MatchRule(), SharedGumbelRule() or PointMassRule(), or a drafter that writes left to right"
            )

    @property
    def draws_exactly(self) -> bool:
        return self.temperature == 1

    @property
    def stops_at_end_token(self) -> bool:
        return self.stop

    @property
    def draft_stats(self) -> DraftStats:
        return self.tally

    def cache_kind(self, block: int | None) -> CacheKind:
        return "exact"

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if denoise.block != 1 or not process.fills_masks:
            raise ValueError(
                "speculative decoding is for causal models, which write one token per pass; other models write several "
                "already: use Unmask"
            )
        require_unconstrained(canvas, self, "it draws several tokens from one pass")
        process = process.narrowed(Masked, "SpeculativeSampler", "use Unmask")
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        for row in range(len(canvas.z)):
            index = torch.tensor([row], device=canvas.z.device)
            for row_canvas in self._write_row(denoise, process, canvas.rows(index), rng.rows(index)):
                canvas = _replace_row(canvas, index, row_canvas)
                yield canvas

    def _write_row(self, denoise: Denoiser, process: Masked, canvas: Canvas, rng: Rng) -> Iterator[Canvas]:
        """Write a canvas with a single row; yields it after each round."""
        rule = self.rule if self.temperature else _GreedyRule()
        context, read, done, estimate = _without_padding(canvas), 0, 0, _AcceptanceEstimate()
        drafter = self.draft.fresh()
        while (span := _next_span(canvas, done)) is not None:
            begin, end = span
            noise = _RoundNoise(rng, begin)
            length = self.length if self.costs is None else self.costs.best_length(estimate.rate, self.length)
            request = DraftRequest(
                canvas.z[:, :begin],
                min(length, end - begin - 1),
                process.vocab.size,
                self.temperature,
                rule,
                noise,
                context,
            )
            draft = (drafter if request.count else NoDraft())(request)
            with torch.no_grad():
                log_p, context = self._read(denoise, process, canvas, context, read, begin, draft)
            position = torch.arange(begin, begin + log_p.shape[1], device=log_p.device)
            acceptance = rule(log_p, draft, position, noise)
            accepted = int(acceptance.count)
            read, done = begin + accepted, begin + accepted + 1
            context = _crop_cache(context, read)
            canvas = _write_accepted(canvas, draft, acceptance, log_p, begin)
            if self.stop:
                canvas = stop_rows(canvas, process.vocab.eos, done, denoise)
            drafter.observe(canvas.z[:, :done], context)
            drafted = draft.tokens.shape[1]
            certain = 0 if self.costs is None else self.costs.always_accepted
            estimate = estimate.update(max(0, drafted - certain), max(0, accepted - certain))
            self.tally.add(drafted, accepted, accepted + 1)
            yield canvas

    def _read(
        self,
        denoise: Denoiser,
        process: Masked,
        canvas: Canvas,
        context: Context,
        read: int,
        begin: int,
        draft: Proposal,
    ) -> tuple[Tensor, Context]:
        """Read the draft in one pass; returns the target's log-probabilities (1, γ + 1, V) and its new context.

        The pass starts with the tokens that are not cached yet: the prompt, or the last token of the previous round.
        """
        z, end = torch.cat([canvas.z[:, read:begin], draft.tokens], 1), begin + draft.tokens.shape[1]
        position = torch.arange(read, end + 1, device=z.device)[None]
        context = denoise.absorb(z, replace(context, positions=position[:, :-1]))
        masks = torch.full_like(position[:, begin - read :], process.vocab.masked)
        no_end = canvas.context.constraints.no_end_token
        clean = torch.cat([draft.tokens, masks[:, :1]], 1)
        query = replace(context, positions=position[:, begin - read :], clean=clean)
        query = query.with_constraints(no_end_token=None if no_end is None else no_end[:, begin : end + 1])
        log_p = denoise.predict(masks, torch.ones(1, 1, device=z.device), query).x
        rescale = self.temperature not in (0, 1)
        return (log_p.double() / self.temperature).log_softmax(-1) if rescale else log_p, context


def _without_padding(canvas: Canvas) -> Context:
    """Return the context of a row without padding, which must come after the last token to write."""
    pad, free = canvas.context.pad, (~canvas.fixed[0]).nonzero()
    if pad is not None and len(free) and bool(pad[0, : int(free[-1])].any()):
        raise ValueError(
            "the row has padding before its last token to write; speculative decoding cannot skip it: remove it"
        )
    return replace(canvas.context, pad=None, clean=None).with_constraints(no_end_token=None)


def _next_span(canvas: Canvas, done: int) -> tuple[int, int] | None:
    """Return (begin, end) of the next columns to write from column `done` on; None if nothing is left."""
    fixed = canvas.fixed[0].tolist()
    begin = next((i for i in range(done, len(fixed)) if not fixed[i]), None)
    if begin is None:
        return None
    return begin, next((i for i in range(begin, len(fixed)) if fixed[i]), len(fixed))


def _crop_cache(context: Context, length: int) -> Context:
    """Drop all tokens after the first `length` from the cache."""
    crop = getattr(context.cache, "crop", None)
    if crop is None:
        raise ValueError("this denoiser's cache cannot drop rejected tokens; use speculative decoding without guidance")
    return replace(context, cache=crop(length))


def _write_accepted(canvas: Canvas, draft: Proposal, acceptance: _Acceptance, log_p: Tensor, begin: int) -> Canvas:
    """Write the accepted tokens and the one after them into the row, and their probabilities into its confidence."""
    count = int(acceptance.count)
    tokens = torch.cat([draft.tokens[:, :count], acceptance.next[:, None]], 1)
    z, confidence = canvas.z.clone(), canvas.confidence
    confidence = torch.zeros_like(z, dtype=torch.float32) if confidence is None else confidence.clone()
    z[:, begin : begin + count + 1] = tokens
    log_probs = log_p[:, : count + 1].gather(-1, tokens[..., None]).squeeze(-1)
    confidence[:, begin : begin + count + 1] = log_probs.exp().float()
    return replace(canvas, z=z, confidence=confidence)


def _replace_row(canvas: Canvas, index: Tensor, row: Canvas) -> Canvas:
    """Return the canvas with the row at `index` (1,) replaced by the single row of another canvas."""
    confidence = canvas.confidence
    if row.confidence is not None:
        confidence = torch.zeros_like(canvas.z, dtype=torch.float32) if confidence is None else confidence
        confidence = confidence.index_copy(0, index, row.confidence)
    fixed = canvas.fixed.index_copy(0, index, row.fixed)
    return replace(canvas, z=canvas.z.index_copy(0, index, row.z), fixed=fixed, confidence=confidence)
