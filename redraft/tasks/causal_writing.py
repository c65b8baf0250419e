"""Writes left to right with the causal model inside an adapted one, and with sane sampling for models without a run."""

from __future__ import annotations

from dataclasses import replace

from redraft.models.causal_base import causal_base, is_adapted
from redraft.tasks.arguments.settings import GenerationSettings
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.speculation import can_draft

_DIFFUSION_NOTE = "written left to right by its causal model; a sampler's name, such as sampler='confidence', diffuses"
_TEMPERATURE, _TOP_P = 0.7, 0.9  # of small language models a plain draw is too wild
_MANY_TOKENS = 128  # from here on an fp16 copy of the weights pays
_OF_DIFFUSION = ("sampler", "steps", "threshold", "decode_block", "cache", "refresh", "window", "stride", "end_token")
_OF_SAMPLING = ("temperature", "top_k", "top_p", "min_p")


def _writes_causally(model: TextModel, settings: GenerationSettings) -> bool:
    """Whether an adapted model writes with its causal base: unless it answers sources, or diffusion is asked for."""
    return is_adapted(model.lm) and not model.needs_source and not _changed(settings, _OF_DIFFUSION)


def _as_causal(model: TextModel, settings: GenerationSettings) -> TextModel:
    """The causal model inside an adapted one, in fp16 if that pays."""
    many = settings.max_new_tokens is not None and settings.max_new_tokens >= _MANY_TOKENS
    return _without_adapter(model, fp16=many)


def _without_adapter(model: TextModel, fp16: bool = False) -> TextModel:
    """The causal model inside an adapted one, as a model without a run; other models as they are."""
    return replace(model, lm=causal_base(model.lm, fp16), run=None, step=None) if is_adapted(model.lm) else model


def _with_sane_sampling(model: TextModel, settings: GenerationSettings, rows: int) -> GenerationSettings:
    """Settings for a causal model without a run: a moderate temperature, and repetitions copied from the text.

    Copying changes no text: the weights are batch-invariant, or the temperature is 0.
    """
    if model.run is not None or not model.lm.config.is_plain_causal or _changed(settings, ("sampler",)):
        return settings
    if not _changed(settings, _OF_SAMPLING):
        settings = replace(settings, temperature=_TEMPERATURE, top_p=_TOP_P)
    greedy = settings.temperature == 0
    if can_draft(settings) and (greedy or (rows == 1 and model.lm.network.batch_invariant)):
        return replace(settings, draft="lookup")
    return replace(settings, sampler="confidence") if greedy and settings.draft is None else settings


def _changed(settings: GenerationSettings, names: tuple[str, ...]) -> bool:
    defaults = GenerationSettings()
    return any(getattr(settings, name) != getattr(defaults, name) for name in names)
