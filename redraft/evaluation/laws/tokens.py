"""The laws of tokens: every process and sampler against exact enumeration on a toy language.

The toy has three words and sequences of three, with an arbitrary joint distribution; its best denoiser is known by
enumeration (`Oracle`), so bounds must equal the entropy and samplers must reproduce the joint.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from itertools import pairwise, product

import torch
from torch import Tensor

from redraft.core import ops
from redraft.core.batch import Noised
from redraft.core.canvas import Canvas, Context
from redraft.core.prediction import Known, Prediction
from redraft.core.processes import sedd
from redraft.core.processes.base import TokenProcess
from redraft.core.processes.interpolating import Hybrid, Interpolating, MaskNoise, UniformNoise
from redraft.core.processes.markov import BandJumps, Markov, MaskJumps
from redraft.core.processes.masked import Masked
from redraft.core.processes.remasking import Cap, Remask, Rescale, Star
from redraft.core.randomness import Rng, rng
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.tokens import Cosine, CosineSquared, Linear, Polynomial
from redraft.core.vocab import Vocab
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.picks.adaptive import EntropyBound
from redraft.decoding.picks.order import AnyOrder, LeftToRight, Margin
from redraft.decoding.samplers.ancestral import Ancestral, FirstHitting
from redraft.decoding.samplers.base import Sampler, last
from redraft.decoding.samplers.unmask import Unmask
from redraft.evaluation.laws.law import P_MIN, Integral, Law, at_least, chi_square, equal, improper, integral, name
from redraft.evaluation.laws.schedules import every_schedule

WORDS, LENGTH = 3, 3
VOCAB = Vocab(WORDS + 1, mask=WORDS)
DRAWS = 8_000
RARE = 1e-12  # tables are exact to 1e-16: probabilities below this are noise, and what they add to a bound is as small


@dataclass(frozen=True)
class Toy:
    """A language that can be enumerated: N = words^length sequences and their probabilities."""

    sequences: Tensor  # (N, L)
    p: Tensor  # (N,) float64

    @classmethod
    def of(cls, seed: int = 0, length: int = LENGTH) -> Toy:
        sequences = torch.tensor(list(product(range(WORDS), repeat=length)))
        weights = rng(seed).uniform(len(sequences))[0] ** 8
        # none is too rare: to get the rarest right, χ² would need many more steps
        return cls(sequences, 0.85 * weights / weights.sum() + 0.15 / len(sequences))

    @property
    def entropy(self) -> float:
        return float(-(self.p * self.p.log()).sum())


@dataclass(frozen=True)
class OracleCache:
    """The oracle's cache: the finished tokens."""

    tokens: Tensor

    exact = True

    @property
    def covers(self) -> Tensor:
        return torch.ones_like(self.tokens, dtype=torch.bool)

    def rows(self, index: Tensor) -> OracleCache:
        return OracleCache(self.tokens[index])


def _said(z: Tensor, context: Context) -> Tensor:
    """(B, n) the finished tokens before z."""
    if context.place is not None and len(context.place) > 1:
        raise ValueError("the oracle reads rows that stand at the same places; give all rows prompts of one length")
    return context.cache.tokens if isinstance(context.cache, OracleCache) else z[:, :0]


