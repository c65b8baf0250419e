"""Taggers: networks that predict tags of words, such as parts of speech, for guidance and look-ahead."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.vocab import require_range
from redraft.models.networks.config import NetworkIO, TransformerConfig
from redraft.models.networks.patterns import Causal, Full
from redraft.models.networks.transformer import Transformer
from redraft.models.parts.base import Part, WholeModel
from redraft.models.parts.config import PartConfig, WholeConfig


@dataclass(frozen=True)
class TaggerConfig(PartConfig):
    """A tagger: the tags that it predicts, such as parts of speech, and the tag of every token.

    For a causal network it predicts the tags of future tokens, else those of noisy rows.

    Tokens without a tag (special tokens, words that are not in the lexicon) have the index `none`.
    """

    names: tuple[str, ...]  # name of each tag
    of: tuple[int, ...]  # (V,) index of each token's tag
    layers: int = 1  # number of layers of the tagger
    name = "tagger"

    def __post_init__(self) -> None:
        require_range(self, 1, 4096, "layers")
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError(f"tag names {', '.join(self.names) or '(none)'}; give at least one, each of them once")
        if wrong := [index for index in self.of if not 0 <= index <= self.none]:
            raise ValueError(f"a token has the tag {wrong[0]}; use 0 to {self.none}, where {self.none} means no tag")

    @property
    def none(self) -> int:
        """The index that means "no tag"."""
        return len(self.names)

    def require(self, config: WholeConfig) -> None:
        if len(self.of) != config.vocab.size:
            raise ValueError(
                f"the tagger has tags for {len(self.of)} tokens, but the vocabulary has {config.vocab.size}; "
                "build the tags for this vocabulary with variations.with_tagger"
            )
        if config.network.pattern.block is not None and not config.network.pattern.causal:
            raise ValueError("a tagger reads whole rows or prefixes, not blocks; use the pattern Full() or Causal()")

    def build(self, config: WholeConfig) -> Tagger | FutureTagger:
        if config.network.pattern.causal:
            return FutureTagger(config.network, config.vocab.size, self)
        reads = config.vocab.size if config.codec is None else config.codec.vectors(config.vocab)
        return Tagger(config.network, reads, self)

    @classmethod
    def of_words(cls, words: Sequence[str], size: int, lexicon: Mapping[str, str], layers: int = 1) -> TaggerConfig:
        """The tags of a vocabulary of `size` ids, which are the `words` and then special tokens, from a lexicon."""
        names = tuple(sorted(Counter(lexicon[word] for word in words if word in lexicon)))
        tags = [lexicon.get(word) for word in words]
        of = [len(names) if tag is None else names.index(tag) for tag in tags]
        return cls(names, (*of, *[len(names)] * (size - len(of))), layers)


class Tagger(Part):
    """(B, L, D) noisy vectors or (B, L, V) one-hot noisy tokens → (B, L, tags + 1) logits of the clean tokens' tags.

    It reads one-hot tokens, so that their gradient approximates the effect of every substitution
    (`FirstOrderClassifier`).
    """

    name = TaggerConfig.name
    missing = "this model has no tagger of noisy rows; train one with the objective TaggerObjective"

    def __init__(self, config: TransformerConfig, reads: int, tags: TaggerConfig) -> None:
        super().__init__()
        self.tags = tags
        plain = replace(
            config, pattern=Full(), layers=tags.layers, classes=None, dropout=0.0, tied=False, padded_vocab=None
        )
        self.network = Transformer(plain, NetworkIO(reads, tags.none + 1, vectors=True))

    def forward(self, x: Tensor, level: Tensor | None = None, pad: Tensor | None = None) -> Tensor:
        return self.network.logits(self.network(x, level, Context(pad=pad))).float()

    def logits(self, model: WholeModel, x: Tensor, t: Tensor, context: Context = Context()) -> Tensor:
        """(B, L, D) noisy vectors or (B, L, V) one-hot noisy tokens at time t → (B, L, tags + 1) fp32 logits."""
        if model.codec is not None:
            x = model.codec.network_input(model.config.gaussian.at_unit_variance(x, t))
        return self(x, model.config.noise_level(t), context.pad)

    def log_prob(self, model: WholeModel, wanted: Tensor) -> Callable[[Tensor, Tensor, Context], Tensor]:
        """Return log p of the wanted tags, Σ_l log p(y_l | noisy row), as a function for classifier guidance.

        Tags count as independent given the noisy row, as in the classifier of Diffusion-LM (Li et al. 2022).

        wanted: (L,) index of the tag at each position; −1 for any.
        """

        def log_prob(x: Tensor, t: Tensor, context: Context) -> Tensor:
            log_p = self.logits(model, x, t, context)[:, : len(wanted)].log_softmax(-1)
            index = wanted[: log_p.shape[1]].clamp(min=0).expand(len(log_p), -1)[..., None]
            return log_p.gather(-1, index).squeeze(-1).masked_fill(wanted[: log_p.shape[1]] < 0, 0.0).sum(-1)

        return log_prob


class FutureTagger(Part):
    """A causal network for the tags of future tokens: p(y_{i+1} … y_L | x_1 … x_i), by the chain rule.

    It reads the tokens of the prefix and then the tags themselves, and predicts the next tag at each step. A position
    without a required tag is read as the id `free` and does not count.
    """

    name = TaggerConfig.name
    missing = "this model has no tagger of future tokens; train one with FutureTaggerObjective"

    def __init__(self, config: TransformerConfig, size: int, tags: TaggerConfig) -> None:
        super().__init__()
        self.tags = tags
        self.size, self.free = size, size + tags.none + 1
        plain = replace(config, pattern=Causal(), layers=tags.layers, dropout=0.0, tied=False, padded_vocab=None)
        self.network = Transformer(plain, NetworkIO(self.free + 2, tags.none + 1, start=self.free + 1))

    def forward(self, ids: Tensor) -> Tensor:
        """(B, L) ids, a tag being read as the id `size` + tag → (B, L, tags + 1) logits of the tag at each position."""
        return self.network.logits(self.network(ids)).float()

    def future_log_prob(self, prefix: Tensor, candidates: Tensor, wanted: Tensor) -> Tensor:
        """(B, C) log-probability of the wanted tags after each candidate.

        prefix: (B, n) ids of the text so far.
        candidates: (B, C) ids that may come next.
        wanted: (A,) tags of the tokens after the candidate; −1 for any.
        """
        if not len(wanted):
            return torch.zeros(candidates.shape, device=candidates.device)
        prefixes = prefix.repeat_interleave(candidates.shape[1], 0)
        tags = torch.where(wanted < 0, self.free, self.size + wanted).expand(len(prefixes), -1)
        logits = self(torch.cat([prefixes, candidates.reshape(-1, 1), tags], 1))[:, prefix.shape[1] + 1 :]
        log_p = logits.log_softmax(-1).gather(-1, wanted.clamp(min=0).expand(len(tags), -1)[..., None]).squeeze(-1)
        return log_p.masked_fill(wanted < 0, 0.0).sum(-1).view_as(candidates)

    def log_prob(self, wanted: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
        """Return log p of the wanted future tags, log p(y_{i+1} … y_L | x_1 … x_i), as a function for `LookAhead`.

        It maps a prefix (B, i − 1) and candidates (B, C) for token i to (B, C).

        wanted: (L,) index of the tag at each position; −1 for any.
        """
        return lambda prefix, candidates: self.future_log_prob(prefix, candidates, wanted[prefix.shape[1] + 1 :])
