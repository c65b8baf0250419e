"""`correct`: Bayes with a model on both sides; everything that is not an error stays byte for byte."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import Say
from hypothesis import given, settings, strategies as st

import redraft
from redraft.core import (
    Batch,
    ByteTokenizer,
    CharTokenizer,
    Context,
    HybridNoise,
    Interpolating,
    NoiseDistribution,
    Prediction,
    UniformNoise,
    train_bpe,
)
from redraft.evaluation.laws import tokens
from redraft.models import Causal, DiffusionLM
from redraft.tasks import ArgumentError, EditChannel, ErrorGenerator, Lexicon, TextModel, open_model
from redraft.tasks.correction.letters import _is_letter_channel, _LetterPosterior
from redraft.tasks.correction.passes import _Choice, _CorrectionPasses
from redraft.tasks.correction.scorers import (
    _CausalHoleScorer,
    _hole_scorer,
    _MaskedHoleScorer,
    _time_of_error_rate,
    _UniformHoleScorer,
    _WordHole,
)
from redraft.tasks.correction.suspects import _CandidateGenerator
from redraft.training import fit, presets
from redraft.training.runs import variations
from tests.tasks.test_generate import MODEL, WORDS, model_of

KNOWN = Lexicon({"the": 50.0, "cat": 10.0, "sat": 10.0, "on": 20.0, "mat": 5.0, "at": 9.0, "The": 9.0, "form": 1.0})
SPELLER = _CandidateGenerator(KNOWN, EditChannel.standard(), 0.02)


# --- what may be meant ---


def meant(spelling: str) -> list[str]:
    return [candidate.text for candidate in SPELLER.candidates(spelling)]


def test_candidates() -> None:
    assert meant("teh")[:2] == ["teh", "the"], "the spelling itself comes first"
    assert meant("Teh")[1] == "The"
    assert meant("CTA")[1] == "CAT"
    assert "the mat" in meant("themat")
    assert "the cat" in meant("tehcat")
    assert "cat" not in meant("elephants")


def test_pieces_of_one_word_are_one_spot() -> None:
    (spot,) = SPELLER.suspects("on fo rm")
    assert (spot.start, spot.end) == (3, 8)
    assert spot.candidates[0].text == "fo rm"
    assert "form" in [candidate.text for candidate in spot.candidates]


@pytest.mark.parametrize("text", ["the form on the form.", "4th x2 a_b 1898", "", "...", "seen by Teh Ogilvie"])
def test_known_words_names_and_digits_are_no_spots(text: str) -> None:
    assert [spot for spot in SPELLER.suspects(text) if text[spot.start : spot.end] not in ("by", "seen")] == []


def test_names_and_words_to_keep() -> None:
    assert SPELLER.suspects("on Teh mat") == []
    assert len(replace(SPELLER, names=True).suspects("on Teh mat")) == 1
    assert replace(SPELLER, names=True, keep=frozenset({"teh"})).suspects("on Teh mat") == []
    assert len(SPELLER.suspects("Teh mat")) == 1, "a sentence begins with a capital"


# --- what the model says ---


def said(left: str, hidden: int, right: str) -> torch.Tensor:
    canvas = MODEL.compose([[left, hidden, right]])
    with torch.no_grad():
        return MODEL.eval().predict(canvas.z, canvas.time(torch.ones(1, 1)), canvas.context).at(~canvas.fixed).double()


def hole(left: str, fillings: list[str], right: str) -> _WordHole:
    ids = tuple(tuple(WORDS.encode(filling)) for filling in fillings)
    return _WordHole(tuple(WORDS.encode(left)), ids, tuple(WORDS.encode(right)))


def test_a_filling_is_read_token_by_token() -> None:
    """log p(a b) = log x̂_1(a), both hidden, + log x̂_2(b), a written; words of one token share a row."""
    ask = _hole_scorer(redraft.tasks.TextModel(MODEL), 0.02)
    assert isinstance(ask, _MaskedHoleScorer)
    with redraft.tasks.count_calls(MODEL) as counted, torch.no_grad():
        ((cat, mat, both),) = ask([hole("the", ["cat", "mat", "big cat"], "sat.")])
    assert counted.rows == 3
    one = said("the", 1, "sat.")[0]
    two = said("the", 2, "sat.")[0, WORDS.encode("big")[0]] + said("the big", 1, "sat.")[0, WORDS.encode("cat")[0]]
    assert [cat, mat] == pytest.approx([float(one[WORDS.encode(word)[0]]) for word in ("cat", "mat")], abs=1e-5)
    assert both == pytest.approx(float(two), abs=1e-5)


def test_an_autoregressive_model_scores_all_that_follows() -> None:
    model = model_of(pattern=Causal())
    ask = _hole_scorer(redraft.tasks.TextModel(model), 0.02)
    assert isinstance(ask, _CausalHoleScorer)
    ((cat, mat),) = ask([hole("the", ["cat", "mat"], "sat on the mat.")])
    rows = [[WORDS.vocab.bos, *WORDS.encode(f"the {word} sat on the mat.")] for word in ("cat", "mat")]
    tokens = torch.tensor(rows)
    nats = redraft.likelihood(model, [Batch(tokens, torch.arange(tokens.shape[1]).expand_as(tokens) > 0)]).row_nats
    assert cat - mat == pytest.approx(float(nats[1] - nats[0]), abs=1e-3)


def test_uniform_noise_leaves_a_visible_token_out() -> None:
    model = model_of(process=Interpolating(WORDS.vocab))
    ask = _hole_scorer(redraft.tasks.TextModel(model), 0.02)
    assert isinstance(ask, _UniformHoleScorer)
    with torch.no_grad():
        ((cat, _),) = ask([hole("the", ["cat", "mat"], "sat.")])
        z = torch.tensor([[WORDS.vocab.bos, *WORDS.encode("the cat sat.")]])
        pred = model.eval().predict(z, torch.full((1, 1), ask.time), Context()).x
    assert cat == pytest.approx(float(pred[0, 2, WORDS.encode("cat")[0]]), abs=1e-5)


def test_a_long_text_is_cut_to_the_row() -> None:
    ask = _hole_scorer(redraft.tasks.TextModel(MODEL), 0.02)
    cut = ask.cut(_WordHole(tuple(range(1000)), ((1, 2), (3,)), tuple(range(1000))))
    assert 1 + len(cut.left) + 2 + len(cut.right) == ask.max_length
    assert cut.left[-1] == 999
    assert cut.right[0] == 0


# --- end to end ---


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few seconds of training on the first sentences of the stories."""
    out = tmp_path_factory.mktemp("correct") / "words"
    run = variations.with_network(presets.mdlm_tiny(), width=32, heads=4)
    fit(replace(run, steps=60, batch=16, eval_every=60, eval_rows=4, samples=0, precision="fp32"), out, quiet=True)
    return out


