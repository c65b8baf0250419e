"""The configuration of a model, and checks that its parts fit together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import torch
from torch import Tensor

from redraft.core.batch import Batch
from redraft.core.processes.base import Process
from redraft.core.processes.gaussian import Gaussian
from redraft.core.vocab import Vocab
from redraft.models.codecs.base import CodecConfig
from redraft.models.heads import Head, Subs, VectorHead
from redraft.models.networks.config import NetworkIO, TransformerConfig
from redraft.models.parts.config import PartConfig
from redraft.models.time_conditioning import ConditionOnTime, TimeConditioning

_C = TypeVar("_C", bound=PartConfig)


@dataclass(frozen=True)
class DiffusionLMConfig:
    """The configuration of a `DiffusionLM`. Sizes that follow from the vocabulary of the process are derived."""

    process: Process
    network: TransformerConfig
    head: Head | VectorHead = field(default_factory=Subs)
    time_conditioning: TimeConditioning = field(default_factory=ConditionOnTime)
    codec: CodecConfig | None = None  # maps tokens to vectors and back, for Gaussian noise; None if tokens are noised
    self_conditioning: bool = False  # the network also reads its previous x̂ (self-conditioning)
    parts: tuple[PartConfig, ...] = ()  # modules beside the network, such as a drafter or an encoder of sources

    def __post_init__(self) -> None:
        names = [part.name for part in self.parts]
        if len(set(names)) < len(names):
            raise ValueError(f"parts={', '.join(names)}; a model has at most one part of each name")
        for part in self.parts:
            part.require(self)
        self._require_time_conditioning()
        if self.codec is not None or self.process.vectors:
            self._require_vectors()
        else:
            self._require_tokens()

    @property
    def vocab(self) -> Vocab:
        return self.process.vocab

    def part(self, kind: type[_C]) -> _C | None:
        """The part of this kind; None if the model has none."""
        return next((part for part in self.parts if isinstance(part, kind)), None)

    def with_part(self, part: PartConfig) -> DiffusionLMConfig:
        """This config with the part, instead of any other of its name."""
        return replace(self, parts=(*(other for other in self.parts if other.name != part.name), part))

    @property
    def gaussian(self) -> Gaussian:
        """The process of a model of vectors; raises for a model of tokens."""
        return self.process.narrowed(Gaussian, "this", "use a model of vectors")

    @property
    def io(self) -> NetworkIO:
        """The inputs and outputs of the network."""
        cross = next((part.source_width for part in self.parts if part.source_width is not None), None)
        if self.codec is None:
            size, pattern = self.vocab.size, self.network.pattern
            if self.is_plain_causal:
                return NetworkIO(size - 1, size - 1, cross=cross, start=None)
            start = self.vocab.start if pattern.start is None else pattern.start
            finished = self.token_head.finished
            return NetworkIO(size, size, cross=cross, start=start, mask=self.vocab.mask, finished=finished)
        width = self.codec.vectors(self.vocab)
        reads, writes = width * (2 if self.self_conditioning else 1), self.vector_head.outputs(width, self.vocab.size)
        return NetworkIO(reads, writes, vectors=True, cross=cross)

    @property
    def is_plain_causal(self) -> bool:
        """Whether this is a plain autoregressive model, such as GPT-2, which reads a row without a start token.

        The mask then only marks tokens to be written: it is the last id, and the network has no embedding for it.
        """
        return self.network.pattern.causal and self.token_head.shifts

    def learnable(self, batch: Batch) -> Batch:
        """The batch without loss on the first token if nothing predicts it, as in plain causal models."""
        if not self.is_plain_causal or not bool(batch.learn[:, 0].any()):
            return batch
        return replace(batch, learn=batch.learn.index_fill(1, batch.learn.new_zeros(1, dtype=torch.int64), False))

    @property
    def has_start_token(self) -> bool:
        """Whether this is an autoregressive model that reads a start token, as the causal presets train it."""
        return self.network.pattern.causal and not self.is_plain_causal

    @property
    def vector_head(self) -> VectorHead:
        """The head of a model of vectors; raises for a model of tokens."""
        if not isinstance(self.head, VectorHead):
            raise ValueError(f"{type(self.head).__name__}() is a head for tokens; this needs a model of vectors")
        return self.head

    @cached_property
    def token_head(self) -> Head:
        """The head of a model of tokens; raises for a model of vectors."""
        if not isinstance(self.head, Head):
            raise ValueError(f"{type(self.head).__name__}() is a head for vectors; this needs a model of tokens")
        return self.head

    @cached_property
    def reads_previous_state(self) -> bool:
        """Whether a token is predicted from the state of the token before it."""
        return bool(self.token_head.source(torch.zeros(1, dtype=torch.int64)) != 0)

    def noise_level(self, t: Tensor) -> Tensor | None:
        """The noise level that the network sees at time t; None if it does not see the time."""
        return self.time_conditioning(t, self.process).float() if self.network.time else None

    def _require_time_conditioning(self) -> None:
        """Raise unless block-causal networks see the level 0 at time 0, the level of finished blocks."""
        blocks = self.network.pattern.block is not None and self.network.time is not None
        if blocks and float(self.time_conditioning(torch.zeros(1, 1), self.process)) != 0:
            raise ValueError(
                f"time_conditioning={self.time_conditioning}; a block-causal network needs a noise level that is 0 at "
                "time 0, as with ConditionOnTime()"
            )

    def _require_tokens(self) -> None:
        network, head = self.network, self.head
        if head.vectors or self.self_conditioning:
            raise ValueError(
                f"{type(self.head).__name__}() with self_conditioning={self.self_conditioning} for tokens; "
                "use a head such as Subs(), and self_conditioning=False (self-conditioning is for vectors)"
            )
        io = self.io
        if io.start is not None and not 0 <= io.start < io.reads:
            raise ValueError(f"start={io.start}; the start token must be one of the network's {io.reads} ids")
        if self.is_plain_causal and self.vocab.mask != self.vocab.size - 1:
            raise ValueError(
                f"{self.vocab}; with a causal network and the head Shift, the mask must be the last id, because the "
                "network has no embedding for it"
            )
        if self.process.grows != (network.gaps is not None):
            raise ValueError(
                f"network.gaps={network.gaps} with {type(self.process).__name__}; set gaps (the most tokens missing in "
                "a gap) for Insertion, and leave it None for any other process"
            )
        if network.gaps is not None and (network.time is None or self.token_head.shifts):
            raise ValueError(
                "insertion needs a network that sees the time, and no Shift; set network.time, and use Subs()"
            )

    def _require_vectors(self) -> None:
        if self.codec is None or not self.process.vectors or not self.head.vectors:
            raise ValueError(
                f"a model of vectors needs a codec, Gaussian noise and a head for vectors; got "
                f"{type(self.codec).__name__}, {type(self.process).__name__}, {type(self.head).__name__}"
            )
        if self.vector_head.predicts_tokens and not self.codec.names:
            name = type(self.codec).__name__
            raise ValueError(f"PredictTokens needs a codec with a vector per token, such as Embedding, not {name}")
        if self.network.tied or self.network.padded_vocab or self.network.pattern.causal:
            raise ValueError(
                "a network for vectors reads no ids; use tied=False, padded_vocab=None and any pattern except Causal"
            )
