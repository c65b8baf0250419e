"""The settings of a model, and what they require of each other."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from redraft.core.processes.base import Process
from redraft.core.processes.gaussian import Gaussian
from redraft.core.processes.insertion import Insertion
from redraft.core.vocab import Vocab, require_range
from redraft.models.auxiliary.drafter import DraftConfig, DraftNetwork, SelfDrafter, gate_lora_to_masks
from redraft.models.auxiliary.tagger import FutureTagger, Tagger, TagSet
from redraft.models.codecs.base import CodecConfig
from redraft.models.heads import Head, PredictTokens, Shift, Subs, VectorHead
from redraft.models.networks.attention import BlockCausal, Causal, Full
from redraft.models.networks.config import NetworkIO, TransformerConfig
from redraft.models.networks.transformer import Transformer
from redraft.models.time_conditioning import ConditionOnTime, TimeConditioning


@dataclass(frozen=True)
class DiffusionLMConfig:
    """A model without its weights. Its vocabulary is that of the process; all sizes that follow from it are derived."""

    process: Process
    network: TransformerConfig
    head: Head | VectorHead = field(default_factory=Subs)
    level: TimeConditioning = field(default_factory=ConditionOnTime)
    errors: bool = False  # one more layer, which tells wrong tokens from right ones (G-Star)
    codec: CodecConfig | None = None  # tokens ↔ vectors, for Gaussian noise; None: the tokens themselves
    hint: bool = False  # the network also reads its previous x̂ (self-conditioning)
    encoder: TransformerConfig | None = None  # reads a source, for the cross attention of the network; None: no source
    attributes: int = 0  # classes that a layer of its own tells apart in noisy text, for guidance; 0: no such layer
    drafter: DraftConfig | None = None  # who drafts for a causal network, from its states; None: nobody
    kinds: TagSet | None = None  # of words that a tagger of its own tells apart, say parts of speech; None: no tagger

    def __post_init__(self) -> None:
        require_range(self, 0, 2**31, "attributes")
        self._require_encoder()
        self._require_kinds()
        self._require_drafter()
        self._require_level()
        if self.codec is not None or isinstance(self.process, Gaussian):
            self._require_vectors()
        else:
            self._require_tokens()

    @property
    def vocab(self) -> Vocab:
        return self.process.vocab

    @property
    def ports(self) -> NetworkIO:
        """What the network reads and writes: ids, or the vectors of the codec, beside the states of the encoder."""
        cross = None if self.encoder is None else self.encoder.width
        if self.codec is None or not isinstance(self.head, VectorHead):
            size, pattern = self.vocab.size, self.network.pattern
            if self.continues:
                return NetworkIO(size - 1, size - 1, cross=cross, start=None)
            start = pattern.start if isinstance(pattern, Causal) else None
            start = self.vocab.start if start is None else start
            finished = isinstance(self.head, Shift) and self.head.finished
            return NetworkIO(size, size, cross=cross, start=start, mask=self.vocab.mask, finished=finished)
        width = self.codec.vectors(self.vocab)
        reads, writes = width * (2 if self.hint else 1), self.head.outputs(width, self.vocab.size)
        return NetworkIO(reads, writes, vectors=True, cross=cross)

    @property
    def continues(self) -> bool:
        """Whether it is a plain autoregressive model: a row is read as it stands, without a start token.

        The mask only marks what is to be written: it is the last id, and the network has no row for it.
        """
        return isinstance(self.head, Shift) and isinstance(self.network.pattern, Causal)

    @property
    def source_ports(self) -> NetworkIO:
        """What the encoder reads; the network reads its states."""
        return NetworkIO(self.vocab.size)

    @property
    def token_head(self) -> Head:
        """The head of a network that reads tokens."""
        if not isinstance(self.head, Head):
            raise ValueError(f"{type(self.head).__name__}() is a head for vectors; only a model of tokens has this")
        return self.head

    def noise_level(self, t: Tensor) -> Tensor | None:
        """What the network sees of the time; None if it sees none."""
        return self.level(t, self.process).float() if self.network.time else None

    def build_tagger(self) -> Tagger | FutureTagger | None:
        """The tagger that suits the network: of noisy rows, or of what is to come behind a beginning."""
        if self.kinds is None:
            return None
        if isinstance(self.network.pattern, Causal):
            return FutureTagger(self.network, self.vocab.size, self.kinds)
        reads = self.vocab.size if self.codec is None else self.codec.vectors(self.vocab)
        return Tagger(self.network, reads, self.kinds)

    def build_drafter(self, network: Transformer) -> DraftNetwork | None:
        """Who drafts for the network; an adapter that is there for this alone is off elsewhere."""
        if self.drafter is None:
            return None
        if isinstance(self.drafter, SelfDrafter):
            gate_lora_to_masks(network)
        return self.drafter.build(self.network, self.ports.writes or 0, self.vocab.mask)

    def _require_drafter(self) -> None:
        if self.drafter is not None and not isinstance(self.network.pattern, Causal):
            raise ValueError("a drafter is for causal networks: others already write several tokens per pass")
        if isinstance(self.drafter, SelfDrafter) and self.network.lora is None:
            raise ValueError("Itself() drafts by an adapter, but the network has none; give it lora=Lora(…)")

    def _require_encoder(self) -> None:
        if self.encoder is not None and (not isinstance(self.encoder.pattern, Full) or self.encoder.time):
            raise ValueError("an encoder reads clean ids, all at once: full attention, time=None")

    def _require_kinds(self) -> None:
        if self.kinds is not None and len(self.kinds.of) != self.vocab.size:
            raise ValueError(
                f"kinds of {len(self.kinds.of)} tokens for a vocabulary of {self.vocab.size}; a tagger knows the words "
                "of its lexicon: for others build it by vary.with_tagger"
            )
        if self.kinds is not None and isinstance(self.network.pattern, BlockCausal):
            raise ValueError("a tagger reads whole rows or beginnings; blocks have neither: use Full() or Causal()")

    def _require_level(self) -> None:
        """Finished blocks have the level 0: in training, in the cache, and without one."""
        blocks = isinstance(self.network.pattern, BlockCausal) and self.network.time is not None
        if blocks and float(self.level(torch.zeros(1, 1), self.process)) != 0:
            raise ValueError(f"a network of blocks needs a level that is 0 at time 0, as ByTime(), not {self.level}")

    def _require_tokens(self) -> None:
        network, ports = self.network, self.ports
        if not isinstance(self.head, Head) or self.hint:
            raise ValueError(f"{type(self.head).__name__}() and hints are for vectors; tokens need a head as Subs()")
        if ports.start is not None and not 0 <= ports.start < ports.reads:
            raise ValueError(f"a causal network begins with one of its {ports.reads} ids; got start={ports.start}")
        if self.continues and self.vocab.mask != self.vocab.size - 1:
            raise ValueError(
                f"a causal network with the head Shift has no row for the mask, the last id; got {self.vocab}"
            )
        if isinstance(self.process, Insertion) != (network.gaps is not None):
            name = type(self.process).__name__
            raise ValueError(f"gaps={network.gaps} for {name}; insertion, and it alone, needs gaps")
        if network.gaps is not None and (network.time is None or isinstance(self.head, Shift)):
            raise ValueError("how many tokens are missing depends on the time: insertion needs time, and no head Shift")

    def _require_vectors(self) -> None:
        if self.codec is None or not isinstance(self.process, Gaussian) or not isinstance(self.head, VectorHead):
            raise ValueError(
                f"vectors need a codec, Gaussian noise and a head for vectors; got {type(self.codec).__name__}, "
                f"{type(self.process).__name__}, {type(self.head).__name__}"
            )
        if isinstance(self.head, PredictTokens) and not self.codec.names:
            name = type(self.codec).__name__
            raise ValueError(f"PredictTokens needs a vector for each token, as Embedding has, not {name}")
        if self.network.tied or self.network.ids or isinstance(self.network.pattern, Causal):
            raise ValueError(
                "a network that reads vectors has no ids to tie its outputs to or to begin with: "
                "tied=False, ids=None, and no Causal pattern"
            )