@pytest.fixture(scope="module")
def loaded(stories: Path) -> TextModel:
    return open_model(stories)


WRONG = "One spirng day, Anna flet sad and wlaked to the graden. She foundd a redd kite by the gaet in 1898."
RIGHT = "One spring day, Anna felt sad and walked to the garden. She found a red kite by the gate in 1898."


def test_a_text_is_corrected(stories: Path) -> None:
    found = redraft.correct(stories, [WRONG, RIGHT])
    assert found.texts == [RIGHT, RIGHT]
    assert " ".join(change.was for change in found[0].changes) == "spirng flet wlaked graden foundd redd gaet"
    assert all(WRONG[c.start : c.start + len(c.was)] == c.was for c in found[0].changes)
    assert all(0.5 <= change.probability <= 1 for change in found[0].changes)
    assert found[1].changes == ()


def test_most_errors_of_stories_go(stories: Path) -> None:
    made = [ErrorGenerator(0.03, seed=1)(RIGHT, index) for index in range(16)]
    found = redraft.correct(stories, [each.text for each in made], noise=0.03, names=True)
    wrong = sum(map(bool, (kinds for each in made for kinds in each.kinds)))
    left = sum(a != b for each in found for a, b in zip(RIGHT.split(), each.text.split(), strict=False))
    assert wrong > 15
    assert left < 0.25 * wrong


def test_settings_matter(stories: Path) -> None:
    assert redraft.correct(stories, WRONG, keep=["flet", "REDD"]).texts[0].count("flet sad") == 1
    assert redraft.correct(stories, WRONG, confidence=1.0).texts == [WRONG]
    assert redraft.correct(stories, "It belonged to Gerta.").texts == ["It belonged to Gerta."]
    assert redraft.correct(stories, "It belonged to Gerta.", names=True).texts == ["It belonged to Greta."]
    with_more = redraft.correct(stories, "She found a bleu kite.", words={"bleu": 1e9})
    assert with_more.texts == ["She found a bleu kite."]


@settings(max_examples=15, deadline=None)
@given(st.text(max_size=40))
def test_what_is_no_change_stays_byte_for_byte(loaded: TextModel, text: str) -> None:
    (found,) = redraft.correct(loaded, f"{WRONG} {text}")
    at = 0
    rebuilt = ""
    for change in found.changes:
        rebuilt += found.given[at : change.start] + change.now
        at = change.start + len(change.was)
    assert rebuilt + found.given[at:] == found.text
    assert found.given == f"{WRONG} {text}"


