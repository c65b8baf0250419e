"""A denoiser that obeys the rules on a canvas: exact marginals, exact joint draws, and the most likely text."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from redraft.core import ops, randomness
from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Draw, Prediction, VectorPrediction
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, require_range
from redraft.decoding.constraints.automaton import _Ints
from redraft.decoding.constraints.placement import _PlacedRuleSet
from redraft.decoding.constraints.query import _ConstraintQuery
from redraft.decoding.guidance.base import Guidance


@dataclass(frozen=True)
class Constrained(Guidance):
    """Guidance by the rules on a canvas (see `constrain`): conditions each prediction on the text obeying them.

    x̂ becomes ∏ x̂_i(x_i) · 1[x obeys], normalized: positions depend on each other only through the rule. `at` returns
    its exact marginals. `draw` returns an exact joint draw, by a backward and a forward pass over the positions; at
    temperature 0 it returns the most likely text as a whole. So the result always obeys, and each step draws from the
    factorized posterior given the rule. This is not the model's own p(x | rule), because x̂ predicts each position by
    its marginal; `ParticleSampler` corrects for that.

    Works with every process that has `evidence`: mask, uniform and hybrid noise, and remasking. Put it outside all
    other
    guidance: a prediction that is changed after it would no longer obey.

    Vectors (Gaussian noise): x̂ moves by γ·∂log Z/∂x̂, where Z is the probability that tokens drawn from p obey, and p is
    the network's distribution of tokens, or else the codec's, given x̂. For a table of token vectors e this is γ·Σ_w
    (p(w | obeys) − p(w))·e_w: with γ = 1, the mean of the token vectors becomes their mean given the rule.
    `model.to_tokens` decodes the final vectors to the most likely text that obeys. So the result obeys, but its
    distribution is not exact.
    """

    process: Process = field(repr=False)
    scale: float = 1.0  # γ, for vectors; with 0 the rule only affects their decoding

    def __post_init__(self) -> None:
        require_range(self, 0, FINITE, "scale")

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _ConstrainedDenoiser(denoise, self)


@dataclass(frozen=True)
class _ConstrainedDenoiser(DenoiserWrapper):
    guidance: Constrained

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        rules = context.constraints.rules
        if not isinstance(rules, _PlacedRuleSet):
            raise ValueError("the canvas has no constraint; attach one with constrain(canvas, rule, tokenizer)")
        pred = self.denoise.predict(z, t, context.with_constraints(rules=None))
        if not rules.parts or not self.guidance.scale:  # unconstrained rows, or vectors without guidance
            return pred
        if pred.vectors is not None:
            return _guide_vectors(pred.vectors, rules, self.guidance.scale)
        return ConstrainedPrediction(pred, z, self.guidance.process.evidence(z, t.expand_as(z)), rules)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        after = self.denoise.absorb(z, context.with_constraints(rules=None), t)
        return after.with_constraints(rules=context.constraints.rules)


def _guide_vectors(pred: VectorPrediction, rules: _PlacedRuleSet, scale: float) -> VectorPrediction:
    """Guide a prediction of vectors toward texts that obey: x̂ + γ·∂log Z/∂x̂ at the positions to be written.

    If the network also predicts tokens, they become log p_γ = (1 − γ)·log p(w) + γ·log p(w | obeys), and x̂ their mean.
    """
    where = torch.stack([part.span & ~part.given for part in rules.parts]).any(0)
    if not bool(where.any()):
        return pred
    if pred.log_weights is None:
        with torch.enable_grad():
            x = pred.mean.detach().requires_grad_()
            log_p = rules.log_p(x)[where]
            marginals = _log_marginals(log_p.detach(), rules, where).exp()  # equal to ∂log Z/∂log p
            gradient = torch.autograd.grad((marginals * log_p).sum(), x)[0]
        return replace(pred, mean=pred.mean + scale * gradient)
    log_p = pred.log_weights[where]
    guided = ops.extrapolate(log_p, _log_marginals(log_p, rules, where), scale)
    mean = 2 * guided.exp() - 1 if pred.table is None else guided.exp() @ pred.table
    return replace(
        pred,
        mean=pred.mean.index_put((where,), mean.to(pred.mean.dtype)),
        log_weights=pred.log_weights.index_put((where,), guided.to(log_p.dtype)),
    )


def _log_marginals(log_p: Tensor, rules: _PlacedRuleSet, where: Tensor) -> Tensor:
    """Return (N, V) log-marginals under the rules, given independent log-probabilities (N, V) at the N positions."""
    given = torch.stack([part.given for part in rules.parts]).any(0)
    return _ConstraintQuery(rules, rules.parts[0].tokens, given, where, log_p, where).log_x()


class ConstrainedPrediction(Prediction):
    """A prediction conditioned on the rules. The inner one is evaluated at every undecided position that they cover."""

    def __init__(self, inner: Prediction, z: Tensor, evidence: Tensor, rules: _PlacedRuleSet) -> None:
        self._inner, self._z, self._evidence, self._rules = inner, z, evidence, rules
        self._cached: tuple[Tensor, Tensor] | None = None  # (B, L) bool, and (N, V) log-probabilities there

    @property
    def joint(self) -> bool:
        return True

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self._z, dtype=torch.bool)
        return self.at(everywhere).view(*self._z.shape, -1)

    def at(self, where: Tensor) -> Tensor:
        return self._query(where).log_x()

    def draw(self, where: Tensor, *, rng: Rng, temperature: float = 1.0) -> Draw:
        query = self._query(where)
        (for_classes,) = rng.split(1)
        classes = query.draw_classes(for_classes.uniform(where.shape[1]), temperature)
        return _JointDraw(query.log_x(), query, classes, rng.uniform(where.shape[1])[where], temperature)

    def log_match(self, z: Tensor | None = None) -> Tensor:
        """(B,) float64: log-probability that a text obeys, if each position is drawn independently from the inner x̂.

        Tokens of z (B, L) that differ from those the prediction was made for count as drawn.
        """
        z = self._z if z is None else z
        return self._query(torch.ones_like(z, dtype=torch.bool), z).log_match()

    def evaluated(self, where: Tensor) -> ConstrainedPrediction:
        self.at(where)  # queries the network; the result is cached here
        return self

    def after(self, z: Tensor) -> ConstrainedPrediction:
        """Return the prediction after more tokens were written, which are now settled; reuses the inner prediction."""
        evidence = self._evidence.masked_fill(z != self._z, torch.inf)
        updated = ConstrainedPrediction(self._inner, z, evidence, self._rules)
        updated._cached = self._cached
        return updated

    def rows(self, index: Tensor) -> ConstrainedPrediction:
        """Return the prediction for the rows at `index`, which may repeat; reuses what `log_match` has evaluated."""
        if self._cached is None:
            raise ValueError("the prediction was not evaluated yet; call log_match() first")
        (needed, log_p), z = self._cached, self._z
        position = torch.full(z.shape, -1, device=z.device).masked_scatter(needed, torch.arange(len(log_p)))
        picked = ConstrainedPrediction(self._inner, z[index], self._evidence[index], self._rules.rows(index))
        picked._cached = needed[index], log_p[position[index][needed[index]]]
        return picked

    def _query(self, where: Tensor, z: Tensor | None = None) -> _ConstraintQuery:
        settled = self._evidence == torch.inf
        z, settled = (self._z, settled) if z is None else (z, settled | (z != self._z))
        spans = torch.stack([part.span for part in self._rules.parts]).any(0)
        needed = (where | spans) & where.any(-1, keepdim=True) & ~settled
        return _ConstraintQuery(self._rules, z, settled, needed, self._log_probs(needed), where)

    def _log_probs(self, needed: Tensor) -> Tensor:
        """(N, V) fp32 log-probabilities of the inner prediction; cached between queries."""
        if self._cached is not None and not bool((needed & ~self._cached[0]).any()):
            return self._cached[1][needed[self._cached[0]]]
        log_p = self._inner.at(needed)
        log_p = log_p if self._inner.normalized else log_p.log_softmax(-1)
        evidence = self._evidence[needed]
        if bool((evidence > 0).any()):  # x̂ of a visible token ignores that token, so its evidence is added
            log_p = log_p.scatter_add(1, self._z[needed][:, None], evidence[:, None].to(log_p.dtype)).log_softmax(-1)
        self._cached = needed, log_p
        return log_p


@dataclass(frozen=True, eq=False)
class _JointDraw(Draw):
    """A joint draw that obeys. All classes are drawn in advance, so any subset of the tokens may be used."""

    log_x: Tensor  # (N, V) log-marginals under the rules
    query: _ConstraintQuery
    classes: _Ints  # (N,) class drawn at each position
    u: Tensor  # (N,) uniform random numbers
    temperature: float

    def tokens(self, kept: Tensor | None = None) -> Tensor:
        return self._tokens if kept is None else self._tokens[kept]

    def demand(self) -> Tensor:
        return (self.log_x - self.query.queried_log_p).gather(-1, self._tokens[:, None]).squeeze(-1)

    @cached_property
    def _tokens(self) -> Tensor:
        if self.temperature == 0:
            return self.query.likeliest(self.classes)
        return randomness.sample_categorical(self.query.restrict_to_classes(self.classes), self.u, self.temperature)
