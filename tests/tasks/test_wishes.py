"""Control: parts of speech, lengths, attributes and words, demanded and by guidance; and how far wishes are met."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from redraft.core import Context, TablePrediction, rng
from redraft.decoding import AnyOrder, GuidedSampler, PositionClassifier, TokenClassifier, Unmask, final_canvas
from redraft.models import AttributeClassifierConfig, DiffusionLM, PredictX
from redraft.tasks import ArgumentError, ControlRequest, ControlSettings, TextModel, control
from redraft.training import (
    STORY_LANGUAGE,
    STORY_TAGS,
    AttributeObjective,
    LabeledRows,
    Run,
    SquaredError,
    StoryClasses,
    presets,
    tag_words,
)
from redraft.training.data.corpora.story_tags import (
    _TAGS,
)
from redraft.training.runs import variations

POS = "NUM NOUN NOUN PUNCT PROPN VERB ADJ"


@cache
def fresh(name: str) -> TextModel:
    run: Run = getattr(presets, name)()
    run = replace(
        run, model=replace(run.model, network=replace(run.model.network, width=32, layers=1, heads=4, hidden=32))
    )
    torch.manual_seed(0)
    return TextModel(DiffusionLM(run.model, run.tokenizer), run)


def test_every_word_of_the_grammar_has_a_part_of_speech() -> None:
    assert set(STORY_LANGUAGE.words()) <= STORY_TAGS.keys()
    assert set(STORY_TAGS.values()) == set(_TAGS)
    assert tag_words("One day, Anna felt sad. Xyz") == (
        *("NUM", "NOUN", "PUNCT", "PROPN", "VERB", "ADJ", "PUNCT", "X"),
    )


# --- guidance place by place ---


def test_it_is_the_token_classifier_of_a_factored_classifier() -> None:
    """x̂·p(y | k)^γ: trying every token at every place gives the same, with V calls."""
    torch.manual_seed(0)
    table, said = torch.randn(3, 5).log_softmax(-1), torch.randn(2, 3, 5).log_softmax(-1)

    class Says:
        block = None

        def predict(self, z: torch.Tensor, t: torch.Tensor, context: Context) -> TablePrediction:
            return TablePrediction(said)

        def absorb(self, z: torch.Tensor, context: Context, t: torch.Tensor | None = None) -> Context:
            return context

    z, t, where = torch.zeros(2, 3, dtype=torch.int64), torch.ones(2, 1), torch.ones(2, 3, dtype=torch.bool)
    ours = PositionClassifier(table, 1.7)(Says()).predict(z, t, Context()).at(where)
    tried = (
        TokenClassifier(lambda x, t, context: (x * table).sum((-1, -2)), 1.7)(Says()).predict(z, t, Context()).at(where)
    )
    torch.testing.assert_close(ours, tried)
    assert PositionClassifier(table, 0.0)(denoise := Says()) is denoise


def test_places_are_those_of_the_row() -> None:
    """A window further right is weighed by its own places; beyond the table all is free."""
    it = fresh("mdlm_tiny")
    table = torch.zeros(3, it.lm.config.vocab.size)
    table[2] = -torch.inf
    table[2, 7] = 0.0
    z, t = torch.full((1, 2), it.lm.config.vocab.masked), torch.ones(1, 1, dtype=torch.float64)
    with torch.no_grad():
        x = PositionClassifier(table)(it.lm).predict(z, t, Context(positions=torch.tensor([[2, 3]]))).x
    assert float(x[0, 0, 7]) == 0.0
    assert float(x[0, 1, 7]) < -1


def test_vectors_without_words_are_refused() -> None:
    it = fresh("mdlm_tiny")
    run = variations._with_head(presets.diffusion_lm_tiny(), PredictX(), SquaredError())
    vectors = TextModel(DiffusionLM(run.model, run.tokenizer), run)
    with pytest.raises(ArgumentError, match="predicts words, or a tagger"):
        control(vectors, pos=POS)
    canvas = vectors.lm.canvas(new=4)
    guided = PositionClassifier(torch.zeros(4, it.lm.config.vocab.size))(vectors.lm)
    with pytest.raises(ValueError, match="network lacks"):
        guided.predict(canvas.z, torch.ones(1, 1), canvas.context)


# --- demands ---


@pytest.mark.parametrize("name", ["mdlm_tiny", "ar_tiny", "bd3_tiny", "udlm_tiny"])
def test_demanded_parts_of_speech_are_there(name: str) -> None:
    """Fresh weights would write anything."""
    found = control(fresh(name), pos=POS, n=4, **({} if name != "udlm_tiny" else {"steps": 6}))
    for text in found:
        assert " ".join(tag_words(text.text)) == POS
    free = control(fresh("mdlm_tiny"), pos="NUM * NOUN", n=8)
    assert {tag_words(text.text)[::2] for text in free} == {("NUM", "NOUN")}
    assert len({tag_words(text.text)[1] for text in free}) > 1


def test_guidance_grows_with_its_scale() -> None:
    it = fresh("mdlm_tiny")
    wishes = ControlRequest(it, ControlSettings(pos=POS))
    shares = []
    for scale in (0.0, 0.3, 3.0):
        found = control(it, pos=POS, scale=scale, n=32)
        shares.append(sum(wishes.fulfillment(text.text)["pos"] for text in found) / 32)
    assert shares[0] < 0.4 < shares[1] + 0.2
    assert shares[0] < shares[1] < shares[2]
    assert shares[2] > 0.95


def test_length_and_words() -> None:
    found = control(fresh("mdlm_tiny"), length=9, required=["kite"], n=3, steps=9)
    wishes = ControlRequest(fresh("mdlm_tiny"), ControlSettings(length=9, required=("kite",)))
    assert [wishes.fulfillment(text.text) for text in found] == [{"length": 1.0, "kite": 1.0}] * 3
    assert [len(text.tokens) for text in control(fresh("ar_tiny"), length=9, n=2)] == [9, 9]


def test_attributes_are_demanded_by_their_words() -> None:
    (found,) = control(fresh("mdlm_tiny"), attributes=["who=Anna", "plot=find", "mood=sad"], steps=8)
    assert {"Anna", "found", "sad"} <= set(found.text.replace(".", "").replace(",", "").split())
    story = STORY_LANGUAGE.story(0, 3)
    wishes = ControlRequest(fresh("mdlm_tiny"), ControlSettings(attributes=("who=Felix", "mood=sad")))
    assert wishes.fulfillment(story.text) == {"who": 1.0, "mood": 0.0}


def test_an_attribute_layer_guides() -> None:
    """With a layer trained for nothing the texts are still written; the class is found by its name."""
    run = replace(
        presets.mdlm_tiny(), data=StoryClasses("mood"), framing=LabeledRows(68), objective=AttributeObjective()
    )
    small = replace(run.model.network, width=16, layers=1, heads=2, hidden=16)
    run = replace(run, model=replace(run.model, network=small).with_part(AttributeClassifierConfig(6)))
    it = TextModel(DiffusionLM(run.model, run.tokenizer), run)
    assert ControlRequest(
        it, ControlSettings(attributes=("mood=sad",), scale=1.0)
    )._class() == it.run.data.classes.index("sad")  # type: ignore[union-attr]
    (found,) = control(it, attributes=["mood=sad"], scale=2.0, length=6, steps=3)
    assert len(found.tokens) == 6


def test_the_attribute_layer_is_trained_beside_its_model() -> None:
    run = presets.mdlm_attribute_tiny("who")
    assert (run.model.parts, run.base) == ((AttributeClassifierConfig(24),), "runs/mdlm_tiny")
    with pytest.raises(
        ValueError,
        match=r"model\.parts\.attributes\.classes=24, but the data has 6 classes; set .*classes=6",
    ):
        replace(run, data=StoryClasses("mood"))


def test_what_is_demanded_comes_first() -> None:
    assert "RequiredFirst(pick=AnyOrder" in (found := control(fresh("mdlm_tiny"), required="kite", length=9)).sampler
    assert found.nfe == 9
    assert "RequiredFirst(pick=Entropy" in control(fresh("mdlm_tiny"), pos="NOUN * NOUN", required="kite").sampler
    assert "Demanded" not in control(fresh("mdlm_tiny"), required="kite", length=3, sampler="confidence").sampler


def test_the_surest_places_come_first() -> None:
    found = control(fresh("mdlm_tiny"), pos=POS)
    assert "Entropy" in found.sampler
    assert found.nfe == 7
    assert "AnyOrder" in control(fresh("mdlm_tiny"), pos=POS, sampler="any-order").sampler


def test_a_lexicon_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "kinds.json"
    file.write_text(json.dumps({"kite": "TOY", "doll": "TOY", "red": "COLOR", "blue": "COLOR"}))
    (found,) = control(fresh("mdlm_tiny"), pos="COLOR TOY", lexicon=str(file))
    assert found.text.split()[0] in ("red", "blue")
    assert found.text.split()[1] in ("kite", "doll")
    with pytest.raises(ArgumentError, match="cannot be read as JSON"):
        control(fresh("mdlm_tiny"), pos="TOY", lexicon=str(tmp_path / "none.json"))


WRONG: list[tuple[Callable[[], object], str]] = [
    (lambda: control(fresh("mdlm_tiny")), "nothing to control"),
    (lambda: control(fresh("mdlm_tiny"), pos="NOUN FOO"), "there is no 'FOO'; use ADJ"),
    (lambda: control(fresh("mdlm_tiny"), pos="NOUN", length=3), "has 1 words; leave one out"),
    (lambda: control(fresh("mdlm_tiny"), length=99), "too many: the rows of this model have 68"),
    (lambda: control(fresh("mdlm_tiny"), attributes="mood"), "write NAME=VALUE"),
    (lambda: control(fresh("mdlm_tiny"), attributes="mood=happy"), "choose from bored"),
    (lambda: control(fresh("mdlm_tiny"), attributes="taste=sour"), "the texts of this model have no attribute 'taste'"),
    (lambda: control(fresh("mdlm_tiny"), attributes="mood=sad", scale=1.0), "attribute layer"),
    (lambda: control(fresh("mdlm_tiny"), pos="NOUN", scale=-1.0), "from 0 to 1,000"),
    (lambda: control(fresh("flex_tiny"), pos="NOUN"), "inserts words"),
    (lambda: control(TextModel(fresh("mdlm_tiny").lm), required="kite"), "set length"),
    (lambda: control(fresh("diffuseq_tiny"), length=3), "needs a source or a class"),
]


@pytest.mark.parametrize(("call", "reason"), WRONG, ids=[reason for _, reason in WRONG])
def test_wrong_wishes(call: Callable[[], object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        call()


def test_as_a_sampler() -> None:
    it = fresh("mdlm_tiny")
    table = ControlRequest(it, ControlSettings(pos="NOUN VERB")).tag_log_probs()
    end = final_canvas(
        GuidedSampler(Unmask(2, AnyOrder()), PositionClassifier(table))(
            it.lm, it.lm.process, it.lm.canvas(new=2), rng=rng(0)
        )
    )
    assert tag_words(it.lm.text(end)[0]) == ("NOUN", "VERB")
