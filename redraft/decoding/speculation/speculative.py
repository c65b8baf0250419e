"""Speculation: a drafter proposes several tokens, a causal model reads them in one pass and keeps what it would say."""

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
from redraft.decoding.samplers.base import require_unconstrained
from redraft.decoding.samplers.stopping import stop_rows
from redraft.decoding.speculation.acceptance import Acceptance, AcceptRule, GreedyRule, MatchRule, Proposal, RoundNoise
from redraft.decoding.speculation.drafters import Drafter, DraftRequest, NoDraft, StatefulDrafter
from redraft.decoding.speculation.lookup import PromptLookup


@dataclass(frozen=True)
class DraftCosts:
    """What a round costs, in passes of the target over one token; it decides how long drafts are.

    A draft of γ tokens, each accepted with probability a, gives (1 − a^{γ+1})/(1 − a) tokens for 1 + read·γ + draft;
    of a draft that begins with the target's own tokens the first `sure` ones are always accepted.
    """

    read: float = 0.15  # one more token in a pass of the target
    draft: float = 0.3  # a draft, however long
    sure: int = 0

    def __post_init__(self) -> None:
        require_range(self, 0, 1000, "read", "draft", "sure")

    def best(self, acceptance: float, most: int) -> int:
        """The length of the draft that gives the most tokens for its cost; 0: plain decoding is faster."""
        best, found, tokens, power = 1.0, 0, 1.0, 1.0
        for n in range(1, most + 1):
            power *= acceptance if n > self.sure else 1.0
            tokens += power
            gain = tokens / (1 + self.read * n + self.draft)
            if gain > best:
                best, found = gain, n
        return found


@dataclass
class DraftStats:
    """What became of the drafts; `SpeculativeSampler` counts into it."""

    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    written: int = 0

    def add(self, drafted: int, accepted: int, written: int) -> None:
        self.rounds, self.drafted = self.rounds + 1, self.drafted + drafted
        self.accepted, self.written = self.accepted + accepted, self.written + written

    @property
    def acceptance(self) -> float:
        """The share of the drafted tokens that was accepted."""
        return self.accepted / self.drafted if self.drafted else 0.0

    @property
    def tokens_per_round(self) -> float:
        return self.written / self.rounds if self.rounds else 0.0


@dataclass(frozen=True)
class _Trust:
    """How often a drafted token was accepted lately, as counts of both outcomes."""

    accepted: float = 2.0
    rejected: float = 1.0

    def after(self, drafted: int, accepted: int) -> _Trust:
        """Old rounds count less; without a draft the counts return to where they began, so that it is tried again."""
        kept, start = 0.9, _Trust()
        if not drafted:
            part = (start.accepted - self.accepted, start.rejected - self.rejected)
            return _Trust(self.accepted + 0.02 * part[0], self.rejected + 0.02 * part[1])
        return _Trust(kept * self.accepted + accepted, kept * self.rejected + (accepted < drafted))

    @property
    def rate(self) -> float:
        return self.accepted / (self.accepted + self.rejected)


