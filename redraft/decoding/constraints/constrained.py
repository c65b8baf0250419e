"""A denoiser that obeys the rules on a canvas: exact marginals, exact joint draws, the likeliest text as a whole."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from redraft.core import ops, randomness
from redraft.core.canvas import Context
from redraft.core.prediction import Denoiser, DenoiserWrapper, Draw, Prediction, VectorPrediction
from redraft.core.processes.base import Process, TokenProcess
from redraft.core.processes.gaussian import Gaussian
from redraft.core.randomness import Rng
from redraft.core.vocab import FINITE, require_range
from redraft.decoding.constraints.automaton import _Ints
from redraft.decoding.constraints.placement import PlacedRuleSet
from redraft.decoding.constraints.query import _ConstraintQuery


@dataclass(frozen=True)
class Constrained:
    """Guidance by the rules on a canvas (`constrain`): what the network says, given that the text obeys them.

    x̂ becomes ∏ x̂_i(x_i) · 1[x obeys], normalised: positions are independent in x̂, and depend on each other through the
    rule alone. `at` gives its exact marginals, `draw` an exact joint draw (one pass backwards over the positions, one
    forwards), temperature 0 the likeliest text as a whole. So the result always obeys, and each step draws from the
    factorised posterior given the rule. That is not p(x | rule) of the model itself, since x̂ looks ahead one token at
    a time; `ParticleSampler` corrects for it.

    Works with every process that has `evidence`: mask, uniform and hybrid noise, remasking.
    Put it outside all other guidance: what is mixed later would not obey.

    Vectors (Gaussian noise): the same program, differentiated. With p the law of tokens that the network names, or else
    the one that the codec reads from x̂, x̂ moves by γ·∂log Z/∂x̂, Z = P(obeys). For a table of vectors e that is
    γ·Σ_w (p(w | obeys) − p(w))·e_w: at γ = 1 the mean of the vectors becomes their mean given the rule. The finished
    vectors are decoded to the likeliest text that obeys (`model.to_tokens`): the result obeys, no other law holds.
    """

    process: Process = field(repr=False)
    scale: float = 1.0  # γ, for vectors; 0: the rule only decides how they are decoded

    def __post_init__(self) -> None:
        if not isinstance(self.process, TokenProcess | Gaussian):
            raise ValueError(f"rules are about tokens; {type(self.process).__name__} noises something else")
        require_range(self, 0, FINITE, "scale")

    def __call__(self, denoise: Denoiser) -> Denoiser:
        return _Obedient(denoise, self)

    def moved(self, pred: VectorPrediction, marks: PlacedRuleSet) -> VectorPrediction:
        """A prediction of vectors that leans to texts that obey."""
        return _guide_vectors(pred, marks, self.scale)


@dataclass(frozen=True)
class _Obedient(DenoiserWrapper):
    rule: Constrained

    def __call__(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        if not isinstance(context.marks, PlacedRuleSet):
            raise ValueError("the canvas has no rule to obey; make one with constrain(canvas, rule, tokenizer)")
        pred = self.denoise(z, t, replace(context, marks=None))
        if not context.marks.parts or not self.rule.scale:  # rows that are free, vectors that are not guided
            return pred
        if isinstance(pred, VectorPrediction):
            return self.rule.moved(pred, context.marks)
        assert isinstance(self.rule.process, TokenProcess)
        return ConstrainedPrediction(pred, z, self.rule.process.evidence(z, t.expand_as(z)), context.marks)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return replace(self.denoise.absorb(z, replace(context, marks=None), t), marks=context.marks)


def _guide_vectors(pred: VectorPrediction, marks: PlacedRuleSet, scale: float) -> VectorPrediction:
    """A prediction of vectors that leans to texts that obey: x̂ + γ·∂log Z/∂x̂ where places are to be written.

    A network that names tokens says log p_γ = (1 − γ)·log p(w) + γ·log p(w | obeys), and x̂ is the mean of that.
    """
    where = torch.stack([part.span & ~part.given for part in marks.parts]).any(0)
    if not bool(where.any()):
        return pred
    if pred.log_weights is None:
        with torch.enable_grad():
            x = pred.mean.detach().requires_grad_()
            log_p = marks.log_p(x)[where]
            obeying = _obeying(log_p.detach(), marks, where).exp()  # marginals: ∂log Z/∂log p
            slope = torch.autograd.grad((obeying * log_p).sum(), x)[0]
        return replace(pred, mean=pred.mean + scale * slope)
    own = pred.log_weights[where]
    named = ops.extrapolate(own, _obeying(own, marks, where), scale)
    mean = 2 * named.exp() - 1 if pred.table is None else named.exp() @ pred.table
    return replace(
        pred,
        mean=pred.mean.index_put((where,), mean.to(pred.mean.dtype)),
        log_weights=pred.log_weights.index_put((where,), named.to(own.dtype)),
    )


def _obeying(log_p: Tensor, marks: PlacedRuleSet, where: Tensor) -> Tensor:
    """(N, V) log-marginals under the rules, of what (N, V) was said at the marked places."""
    given = torch.stack([part.given for part in marks.parts]).any(0)
    return _ConstraintQuery(marks, marks.parts[0].tokens, given, where, log_p, where).log_x()


class ConstrainedPrediction(Prediction):
    """A prediction given that the text obeys; the inner one is asked at every undecided position of the rules."""

    def __init__(self, inner: Prediction, z: Tensor, evidence: Tensor, marks: PlacedRuleSet) -> None:
        self._inner, self._z, self._evidence, self._marks = inner, z, evidence, marks
        self._heard: tuple[Tensor, Tensor] | None = None  # where the inner prediction was asked last, and its answer

    @property
    def joint(self) -> bool:
        return True

    @property
    def x(self) -> Tensor:
        everywhere = torch.ones_like(self._z, dtype=torch.bool)
        return self.at(everywhere).view(*self._z.shape, -1)

    def at(self, where: Tensor) -> Tensor:
        return self._asked(where).log_x()

    def draw(self, where: Tensor, *, rng: Rng, temperature: float = 1.0) -> Draw:
        asked = self._asked(where)
        (which,) = rng.split(1)
        kinds = asked.kinds(which.uniform(where.shape[1]), temperature)
        return _JointDraw(asked.log_x(), asked, kinds, rng.uniform(where.shape[1])[where], temperature)

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        loss = -self.at(where).gather(-1, target[where][:, None]).squeeze(-1)
        return loss.new_zeros(where.shape).masked_scatter(where, loss)

    def log_match(self, z: Tensor | None = None) -> Tensor:
        """(B,) float64: the log-probability that a text drawn from the inner x̂, each position by itself, obeys.

        With z (B, L): if tokens that differ from those the prediction was made for are already drawn.
        """
        z = self._z if z is None else z
        return self._asked(torch.ones_like(z, dtype=torch.bool), z).log_match()

    def after(self, z: Tensor) -> ConstrainedPrediction:
        """The same once more tokens are written, without asking again: they are settled now."""
        evidence = self._evidence.masked_fill(z != self._z, torch.inf)
        later = ConstrainedPrediction(self._inner, z, evidence, self._marks)
        later._heard = self._heard
        return later

    def rows(self, index: Tensor) -> ConstrainedPrediction:
        """The same for some rows, each any number of times, without asking again; `log_match` has asked everything."""
        if self._heard is None:
            raise ValueError("nothing was asked yet: call log_match() first")
        (needed, said), z = self._heard, self._z
        number = torch.full(z.shape, -1, device=z.device).masked_scatter(needed, torch.arange(len(said)))
        picked = ConstrainedPrediction(self._inner, z[index], self._evidence[index], self._marks.rows(index))
        picked._heard = needed[index], said[number[index][needed[index]]]
        return picked

    def _asked(self, where: Tensor, z: Tensor | None = None) -> _ConstraintQuery:
        settled = self._evidence == torch.inf
        z, settled = (self._z, settled) if z is None else (z, settled | (z != self._z))
        spans = torch.stack([part.span for part in self._marks.parts]).any(0)
        needed = (where | spans) & where.any(-1, keepdim=True) & ~settled
        return _ConstraintQuery(self._marks, z, settled, needed, self._said(needed), where)

    def _said(self, needed: Tensor) -> Tensor:
        """(N, V) fp32 log-probabilities; the inner prediction is not asked twice for the same."""
        if self._heard is not None and not bool((needed & ~self._heard[0]).any()):
            return self._heard[1][needed[self._heard[0]]]
        said = self._inner.at(needed)
        said = said if self._inner.normalised else said.log_softmax(-1)
        evidence = self._evidence[needed]
        if bool((evidence > 0).any()):  # x̂ of a visible token does not look at that token: what z says is added
            said = said.scatter_add(1, self._z[needed][:, None], evidence[:, None].to(said.dtype)).log_softmax(-1)
        self._heard = needed, said
        return said


@dataclass(frozen=True, eq=False)
class _JointDraw(Draw):
    """Tokens that obey together; the classes of all positions are drawn before, so any of them may be dropped."""

    log_x: Tensor
    asked: _ConstraintQuery
    kinds: _Ints  # (N,)
    u: Tensor  # (N,)
    temperature: float

    def tokens(self, kept: Tensor | None = None) -> Tensor:
        return self._tokens if kept is None else self._tokens[kept]

    def demand(self) -> Tensor:
        return (self.log_x - self.asked.said_there).gather(-1, self._tokens[:, None]).squeeze(-1)

    @cached_property
    def _tokens(self) -> Tensor:
        if self.temperature == 0:
            return self.asked.likeliest(self.kinds)
        return randomness.sample_categorical(self.asked.within(self.kinds), self.u, self.temperature)
