"""Conditions of a request (class, source, guidance, length), with errors for what the model does not support."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from redraft.decoding.guidance.classifier_free import ClassifierFree
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.guided import GuidedSampler, PromptGuidedSampler
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import GenerationSettings, Prompt
from redraft.tasks.engine.model import TextModel

_DEFAULT_LENGTH, _REPLY_LENGTH = 64, 256  # tokens that a model without a run writes


def with_guidance(model: TextModel, settings: GenerationSettings, sampler: Sampler) -> Sampler:
    """Adds the requested guidance: classifier-free for a label or source, otherwise against the (negative) prompt."""
    if settings.guidance == 1:
        return sampler
    if settings.label is not None or settings.source is not None:
        return GuidedSampler(sampler, ClassifierFree(settings.guidance, none=model.lm.config.network.classes))
    negative = () if settings.negative_prompt is None else tuple(model.tokenizer.encode(settings.negative_prompt))
    return PromptGuidedSampler(sampler, settings.guidance, negative)


def label_id(model: TextModel, settings: GenerationSettings) -> int | None:
    """Index of the requested class; None if no label is given, which requires training with dropped conditions."""
    classes = model.classes
    if settings.label is None:
        if classes and not model.condition_optional:
            raise ArgumentError("label", f"this model needs a class; give one with label=…: {', '.join(classes)}")
        return None
    if settings.label not in classes:
        raise ArgumentError(
            "label", f"this model has no class {settings.label!r}; {_suggest_class(settings.label, classes)}"
        )
    return classes.index(settings.label)


def _suggest_class(name: str, classes: Sequence[str]) -> str:
    if not classes:
        return "it was trained without classes"
    close = get_close_matches(name, classes, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"choose from {', '.join(classes)}"


def require_guidable(
    model: TextModel, settings: GenerationSettings, label: int | None, prompts: Sequence[Prompt]
) -> None:
    """Raises unless the request has a condition to guide by and the model was trained with and without it."""
    by_prompt = label is None and settings.source is None and model.lm.process.fills_masks and all(prompts)
    if settings.negative_prompt is not None and not (by_prompt and settings.guidance != 1):
        raise ArgumentError(
            "negative_prompt",
            "negative_prompt=… needs a prompt, guidance=… above 1, no label or source, and a model with mask noise",
        )
    if settings.guidance == 1 or by_prompt:
        return
    if label is None and (settings.source is None or "encoder" not in model.lm.parts):
        raise ArgumentError(
            "guidance", "guidance=… needs a condition: a label=…, or a source=… that an encoder reads, or a prompt"
        )
    if not model.condition_optional:
        raise ArgumentError(
            "guidance",
            "guidance=… compares with and without the condition, but this model was never trained without it; "
            "leave it out, or train with --objective.drop-condition 0.1",
        )


def require_source_reader(model: TextModel) -> None:
    """Raises for attribute layers, which were trained with attributes as sources and cannot read a text as one."""
    if model.needs_source and "attributes" in model.lm.parts and model.lm.config.vocab.bos is None:
        raise ValueError("this model reads attributes, not texts; use redraft control with --attributes")


def require_source(model: TextModel, settings: GenerationSettings) -> None:
    """Raises unless a seq2seq model gets a source and any other trained model gets none."""
    require_source_reader(model)
    if model.needs_source and settings.source is None:
        raise ArgumentError("source", 'this model needs a source to answer; give one: source="TEXT"')
    if settings.source is not None and model.run is not None and not model.needs_source:
        raise ArgumentError("source", "this model was not trained to answer a source=…; give a prompt instead")


def require_beginning(model: TextModel, prompts: Sequence[Prompt]) -> None:
    """Raises if a prompt is empty and nothing else predicts the first token of a text."""
    if model.lm.config.is_plain_causal and model.lm.config.vocab.bos is None and not all(prompts):
        raise ArgumentError("prompts", 'this model continues texts; give it a beginning, such as "Once upon a time"')


def source_token_count(model: TextModel, settings: GenerationSettings) -> int:
    """Number of tokens the source takes in a row. Raises if the tokenizer does not know one of its words."""
    if settings.source is None:
        return 0
    count = model.token_count(settings.source)
    for ids in model.source_turn(settings.source):
        return len(ids) - 1  # without its start token, which `used` counts
    return 0 if "encoder" in model.lm.parts else count - 1  # in the row, a source has no start token of its own


def new_token_count(model: TextModel, settings: GenerationSettings, used: int, *, reply: bool = False) -> int:
    """Number of tokens to write after `used` given ones; by default up to the length of the training rows.

    Models without a run write 64, and 256 in reply to a message.
    """
    if settings.max_new_tokens is not None:
        return settings.max_new_tokens
    if model.run is None:
        return _REPLY_LENGTH if reply else _DEFAULT_LENGTH
    length = model.run.framing.length
    if used >= length:
        raise ArgumentError(
            "max_new_tokens",
            f"the prompt fills all {length} tokens of a row; shorten it, or ask for more tokens: max_new_tokens=20",
        )
    return length - used


def length_warning(model: TextModel, length: int) -> tuple[str, ...]:
    """Warns about rows longer than in training; without learned positions any length runs, but was never seen."""
    if model.run is None or model.run.model.network.positions is not None or length <= model.run.framing.length:
        return ()
    return (f"{length} tokens are more than the {model.run.framing.length} of the rows this model was trained on",)
