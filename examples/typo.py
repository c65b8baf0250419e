"""A method of one's own in one file: noise that types. Letters drift to neighboring keys until nothing can be read.

    redraft check examples/typo.py        proves it by exact enumeration on a toy language
    redraft train examples/typo.py:run    learns to undo it on the embedded stories, letter by letter

Nothing is registered anywhere: a process is a class with these methods, a run is a function that returns a `Run`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

import torch
from torch import Tensor
from torch.nn.functional import one_hot

import redraft
from redraft.core import Canvas, CharTokenizer, NoisySample, Prediction, Rng, Vocab, ops, randomness
from redraft.training import presets

KEYBOARD = ("qwertyuiop", "asdfghjkl", "zxcvbnm,.")  # each row half a key to the right of the one above


@dataclass(frozen=True)
class Typo(redraft.TokenProcess):
    """A random walk on the keyboard: q_t(z | x) = (α_t^Λ)[x, z], with Λ the Laplacian of the graph of keys.

    Λ has the eigenvalues 0 = λ₀ < λ₁ = 1 ≤ λ₂ …: at α = 0 only λ₀ is left, and every key is as likely as any other.
    From y to its neighbor z the walk jumps at the rate w_t[y, z] = −α'_t/α_t · A[y, z]. With r and m the ratios of
    q_t(· | x) and q_t(· | x̂) to their values at z, the bound's integrand is Σ_y w_t[y, z]·pkl(r_y, m_y).

    Any letter may be a typo, and the step brings in the letter itself by Bayes' rule. So the best x̂ is the posterior
    given the *other* letters: train with `Bound`, not with `TokenCrossEntropy`, whose best x̂ is the ordinary posterior.
    """

    vocab: Vocab
    letters: str = ""  # what the ids 0, 1, … stand for; ids without a key have a place in a fourth row
    schedule: redraft.Schedule = redraft.Linear()

    def prior(self, canvas: Canvas, *, rng: Rng) -> Canvas:
        return canvas.write((self.vocab.size * rng.uniform(canvas.z.shape[1])).long())

    def prior_kl(self, x: Tensor) -> Tensor:
        end = self.marginal(1.0)
        return (end * (end * self.vocab.size).log()).sum(-1).float().to(x.device)[x]

    def noise(self, x: Tensor, t: Tensor, *, pad: Tensor | None = None, rng: Rng) -> NoisySample:
        noised = NoisySample(x, t, x, pad)
        z = draw(self._walked(one_hot(x, self.vocab.size), self.schedule.kept(t)).log(), rng=rng)
        return noised._replace(z=torch.where(self.undetermined(noised), z, x))

    def step(self, pred: Prediction, canvas: Canvas, s: Tensor, t: Tensor, *, rng: Rng) -> Canvas:
        return canvas.write(draw(self._posterior(canvas.z, pred.x.exp(), s, t), rng=rng))

    def nelbo(self, pred: Prediction, noised: NoisySample, s: Tensor | None = None) -> Tensor:
        truth, guess = one_hot(noised.target, self.vocab.size), pred.x.exp()
        if s is None:
            r, m = (self._ratios(noised.z, clean, noised.t) for clean in (truth, guess))
            nats = (self._rates(noised.z, noised.t) * ops.poisson_kl(r, m)).sum(-1)
        else:
            p, q = (self._posterior(noised.z, clean, s, noised.t) for clean in (truth, guess))
            nats = (p.exp() * (p - q)).sum(-1)
        return torch.where(self.undetermined(noised), nats.to(pred.x.dtype), 0.0)

    def undetermined(self, noised: NoisySample) -> Tensor:
        where = (noised.t > 0).expand_as(noised.z)  # time zero is clean: prompts
        return where if noised.pad is None else where & ~noised.pad

    def marginal(self, t: float) -> Tensor:
        return self.transition(0.0, t)

    def transition(self, s: float, t: float) -> Tensor:
        before, after = self.schedule.kept(torch.tensor([s, t], dtype=torch.float64))
        return self._walked(torch.eye(self.vocab.size)[None], (after / before).view(1, 1))[0]

    @property
    def leaves_noise(self) -> bool:
        return self.schedule.start < 1

    def _posterior(self, z: Tensor, clean: Tensor, s: Tensor, t: Tensor) -> Tensor:
        """(B, L, V) Bayes: log p(z_s | z_t = z), z_s ∝ q_{t|s}(z | z_s)·q_s(z_s | clean). The walk is symmetric."""
        back = self._walked(one_hot(z, self.vocab.size), self.schedule.kept(t) / self.schedule.kept(s))
        return (back.log() + self._walked(clean, self.schedule.kept(s)).log()).log_softmax(-1)

    def _ratios(self, z: Tensor, clean: Tensor, t: Tensor) -> Tensor:
        """(B, L, V) q_t(· | clean)/q_t(z | clean)"""
        q = self._walked(clean, self.schedule.kept(t))
        return q / q.gather(-1, z[..., None])

    def _rates(self, z: Tensor, t: Tensor) -> Tensor:
        """(B, L, V) at which letters jump to z; finite at the very end, where all ratios are 1."""
        speed = -self.schedule.slope(t) / self.schedule.kept(t).clamp(min=1e-9)
        return speed[..., None] * self._graph[0].to(z.device, speed.dtype)[z]

    def _walked(self, p: Tensor, keep: Tensor) -> Tensor:
        """(B, L, V) where letters drawn from p are after a walk that keeps `keep` of its slowest mode."""
        _, values, vectors = (part.to(p.device, keep.dtype) for part in self._graph)
        walked = p.to(keep.dtype) @ vectors * keep[..., None] ** values @ vectors.T
        return walked.clamp(min=1e-30)  # rounding leaves some a little below zero

    @cached_property
    def _graph(self) -> tuple[Tensor, Tensor, Tensor]:
        """A (V, V), which keys are neighbors, and the eigenvalues (V,) and eigenvectors (V, V) of its Laplacian."""
        keys = {c: k + r / 2 + r * 1j for r, row in enumerate(KEYBOARD) for k, c in enumerate(row)}
        below, letters = count(1.5 + 3j), self.letters.lower().ljust(self.vocab.size)
        place = torch.tensor([keys[c] if c in keys else next(below) for c in letters], dtype=torch.complex128)
        A = ((place[:, None] - place).abs() < 1.2).double().fill_diagonal_(0)
        values, vectors = torch.linalg.eigh(A.sum(-1).diag() - A)
        if len(letters) > self.vocab.size or values[1] < 1e-9:
            raise ValueError(f"letters={self.letters!r} must be those of the {self.vocab.size} ids, on connected keys")
        values[0] = 0.0  # as in exact arithmetic: 0⁰ must be 1
        return A / values[1], values / values[1], vectors


def draw(log_p: Tensor, *, rng: Rng) -> Tensor:
    """(B, L, V) → (B, L) a letter for each position."""
    return randomness.sample_categorical(log_p.flatten(0, 1), rng.uniform(log_p.shape[1]).flatten()).view(
        log_p.shape[:2]
    )


def run() -> redraft.Run:
    """The stories letter by letter. The walk starts slowly, and the network sees how long it has lasted."""
    base = presets.mdlm_tiny_chars()
    assert isinstance(base.tokenizer, CharTokenizer)
    process = Typo(base.model.vocab, base.tokenizer.alphabet, redraft.core.Polynomial(3.0))
    network = replace(base.model.network, time=64)
    model = replace(base.model, process=process, network=network, head=redraft.models.Softmax())
    return replace(base, model=model, objective=redraft.Objective(redraft.Bound()))
