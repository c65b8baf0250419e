"""What a network's states know about a text: a linear layer on them, or all of it trained a little, tells classes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from redraft.core.batch import Batch
from redraft.core.vocab import Vocab
from redraft.models.diffusion_lm import DiffusionLM, inference


@dataclass(frozen=True)
class ProbeResult:
    """The share of held-out texts whose class is told rightly."""

    accuracy: float
    rows: int
    classes: int
    majority: float  # what the commonest class alone would give

    @property
    def accuracy_stderr(self) -> float:
        return math.sqrt(self.accuracy * (1 - self.accuracy) / self.rows)


def mean_states(model: DiffusionLM, batch: Batch) -> Tensor:
    """(B, D) the mean of the states of a clean text, padding, prompts and repeated end tokens left out."""
    where = batch.learn[..., None]
    return torch.where(where, model.states(batch), 0.0).sum(1) / where.sum(1).clamp(min=1)


def window_batch(batch: Batch, vocab: Vocab, first: int | None, last: int | None) -> Batch:
    """The batch as far as a probe may look: without end tokens, and of each text only the first or last tokens."""
    where = batch.learn & ~torch.isin(batch.tokens, torch.tensor(vocab.ends or (-1,), device=batch.tokens.device))
    if first is not None:
        where &= where.cumsum(-1) <= first
    if last is not None:
        where &= where.flip(-1).cumsum(-1).flip(-1) <= last
    whole = first is None and last is None
    return replace(batch, learn=where, pad=batch.pad if whole else ~where)


def linear_probe(model: DiffusionLM, train: Sequence[Batch], test: Sequence[Batch], decay: float = 1e-2) -> ProbeResult:
    """A linear layer on the pooled states, which stay as they are: multinomial logistic regression."""
    with inference(model):
        (x, y), (held, told) = (_gathered(model, batches) for batches in (train, test))
    mean, std = x.mean(0), x.std(0).clamp(min=1e-6)
    layer = _layer(x.shape[1], y, told)
    optimiser = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimiser.zero_grad()
        nats = F.cross_entropy(layer((x - mean) / std), y) + decay * layer.weight.square().sum() / 2
        nats.backward()
        return nats

    optimiser.step(loss)
    with torch.no_grad():
        return _judged(layer((held - mean) / std), told)


def tuned_probe(
    model: DiffusionLM, train: Sequence[Batch], test: Sequence[Batch], steps: int, rate: float = 1e-3
) -> ProbeResult:
    """A linear layer and the network below it, both trained for so many steps, batch after batch; the model stays."""
    model = deepcopy(model).eval()
    labels = torch.cat([_labels(batch) for batch in [*train, *test]])
    layer = _layer(model.config.network.width, labels, labels)
    optimiser = torch.optim.AdamW([*model.network.parameters(), *layer.parameters()], lr=rate)
    for p in model.network.parameters():
        p.requires_grad_(True)
    for step in range(steps):
        batch = train[step % len(train)]
        nats = F.cross_entropy(layer(mean_states(model, batch)), _labels(batch))
        optimiser.zero_grad()
        nats.backward()
        nn.utils.clip_grad_norm_(model.network.parameters(), 1.0)
        optimiser.step()
    with inference(model):
        x, y = _gathered(model, test)
        return _judged(layer(x), y)


def _gathered(model: DiffusionLM, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
    return torch.cat([mean_states(model, batch) for batch in batches]), torch.cat([_labels(batch) for batch in batches])


def _labels(batch: Batch) -> Tensor:
    if batch.label is None:
        raise ValueError("these rows have no classes to probe for; use data with labels, such as JsonlClasses")
    return batch.label


def _layer(width: int, *labels: Tensor) -> nn.Linear:
    """Zero weights: nothing is drawn."""
    layer = nn.Linear(width, 1 + max(int(some.max()) for some in labels))
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _judged(logits: Tensor, labels: Tensor) -> ProbeResult:
    right = float((logits.argmax(-1) == labels).double().mean())
    counts = torch.bincount(labels)
    return ProbeResult(right, len(labels), int((counts > 0).sum()), float(counts.max()) / len(labels))