class Same:
    """A language of letters in which every text is "abcabcabc…", corrected by the process itself."""

    def __init__(self, alphabet: str) -> None:
        self.alphabet = alphabet

    def denoised(self, z: torch.Tensor) -> torch.Tensor:
        right = torch.arange(z.shape[1]) % 3
        p = torch.nn.functional.one_hot(right, len(self.alphabet) + 2).double() * 0.5 + 1e-6
        p[:, len(self.alphabet)] += 0.5  # the end token, which is no letter
        return p.log().expand(len(z), *p.shape)


@pytest.mark.parametrize("mixing", [UniformNoise(), HybridNoise(0.2)], ids=repr)
def test_letters_are_judged_together(mixing: NoiseDistribution) -> None:
    """Enumerated: the likeliest letters of a span and their probability are those of the true p(x | z)."""
    toy, t = tokens.ToyLanguage.of(), 0.3
    process = Interpolating(tokens.VOCAB, mixing=mixing)
    read = _LetterPosterior(tokens.Oracle(toy, process), process, t, room=3, alphabet=tokens._WORDS)
    x, table = toy.sequences, process.marginal(t)
    joint = toy.p * table[x[None], x[:, None]].prod(-1)  # (z, x)
    truth = joint / joint.sum(-1, keepdim=True)
    free, apart = torch.ones(3, dtype=torch.bool), 0
    for z, posterior in zip(x, truth, strict=True):
        for start, end in ((0, 3), (1, 3)):
            p = Counter[tuple[int, ...]]()
            for letters, weight in zip(x[:, start:end].tolist(), posterior.tolist(), strict=True):
                p[tuple(letters)] += weight
            ((best, probability),) = p.most_common(1)
            for confidence in (0.1, 0.6):
                (found,) = read.likeliest(z, z, free, [(start, end)], confidence)
                assert (found is None) == (probability < confidence)
                assert found is None or (found.letters, found.start) == (best, start)
                assert found is None or found.probability == pytest.approx(probability, abs=1e-9)
        one_by_one = tuple(read.letters(z, z, free).argmax(-1).tolist())
        apart += one_by_one != tuple(x[posterior.argmax()].tolist())
    assert apart > 0, "letters that are likeliest one by one need not be so together"


def test_letters_that_are_not_free_stay() -> None:
    toy = tokens.ToyLanguage.of()
    process = Interpolating(tokens.VOCAB, mixing=UniformNoise())
    read = _LetterPosterior(tokens.Oracle(toy, process), process, 0.6, room=3, alphabet=tokens._WORDS)
    for z in toy.sequences:
        (found,) = read.likeliest(z, z, torch.tensor([True, False, True]), [(0, 3)], 0.02)
        assert found is not None
        assert found.letters[1] == z[1]


