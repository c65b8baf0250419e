"""The configuration of a model, and checks that its parts fit together."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from redraft.core.processes.base import Process
from redraft.core.processes.gaussian import Gaussian
from redraft.core.vocab import Vocab, require_range
from redraft.models.auxiliary.drafter import DraftConfig, DraftNetwork, SelfDrafter, gate_lora_to_masks
from redraft.models.auxiliary.tagger import FutureTagger, Tagger, TagSet
from redraft.models.codecs.base import CodecConfig
from redraft.models.heads import Head, PredictTokens, Shift, Subs, VectorHead
from redraft.models.networks.config import NetworkIO, TransformerConfig
from redraft.models.networks.patterns import BlockCausal, Causal, Full
from redraft.models.networks.transformer import Transformer
from redraft.models.time_conditioning import ConditionOnTime, TimeConditioning


@dataclass(frozen=True)
class DiffusionLMConfig:
    """The configuration of a `DiffusionLM`. Sizes that follow from the vocabulary of the process are derived."""

    process: Process
    network: TransformerConfig
    head: Head | VectorHead = field(default_factory=Subs)
    time_conditioning: TimeConditioning = field(default_factory=ConditionOnTime)
    error_head: bool = False  # add a head that detects wrong tokens (G-Star)
    codec: CodecConfig | None = None  # maps tokens to vectors and back, for Gaussian noise; None if tokens are noised
    self_conditioning: bool = False  # the network also reads its previous x̂ (self-conditioning)
    encoder: TransformerConfig | None = None  # encodes a source for cross attention; None for a model without sources
    attribute_classes: int = 0  # number of classes of an attribute classifier, for guidance; 0 for no classifier
    drafter: DraftConfig | None = None  # drafter for a causal network; None for no drafter
    tags: TagSet | None = None  # tags of a tagger, such as parts of speech; None for no tagger

    def __post_init__(self) -> None:
        require_range(self, 0, 2**31, "attribute_classes")
        self._require_encoder()
        self._require_tags()
        self._require_drafter()
        self._require_time_conditioning()
        if self.codec is not None or self.process.vectors:
            self._require_vectors()
        else:
            self._require_tokens()

    @property
    def vocab(self) -> Vocab:
        return self.process.vocab

    @property
    def io(self) -> NetworkIO:
        """The inputs and outputs of the network."""
        cross = None if self.encoder is None else self.encoder.width
        if self.codec is None or not isinstance(self.head, VectorHead):
            size, pattern = self.vocab.size, self.network.pattern
            if self.is_plain_causal:
                return NetworkIO(size - 1, size - 1, cross=cross, start=None)
            start = pattern.start if isinstance(pattern, Causal) else None
            start = self.vocab.start if start is None else start
            finished = isinstance(self.head, Shift) and self.head.finished
            return NetworkIO(size, size, cross=cross, start=start, mask=self.vocab.mask, finished=finished)
        width = self.codec.vectors(self.vocab)
        reads, writes = width * (2 if self.self_conditioning else 1), self.head.outputs(width, self.vocab.size)
        return NetworkIO(reads, writes, vectors=True, cross=cross)

    @property
    def is_plain_causal(self) -> bool:
        """Whether this is a plain autoregressive model, such as GPT-2, which reads a row without a start token.

        The mask then only marks tokens to be written: it is the last id, and the network has no embedding for it.
        """
        return isinstance(self.head, Shift) and isinstance(self.network.pattern, Causal)

    @property
    def has_start_token(self) -> bool:
        """Whether this is an autoregressive model that reads a start token, as the causal presets train it."""
        return isinstance(self.network.pattern, Causal) and not self.is_plain_causal

    @property
    def source_io(self) -> NetworkIO:
        """The inputs of the encoder; its outputs are its hidden states."""
        return NetworkIO(self.vocab.size)

    @property
    def token_head(self) -> Head:
        """The head of a model of tokens; raises for a model of vectors."""
        if not isinstance(self.head, Head):
            raise ValueError(f"{type(self.head).__name__}() is a head for vectors; this needs a model of tokens")
        return self.head

    def noise_level(self, t: Tensor) -> Tensor | None:
        """The noise level that the network sees at time t; None if it does not see the time."""
        return self.time_conditioning(t, self.process).float() if self.network.time else None

    def build_tagger(self) -> Tagger | FutureTagger | None:
        """Build the tagger: of future tokens for a causal network, else of noisy rows; None without tags."""
        if self.tags is None:
            return None
        if isinstance(self.network.pattern, Causal):
            return FutureTagger(self.network, self.vocab.size, self.tags)
        reads = self.vocab.size if self.codec is None else self.codec.vectors(self.vocab)
        return Tagger(self.network, reads, self.tags)

    def build_drafter(self, network: Transformer) -> DraftNetwork | None:
        """Build the drafter, or None; with a `SelfDrafter`, the network's adapter will act only at drafted masks."""
        if self.drafter is None:
            return None
        if isinstance(self.drafter, SelfDrafter):
            gate_lora_to_masks(network)
        return self.drafter.build(self.network, self.io.writes or 0, self.vocab.mask)

    def _require_drafter(self) -> None:
        if self.drafter is not None and not isinstance(self.network.pattern, Causal):
            raise ValueError(
                "drafters are for causal networks, since others write several tokens per pass anyway; use drafter=None"
            )
        if isinstance(self.drafter, SelfDrafter) and self.network.lora is None:
            raise ValueError("SelfDrafter() needs an adapter, and this network has none; give it lora=LoraConfig(…)")

    def _require_encoder(self) -> None:
        if self.encoder is not None and (not isinstance(self.encoder.pattern, Full) or self.encoder.time):
            raise ValueError("an encoder reads clean ids, all at once; it needs full attention and time=None")

    def _require_tags(self) -> None:
        if self.tags is not None and len(self.tags.of) != self.vocab.size:
            raise ValueError(
                f"the tagger has tags for {len(self.tags.of)} tokens, but the vocabulary has {self.vocab.size}; "
                "build the tags for this vocabulary with variations.with_tagger"
            )
        if self.tags is not None and isinstance(self.network.pattern, BlockCausal):
            raise ValueError("a tagger reads whole rows or prefixes, not blocks; use the pattern Full() or Causal()")

    def _require_time_conditioning(self) -> None:
        """Raise unless block-causal networks see the level 0 at time 0, the level of finished blocks."""
        blocks = isinstance(self.network.pattern, BlockCausal) and self.network.time is not None
        if blocks and float(self.time_conditioning(torch.zeros(1, 1), self.process)) != 0:
            raise ValueError(
                f"time_conditioning={self.time_conditioning}; a block-causal network needs a noise level that is 0 at "
                "time 0, as with ConditionOnTime()"
            )

    def _require_tokens(self) -> None:
        network, io = self.network, self.io
        if not isinstance(self.head, Head) or self.self_conditioning:
            raise ValueError(
                f"{type(self.head).__name__}() with self_conditioning={self.self_conditioning} for tokens; "
                "use a head such as Subs(), and self_conditioning=False (self-conditioning is for vectors)"
            )
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
        if network.gaps is not None and (network.time is None or isinstance(self.head, Shift)):
            raise ValueError(
                "insertion needs a network that sees the time, and no Shift; set network.time, and use Subs()"
            )

    def _require_vectors(self) -> None:
        if self.codec is None or not isinstance(self.process, Gaussian) or not isinstance(self.head, VectorHead):
            raise ValueError(
                f"a model of vectors needs a codec, Gaussian noise and a head for vectors; got "
                f"{type(self.codec).__name__}, {type(self.process).__name__}, {type(self.head).__name__}"
            )
        if isinstance(self.head, PredictTokens) and not self.codec.names:
            name = type(self.codec).__name__
            raise ValueError(f"PredictTokens needs a codec with a vector per token, such as Embedding, not {name}")
        if self.network.tied or self.network.padded_vocab or isinstance(self.network.pattern, Causal):
            raise ValueError(
                "a network for vectors reads no ids; use tied=False, padded_vocab=None and a pattern but Causal"
            )