@dataclass(frozen=True)
class SpeculativeSampler:
    """Plain decoding of a causal model, several tokens per pass: the text has the model's law exactly.

    In each round `draft` proposes up to `length` tokens, the model reads them in one pass behind its cache, and `rule`
    accepts the first few and adds one token. With `costs` drafts are as long as pays at the acceptance of the text so
    far, possibly empty; without, always `length`. Rows are written one after the other, each as if alone: a batch of
    rows already shares every pass, and there speculation gains little.

    A drafter that the rule is not exact for is refused. At temperature 0 every rule takes the likeliest tokens.
    """

    draft: Drafter = PromptLookup()
    rule: AcceptRule = MatchRule()
    length: int = 8
    costs: DraftCosts | None = DraftCosts()
    temperature: float = 1.0
    stop: bool = False
    tally: DraftStats = field(default_factory=DraftStats, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_range(self, 1, 1024, "length")
        require_temperature(self.temperature)
        if self.rule.needs_law and not self.draft.ordered and self.temperature:
            raise ValueError(
                f"{self.rule} weighs p against the law of each drafted token given those to its left, which "
                f"{type(self.draft).__name__} does not know: probabilities of another order would bias the text; "
                "use Matched(), SharedGumbel() or PointMass(), or a drafter that writes left to right"
            )

    def exact(self, denoise: Denoiser) -> bool | None:
        """The cache is exact."""
        return True

    def __call__(self, denoise: Denoiser, process: Process, canvas: Canvas, *, rng: Rng) -> Iterator[Canvas]:
        if denoise.block != 1 or not isinstance(process, Masked):
            raise ValueError(
                "speculation is for causal models, which write one token after the other; a network with full "
                "attention already writes several per pass: use Unmask"
            )
        require_unconstrained(canvas, self, "it draws several tokens from one pass")
        canvas = process.prior(canvas, rng=rng)
        yield canvas
        for row in range(len(canvas.z)):
            index = torch.tensor([row], device=canvas.z.device)
            for one in self._row(denoise, process, canvas.rows(index), rng.rows(index)):
                canvas = _with_row(canvas, index, one)
                yield canvas

    def _row(self, denoise: Denoiser, process: Masked, canvas: Canvas, rng: Rng) -> Iterator[Canvas]:
        """A canvas of one row, round by round."""
        rule = self.rule if self.temperature else GreedyRule()
        context, read, done, trust = _without_padding(canvas), 0, 0, _Trust()
        listener = self.draft.fresh() if isinstance(self.draft, StatefulDrafter) else None
        drafter = self.draft if listener is None else listener
        while (free := _free(canvas, done)) is not None:
            begin, end = free
            noise = RoundNoise(rng, begin)
            length = self.length if self.costs is None else self.costs.best(trust.rate, self.length)
            asked = DraftRequest(
                canvas.z[:, :begin],
                min(length, end - begin - 1),
                process.vocab.size,
                self.temperature,
                rule,
                noise,
                context,
            )
            draft = (drafter if asked.count else NoDraft())(asked)
            with torch.no_grad():
                log_p, context = self._read(denoise, process, canvas, context, read, begin, draft)
            place = torch.arange(begin, begin + log_p.shape[1], device=log_p.device)
            found = rule(log_p, draft, place, noise)
            read, done = begin + int(found.count), begin + int(found.count) + 1
            context = _cropped(context, read)
            canvas = _written(canvas, draft, found, log_p, begin)
            if self.stop:
                canvas = stop_rows(canvas, process.vocab.eos, done, denoise)
            if listener is not None:
                listener.saw(canvas.z[:, :done], context)
            drafted = draft.tokens.shape[1]
            sure = 0 if self.costs is None else self.costs.sure
            trust = trust.after(max(0, drafted - sure), max(0, int(found.count) - sure))
            self.tally.add(drafted, int(found.count), int(found.count) + 1)
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
        """(1, γ + 1, V) the target's law after each token of the draft, from one pass; and what it then remembers.

        The pass begins with what the cache does not hold yet: the prompt, or the token that the last round ended with.
        """
        z, end = torch.cat([canvas.z[:, read:begin], draft.tokens], 1), begin + draft.tokens.shape[1]
        place = torch.arange(read, end + 1, device=z.device)[None]
        context = denoise.absorb(z, replace(context, place=place[:, :-1]))
        masks = torch.full_like(place[:, begin - read :], process.vocab.masked)
        inside = None if canvas.context.inside is None else canvas.context.inside[:, begin : end + 1]
        asked = replace(context, place=place[:, begin - read :], inside=inside, clean=_then(draft.tokens, masks))
        log_p = denoise(masks, torch.ones(1, 1, device=z.device), asked).x
        warm = self.temperature not in (0, 1)
        return (log_p.double() / self.temperature).log_softmax(-1) if warm else log_p, context


def _then(tokens: Tensor, masks: Tensor) -> Tensor:
    """The tokens, and one mask after them."""
    return torch.cat([tokens, masks[:, :1]], 1)


def _without_padding(canvas: Canvas) -> Context:
    """The context of a row; padding after its last token to write is never read."""
    pad, free = canvas.context.pad, (~canvas.fixed[0]).nonzero()
    if pad is not None and len(free) and bool(pad[0, : int(free[-1])].any()):
        raise ValueError("speculation reads rows from their beginning, but this one has padding inside; leave it out")
    return replace(canvas.context, pad=None, inside=None, clean=None)


def _free(canvas: Canvas, done: int) -> tuple[int, int] | None:
    """The next columns to write after those that are done: begin and end; None: nothing is left."""
    fixed = canvas.fixed[0].tolist()
    begin = next((i for i in range(done, len(fixed)) if not fixed[i]), None)
    if begin is None:
        return None
    return begin, next((i for i in range(begin, len(fixed)) if fixed[i]), len(fixed))


def _cropped(context: Context, places: int) -> Context:
    crop = getattr(context.cache, "cropped", None)
    if crop is None:
        raise ValueError("this denoiser's cache cannot forget rejected tokens; speculate without guidance")
    return replace(context, cache=crop(places))


def _written(canvas: Canvas, draft: Proposal, found: Acceptance, log_p: Tensor, begin: int) -> Canvas:
    """The row with the accepted tokens and the one after them, and how likely each was."""
    count = int(found.count)
    new = torch.cat([draft.tokens[:, :count], found.next[:, None]], 1)
    z, sure = canvas.z.clone(), canvas.confidence
    sure = torch.zeros_like(z, dtype=torch.float32) if sure is None else sure.clone()
    z[:, begin : begin + count + 1] = new
    said = log_p[:, : count + 1].gather(-1, new[..., None]).squeeze(-1)
    sure[:, begin : begin + count + 1] = said.exp().float()
    return replace(canvas, z=z, confidence=sure)


def _with_row(canvas: Canvas, index: Tensor, one: Canvas) -> Canvas:
    """The canvas with one of its rows as it stands now."""
    sure = canvas.confidence
    if one.confidence is not None:
        sure = torch.zeros_like(canvas.z, dtype=torch.float32) if sure is None else sure
        sure = sure.index_copy(0, index, one.confidence)
    fixed = canvas.fixed.index_copy(0, index, one.fixed)
    return replace(canvas, z=canvas.z.index_copy(0, index, one.z), fixed=fixed, confidence=sure)
