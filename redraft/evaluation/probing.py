"""Probing: predict the class of a text from a network's states, with a linear layer or by fine-tuning the network."""

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
from redraft.tasks.embedding import mean_states


@dataclass(frozen=True)
class ProbeResult:
    """Accuracy of a probe on held-out texts."""

    accuracy: float  # fraction of texts whose class was predicted correctly
    rows: int  # number of held-out texts
    classes: int  # number of classes that occur in them
    majority: float  # accuracy of always predicting the most common class

    @property
    def accuracy_stderr(self) -> float:
        return math.sqrt(self.accuracy * (1 - self.accuracy) / self.rows)


def window_batch(batch: Batch, vocab: Vocab, first: int | None, last: int | None) -> Batch:
    """Limit what a probe sees to the first or last tokens of each text (None for all), without end tokens."""
    seen = batch.learn & ~torch.isin(batch.tokens, torch.tensor(vocab.ends or (-1,), device=batch.tokens.device))
    if first is not None:
        seen &= seen.cumsum(-1) <= first
    if last is not None:
        seen &= seen.flip(-1).cumsum(-1).flip(-1) <= last
    whole = first is None and last is None
    return replace(batch, learn=seen, pad=batch.pad if whole else ~seen)


def linear_probe(model: DiffusionLM, train: Sequence[Batch], test: Sequence[Batch], decay: float = 1e-2) -> ProbeResult:
    """Fit a linear layer to the mean states of the frozen network: multinomial logistic regression."""
    with inference(model):
        (x, y), (test_x, test_y) = (_states_and_labels(model, batches) for batches in (train, test))
    mean, std = x.mean(0), x.std(0).clamp(min=1e-6)
    layer = _zero_layer(x.shape[1], y, test_y)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        nats = F.cross_entropy(layer((x - mean) / std), y) + decay * layer.weight.square().sum() / 2
        nats.backward()
        return nats

    optimizer.step(loss)
    with torch.no_grad():
        return _result(layer((test_x - mean) / std), test_y)


def tuned_probe(
    model: DiffusionLM, train: Sequence[Batch], test: Sequence[Batch], steps: int, rate: float = 1e-3
) -> ProbeResult:
    """Fine-tune a copy of the network with a linear layer for `steps` steps; the given model is unchanged."""
    model = deepcopy(model).eval()
    labels = torch.cat([_labels(batch) for batch in [*train, *test]])
    layer = _zero_layer(model.config.network.width, labels)
    optimizer = torch.optim.AdamW([*model.network.parameters(), *layer.parameters()], lr=rate)
    for p in model.network.parameters():
        p.requires_grad_(True)
    for step in range(steps):
        batch = train[step % len(train)]
        nats = F.cross_entropy(layer(mean_states(model, batch)), _labels(batch))
        optimizer.zero_grad()
        nats.backward()
        nn.utils.clip_grad_norm_(model.network.parameters(), 1.0)
        optimizer.step()
    with inference(model):
        x, y = _states_and_labels(model, test)
        return _result(layer(x), y)


def _states_and_labels(model: DiffusionLM, batches: Sequence[Batch]) -> tuple[Tensor, Tensor]:
    return torch.cat([mean_states(model, batch) for batch in batches]), torch.cat([_labels(batch) for batch in batches])


def _labels(batch: Batch) -> Tensor:
    if batch.condition.label is None:
        raise ValueError("these rows have no class labels to probe for; use data with labels, such as JsonlClasses")
    return batch.condition.label


def _zero_layer(width: int, *labels: Tensor) -> nn.Linear:
    """Return a linear classifier for these labels; its weights are zero, so results need no seed."""
    layer = nn.Linear(width, 1 + max(int(column.max()) for column in labels))
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def _result(logits: Tensor, labels: Tensor) -> ProbeResult:
    accuracy = float((logits.argmax(-1) == labels).double().mean())
    counts = torch.bincount(labels)
    return ProbeResult(accuracy, len(labels), int((counts > 0).sum()), float(counts.max()) / len(labels))
