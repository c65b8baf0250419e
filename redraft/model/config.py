"""The settings of a model, and what they require of each other."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from redraft.codecs import CodecConfig
from redraft.heads import Head, PredictTokens, Shift, Subs, VectorHead
from redraft.model.levels import ByTime, Level
from redraft.networks import BlockCausal, Full, TransformerConfig
from redraft.processes import (
    Gaussian,
    Insertion,
    Process,
)
from redraft.types import Vocab


@dataclass(frozen=True)
class DiffusionLMConfig:
    """A model without its weights."""

    process: Process
    network: TransformerConfig
    head: Head | VectorHead = field(default_factory=Subs)
    level: Level = field(default_factory=ByTime)
    errors: bool = False  # one more layer, which tells wrong tokens from right ones (G-Star)
    codec: CodecConfig | None = None  # tokens ↔ vectors, for Gaussian noise; None: the tokens themselves
    hint: bool = False  # the network also reads its previous x̂ (self-conditioning)
    encoder: TransformerConfig | None = None  # reads a source, for the cross attention of the network; None: no source

    def __post_init__(self) -> None:
        self._require_encoder()
        self._require_level()
        if self.codec is not None or isinstance(self.process, Gaussian) or self.network.vectors is not None:
            self._require_vectors()
            return
        if not isinstance(self.head, Head) or self.hint:
            raise ValueError(f"{type(self.head).__name__}() and hints are for vectors; tokens need a head as Subs()")
        if self.network.vocab < self.vocab.size:
            raise ValueError(f"the network has {self.network.vocab} outputs for {self.vocab.size} states; raise vocab")
        if isinstance(self.head, Shift) and not isinstance(self.network.pattern, Full):
            raise ValueError(f"the head Shift needs full attention; with {self.network.pattern} use the inner head")
        if isinstance(self.process, Insertion) != (self.network.gaps is not None):
            name = type(self.process).__name__
            raise ValueError(f"gaps={self.network.gaps} for {name}; insertion, and it alone, needs gaps")
        if self.network.gaps is not None and (self.network.time is None or isinstance(self.head, Shift)):
            raise ValueError("how many tokens are missing depends on the time: insertion needs time, and no head Shift")

    @classmethod
    def of_vectors(
        cls,
        process: Gaussian,
        network: TransformerConfig,
        head: VectorHead,
        level: Level = ByTime(),
        *,
        codec: CodecConfig,
        hint: bool = False,
        encoder: TransformerConfig | None = None,
    ) -> DiffusionLMConfig:
        """With a network that reads and gives as many numbers as codec, head and hint need."""
        width = codec.vectors(process.vocab)
        network = replace(network, vectors=width * (2 if hint else 1), vocab=head.outputs(width, process.vocab.size))
        return cls(process, network, head, level, codec=codec, hint=hint, encoder=encoder)

    @property
    def vocab(self) -> Vocab:
        return self.process.vocab

    @property
    def token_head(self) -> Head:
        """The head of a network that reads tokens."""
        if not isinstance(self.head, Head):
            raise ValueError(f"{type(self.head).__name__}() is a head for vectors; only a model of tokens has this")
        return self.head

    def _require_encoder(self) -> None:
        states = None if self.encoder is None else self.encoder.width
        if states != self.network.cross:
            raise ValueError(f"the network reads states of cross={self.network.cross}, the encoder gives {states}")
        if self.encoder is None:
            return
        if not isinstance(self.encoder.pattern, Full) or self.encoder.time or self.encoder.vectors:
            raise ValueError("an encoder reads clean ids, all at once: full attention, time=None, vectors=None")
        if not self.encoder.tied or self.encoder.vocab < self.vocab.size:
            raise ValueError(f"an encoder needs an id for each of {self.vocab.size} states and no outputs: tied=True")

    def _require_level(self) -> None:
        """Finished blocks have the level 0: in training, in the cache, and without one."""
        blocks = isinstance(self.network.pattern, BlockCausal) and self.network.time is not None
        if blocks and float(self.level(torch.zeros(1, 1), self.process)) != 0:
            raise ValueError(f"a network of blocks needs a level that is 0 at time 0, as ByTime(), not {self.level}")

    def _require_vectors(self) -> None:
        if self.codec is None or not isinstance(self.process, Gaussian) or not isinstance(self.head, VectorHead):
            raise ValueError(
                f"vectors need a codec, Gaussian noise and a head for vectors; got {type(self.codec).__name__}, "
                f"{type(self.process).__name__}, {type(self.head).__name__}"
            )
        if isinstance(self.head, PredictTokens) and not self.codec.names:
            name = type(self.codec).__name__
            raise ValueError(f"PredictTokens needs a vector for each token, as Embedding has, not {name}")
        width = self.codec.vectors(self.vocab)
        reads, gives = width * (2 if self.hint else 1), self.head.outputs(width, self.vocab.size)
        if (self.network.vectors, self.network.vocab) != (reads, gives):
            raise ValueError(
                f"the network reads {self.network.vectors} numbers and gives {self.network.vocab}; this codec and head "
                f"need vectors={reads}, vocab={gives}"
            )