@dataclass(frozen=True)
class Oracle:
    """The best denoiser: x̂[l] = p(x[l] | everything visible but z[l]), by summing over the language.

    The step plugs x̂ into the posterior, which brings in z[l] itself; so z[l] must not enter x̂ (leave-one-out). With
    `blur` a part of x̂ is spread evenly over the words: a worse denoiser, for contrast.
    """

    toy: Toy
    process: TokenProcess
    block: int | None = None
    blur: float = 0.0

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        said = _said(z, context)
        seen, lo = torch.cat([said, z], 1), said.shape[1]
        time = torch.cat([torch.zeros_like(said, dtype=torch.float64), t.double().expand_as(z)], 1)
        clean = seen if context.clean is None else context.clean
        first, which = _distinct(seen, time, *([] if clean is seen else [clean]))
        x = self._posterior(seen[first], clean[first], time[first])
        return Known(x[which][:, lo:].log())

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return replace(context, cache=OracleCache(torch.cat([_said(z, context), z], 1)))

    def _posterior(self, seen: Tensor, clean: Tensor, time: Tensor) -> Tensor:
        """(B, n) → (B, n, V). likelihood[b, l, i] = q_t(seen[b, l] | word l of sequence i)."""
        words = self.toy.sequences[:, : seen.shape[1]].T  # (n, N)
        moments, which = time.unique(return_inverse=True)
        tables = torch.stack([self._table(float(t)) for t in moments])  # (times, V, V)
        noisy = tables[which[..., None], words, seen[..., None]]
        exact = (clean[:, : seen.shape[1], None] == words).double()
        out = noisy.new_zeros(*seen.shape, self.process.vocab.size)
        for l in range(seen.shape[1]):
            weight = self.toy.p * self._evidence(noisy, exact, l)  # (B, N)
            out[:, l].index_add_(1, words[l], weight)
        out = out / out.sum(-1, keepdim=True)
        return (1 - self.blur) * out + self.blur / WORDS * (torch.arange(out.shape[-1]) < WORDS)

    def _evidence(self, noisy: Tensor, exact: Tensor, l: int) -> Tensor:
        """(B, N) likelihood of what position l sees, except itself: clean earlier blocks and its own noisy block."""
        evidence = torch.ones_like(noisy[:, 0])
        for j in range(noisy.shape[1]):
            mine, theirs = (0, 0) if self.block is None else (l // self.block, j // self.block)
            if j != l and mine >= theirs:
                evidence = evidence * (noisy[:, j] if mine == theirs else exact[:, j])
        return evidence

    def _table(self, t: float) -> Tensor:
        return torch.eye(self.process.vocab.size, dtype=torch.float64) if t == 0 else self.process.marginal(t)


def _distinct(*columns: Tensor) -> tuple[Tensor, Tensor]:
    """The index of each distinct row of (B, n) tensors, and for every row which of these it equals."""
    code = torch.zeros_like(columns[0][:, 0])
    for column in (c for table in columns for c in table.unbind(1)):
        values, digit = column.unique(return_inverse=True)
        code = code * len(values) + digit
    codes, which = code.unique(return_inverse=True)
    first = torch.empty_like(codes).scatter_(0, which, torch.arange(len(code)))
    return first, which


def laws(process: TokenProcess) -> Iterator[Law]:
    """All laws of tokens on one process."""
    toy = Toy.of()
    if isinstance(process, Remask):
        yield from remask_laws(process, toy)
        return
    yield from forward_laws(process)
    yield from reverse_laws(process)
    yield from bound_laws(process, toy)
    yield from closed_form_laws(process, toy)
    yield from block_laws(process, toy)
    yield from sampling_laws(process, toy)
    if isinstance(process, Masked) or (isinstance(process, Interpolating) and process.mixing == UniformNoise()):
        yield from score_laws(process)


def built_in() -> list[TokenProcess]:
    return [
        Masked(VOCAB),
        Masked(VOCAB, Cosine()),
        Interpolating(Vocab(WORDS), mixing=UniformNoise()),
        # equal steps of this schedule are those that suit the square-root ends of hybrid noise
        Interpolating(VOCAB, CosineSquared(), Hybrid(0.2)),
        Markov(VOCAB, MaskJumps()),
        Markov(VOCAB, BandJumps(0.8)),
        Remask(Masked(VOCAB), Rescale(0.3)),
        Remask(Masked(VOCAB), Star()),
        Remask(Interpolating(Vocab(WORDS)), Star()),
    ]


def forward_laws(process: TokenProcess) -> Iterator[Law]:
    times = (0.15, 0.5, 0.9)
    tables = [process.marginal(t) for t in times] + [process.transition(s, t) for s, t in ((0.15, 0.5), (0.5, 0.9))]
    yield equal(process, "tables are distributions", max(improper(table) for table in tables), 0, 1e-9)
    gap = max(
        float((process.marginal(s) @ process.transition(s, t) - process.marginal(t)).abs().max())
        for s, t in ((0.15, 0.5), (0.5, 0.9), (0.15, 0.9))
    )
    yield equal(process, "marginals compose", gap, 0, 1e-9)
    x = torch.arange(WORDS)[:, None].repeat(1, DRAWS)
    clean = process.noise(x, torch.zeros(WORDS, 1), rng=rng(1, WORDS)).z
    yield equal(process, "time zero is clean", float((clean != x).double().mean()), 0, 0)
    worst = min(
        chi_square(process.noise(x, torch.full((WORDS, 1), t), rng=rng(2, WORDS)).z[w], process.marginal(t)[w])
        for t in times
        for w in range(WORDS)
    )
    yield at_least(process, "draws match marginals", worst, P_MIN)
    yield from _reach(process, x)


def _reach(process: TokenProcess, x: Tensor) -> Iterator[Law]:
    """KL(q_1(· | x) ‖ prior), with the prior's frequencies counted, equals `prior_kl` and is finite."""
    blank = Canvas(torch.zeros_like(x), torch.zeros_like(x, dtype=torch.bool))
    prior = _frequencies(process.prior(blank, rng=rng(3, WORDS)).z, process.vocab.size)
    counted = max(float(_kl(process.marginal(1.0)[w], prior)) for w in range(WORDS))
    stated = float(process.prior_kl(x[:, :1]).max())
    agree = math.isfinite(counted) and math.isfinite(stated) and abs(counted - stated) < 1e-2
    yield Law("the prior is reached", name(process), agree, counted, stated, "=", 1e-2)


def reverse_laws(process: TokenProcess) -> Iterator[Law]:
    """`step` against Bayes' rule from the tables."""
    s, t, V = 0.4, 0.7, process.vocab.size
    guess = _guess(V)
    worst = 1.0
    for z in range(V):
        p = process.transition(s, t)[:, z] * (guess @ process.marginal(s))
        if p.sum() > 0:
            worst = min(worst, chi_square(_stepped(process, torch.full((1, DRAWS), z), guess, s, t), p))
    yield at_least(process, "step is Bayes' rule", worst, P_MIN)
    yield _kept_marginals(process, s, t)


def _guess(states: int) -> Tensor:
    """(V,) some x̂ with no weight on the mask."""
    guess = rng(4).uniform(states)[0] * (torch.arange(states) < WORDS)
    return guess / guess.sum()


def _kept_marginals(process: TokenProcess, s: float, t: float) -> Law:
    worst = 1.0
    for w in range(WORDS):
        noisy = process.noise(torch.full((1, DRAWS), w), torch.full((1, 1), t), rng=rng(5)).z
        truth = torch.eye(process.vocab.size, dtype=torch.float64)[w]
        worst = min(worst, chi_square(_stepped(process, noisy, truth, s, t), process.marginal(s)[w]))
    return at_least(process, "stepping back keeps marginals", worst, P_MIN)


def _stepped(process: TokenProcess, z: Tensor, guess: Tensor, s: float, t: float) -> Tensor:
    canvas = Canvas(z, torch.zeros_like(z, dtype=torch.bool))
    pred = Known(guess.log().expand(*z.shape, -1))
    at = (torch.full((1, 1), u, dtype=torch.float64) for u in (s, t))
    return process.step(pred, canvas, *at, rng=rng(6)).z


def bound_laws(process: TokenProcess, toy: Toy) -> Iterator[Law]:
    H, oracle = toy.entropy, Oracle(toy, process)
    chain = [bound(process, oracle, steps=n) for n in (1, 4, 16, 64, 256)]
    drops = [a - b for a, b in pairwise(chain)]
    yield at_least(process, "T-step bound falls with T", min(drops), 0.0)
    yield equal(process, "T-step bound → entropy", chain[-1], H, 1e-2)
    if process.continuous:
        yield equal(process, "bound = entropy", integrated(process, oracle), H, 1e-3)
        worse = integrated(process, replace(oracle, blur=0.3))
        yield at_least(process, "bound rises for a worse denoiser", float(worse), H + 0.01)
        for other in _with_schedules(process):
            again = integrated(other, Oracle(toy, other, blur=0.3))
            again = again._replace(error=again.error + worse.error)
            yield equal(other, "bound does not depend on the schedule", again, float(worse), 1e-3)


def bound(process: TokenProcess, oracle: Oracle, steps: int | None = None) -> float:
    """Expected bound in nats per sequence, by enumeration of x and z and an integral (or sum) over t."""
    if steps is None:
        return float(integrated(process, oracle))
    grid = torch.arange(steps + 1, dtype=torch.float64) / steps
    return float(_prior_kl(process, oracle.toy) + _expected(process, oracle, grid[1:], grid[:-1]).sum())


def integrated(process: TokenProcess, oracle: Oracle) -> Integral:
    """The same in continuous time, and the error of the integral."""
    found = integral(lambda t: _expected(process, oracle, t))
    ends, clean = _prior_kl(process, oracle.toy), torch.zeros(1, dtype=torch.float64)
    if process.jump:
        ends = ends + _expected(process, oracle, clean + 1e-12, clean).squeeze()
    return found._replace(value=found.value + ends)


def _prior_kl(process: TokenProcess, toy: Toy) -> Tensor:
    return (toy.p * process.prior_kl(toy.sequences).double().sum(-1)).sum()


def likelihoods(process: TokenProcess, oracle: Oracle, t: Tensor, s: Tensor | None = None) -> Tensor:
    """(T,) times → (T, N) the bound's term at each of them for each sequence, averaged over z ~ q_t(z | x)."""
    x, V = oracle.toy.sequences, process.vocab.size
    z = torch.tensor(list(product(range(V), repeat=x.shape[1])))
    tables = torch.stack([process.marginal(float(a)) for a in t])
    q = tables[:, x[:, None], z[None]].prod(-1)  # (T, N, V^L)
    likely = q > RARE
    at, each_x, each_z = likely.nonzero(as_tuple=True)
    noised = Noised(z[each_z], t[at, None], x[each_x])
    pred = oracle(noised.z, noised.t, Context(clean=None if oracle.block is None else noised.target))
    nats = process.nelbo(pred, noised, None if s is None else s[at, None])
    return (q * ops.spread(nats.double().sum(-1), likely)).sum(-1)


def _expected(process: TokenProcess, oracle: Oracle, t: Tensor, s: Tensor | None = None) -> Tensor:
    """(T,) the same averaged over the language, a few times at once."""
    parts = zip(t.split(16), [None] * len(t) if s is None else s.split(16), strict=False)
    return torch.cat([likelihoods(process, oracle, late, early) @ oracle.toy.p for late, early in parts])


def closed_form_laws(process: TokenProcess, toy: Toy) -> Iterator[Law]:
    """If one process is another in disguise, every sequence has the same bound at every time."""
    ours: Interpolating | Markov
    match process:
        case Interpolating(mixing=Hybrid() as hybrid):
            law, ours = "without uniform noise = mask noise", replace(process, mixing=replace(hybrid, p_u=0.0))
        case Markov(jumps=MaskJumps()) | Interpolating(mixing=MaskNoise()):
            law, ours = "equals the closed form of mask noise", process
        case _:
            return
    theirs, time = Masked(process.vocab, ours.schedule), torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    oracle = Oracle(toy, theirs, blur=0.3)
    gaps = [
        likelihoods(ours, oracle, time, s) - likelihoods(theirs, oracle, time, s) for s in (None, 0 * time, time / 2)
    ]
    yield equal(ours, law, float(torch.stack(gaps).abs().max()), 0, 1e-5)


def block_laws(process: TokenProcess, toy: Toy) -> Iterator[Law]:
    for size in (1, 2, LENGTH) if process.continuous else ():
        oracle = Oracle(toy, process, block=size)
        yield equal(process, f"blocks of {size}: bound = entropy", integrated(process, oracle), toy.entropy, 1e-3)
    if isinstance(process, Masked):
        start, end = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
        nll = likelihoods(process, Oracle(toy, process, block=1), start, end)[0]
        gap = float((nll + toy.p.log()).abs().max())
        yield equal(process, "blocks of 1, one step = autoregressive likelihood", gap, 0, 1e-6)


def sampling_laws(process: TokenProcess, toy: Toy) -> Iterator[Law]:
    samplers: dict[str, tuple[Sampler, int | None]] = {"ancestral sampling": (Ancestral(steps=128), None)}
    for size in (1, 2):
        samplers[f"blocks of {size}: sampling"] = (Blocks(Ancestral(steps=48)), size)
    if isinstance(process, Masked):
        samplers["first hitting"] = (FirstHitting(), None)
        samplers["autoregressive sampling"] = (Blocks(Ancestral(steps=1)), 1)
    for law, (sampler, block) in samplers.items():
        p = sampled(process, Oracle(toy, process, block), sampler, rng(7, DRAWS))
        yield at_least(process, f"{law} reproduces the joint", p, P_MIN)
    if isinstance(process, Masked):
        yield from order_laws(process, toy)


def order_laws(process: Masked, toy: Toy) -> Iterator[Law]:
    """One token at a time in any order is exact whatever the schedule: one process is tried with all of them.

    The order may depend on what is said of the positions, but not on the tokens that are drawn there.
    """
    for pick in (LeftToRight(1.0), Margin(1.0), EntropyBound(0.0, 1.0)):
        p = sampled(process, Oracle(toy, process), Unmask(None, pick), rng(7, DRAWS // 4))
        yield at_least(process, f"one by one, {type(pick).__name__}: sampling reproduces the joint", p, P_MIN)
    for schedule in every_schedule() if process.schedule == Linear() else [process.schedule]:
        other = replace(process, schedule=schedule)
        p = sampled(other, Oracle(toy, other), Unmask(toy.sequences.shape[1], AnyOrder()), rng(7, DRAWS))
        yield at_least(other, "in any order, one by one: sampling reproduces the joint", p, P_MIN)


def sampled(process: TokenProcess, oracle: Oracle, sampler: Sampler, keys: Rng) -> float:
    """The p-value of a χ² test of sampled sequences against the joint; zero if one is not a sequence at all."""
    length = oracle.toy.sequences.shape[1]
    z = last(sampler(oracle, process, _blank(len(keys.key), length), rng=keys)).z
    if bool((z >= WORDS).any()):
        return 0.0
    number = (z * WORDS ** torch.arange(length - 1, -1, -1)).sum(-1)
    return chi_square(number, oracle.toy.p)


def _blank(rows: int, length: int) -> Canvas:
    """A canvas on which nothing is given."""
    z = torch.zeros(rows, length, dtype=torch.int64)
    return Canvas(z, torch.zeros_like(z, dtype=torch.bool))


def score_laws(process: Masked | Interpolating) -> Iterator[Law]:
    """SEDD: the score entropy of the ratios of x̂ is the bound, and Tweedie's step is Bayes' rule."""
    s, t, V, limit = 0.4, 0.7, process.vocab.size, sedd.limit(process)
    x, z = (a[None] for a in (process.marginal(t)[:WORDS] > 0).nonzero(as_tuple=True))
    late, early = (torch.tensor([[u]], dtype=torch.float64) for u in (t, s))
    kept, before = process.schedule.keep(late), process.schedule.keep(early)
    log_x = _guess(V).log().expand(1, z.shape[1], V)
    ratios = sedd.ratios(log_x, z, kept, limit)
    entropy = -process.schedule.slope(late) / kept * sedd.score_entropy(ratios, z, x, -kept.log(), limit)
    gap = (entropy - process.nelbo(Known(log_x), Noised(z, late, x))).abs().max()
    yield equal(process, "score entropy = bound", float(gap), 0, 1e-5)
    tweedie = sedd.proper(sedd.tweedie(ratios, z, before.log() - kept.log(), limit))
    bayes = sedd.proper(process.transition(s, t).T[z] * (_guess(V) @ process.marginal(s)))
    yield equal(process, "Tweedie's step is Bayes' rule", float((tweedie - bayes).abs().max()), 0, 1e-9)


def remask_laws(process: Remask, toy: Toy) -> Iterator[Law]:
    """Whatever the rate: marginals stay, a chain's bound is a bound, and the joint is reached, if more slowly."""
    base, oracle = process.process, Oracle(toy, process.process)
    yield _kept_marginals(process, 0.4, 0.7)
    still, guess = replace(process, rate=Cap(0.0)), _guess(base.vocab.size)
    noisy = base.noise(toy.sequences, torch.full((len(toy.p), 1), 0.7), rng=rng(1, len(toy.p))).z.view(1, -1)
    ours, theirs = (_stepped(p, noisy, guess, 0.4, 0.7) for p in (still, base))
    yield equal(process, "rate zero: the step of the process", float((ours != theirs).sum()), 0, 0)
    one, more = ({p: bound(p, oracle, steps=n) for p in (process, base)} for n in (1, 8))
    yield equal(process, "one step: the bound of the process", one[process], one[base], 1e-6)
    yield at_least(process, "more steps: no less than its bound", more[process], more[base])
    p = sampled(process, oracle, Ancestral(steps=256), rng(8, DRAWS // 8))
    yield at_least(process, "remasking reproduces the joint", p, P_MIN)


def _frequencies(z: Tensor, states: int) -> Tensor:
    return torch.bincount(z.flatten(), minlength=states).double() / z.numel()


def _kl(p: Tensor, q: Tensor) -> Tensor:
    return torch.where(p > 0, p * (p.log() - q.log()), 0.0).sum()


def _with_schedules(process: TokenProcess) -> Iterator[TokenProcess]:
    """The same process with the other exact schedules, if it has a `schedule` to change."""
    if is_dataclass(process) and any(f.name == "schedule" for f in fields(process)):
        others: list[Schedule] = [Linear(), Cosine(), CosineSquared(), Polynomial(2.0)]
        for schedule in others:
            if schedule != getattr(process, "schedule"):  # noqa: B009
                yield replace(process, schedule=schedule)