def test_the_process_itself_is_the_channel(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sure x̂ changes letters, an unsure one leaves what it sees: x̂ · q_t(z | x), not the largest x̂."""
    letters = CharTokenizer("abc 1", ("eos", "mask"))
    run = presets.mdlm_tiny_chars()
    network = replace(run.model.network, width=16, heads=2, layers=1)
    process = Interpolating(letters.vocab, mixing=HybridNoise(0.1))
    head = redraft.models.Subs(carry_over=False)
    model = DiffusionLM(replace(run.model, process=process, network=network, head=head), letters)
    same = Same(letters.alphabet)

    def predict(self: Any, z: torch.Tensor, t: torch.Tensor, context: Context) -> Prediction:
        return redraft.core.TablePrediction(same.denoised(z))

    monkeypatch.setattr(DiffusionLM, "predict", predict)
    found = redraft.correct(model, "abcabbabc")
    assert found.texts == ["abcabcabc"]
    assert [(c.start, c.was, c.now) for c in found[0].changes] == [(0, "abcabbabc", "abcabcabc")]
    assert redraft.correct(model, "abcabbabc", keep=["abcabbabc"]).texts == ["abcabbabc"]
    assert redraft.correct(model, "abcabb1bc").texts == ["abcabb1bc"], "a word with a digit is safe"
    assert redraft.correct(model, "").texts == [""]
    monkeypatch.setattr(same, "denoised", lambda z: torch.full((*z.shape, 7), 0.25).log())
    assert redraft.correct(model, "abc cba bca").texts == ["abc cba bca"]


# --- the command line ---


def test_the_verb(say: Say, stories: Path) -> None:
    out, err = say("correct", stories, WRONG)
    assert out == f"{RIGHT}\n"
    assert "7 changes in 1 text;" in err
    out, _ = say("correct", stories, "Anna flet sad.", "--diff")
    assert out == "Anna [-flet-]{+felt+} sad.\n"
    out, _ = say("correct", stories, WRONG, "--json", "--keep", "flet", "redd", "--noise", "0.05")
    record = json.loads(out)
    assert record["input"] == WRONG
    assert "flet" in record["text"]
    assert record["changes"][0] | {"probability": 1.0} == {
        "start": 4, "original": "spirng", "replacement": "spring", "probability": 1.0,
        "reason": "“spirng” is no known word, and “spring” is more likely in this context",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("flags", "line"),
    [
        (["a text", "--noise", "0.9"], "--noise 0.9"),
        (["a text", "--noise", "nan"], "--noise nan"),
        (["a text", "--confidence", "2"], "--confidence 2"),
        (["a text", "--keep", " "], "--keep"),
        (["a text", "--words", "nowhere.txt"], "--words nowhere.txt"),
        (["a text", "--json", "--diff"], "cannot be combined"),
        ([], "give a text"),
    ],
)
def test_a_slip_is_one_line(say: Say, stories: Path, flags: list[str], line: str) -> None:
    out, err = say("correct", stories, *flags, code=2)
    assert out == ""
    assert line in err
    assert len(err.splitlines()) == 1


def test_models_that_cannot_correct() -> None:
    with pytest.raises(ValueError, match="this one has Insertion noise"):
        redraft.correct(model_of(process=redraft.Insertion(WORDS.vocab)), "the cat")
    with pytest.raises(ArgumentError, match="words=…"):
        redraft.correct(MODEL, "the cat", words=[])
    with pytest.raises(ArgumentError, match="names='no'"):
        redraft.correct(MODEL, "the cat", names="no")
    with pytest.raises(ArgumentError, match=r"texts=\[\]"):
        redraft.correct(MODEL, [])


# --- tokens that are no words ---


@pytest.mark.parametrize(
    "tokenizer", [ByteTokenizer(("bos", "eos", "mask")), CharTokenizer("abcehmnost .")], ids=["bytes", "letters"]
)
def test_letters_are_read_in_holes_as_long_as_the_word(tokenizer: Any) -> None:
    """Fillings of other lengths stand in rows of their own; words come from the list that is given."""
    model = model_of(tokenizer=tokenizer)
    speller = replace(SPELLER, alphabet=frozenset("abcehmnost"))
    ask = _hole_scorer(TextModel(model), 0.02)
    sweeps = _CorrectionPasses(TextModel(model), speller, ask, 0.5)
    found = sweeps._hole("on teh mat.", [_Choice(spot) for spot in speller.suspects("on teh mat.")], 0)
    decoded = [tokenizer.decode(filling) for filling in found.fillings]
    assert decoded[:2] == ["teh", "the"]
    assert tokenizer.decode(found.left) == "on "
    assert tokenizer.decode(found.right) == " mat."
    (text,) = redraft.correct(model, "on teh mat.", words=dict(KNOWN.counts)).texts
    assert text.startswith("on ")
    assert text.endswith(".")


def test_word_pieces_take_the_space_along() -> None:
    """A piece of BPE holds the space before a word, so the hole begins there."""
    texts = ["the cat sat on the mat", "the mat on the cat"] * 20
    tokenizer = train_bpe(texts, 280, ("eos", "mask"))
    speller = _CandidateGenerator(KNOWN, EditChannel.standard(), 0.02)
    it = TextModel(model_of(tokenizer=tokenizer))
    spots = speller.suspects("on teh mat")
    found = _CorrectionPasses(it, speller, _hole_scorer(it, 0.02), 0.5)._hole(
        "on teh mat", [_Choice(spot) for spot in spots], 0
    )
    whole = [tokenizer.decode((*found.left, *filling, *found.right)) for filling in found.fillings]
    assert whole == [f"on {candidate.text} mat" for candidate in spots[0].candidates]
    assert {1} < {len(filling) for filling in found.fillings}


def test_any_noise_that_replaces_letters_is_a_channel() -> None:
    """D3PM's uniform matrices are the same channel as the closed form; absorbing ones replace nothing."""
    letters = CharTokenizer("abc ", ("mask",))
    uniform, table = Interpolating(letters.vocab), redraft.Markov(letters.vocab, redraft.core.UniformRates())
    assert table.error_rate(0.3) == pytest.approx(uniform.error_rate(0.3), rel=0.3)
    assert uniform.error_rate(_time_of_error_rate(uniform, 0.05)) == pytest.approx(0.05)
    assert table.error_rate(_time_of_error_rate(table, 0.05)) == pytest.approx(0.05, abs=1e-4)
    for process, own in (
        (uniform, True),
        (table, True),
        (redraft.Markov(letters.vocab, redraft.core.AbsorbingRates()), False),
    ):
        assert _is_letter_channel(TextModel(model_of(process=process, tokenizer=letters))) is own
    assert len(redraft.correct(model_of(process=table, tokenizer=letters), "abc cab").texts[0]) == 7
