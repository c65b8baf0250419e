"""`control`: generates texts with given parts of speech, length, attributes and words."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from redraft.core.canvas import Canvas
from redraft.core.text.tokenizers import split_words
from redraft.decoding.guidance.token_classifier import TokenClassifier
from redraft.decoding.picks.order import AnyOrder, Entropy, RequiredFirst
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.guided import GuidedSampler
from redraft.decoding.samplers.unmask import Unmask
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.parts.attribute_classifier import AttributeClassifier
from redraft.models.parts.tagger import TaggerConfig
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import ControlSettings
from redraft.tasks.controlled.tags import _find_tagger, _TagGuidance
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model
from redraft.tasks.engine.plan import DecodingPlan, TextRequest, make_plan
from redraft.tasks.engine.result import TextResults
from redraft.training.data.annotations import AnnotatedCorpus, as_annotated

_SLACK = 0.01  # probability that a word is of another part of speech than its lexicon entry
_LEAST = 1e-3  # the attribute layer scores words at least this likely, relative to the most likely one


def control(model: ModelOrPath, **options: Any) -> TextResults:
    """Generate `n` texts that satisfy the given controls.

    Args:
        model: a trained model, or its directory
        options: the fields of `ControlSettings`, by name: pos, length, attributes, required, pattern, scale, n, …
    """
    return plan_control(as_text_model(model), settings_from(ControlSettings, options)).results()


def plan_control(model: TextModel, settings: ControlSettings) -> DecodingPlan:
    """Plans controlled generation. Raises if the model does not support a setting."""
    if not (settings.pos or settings.length or settings.attributes or settings.ruled):
        raise ArgumentError("pos", "nothing to control; give pos=…, length=…, attributes=…, required=… or pattern=…")
    _require_controllable(model)
    controls = ControlRequest(model, settings)
    if settings.scale is None:
        settings = replace(settings, required=(*settings.required, *controls.keywords))
    request = controls.request()
    settings = _with_order(model, settings, bool(controls.tags), request.most_new)
    return make_plan(model, request, settings, controls.guide)


def _require_controllable(model: TextModel) -> None:
    """Raises for models whose texts cannot be controlled."""
    answers = model.needs_source and "attributes" not in model.lm.parts  # an attribute layer's classes are no condition
    if answers or (model.classes and not model.condition_optional):
        raise ValueError("this model needs a source or a class, which control does not take; use redraft generate")
    if model.compresses:
        raise ValueError("this model compresses whole texts, so no rule can be kept in them; use redraft generate")


def _with_order(model: TextModel, settings: ControlSettings, has_tags: bool, most_new: int) -> ControlSettings:
    """Chooses the unmasking order for mask noise: positions that a rule requires first, and low entropy under tags.

    In another order a word would be written before its constraint is known, and texts break. They also break if several
    words are written at once, so a step writes one token unless steps=… is set.
    """
    own = settings.sampler == "own" and model.lm.block is None and model.lm.process.fills_masks
    if not own or not (has_tags or settings.ruled):
        return settings
    temperature = 1.0 if settings.temperature is None else settings.temperature
    pick: Any = Entropy(temperature) if has_tags else AnyOrder(temperature)
    sampler: Any = Unmask(settings.steps or most_new, RequiredFirst(pick) if settings.ruled else pick)
    return replace(settings, sampler=sampler)


@dataclass(frozen=True)
class ControlRequest:
    """The controls on a text, for one model."""

    model: TextModel
    settings: ControlSettings

    @property
    def corpus(self) -> AnnotatedCorpus:
        """The annotations of the data that the model was trained on."""
        return as_annotated(None if self.model.run is None else self.model.run.data)

    @cached_property
    def lexicon(self) -> Mapping[str, str]:
        """Word → part of speech."""
        if self.tagger is None:
            return self.corpus.tags() or {} if self.settings.lexicon is None else _read_lexicon(self.settings.lexicon)
        if self.settings.lexicon is not None:
            raise ArgumentError(
                "lexicon", "lexicon=…: the tagger was trained with its own lexicon; leave one of them out"
            )
        tags, tokenizer = self.tagger.config.part(TaggerConfig), self.model.tokenizer
        assert tags is not None
        pairs = zip(tokenizer.known_words, tags.of, strict=False)
        return {word: tags.names[tag] for word, tag in pairs if tag != tags.none}

    @cached_property
    def tagger(self) -> DiffusionLM | None:
        """The model whose tagger guides toward parts of speech; None to use the lexicon alone."""
        return None if self.settings.pos is None else _find_tagger(self.model, self.settings.classifier)

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The requested part of speech of each word; * for any."""
        tags = tuple(() if self.settings.pos is None else self.settings.pos.split())
        tag_set = sorted(set(self.lexicon.values()))
        if unknown := [tag for tag in tags if tag != "*" and tag not in tag_set]:
            if not tag_set:
                raise ArgumentError("pos", "pos=… needs the part of speech of each word; give lexicon=FILE.json")
            raise ArgumentError(
                "pos", f"pos=…: there is no {unknown[0]!r}; use {', '.join(tag_set)}, or * for any word"
            )
        if tags and self.settings.length not in (None, len(tags)):
            raise ArgumentError("length", f"length={self.settings.length}: pos=… has {len(tags)} words; leave one out")
        return tags

    @cached_property
    def attributes(self) -> dict[str, str]:
        """Attribute → requested value."""
        pairs = [pair.partition("=") for pair in self.settings.attributes]
        if wrong := [text for text, (_, _, value) in zip(self.settings.attributes, pairs, strict=True) if not value]:
            raise ArgumentError("attributes", f"attributes={wrong[0]!r}: write NAME=VALUE, for example mood=sad")
        return {name.strip(): value.strip() for name, _, value in pairs}

    @property
    def keywords(self) -> tuple[str, ...]:
        """The words that show the requested attributes in texts of the corpus."""
        return tuple(_keyword(self.corpus, name, value) for name, value in self.attributes.items())

    def request(self) -> TextRequest:
        """The request for a row with the requested number of tokens."""
        model, size = self.model, len(self.tags) or self.settings.length
        longest = model.full_row_length or model.lm.config.network.positions or (size or 0)
        start = int(model.lm.config.vocab.bos is not None)
        if size is None and model.run is None:
            raise ArgumentError("length", "this model has no run that gives the length of its texts; set length=…")
        if size is not None and size + start > longest:
            raise ArgumentError("length", f"{size} tokens are too many: the rows of this model have {longest - start}")
        assert model.run is not None or size is not None
        free = size is None
        count = model.run.framing.length - start if size is None and model.run is not None else size or 0
        end, rest = model.lm.config.vocab.eos, (model.full_row_length or 0) - start - count
        row: list[Any] = ["", count, *([(end,) * rest] if end is not None and rest > 0 else [])]

        def compose(prompts: Sequence[str]) -> Canvas:
            canvas = model.lm.compose([row] * len(prompts))
            return canvas if free else canvas.with_constraints(no_end_token=~canvas.fixed)

        return TextRequest([""], compose, start + count + max(0, rest), count)

    def guide(self, sampler: Sampler) -> Sampler:
        """The sampler with guidance or constraints toward tags and attributes."""
        if self.tags:
            sampler = _TagGuidance(
                self.model, self.tag_log_probs(), self.settings.scale, self.tagger, self.tag_ids()
            ).guide(sampler)
        if self.settings.scale is not None and self.attributes:
            label = self._class()
            log_prob = self.model.lm.part(AttributeClassifier).log_prob(label)
            sampler = GuidedSampler(sampler, TokenClassifier(log_prob, self.settings.scale, least=_LEAST))
        return sampler

    def tag_ids(self) -> Tensor | None:
        """(L,) the tagger's index of each requested tag, −1 for any, "no tag" after the text; None without a tagger."""
        if self.tagger is None or (kinds := self.tagger.config.part(TaggerConfig)) is None:
            return None
        start = [-1] * int(self.model.lm.config.vocab.bos is not None)
        indices = [-1 if tag == "*" else kinds.names.index(tag) for tag in self.tags]
        return torch.tensor([*start, *indices, kinds.none], device=next(self.model.lm.parameters()).device)

    def tag_log_probs(self) -> Tensor:
        """(L, V) log p(requested tag | token) at each position; −inf for other tags under hard constraints."""
        model, tokenizer = self.model, self.model.tokenizer
        predicts_words = not model.lm.process.vectors or model.lm.config.vector_head.predicts_tokens
        if not tokenizer.known_words or not (predicts_words or (self.tagger and self.settings.scale is not None)):
            raise ArgumentError(
                "pos", "pos=… needs a model that predicts words, or a tagger for its vectors; this one has neither"
            )
        if model.lm.process.grows:
            raise ArgumentError(
                "pos", "pos=… needs fixed positions, but this model inserts words; use one with mask noise"
            )
        tags = [self.lexicon.get(word) for word in tokenizer.known_words]
        if missing := [tag for tag in self.tags if tag != "*" and tag not in tags]:
            raise ArgumentError("pos", f"pos=…: no word of this model is {missing[0]}; use another tag, or *")
        tags += [None] * (model.lm.config.vocab.size - len(tags))  # special tokens
        size = len(set(self.lexicon.values()))
        right, wrong = (0.0, -torch.inf) if self.settings.scale is None else _slack(size)
        rows = [[0.0 if tag == "*" else right if other == tag else wrong for other in tags] for tag in self.tags]
        start = [[0.0] * len(tags)] * int(model.lm.config.vocab.bos is not None)
        return torch.tensor(start + rows, device=next(model.lm.parameters()).device)

    def _class(self) -> int:
        """Index of the requested value among the classes of the model's attribute layer."""
        data = None if self.model.run is None else self.model.run.data
        classes, values = getattr(data, "classes", ()), list(self.attributes.values())
        if "attributes" not in self.model.lm.parts or len(values) != 1 or values[0] not in classes:
            raise ArgumentError(
                "attributes",
                "attributes=… with scale=… takes one value and needs a model whose attribute layer knows it (redraft "
                f"train mdlm_attribute_tiny); this one knows {', '.join(classes) or 'none'}. Leave scale=… out to "
                "require words instead",
            )
        return int(classes.index(values[0]))

    def fulfillment(self, text: str) -> dict[str, float]:
        """How well a text satisfies each control: 1 if it does, 0 if not; for tags, the fraction of right words."""
        words, recognized = split_words(text), self.corpus.recognize(text) if self.attributes else {}
        scores = {name: float(recognized.get(name) == value) for name, value in self.attributes.items()}
        if self.tags:
            right = [tag in ("*", self.lexicon.get(word)) for tag, word in zip(self.tags, words, strict=False)]
            scores["pos"] = sum(right) / max(len(words), len(self.tags))
        if self.settings.length is not None:
            scores["length"] = float(len(self.model.tokenizer.encode(text)) == self.settings.length)
        for word in self.settings.required:
            scores[word] = float(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None)
        return scores


def _slack(tags: int) -> tuple[float, float]:
    """log p of the lexicon's tag of a word, and of each other tag."""
    right, wrong = torch.tensor([1 - _SLACK, _SLACK / max(1, tags - 1)]).log().tolist()
    return right, wrong


def _keyword(corpus: AnnotatedCorpus, name: str, value: str) -> str:
    """The word that shows the value of an attribute in a text of the corpus."""
    if (values := corpus.attributes().get(name)) is None:
        names = ", ".join(corpus.attributes()) or "none"
        raise ArgumentError("attributes", f"the texts of this model have no attribute {name!r}; choose from {names}")
    if value not in values:
        raise ArgumentError("attributes", f"{name}={value}: choose from {', '.join(values)}")
    return corpus.keyword(name, value)


def _read_lexicon(path: str) -> dict[str, str]:
    """Reads a JSON object of word → part of speech."""
    try:
        lexicon = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError("lexicon", f"lexicon={path!r}: it cannot be read as JSON ({error})") from None
    if not isinstance(lexicon, dict) or not all(isinstance(tag, str) for tag in lexicon.values()):
        raise ArgumentError("lexicon", f"lexicon={path!r}: it must be a JSON object of words and parts of speech")
    return lexicon
