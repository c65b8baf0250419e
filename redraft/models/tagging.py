"""What the tagger of a model says: kinds of words in noisy rows, and kinds that are to come."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from redraft.core.canvas import Context
from redraft.core.processes.gaussian import Gaussian
from redraft.models.auxiliary.tagger import FutureTagger, Tagger
from redraft.models.diffusion_lm import DiffusionLM


def tag_logits(model: DiffusionLM, x: Tensor, t: Tensor, context: Context = Context()) -> Tensor:
    """(B, L, D) noisy vectors, or (B, L, V) one-hot noisy tokens, of time t → (B, L, kinds + 1) fp32 logits."""
    if not isinstance(model.tagger, Tagger):
        raise ValueError("this model has no tagger of noisy rows; train one with the objective Tagging")
    if model.codec is not None and isinstance(model.process, Gaussian):
        x = model.codec.show(model.process.at_unit_variance(x, t))
    return model.tagger(x, model.config.noise_level(t), context.pad)


def tag_log_prob(model: DiffusionLM, wanted: Tensor) -> Callable[[Tensor, Tensor, Context], Tensor]:
    """Σ log p(y_l | noisy row) over the places whose kind is wanted, (L,), −1 where it is free; as guidance takes it.

    A sum over places, as if kinds were independent given the row: the classifier of Diffusion-LM (Li et al. 2022).
    """

    def log_prob(x: Tensor, t: Tensor, context: Context) -> Tensor:
        said = tag_logits(model, x, t, context)[:, : len(wanted)].log_softmax(-1)
        index = wanted[: said.shape[1]].clamp(min=0).expand(len(said), -1)[..., None]
        return said.gather(-1, index).squeeze(-1).masked_fill(wanted[: said.shape[1]] < 0, 0.0).sum(-1)

    return log_prob


def future_tag_log_prob(model: DiffusionLM, wanted: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """log p(y_{i+1} … y_L | x_1 … x_i) for tokens that might stand at place i; as `LookAhead` takes it."""
    if not isinstance(model.tagger, FutureTagger):
        raise ValueError("this model does not foresee kinds; train a tagger with the objective Foreseeing")
    tagger = model.tagger

    def future(prefix: Tensor, candidates: Tensor) -> Tensor:
        return tagger.rest(prefix, candidates, wanted[prefix.shape[1] + 1 :])

    return future
