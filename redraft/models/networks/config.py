"""All settings of the one transformer, and what it is connected to."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from redraft.core.vocab import ABOVE_ZERO, BELOW_ONE, FINITE, MAX_WIDTH, require_range
from redraft.models.networks.attention import AttentionPattern, Causal, Full, RopeScaling


@dataclass(frozen=True)
class LoraConfig:
    """A low-rank change of the matrices of all layers: W + (alpha/rank)·B·A (Hu et al. 2021); W itself stays."""

    rank: int = 16
    alpha: float = 32.0
    mask_row: bool = False  # also a learned change of the mask's embedding

    def __post_init__(self) -> None:
        require_range(self, 1, 4096, "rank")
        require_range(self, ABOVE_ZERO, FINITE, "alpha")


@dataclass(frozen=True)
class TransformerConfig:
    """All settings of a network by itself; what it reads and writes are its `NetworkIO`.

    The defaults are a modern small model; comments name what other layouts need.
    """

    width: int = 384
    layers: int = 6
    heads: int = 6
    kv_heads: int | None = None  # fewer than heads: grouped queries (Llama, Qwen)
    head_dim: int | None = None  # None: width / heads
    hidden: int | None = None  # None: 4 × width, or 8/3 × width when gated
    pattern: AttentionPattern = field(default_factory=Full)
    norm: Literal["rms", "layer"] = "rms"  # DiT, GPT-2: layer
    norm_eps: float = 1e-5
    norm_bias: bool = False  # GPT-2: True
    gated: bool = True  # SwiGLU; False: GELU (tanh), as DiT and GPT-2
    qkv_bias: bool = False  # Qwen2, GPT-2: True
    out_bias: bool = False  # GPT-2: True
    mlp_bias: bool = False  # DiT, GPT-2: True
    qk_norm: bool = False  # Qwen3: True
    rotary: float | None = 10_000.0  # base; None: no rotary positions (GPT-2)
    slowed: RopeScaling | None = None  # rotary positions for longer rows (Llama 3.1); None: as they are
    positions: int | None = None  # number of learned positions (GPT-2), alone or beside rotary ones
    time: int | None = None  # width of the time embedding that drives adaLN; None: the network does not see time
    classes: int | None = None  # labels that a row may have (UDLM, LD4TG); one more stands for none; None: no labels
    ids: int | None = None  # least number of embedding rows (LLaDA, Dream pad theirs); None: as many as there are ids
    tied: bool = False  # the output layer is the embedding
    head_bias: bool = False  # DiT: True
    gaps: int | None = None  # most tokens that may be missing in a gap (insertion): a second output layer; None: none
    gap_counts: bool = False  # it gives a distribution over the counts 0..gaps; False: the expected count
    gap_share: bool = False  # it gives the log of the expected count relative to the share of tokens that are missing
    dropout: float = 0.0
    lora: LoraConfig | None = None  # an adapter on the matrices of attention and MLP; None: none

    def __post_init__(self) -> None:
        self._require_sizes()
        if self.head_dim is None and self.width % self.heads:
            raise ValueError(f"width={self.width} does not split into {self.heads} heads; set head_dim, or change one")
        if self.heads % self.groups:
            raise ValueError(f"heads={self.heads} is no multiple of kv_heads={self.groups}")
        if self.rotary is None and self.positions is None:
            raise ValueError("a network without positions cannot tell order: give rotary=base or positions=how many")
        if isinstance(self.pattern, Causal) and self.time is not None:
            raise ValueError(
                f"a causal network reads clean tokens and sees no time, but time={self.time}; use time=None"
            )
        if self.classes is not None and (self.time is None or not isinstance(self.pattern, Full)):
            raise ValueError("a label is told with the time, to all tokens: classes need time and full attention")
        if (self.norm_bias and self.norm == "rms") or (self.head_bias and self.tied):
            raise ValueError("RMS norms and tied output layers have no bias; drop norm_bias or head_bias")
        if self.gap_share and (self.gap_counts or self.gaps is None):
            raise ValueError("gap_share is about the expected count of a gap; give gaps, and leave out gap_counts")
        if self.gaps is not None and (self.gaps < 1 or not isinstance(self.pattern, Full)):
            raise ValueError(f"gaps={self.gaps} with {self.pattern}; gaps hold one token or more, under full attention")

    def _require_sizes(self) -> None:
        """Before anything is built: a network of a billion layers would not even be counted."""
        require_range(self, 1, MAX_WIDTH, "width", "heads", "kv_heads", "head_dim", "hidden", "time", "classes")
        require_range(self, 1, 2**31, "ids", "positions")
        require_range(self, 1, 4096, "layers")
        require_range(self, ABOVE_ZERO, FINITE, "norm_eps", "rotary")
        require_range(self, 0, BELOW_ONE, "dropout")

    @property
    def groups(self) -> int:
        return self.kv_heads or self.heads

    @property
    def head_width(self) -> int:
        return self.head_dim or self.width // self.heads

    @property
    def hidden_width(self) -> int:
        return self.hidden or (-(-self.width * 8 // 96) * 32 if self.gated else 4 * self.width)


@dataclass(frozen=True)
class NetworkIO:
    """What a network is connected to. It is stored nowhere: it follows from the tokens or vectors it is built for."""

    reads: int  # how many ids there are, or how wide the vectors
    writes: int | None = None  # numbers at each place; None: the states themselves, as of an encoder
    vectors: bool = False  # it reads vectors, not ids
    cross: int | None = None  # width of the states that cross attention reads, an encoded source; None: none
    start: int | None = 0  # the id that a causal network begins with; None: with the first token of the row itself
    mask: int | None = None  # the id of the mask, where it has a row
    finished: bool = False  # in two streams, the state before a block is that of the clean one
