"""Predictions of a model's tagger: tags of noisy rows, and tags of future tokens."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.processes.gaussian import Gaussian
from redraft.models.auxiliary.tagger import FutureTagger, Tagger
from redraft.models.diffusion_lm import DiffusionLM


def tag_logits(model: DiffusionLM, x: Tensor, t: Tensor, context: Context = Context()) -> Tensor:
    """(B, L, D) noisy vectors or (B, L, V) one-hot noisy tokens at time t → (B, L, tags + 1) fp32 logits."""
    if not isinstance(model.tagger, Tagger):
        raise ValueError("this model has no tagger of noisy rows; train one with the objective TaggerObjective")
    if model.codec is not None and isinstance(model.process, Gaussian):
        x = model.codec.network_input(model.process.at_unit_variance(x, t))
    return model.tagger(x, model.config.noise_level(t), context.pad)


def tag_log_prob(model: DiffusionLM, wanted: Tensor) -> Callable[[Tensor, Tensor, Context], Tensor]:
    """The log-probability of the wanted tags, Σ_l log p(y_l | noisy row), as a function for classifier guidance.

    Tags count as independent given the noisy row, as in the classifier of Diffusion-LM (Li et al. 2022).

    wanted: (L,) index of the tag at each position; −1 for any.
    """

    def log_prob(x: Tensor, t: Tensor, context: Context) -> Tensor:
        log_p = tag_logits(model, x, t, context)[:, : len(wanted)].log_softmax(-1)
        index = wanted[: log_p.shape[1]].clamp(min=0).expand(len(log_p), -1)[..., None]
        return log_p.gather(-1, index).squeeze(-1).masked_fill(wanted[: log_p.shape[1]] < 0, 0.0).sum(-1)

    return log_prob


def future_tag_log_prob(model: DiffusionLM, wanted: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """The log-probability of the wanted future tags, log p(y_{i+1} … y_L | x_1 … x_i), as a function for `LookAhead`.

    It maps a prefix (B, i − 1) and candidates (B, C) for token i to (B, C).

    wanted: (L,) index of the tag at each position; −1 for any.
    """
    if not isinstance(model.tagger, FutureTagger):
        raise ValueError("this model has no tagger of future tokens; train one with FutureTaggerObjective")
    tagger = model.tagger

    def future(prefix: Tensor, candidates: Tensor) -> Tensor:
        return tagger.future_log_prob(prefix, candidates, wanted[prefix.shape[1] + 1 :])

    return future
