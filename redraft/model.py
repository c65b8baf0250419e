"""DiffusionLM: process, network, head and tokenizer in one module – what a checkpoint holds."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor, nn

from redraft import ops
from redraft.heads import Head, Shift, Subs
from redraft.networks.attention import BlockCausal, Causal, Full
from redraft.networks.transformer import Transformer, TransformerConfig
from redraft.processes.base import Process, require_times
from redraft.processes.masked import Masked
from redraft.text import Tokenizer
from redraft.types import Batch, Canvas, Context, Prediction, Vocab


class Level(ABC):
    """What a network that sees time is told of it."""

    @abstractmethod
    def __call__(self, t: Tensor, process: Process) -> Tensor: ...


@dataclass(frozen=True)
class ByTime(Level):
    """t itself (GIDD), times a scale: the sinusoids of the time embedding have periods from 2π to 60 000."""

    scale: float = 1000.0

    def __call__(self, t: Tensor, process: Process) -> Tensor:
        return self.scale * t


@dataclass(frozen=True)
class BySigma(Level):
    """σ = −log α_t (MDLM, SEDD, UDLM), at most 9.2: schedules that reach α = 0 have no finite σ there."""

    def __call__(self, t: Tensor, process: Process) -> Tensor:
        if not isinstance(process, Masked):
            raise ValueError(f"{type(process).__name__} has no α_t to take σ from; use ByTime()")
        return -process.schedule.keep(t).clamp(min=1e-4).log()


@dataclass(frozen=True)
class DiffusionLMConfig:
    """A model without its weights."""

    process: Process
    network: TransformerConfig
    head: Head = field(default_factory=Subs)
    level: Level = field(default_factory=ByTime)

    def __post_init__(self) -> None:
        if self.network.vocab < self.vocab.size:
            raise ValueError(f"the network has {self.network.vocab} outputs for {self.vocab.size} states; raise vocab")
        if isinstance(self.head, Shift) and not isinstance(self.network.pattern, Full):
            raise ValueError(f"the head Shift needs full attention; with {self.network.pattern} use the inner head")

    @property
    def vocab(self) -> Vocab:
        return self.process.vocab


class DiffusionLM(nn.Module):
    """A denoiser: says what the clean sequence behind a noisy one was.

    The network runs when the prediction is asked, for the rows and positions asked about. Hence DDP, FSDP2 and their
    like must wrap `Step`, inside which the asking happens, never the model alone.
    """

    def __init__(self, config: DiffusionLMConfig, tokenizer: Tokenizer | None = None) -> None:
        super().__init__()
        self.config = config
        self.tokenizer = tokenizer
        self.network = Transformer(config.network)

    @property
    def process(self) -> Process:
        return self.config.process

    @property
    def block(self) -> int | None:
        """How many tokens its attention wants written at a time: None (all), or the size of a block."""
        pattern = self.config.network.pattern
        return pattern.block if isinstance(pattern, BlockCausal) else 1 if isinstance(pattern, Causal) else None

    def forward(self, z: Tensor, t: Tensor, context: Context = Context()) -> Prediction:
        require_times(z, t)
        return Lazy(self, z, t, context)

    def absorb(self, z: Tensor, context: Context = Context()) -> Context:
        if self.block is None:
            raise ValueError("full attention lets finished tokens see later ones: no cache of it is exact")
        return replace(context, cache=self.network.absorb(z, context))

    def context(self, batch: Batch) -> Context:
        """What the network sees in training besides z: later blocks see the clean tokens."""
        return Context(pad=batch.pad, clean=None if self.block is None else batch.tokens)

    # --- text ↔ canvas ---

    def canvas(self, prompt: str | Sequence[str] = "", *, new: int, rows: int = 1) -> Canvas:
        """Prompts, then `new` tokens to be written; one prompt may start several rows."""
        prompts = [prompt] * rows if isinstance(prompt, str) else list(prompt)
        return self.compose([[p, new] for p in prompts])

    def infill(self, template: str | Sequence[str], rows: int = 1) -> Canvas:
        """Text with holes: "She opened the [[6]] and [[3]]." has a hole of six tokens and one of three."""
        templates = [template] * rows if isinstance(template, str) else list(template)
        return self.compose([_pieces(t) for t in templates])

    def compose(self, rows: Sequence[Sequence[str | int]]) -> Canvas:
        """Each row a list of texts (given) and numbers (so many tokens to be written); shorter rows are padded."""
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer; make a Canvas of ids, or give DiffusionLM a tokenizer")
        if not rows or any(isinstance(p, int) and p < 0 for row in rows for p in row):
            raise ValueError("a canvas needs at least one row, and no hole shorter than nothing")
        vocab, blank, empty, device = self.config.vocab, -1, -2, self.network.embedding.weight.device
        ids: list[list[int]] = [[] if vocab.bos is None else [vocab.bos] for _ in rows]
        for row, pieces in zip(ids, rows, strict=True):
            for piece in pieces:
                row += [blank] * piece if isinstance(piece, int) else self.tokenizer.encode(piece)
        z = torch.tensor(
            [row + [empty] * (max(map(len, ids)) - len(row)) for row in ids], dtype=torch.int64, device=device
        )
        pad, hole = z == empty, z == blank
        z = z.masked_fill(pad, vocab.pad or 0).masked_fill(hole, vocab.mask or 0)
        return Canvas(z, ~hole, Context(pad=pad if bool(pad.any()) else None))

    def text(self, canvas: Canvas) -> list[str]:
        """The rows as text, up to their end sign."""
        if self.tokenizer is None:
            raise ValueError("this model has no tokenizer; read canvas.z instead")
        return [self.tokenizer.decode(self._content(canvas, i)) for i in range(canvas.z.shape[0])]

    def _content(self, canvas: Canvas, row: int) -> list[int]:
        pad, eos = canvas.context.pad, self.config.vocab.eos
        ids = (canvas.z[row] if pad is None else canvas.z[row][~pad[row]]).tolist()
        return ids[: ids.index(eos)] if eos is not None and eos in ids else ids


def _pieces(template: str) -> list[str | int]:
    """ "a [[3]] b" → ["a ", 3, " b"]"""
    pieces: list[str | int] = []
    for i, part in enumerate(re.split(r"\[\[([^\[\]]*)\]\]", template)):
        if i % 2 == 0:
            pieces.append(part)
        elif part.isdecimal() and int(part) > 0:
            pieces.append(int(part))
        else:
            raise ValueError(f"the hole [[{part}]] has no length; write [[n]] for n tokens, say [[3]]")
    return pieces


class Lazy(Prediction):
    """The network's prediction, computed at each question for what is asked about: ask once, for all you need."""

    def __init__(self, model: DiffusionLM, z: Tensor, t: Tensor, context: Context) -> None:
        self._model, self._z, self._t, self._context = model, z, t, context
        # asked later, answered under the conditions of its birth
        self._grad = torch.is_grad_enabled()
        kind = z.device.type
        self._autocast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))

    @property
    def x(self) -> Tensor:
        return self.at(torch.ones_like(self._z, dtype=torch.bool)).view(*self._z.shape, -1)

    def at(self, where: Tensor) -> Tensor:
        with self._birth():
            return self._weights(where).log_softmax(-1)

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        with self._birth():
            index = where.flatten().nonzero().squeeze(-1)
            loss = ops.nll(self._weights(where), target.flatten()[index])
            return loss.new_zeros(where.numel()).index_copy(0, index, loss).view(where.shape)

    def _weights(self, where: Tensor) -> Tensor:
        """(N, V) unnormalised fp32 log-weights."""
        config = self._model.config
        raw = self._model.network.logits(self._states(where))[:, : config.vocab.size]
        return config.head.weights(raw, self._z[where], self._t.expand_as(self._z)[where], config.process)

    def _states(self, where: Tensor) -> Tensor:
        """(N, D) what the network says of the marked positions; rows without any are left out of the batch."""
        config, z, t, context = self._model.config, self._z, self._t, self._context
        rows = where.any(-1)
        if self._grad and not bool(rows.any()):  # a graph that reaches every weight all the same: DDP counts on it
            rows[0] = True
        if not bool(rows.all()):
            index = rows.nonzero().squeeze(-1)
            z, t, context, where = z[index], t[index], context.rows(index), where[index]
        if not len(z):
            return torch.zeros(0, config.network.width, device=z.device)
        level = config.level(t, config.process).float() if config.network.time else None
        count = where.sum(-1, keepdim=True)
        most = max(1, int(count.max()))
        at = where.byte().argsort(dim=-1, descending=True, stable=True)[
            :, :most
        ]  # the marked columns of each row first
        h = self._model.network(z, level, context, config.head.source(at))
        real = torch.arange(most, device=z.device) < count
        return h.flatten(0, 1).index_select(0, real.flatten().nonzero().squeeze(-1))

    @contextmanager
    def _birth(self) -> Iterator[None]:
        kind, dtype, enabled = self._autocast
        with torch.set_grad_enabled(self._grad), torch.autocast(kind, dtype, enabled=enabled):
            yield
