"""`control`: texts of given parts of speech, length, attributes and words."""

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
from redraft.core.processes.base import TokenProcess
from redraft.core.processes.insertion import Insertion
from redraft.core.processes.masked import Masked
from redraft.core.text.tokenizers import WordTokenizer, split_words
from redraft.decoding.guidance.token_classifier import TokenClassifier
from redraft.decoding.picks.order import AnyOrder, Entropy, RequiredFirst
from redraft.decoding.samplers.base import Sampler
from redraft.decoding.samplers.guided import GuidedSampler
from redraft.decoding.samplers.unmask import Unmask
from redraft.models.diffusion_lm import DiffusionLM
from redraft.models.heads import PredictTokens
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.rules import ArgumentError
from redraft.tasks.arguments.settings import ControlSettings
from redraft.tasks.controlled.tags import _find_tagger, _TagGuidance
from redraft.tasks.engine.model import ModelOrPath, TextModel, as_text_model
from redraft.tasks.engine.plan import DecodingPlan, TextRequest, make_plan
from redraft.tasks.engine.result import TextResults
from redraft.training.data.annotations import AnnotatedCorpus, as_annotated

_SLACK = 0.01  # of a lexicon as a classifier: how likely a word is of another kind than it says

_LEAST = 1e-3  # an attribute layer judges words at least this likely, relative to the likeliest


def control(model: ModelOrPath, **options: Any) -> TextResults:
    """Texts, `n` of them, that are as you wish.

    Args:
        model: a trained model, or the directory of one
        options: the fields of `ControlSettings`, by name: pos, length, attributes, required, pattern, scale, n, …
    """
    return plan_control(as_text_model(model), settings_from(ControlSettings, options)).results()


def plan_control(it: TextModel, asked: ControlSettings) -> DecodingPlan:
    """How to write such texts; whatever the model cannot do is refused here."""
    if not (asked.pos or asked.length or asked.attributes or asked.ruled):
        raise ArgumentError("pos", "nothing to control; give pos=…, length=…, attributes=…, required=… or pattern=…")
    told = it.needs_source and it.lm.attributes is None  # classes for the attribute layer are not told to the network
    if told or (it.classes and not it.condition_optional):
        raise ValueError("this model needs a source or a class, which control does not take; use redraft generate")
    wishes = ControlRequest(it, asked)
    obeyed = asked if asked.scale is not None else replace(asked, required=(*asked.required, *wishes.keywords))
    order = wishes.request()
    return make_plan(it, order, _in_order(it, obeyed, len(wishes.tags), order.most_new), wishes.guide)


def _in_order(it: TextModel, asked: ControlSettings, places: int, hidden: int) -> ControlSettings:
    """Mask noise may write any place first: what a rule demands, then, under parts of speech, what is nearly decided.

    In any other order a word is written before it is known what the rest demands of it, and texts break. So they do if
    words are written several at a time: unless steps=… says otherwise, it is one.
    """
    own = asked.sampler == "own" and it.lm.block is None and isinstance(it.lm.process, Masked)
    if not own or not (places or asked.ruled):
        return asked
    heat = 1.0 if asked.temperature is None else asked.temperature
    pick: Any = Entropy(heat) if places else AnyOrder(heat)
    sampler: Any = Unmask(asked.steps or hidden, RequiredFirst(pick) if asked.ruled else pick)
    return replace(asked, sampler=sampler)


