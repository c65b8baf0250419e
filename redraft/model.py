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

    In training (gradients on) the trunk runs at once, so that wrappers of the module see it; in sampling it runs when
    somebody asks, and only for the rows asked about.
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
        pred = Lazy(self, z, t, context)
        if torch.is_grad_enabled():
            pred.hidden(torch.ones(z.shape[0], dtype=torch.bool, device=z.device))
        return pred

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
    """The network's prediction, computed where it is asked for and remembered per row."""

    def __init__(self, model: DiffusionLM, z: Tensor, t: Tensor, context: Context) -> None:
        self._model, self._z, self._t, self._context = model, z, t, context
        self._known = torch.zeros(z.shape[0], dtype=torch.bool, device=z.device)
        self._hidden: Tensor | None = None
        # asked later, answered under the conditions of its birth
        self._grad = torch.is_grad_enabled()
        kind = z.device.type
        self._autocast = (kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind))

    @property
    def x(self) -> Tensor:
        return self.at(torch.ones_like(self._z, dtype=torch.bool)).view(*self._z.shape, -1)

    def at(self, where: Tensor) -> Tensor:
        with self._birth():
            return self._weights(where)[0].log_softmax(-1)

    def nll(self, where: Tensor, target: Tensor) -> Tensor:
        with self._birth():
            weights, index = self._weights(where)
            loss = ops.nll(weights, target.flatten()[index])
            return loss.new_zeros(where.numel()).index_copy(0, index, loss).view(where.shape)

    def hidden(self, rows: Tensor) -> Tensor:
        """(B, L, D) states, valid in the marked rows (B,) and in those asked for before."""
        missing = rows & ~self._known
        if bool(missing.all()):
            self._hidden = self._run(self._z, self._t, self._context)
        elif bool(missing.any()):
            index = missing.nonzero().squeeze(-1)
            some = self._run(self._z[index], self._t[index], self._context.rows(index))
            whole = some.new_zeros(self._z.shape[0], *some.shape[1:]) if self._hidden is None else self._hidden
            self._hidden = whole.index_copy(0, index, some)
        self._known = self._known | rows
        if self._hidden is None:  # nobody asked about anything yet
            return torch.zeros(*self._z.shape, self._model.config.network.width, device=self._z.device)
        return self._hidden

    def _run(self, z: Tensor, t: Tensor, context: Context) -> Tensor:
        config = self._model.config
        level = config.level(t, config.process).float() if config.network.time else None
        return config.head.hidden(self._model.network(z, level, context))

    def _weights(self, where: Tensor) -> tuple[Tensor, Tensor]:
        """(N, V) unnormalised fp32 log-weights, and the flat positions (N,) that they belong to."""
        config, index = self._model.config, where.flatten().nonzero().squeeze(-1)
        h = self.hidden(where.any(-1)).flatten(0, 1).index_select(0, index)
        raw = self._model.network.logits(h)[:, : config.vocab.size]
        t = self._t.expand_as(self._z).flatten()[index]
        return config.head.weights(raw, self._z.flatten()[index], t, config.process), index

    @contextmanager
    def _birth(self) -> Iterator[None]:
        kind, dtype, enabled = self._autocast
        with torch.set_grad_enabled(self._grad), torch.autocast(kind, dtype, enabled=enabled):
            yield
