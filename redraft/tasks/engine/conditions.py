"""What texts are written under: a class, a source, guidance, a length; what the model cannot do is refused."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from redraft.core.processes.masked import Masked
from redraft.decoding.guidance.classifier_free import ClassifierFree
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.guided import GuidedSampler, PromptGuidedSampler
from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.arguments.settings import GenerationSettings
from redraft.tasks.engine.model import TextModel


def with_guidance(it: TextModel, asked: GenerationSettings, sampler: Sampler) -> Sampler:
    if asked.guidance == 1:
        return sampler
    if asked.label is not None or asked.source is not None:
        return GuidedSampler(sampler, ClassifierFree(asked.guidance, none=it.model.config.network.classes))
    negative = () if asked.negative_prompt is None else tuple(it.tokenizer.encode(asked.negative_prompt))
    return PromptGuidedSampler(sampler, asked.guidance, negative)


def label_id(it: TextModel, asked: GenerationSettings) -> int | None:
    """The number of the class that is asked for; none is needed if the network has learnt to do without."""
    classes = it.classes
    if asked.label is None:
        if classes and not it.compares:
            raise ArgumentError(
                "label", f"this model writes texts of a class; give one with label=…: {', '.join(classes)}"
            )
        return None
    if asked.label not in classes:
        raise ArgumentError("label", f"this model has no class {asked.label!r}; {_nearest(asked.label, classes)}")
    return classes.index(asked.label)


def _nearest(name: str, known: Sequence[str]) -> str:
    if not known:
        return "it was trained without classes"
    close = get_close_matches(name, known, n=3, cutoff=0.5)
    return f"did you mean {' or '.join(close)}?" if close else f"there are {', '.join(known)}"


def require_guidable(it: TextModel, asked: GenerationSettings, label: int | None, prompts: Sequence[str]) -> None:
    """Guidance compares what is said with a condition and without: there must be one, and both must be learnt."""
    by_prompt = label is None and asked.source is None and isinstance(it.model.process, Masked) and all(prompts)
    if asked.negative_prompt is not None and not (by_prompt and asked.guidance != 1):
        raise ArgumentError(
            "negative_prompt",
            "negative_prompt=… needs a prompt, guidance=… above 1, no label or source, and a model with mask noise",
        )
    if asked.guidance == 1 or by_prompt:
        return
    if label is None and (asked.source is None or it.model.encoder is None):
        raise ArgumentError(
            "guidance", "guidance=… needs a condition: a label=…, or a source=… that an encoder reads, or a prompt"
        )
    if not it.compares:
        raise ArgumentError(
            "guidance",
            "guidance=… compares with and without the condition, but this model was never trained without it; "
            "leave it out, or train with --objective.drop-condition 0.1",
        )


def require_source(it: TextModel, asked: GenerationSettings) -> None:
    """A model that answers needs something to answer, and others cannot be told anything."""
    if it.answers and asked.source is None:
        raise ArgumentError("source", 'this model needs a source to answer; give one: source="TEXT"')
    if asked.source is not None and it.run is not None and not it.answers:
        raise ArgumentError(
            "source", "this model was not trained to answer a source=…; give the beginning of the text instead"
        )


def source_token_count(it: TextModel, asked: GenerationSettings) -> int:
    """How many tokens of a row the source takes; every word of it must be known."""
    if asked.source is None:
        return 0
    read = it.used(asked.source)
    for ids in it.question(asked.source):
        return len(ids) - 1  # with its start token
    return read - 1 if it.model.encoder is None else 0  # in the row, without a start token of its own


def new_token_count(it: TextModel, asked: GenerationSettings, used: int) -> int:
    """How many tokens to write where so many are given."""
    if asked.max_new_tokens is not None:
        return asked.max_new_tokens
    if it.run is None:
        raise ArgumentError(
            "max_new_tokens",
            "this model has no run that gives the length of its texts; set it, for example max_new_tokens=100",
        )
    length = it.run.framing.length
    if used >= length:
        raise ArgumentError(
            "max_new_tokens",
            f"the prompt fills all {length} tokens of a row; shorten it, or ask for more tokens: max_new_tokens=20",
        )
    return length - used


def length_warning(it: TextModel, length: int) -> tuple[str, ...]:
    """A network that counts no positions takes rows of any length, but it has not learnt from such ones."""
    if it.run is None or it.run.model.network.positions is not None or length <= it.run.framing.length:
        return ()
    return (f"{length} tokens are more than the {it.run.framing.length} of the rows this model was trained on",)
