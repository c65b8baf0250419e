"""Settings of the transformer: its architecture, its inputs and outputs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from redraft.core.vocab import ABOVE_ZERO, BELOW_ONE, FINITE, MAX_WIDTH, require_range
from redraft.models.networks.attention import RopeScaling
from redraft.models.networks.linear import LoraConfig
from redraft.models.networks.patterns import AttentionPattern, Full


@dataclass(frozen=True)
class TransformerConfig:
    """The architecture of a transformer; its input and output sizes are in `NetworkIO`.

    The defaults describe a small modern model; comments name the models that need other values.
    """

    width: int = 384
    layers: int = 6
    heads: int = 6
    kv_heads: int | None = (
        None  # heads of keys and values, for grouped-query attention (Llama, Qwen); None: as many as heads
    )
    head_dim: int | None = None  # width of a head; None for width / heads
    hidden: int | None = None  # width of the MLP; None for 4 × width, or 8/3 × width if gated
    pattern: AttentionPattern = field(default_factory=Full)
    norm: Literal["rms", "layer"] = "rms"  # RMSNorm, or LayerNorm (DiT, GPT-2)
    norm_eps: float = 1e-5
    norm_bias: bool = False  # norms have a bias (GPT-2)
    gated: bool = True  # SwiGLU; False for GELU with tanh (DiT, GPT-2)
    qkv_bias: bool = False  # queries, keys and values have a bias (Qwen2, GPT-2)
    out_bias: bool = False  # the output projection of attention has a bias (GPT-2)
    mlp_bias: bool = False  # the MLP has biases (DiT, GPT-2)
    qk_norm: bool = False  # queries and keys are normalized (Qwen3)
    rotary: float | None = 10_000.0  # base of the rotary positions; None for no rotary positions (GPT-2)
    rope_scaling: RopeScaling | None = (
        None  # scaling of the rotary positions for longer rows (Llama 3.1); None for no scaling
    )
    positions: int | None = None  # number of learned positions (GPT-2); rotary positions may be used as well
    time: int | None = None  # width of the time embedding for adaLN; None if the network does not see the time
    classes: int | None = None  # number of class labels, not counting "no label" (UDLM, LD4TG); None without labels
    padded_vocab: int | None = (
        None  # minimum number of embedding rows (LLaDA and Dream pad them); None for the number of ids
    )
    tied: bool = False  # the output layer shares its weights with the embedding
    head_bias: bool = False  # the output layer has a bias (DiT)
    gaps: int | None = None  # insertion: maximum number of tokens missing in a gap; None without a head for gaps
    gap_counts: bool = False  # the head for gaps predicts a distribution over 0..gaps; False for the expected count
    gap_fraction: bool = False  # the head for gaps predicts log(expected count / fraction of tokens missing)
    dropout: float = 0.0
    lora: LoraConfig | None = None  # adapter on the matrices of attention and MLP; None for no adapter

    def __post_init__(self) -> None:
        self._require_sizes()
        if self.head_dim is None and self.width % self.heads:
            raise ValueError(f"width={self.width} does not split into {self.heads} heads; change one, or set head_dim")
        if self.heads % self.groups:
            raise ValueError(f"heads={self.heads} must be a multiple of kv_heads={self.groups}; change one")
        if self.rotary is None and self.positions is None:
            raise ValueError("without positions a network ignores word order; set rotary (the base) or positions")
        if self.pattern.causal and self.time is not None:
            raise ValueError(f"time={self.time} with a causal network, which reads clean tokens only; use time=None")
        if self.classes is not None and (self.time is None or self.pattern.block is not None):
            raise ValueError("classes are embedded together with the time; they need time and full attention")
        if (self.norm_bias and self.norm == "rms") or (self.head_bias and self.tied):
            raise ValueError("RMS norms and tied output layers have no bias; drop norm_bias or head_bias")
        if self.gap_fraction and (self.gap_counts or self.gaps is None):
            raise ValueError("gap_fraction scales predicted expected counts; set gaps, and leave out gap_counts")
        if self.gaps is not None and (self.gaps < 1 or self.pattern.block is not None):
            raise ValueError(f"gaps={self.gaps} with {self.pattern}; gaps must be at least 1 and need full attention")

    def _require_sizes(self) -> None:
        """Raise if a size is out of range, before anything is built with it."""
        require_range(self, 1, MAX_WIDTH, "width", "heads", "kv_heads", "head_dim", "hidden", "time", "classes")
        require_range(self, 1, 2**31, "padded_vocab", "positions")
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
    """The inputs and outputs of a network; never stored, since they follow from vocabulary, codec and head."""

    reads: int  # number of input ids, or width of the input vectors
    writes: int | None = None  # number of outputs per position; None for no output layer (encoders)
    vectors: bool = False  # the inputs are vectors instead of ids
    cross: int | None = None  # width of the encoder states for cross attention; None without cross attention
    start: int | None = 0  # id of the start token of a causal network; None if it has none
    mask: int | None = None  # id of the mask; None if the embedding has no row for it
    finished: bool = False  # with two streams, the first token of a block is predicted from the clean stream