@dataclass(frozen=True)
class ControlRequest:
    """What a text should be, for one model."""

    model: TextModel
    settings: ControlSettings

    @property
    def corpus(self) -> AnnotatedCorpus:
        """What the data of the model's run knows about its texts."""
        return as_annotated(None if self.model.run is None else self.model.run.data)

    @cached_property
    def lexicon(self) -> Mapping[str, str]:
        """Word → part of speech."""
        if self.tagger is None:
            return self.corpus.tags() or {} if self.settings.lexicon is None else _read(self.settings.lexicon)
        if self.settings.lexicon is not None:
            raise ArgumentError("lexicon", "lexicon=… and a tagger: it was trained with its own; leave one out")
        kinds, words = self.tagger.config.kinds, self.model.tokenizer
        assert kinds is not None
        assert isinstance(words, WordTokenizer)
        told = zip(words.words, kinds.of, strict=False)
        return {word: kinds.names[kind] for word, kind in told if kind != kinds.none}

    @cached_property
    def tagger(self) -> DiffusionLM | None:
        """The model whose tagger guides towards parts of speech; None: the lexicon alone does."""
        return None if self.settings.pos is None else _find_tagger(self.model, self.settings.classifier)

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The part of speech of each word; * where it is free."""
        found = tuple(() if self.settings.pos is None else self.settings.pos.split())
        known = sorted(set(self.lexicon.values()))
        if unknown := [tag for tag in found if tag != "*" and tag not in known]:
            if not known:
                raise ArgumentError("pos", "pos=… needs the part of speech of each word: give lexicon=FILE.json")
            raise ArgumentError("pos", f"pos=…: there is no {unknown[0]!r}; use {', '.join(known)}, or * for any word")
        if found and self.settings.length not in (None, len(found)):
            raise ArgumentError("length", f"length={self.settings.length}: pos=… has {len(found)} words; leave one out")
        return found

    @cached_property
    def attributes(self) -> dict[str, str]:
        """Attribute → value."""
        pairs = [each.partition("=") for each in self.settings.attributes]
        if wrong := [each for each, (_, sign, value) in zip(self.settings.attributes, pairs, strict=True) if not value]:
            raise ArgumentError("attributes", f"attributes={wrong[0]!r}: write NAME=VALUE, say mood=sad")
        return {name.strip(): value.strip() for name, _, value in pairs}

    @property
    def keywords(self) -> tuple[str, ...]:
        """The words that reveal the attributes in a text of the corpus."""
        return tuple(_keyword(self.corpus, name, value) for name, value in self.attributes.items())

    def request(self) -> TextRequest:
        """A row of as many tokens as wished, and nothing behind them."""
        it, size = self.model, len(self.tags) or self.settings.length
        longest = it.full_row_length or it.lm.config.network.positions or (size or 0)
        start = int(it.lm.config.vocab.bos is not None)
        if size is None and it.run is None:
            raise ArgumentError("length", "this model has no run that gives the length of its texts; set length=…")
        if size is not None and size + start > longest:
            raise ArgumentError("length", f"{size} tokens are too many: the rows of this model have {longest - start}")
        assert it.run is not None or size is not None
        free = size is None
        count = it.run.framing.length - start if size is None and it.run is not None else size or 0
        end, rest = it.lm.config.vocab.eos, (it.full_row_length or 0) - start - count
        row: list[Any] = ["", count, *([(end,) * rest] if end is not None and rest > 0 else [])]

        def compose(some: Sequence[str]) -> Canvas:
            canvas = it.lm.compose([row] * len(some))
            return canvas if free else replace(canvas, context=replace(canvas.context, inside=~canvas.fixed))

        return TextRequest([""], compose, start + count + max(0, rest), count)

    def guide(self, sampler: Sampler) -> Sampler:
        """The sampler, which asks a denoiser that follows the wishes."""
        if self.tags:
            sampler = _TagGuidance(
                self.model, self.tag_log_probs(), self.settings.scale, self.tagger, self.tag_ids()
            ).guided(sampler)
        if self.settings.scale is not None and self.attributes:
            sampler = GuidedSampler(
                sampler, TokenClassifier(self.model.lm.attribute(self._class()), self.settings.scale, least=_LEAST)
            )
        return sampler

    def tag_ids(self) -> Tensor | None:
        """(L,) the kinds in the numbers of the tagger, −1 where they are free; behind the text there is none."""
        if self.tagger is None or (kinds := self.tagger.config.kinds) is None:
            return None
        start = [-1] * int(self.model.lm.config.vocab.bos is not None)
        numbers = [-1 if tag == "*" else kinds.names.index(tag) for tag in self.tags]
        return torch.tensor([*start, *numbers, kinds.none], device=next(self.model.lm.parameters()).device)

    def tag_log_probs(self) -> Tensor:
        """(L, V) log p(part of speech | token) at each place; by constraint −inf where it is another."""
        it, tokenizer = self.model, self.model.tokenizer
        named = isinstance(it.lm.process, TokenProcess) or isinstance(it.lm.config.head, PredictTokens)
        if not isinstance(tokenizer, WordTokenizer) or not (named or (self.tagger and self.settings.scale is not None)):
            raise ArgumentError("pos", "pos=… needs a model that names words, or a tagger of its vectors; it has none")
        if isinstance(it.lm.process, Insertion):
            raise ArgumentError("pos", "pos=… is about places, and this model moves words; use a model of mask noise")
        kinds = [self.lexicon.get(word) for word in tokenizer.words]
        if missing := [tag for tag in self.tags if tag != "*" and tag not in kinds]:
            raise ArgumentError("pos", f"pos=…: this model knows no word that is {missing[0]}; use another, or *")
        kinds += [None] * (it.lm.config.vocab.size - len(kinds))  # special tokens
        size = len(set(self.lexicon.values()))
        right, wrong = (0.0, -torch.inf) if self.settings.scale is None else _slack(size)
        rows = [[0.0 if tag == "*" else right if kind == tag else wrong for kind in kinds] for tag in self.tags]
        start = [[0.0] * len(kinds)] * int(it.lm.config.vocab.bos is not None)
        return torch.tensor(start + rows, device=next(it.lm.parameters()).device)

    def _class(self) -> int:
        """The number of the class that the attribute layer of the model knows."""
        data = None if self.model.run is None else self.model.run.data
        known, values = getattr(data, "classes", ()), list(self.attributes.values())
        if self.model.lm.attributes is None or len(values) != 1 or values[0] not in known:
            raise ArgumentError(
                "attributes",
                "attributes=… by guidance needs a model whose attribute layer knows this one value (redraft train "
                f"mdlm_attribute_tiny); this one knows {', '.join(known) or 'none'}. Leave scale=… out to demand words",
            )
        return int(known.index(values[0]))

    def fulfillment(self, text: str) -> dict[str, float]:
        """How far a text is as wished: 1 for every wish that is fulfilled; for parts of speech the share of words."""
        words, told = split_words(text), self.corpus.recognize(text) if self.attributes else {}
        found = {name: float(told.get(name) == value) for name, value in self.attributes.items()}
        if self.tags:
            right = [want in ("*", self.lexicon.get(word)) for want, word in zip(self.tags, words, strict=False)]
            found["pos"] = sum(right) / max(len(words), len(self.tags))
        if self.settings.length is not None:
            found["length"] = float(len(self.model.tokenizer.encode(text)) == self.settings.length)
        for word in self.settings.required:
            found[word] = float(re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None)
        return found


def _slack(kinds: int) -> tuple[float, float]:
    right, wrong = torch.tensor([1 - _SLACK, _SLACK / max(1, kinds - 1)]).log().tolist()
    return right, wrong


def _keyword(corpus: AnnotatedCorpus, name: str, value: str) -> str:
    """The word by which a text of the corpus reveals the value of an attribute."""
    if (values := corpus.attributes().get(name)) is None:
        known = ", ".join(corpus.attributes()) or "none"
        raise ArgumentError("attributes", f"the texts of this model have no {name!r}; choose from {known}")
    if value not in values:
        raise ArgumentError("attributes", f"{name}={value}: choose from {', '.join(values)}")
    return corpus.keyword(name, value)


def _read(path: str) -> dict[str, str]:
    """A lexicon: a JSON object, word → part of speech."""
    try:
        found = json.loads(Path(path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ArgumentError("lexicon", f"lexicon={path!r}: it cannot be read as JSON ({error})") from None
    if not isinstance(found, dict) or not all(isinstance(tag, str) for tag in found.values()):
        raise ArgumentError("lexicon", f"lexicon={path!r}: give an object that says the part of speech of each word")
    return found
