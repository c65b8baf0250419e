"""One call: plain values in, a record out; the same text in any batch, alone or in company, streamed or not."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from typing import Any

import pytest
import torch
from conftest import table

import redraft
from redraft.core import ByteTokenizer, Insertion, Interpolating, Masked, TokenProcess, WordTokenizer
from redraft.decoding import Ancestral, Blocks, GuidedSampler, Unmask
from redraft.decoding.constraints.constrained import ConstrainedPrediction
from redraft.models import AttentionPattern, BlockCausal, DiffusionLM, DiffusionLMConfig, Full, TransformerConfig
from redraft.tasks import ArgumentError, GenerationSettings, InfillSettings
from redraft.tasks.arguments.aliases import ALIASES, settings_from
from redraft.tasks.arguments.setting import arguments_of
from redraft.tasks.engine import plan as writing, sampler_choice
from redraft.tasks.engine.model import as_text_model

WORDS = WordTokenizer(("a", "cat", "sat", "on", "the", "mat", ".", "big"), ("bos", "eos", "pad", "mask"))


def model_of(
    pattern: AttentionPattern = Full(), process: TokenProcess | None = None, tokenizer: Any = WORDS
) -> DiffusionLM:
    process = process or Masked(tokenizer.vocab)
    more: dict[str, Any] = {"time": 8, "gaps": 12} if isinstance(process, Insertion) else {}
    network = TransformerConfig(width=16, layers=1, heads=2, hidden=32, pattern=pattern, rotary=100.0, **more)
    head = redraft.models.Softmax() if isinstance(process, Interpolating) else redraft.models.Subs()
    torch.manual_seed(0)
    model = DiffusionLM(DiffusionLMConfig(process, network, head), tokenizer)
    for weight in model.parameters():  # far from uniform, so that texts differ
        torch.nn.init.normal_(weight, 0, 0.5)
    if model.network.gaps is not None:
        torch.nn.init.zeros_(model.network.gaps.output.weight)
        torch.nn.init.constant_(model.network.gaps.output.bias, -0.5)
    return model


MODEL = model_of()


def test_a_record_tells_how_each_token_came() -> None:
    record = redraft.generate(MODEL, "a cat", max_new_tokens=6, n=3, sampler="confidence", steps=3, seed=7)
    assert len(record) == 3 == len(record.texts)
    for row, text in enumerate(record):
        assert (text.row, text.prompt) == (row, "a cat")
        assert "".join(text.pieces) == text.text
        assert text.text.startswith("a cat")
        assert text.text == "a cat" + text.new
        assert text.given[:2] == (True, True)
        assert not any(text.given[2:])
        assert text.step[:2] == (0, 0)
        assert set(text.step[2:]) <= {1, 2, 3}
        assert text.stop == ("length" if len(text.tokens) == 8 else "end")
        assert text.confidence[:2] == (None, None)
        assert all(0 < c <= 1 for c in text.confidence[2:])
    assert record.nfe == 3
    assert record.new_tokens == sum(len(text.tokens) - 2 for text in record)
    assert record.tokens_per_second == record.new_tokens / record.seconds
    assert (record.seed, record.cache, record.notes) == (7, "none", ())
    assert record.sampler == str(Unmask(3, redraft.Confidence()))


def test_one_object_per_text() -> None:
    record = redraft.generate(MODEL, ["a", "the"], max_new_tokens=3, steps=3)
    for text, entry in zip(record, json.loads(json.dumps(record.to_json())), strict=True):
        assert entry["text"] == text.text
        assert entry["tokens"] == list(text.tokens)
        assert {
            "prompt",
            "index",
            "stop",
            "written_at_step",
            "confidence",
            "seed",
            "run",
            "nfe",
            "sampler",
            "cache",
        } <= set(entry)


KINDS = {
    "full": MODEL,
    "blocks": model_of(BlockCausal(4)),
    "insertion": model_of(process=Insertion(WORDS.vocab)),
    "uniform": model_of(process=Interpolating(WORDS.vocab)),
    "bytes": model_of(tokenizer=ByteTokenizer(("bos", "eos", "pad", "mask"))),
}
PROMPTS = ["a cat sat on", "the", "", "a big big cat", "the"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_does_not_depend_on_its_company(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any batch, any other prompts, streamed or not; only the same prompt once more gives another text."""
    model, asked = KINDS[kind], {"max_new_tokens": 9, "steps": 6, "n": 2, "seed": 3}
    together = redraft.generate(model, PROMPTS, **asked)
    streamed = [d.written for d in redraft.generate(model, PROMPTS, stream=True, **asked) if d.written]
    assert tuple(streamed) == together.results
    alone = [redraft.generate(model, prompt, **asked).texts for prompt in PROMPTS[:4]]
    assert [text for texts in alone for text in texts] == together.texts[:8]
    assert together.texts[8:] != together.texts[2:4]
    for size in (1, 3):
        monkeypatch.setattr(writing, "batch_size", lambda *_, size=size, **__: size)
        assert redraft.generate(model, PROMPTS, **asked).texts == together.texts
    assert redraft.generate(model, PROMPTS, **{**asked, "seed": 4}).texts != together.texts


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_committed_never_changes(kind: str) -> None:
    said: dict[int, str] = {}
    grew = 0
    for draft in redraft.generate(KINDS[kind], PROMPTS, stream=True, max_new_tokens=9, steps=9):
        before = said.get(draft.row, "")
        assert draft.committed.startswith(before)
        grew += draft.written is None and len(draft.committed) > len(before) > 0
        said[draft.row] = draft.committed
        if draft.written is not None:
            assert (draft.committed, draft.tentative) == (draft.written.text, "")
    assert len(said) == len(PROMPTS)
    assert bool(grew) == (kind in ("full", "blocks", "bytes")), "only mask noise writes once"


def test_what_may_be_taken_back_is_not_committed() -> None:
    drafts = list(redraft.generate(MODEL, "a", stream=True, max_new_tokens=9, sampler="revoke"))
    assert {draft.committed for draft in drafts[:-1]} == {""}
    drafts = list(redraft.generate(MODEL, "a", stream=True, max_new_tokens=9, sampler="threshold", threshold=0.2))
    assert len(drafts) < 9
    assert drafts[1].committed


def test_gradients_are_as_they_were_between_two_drafts() -> None:
    MODEL.train()
    drafts = redraft.generate(MODEL, "a", stream=True, max_new_tokens=3, steps=2)
    next(drafts)
    assert torch.is_grad_enabled()
    drafts.close()  # type: ignore[attr-defined]
    assert MODEL.training
    MODEL.eval()


def test_infill_keeps_what_is_given() -> None:
    record = redraft.infill(MODEL, ["a [[2]] sat", "the [[1]] ."], n=2, steps=2)
    assert [text.prompt for text in record] == ["a [[2]] sat"] * 2 + ["the [[1]] ."] * 2
    assert [text.row for text in record] == [0, 1, 2, 3]
    for text in record[:2]:
        assert text.given == (True, False, False, True)
        assert text.text.startswith("a ")
        assert text.text.endswith(" sat")


def test_blocks_have_an_exact_cache_and_a_bare_model_uses_it() -> None:
    record = redraft.generate(KINDS["blocks"], "a", max_new_tokens=8, steps=2)
    assert record.cache == "exact"
    assert redraft.generate(MODEL, "a", max_new_tokens=8, decode_block=4, steps=2).cache == "none"


def test_a_cache_is_chosen_and_says_what_it_is() -> None:
    asked = {"max_new_tokens": 8, "sampler": "confidence", "steps": 4}
    plain = redraft.generate(KINDS["blocks"], "a", cache="none", **asked)
    exact = redraft.generate(KINDS["blocks"], "a", cache="exact", **asked)
    assert (plain.cache, exact.cache) == ("none", "exact")
    assert exact[0].tokens == plain[0].tokens
    plain = redraft.generate(MODEL, "a", decode_block=4, **asked)
    for cache in ("prefix", "dual"):
        fresh = redraft.generate(MODEL, "a", decode_block=4, cache=cache, refresh=1, **asked)
        assert (fresh.cache, fresh[0].tokens) == ("approximate", plain[0].tokens)
    stale = redraft.generate(MODEL, "a", decode_block=4, cache="dual", **asked)
    assert stale.to_json()[0]["cache"] == "approximate"
    for model, cache, says in (
        (MODEL, "exact", "cache='exact': this network has full attention, so no cache is exact; use cache='dual'"),
        (KINDS["blocks"], "dual", "cache='dual': this network has blocks, so its cache is exact; use cache='exact'"),
        (MODEL, "dual", "cache='dual': a cache needs decoding in blocks; set decode_block=… too"),
    ):
        with pytest.raises(ArgumentError) as error:
            redraft.generate(model, "a", cache=cache, **asked)
        assert str(error.value) == says


def test_iterating_over_canvases_stays_possible() -> None:
    start = MODEL.canvas("a", new=4, rows=2)
    writing = redraft.tasks.DecodingLoop(MODEL, Ancestral(3), start, seed=5, samples=torch.arange(2))
    texts = [MODEL.text(canvas) for canvas in writing]
    assert len(texts) == 4
    assert (
        writing.results().texts == texts[-1] == redraft.tasks.sample_canvases(MODEL, Ancestral(3), start, seed=5).texts
    )


def test_where_the_time_went() -> None:
    with redraft.tasks.profile_model(MODEL) as spent:
        record = redraft.generate(MODEL, "a", max_new_tokens=4, sampler="confidence", steps=4)
    assert {name: part.calls for name, part in spent.parts.items()} == {"network": 4, "output layer": 4}
    assert 0 < sum(part.seconds for part in spent.parts.values()) < record.seconds
    lines = spent.lines(record.seconds, 5)
    assert [line.split()[0] for line in lines] == ["network", "output", "sampler"]
    assert sum(float(line.split()[-1].rstrip("%")) for line in lines) == pytest.approx(100, abs=0.2)
    assert not {"forward", "logits"} & set(vars(MODEL.network))
    plain = ConstrainedPrediction.draw
    with redraft.tasks.profile_model(MODEL) as spent:
        redraft.generate(MODEL, "a", max_new_tokens=4, sampler="confidence", steps=4, required="mat")
    assert spent.parts["constraint"].calls == 4
    assert spent.parts["constraint"].seconds > 0
    assert ConstrainedPrediction.draw is plain


# --- score ----------------------------------------------------------------------------------------------------------


def test_a_causal_model_scores_exactly() -> None:
    """Bits of one token after the other, by the network itself."""
    model = model_of(redraft.models.Causal(WORDS.vocab.bos or 0))
    scores = redraft.score(model, ["a cat sat", "the mat."])
    assert scores.exact
    assert scores.nfe == 1
    for each, text in zip(scores, ("a cat sat", "the mat."), strict=True):
        ids = [WORDS.vocab.bos or 0, *WORDS.encode(text), WORDS.vocab.eos or 0]
        bits = 0.0
        for i in range(1, len(ids)):
            z = torch.tensor([[*ids[:i], WORDS.vocab.masked]])
            context = redraft.Context(clean=torch.tensor([ids[: i + 1]]))
            with torch.no_grad():
                bits -= float(model.predict(z, torch.ones(1, 1), context).x[0, -1, ids[i]]) / math.log(2)
        assert (each.text, each.stderr, each.tokens) == (text, 0, len(ids) - 1)
        assert each.bits == pytest.approx(bits, rel=1e-4)
        assert each.bits_per_char == pytest.approx(bits / len(text), rel=1e-4)


def test_other_models_score_a_bound() -> None:
    few, many = (redraft.score(MODEL, ["a cat sat on the mat."] * 8, draws=draws) for draws in (1, 16))
    assert not few.exact
    assert (few.nfe, many.nfe) == (2, 32)
    assert sum(each.stderr for each in many) < sum(each.stderr for each in few)
    assert few.bits_per_token == pytest.approx(many.bits_per_token, rel=0.3)
    assert json.loads(json.dumps(many.to_json()))[0]["bits"] == many[0].bits


@pytest.mark.parametrize(
    ("texts", "options", "says"),
    [
        ([], {}, "texts=[]: give at least one text"),
        ([1], {}, "give a text or a list of texts"),
        ("a dog", {}, "does not know 'dog'"),
        ("a", {"draws": 0}, "draws=0: it must be from 1 to 4,096"),
        ("a", {"draws": 2.5}, "draws=2.5: it must be a whole number"),
        ("a", {"draws": 10**9}, "it must be from 1 to 4,096"),
        ("a", {"seed": -1}, "seed=-1: it must be from 0"),
        ("a", {"seed": "x"}, "seed='x': it must be a whole number"),
        ("a", {"steps": 3}, "steps=… is not an argument here; choose from draws, seed"),
        ("a", {"diffusion_read_only": True}, "diffusion_read_only=… is not an argument here"),
    ],
)
def test_wrong_scores(texts: Any, options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError) as error:
        redraft.score(MODEL, texts, **options)
    assert says in str(error.value)


# --- arguments ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "options", "same"),
    [
        (GenerationSettings, {"gen_length": 64, "block_length": 8}, {"max_new_tokens": 64, "decode_block": 8}),
        (
            GenerationSettings,
            {"remasking": "low_confidence", "cfg_scale": 0.5},
            {"sampler": "confidence", "guidance": 1.5},
        ),
        (GenerationSettings, {"remasking": "random", "cfg_scale": 0}, {"sampler": "any-order"}),
        (GenerationSettings, {"alg": "maskgit_plus", "max_tokens": 3}, {"sampler": "confidence", "max_new_tokens": 3}),
        (InfillSettings, {"alg": "topk_margin", "diffusion_max_steps": 4}, {"sampler": "margin", "steps": 4}),
        (InfillSettings, {"alg": "origin", "num_return_sequences": 2}, {"sampler": "ancestral", "n": 2}),
        (InfillSettings, {"alg": "entropy", "block_size": 2}, {"sampler": "entropy", "decode_block": 2}),
        (GenerationSettings, {"max_denoising_steps": 4}, {"steps": 4}),
        (
            GenerationSettings,
            {"guided_regex": "a+", "guided_json": {"type": "null"}},
            {"pattern": "a+", "schema": '{"type": "null"}'},
        ),
        (GenerationSettings, {"regex": "a+", "json_schema": "{}"}, {"pattern": "a+", "schema": "{}"}),
    ],
)
def test_names_of_others_mean_the_same(kind: Any, options: dict[str, Any], same: dict[str, Any]) -> None:
    assert settings_from(kind, options) == kind(**same)


def test_every_alias_is_one_of_an_argument() -> None:
    names = {field.name for kind in (GenerationSettings, InfillSettings) for field in fields(kind)}
    assert {alias.name for alias in ALIASES.values()} <= names
    assert not set(ALIASES) & names


def test_filters_come_in_one_order_inside_of_rules() -> None:
    """Temperature before top-k; where nothing is dropped it is the pick's, as ever."""
    it = as_text_model(MODEL)
    asked = {"sampler": "confidence", "temperature": 0.5}

    def made(**options: Any) -> Any:
        decoding = GenerationSettings(**options)
        return sampler_choice._with_filters(it, sampler_choice.choose_sampler(it, decoding)[0], decoding)

    assert made(**asked) == Unmask(32, redraft.Confidence(0.5))
    warm = GuidedSampler(Unmask(32, redraft.Confidence(1.0)), redraft.decoding.LogitFilter(temperature=0.5, top_k=3))
    assert made(**asked, top_k=3) == warm
    assert made(sampler="ancestral", temperature=0.5) == GuidedSampler(
        Ancestral(), redraft.decoding.LogitFilter(temperature=0.5)
    )
    greedy = GuidedSampler(Unmask(32, redraft.Confidence(0.0)), redraft.decoding.LogitFilter(top_p=0.5))
    assert made(sampler="confidence", temperature=0, top_p=0.5) == greedy
    assert made(sampler="first-hitting", repetition_penalty=2.0).guidance == redraft.decoding.LogitFilter(
        repetition=2.0
    )


def test_only_the_likeliest_tokens_are_written() -> None:
    """One token at a time from the likeliest alone is greedy, in any order; a rule still gets what it needs."""
    options: dict[str, Any] = {"max_new_tokens": 5, "n": 4}
    drawn = redraft.generate(MODEL, "a cat", sampler="left-to-right", temperature=1.0, top_k=1, steps=5, **options)
    assert drawn.texts == redraft.generate(MODEL, "a cat", sampler="left-to-right", steps=5, **options).texts
    ruled = redraft.generate(MODEL, "a cat", top_k=1, pattern="sat on the mat", **options)
    assert set(ruled.texts) == {"a cat sat on the mat"}
    assert ruled.exactness == "matches"


def test_guidance_by_the_prompt() -> None:
    options: dict[str, Any] = {"max_new_tokens": 6, "n": 8, "sampler": "confidence", "steps": 6, "temperature": 1.0}
    plain, none, more = (redraft.generate(MODEL, "a big cat", guidance=g, **options) for g in (1.0, 0.0, 1.5))
    assert plain.texts == redraft.generate(MODEL, "a big cat", **options).texts
    assert none.nfe == plain.nfe
    assert more.nfe == 2 * plain.nfe
    assert len({tuple(r.texts) for r in (plain, none, more)}) == 3
    away = redraft.generate(MODEL, "a big cat", guidance=1.5, negative_prompt="the mat", **options)
    assert [text.confidence for text in away] != [text.confidence for text in more]
    assert all(text.startswith("a big cat") for text in away.texts)
    with pytest.raises(ValueError, match="the negative prompt has 3 tokens, but a prompt has only"):
        redraft.generate(MODEL, "a", guidance=3.0, negative_prompt="on the mat", **options)
    with pytest.raises(ArgumentError, match="guidance=… needs a condition"):
        redraft.generate(MODEL, "", guidance=2.0, **options)


WRONG = [
    ({"max_new_tokens": 0}, "max_new_tokens", "max_new_tokens=0: it must be at least 1"),
    ({"max_new_tokens": "many"}, "max_new_tokens", "max_new_tokens='many': it must be a whole number"),
    ({"steps": 1.5}, "steps", "steps=1.5: it must be a whole number"),
    ({"steps": True}, "steps", "steps=True: it must be a whole number"),
    ({"steps": 0}, "steps", "steps=0: it must be from 1 to 1,000,000"),
    ({"temperature": float("nan")}, "temperature", "temperature=nan: it must be a finite number"),
    ({"temperature": -1}, "temperature", "temperature=-1: it must be from 0"),
    ({"seed": -(2**63)}, "seed", "it must be from 1 − 2^63 to 2^63 − 1"),
    ({"n": 0}, "n", "n=0: it must be from 1"),
    ({"sampler": "best"}, "sampler", "sampler='best': choose from 'own', 'ancestral'"),
    ({"decode_block": 0}, "decode_block", "decode_block=0: it must be from 1"),
    ({"cache": "fast"}, "cache", "cache='fast': choose from 'own', 'none', 'exact', 'prefix', 'dual'"),
    ({"cache": "dual", "refresh": 0}, "refresh", "refresh=0: it must be from 1"),
    ({"refresh": 4}, "refresh", "refresh=4: it needs an approximate cache; use cache='dual'"),
    ({"negative_prompt": "b"}, "negative_prompt", "needs a prompt, guidance=… above 1"),
    ({"top_k": 0}, "top_k", "top_k=0: it must be from 1"),
    ({"top_p": 1.5}, "top_p", "top_p=1.5: it must be above 0 and at most 1"),
    ({"min_p": -1.0}, "min_p", "min_p=-1.0: it must be from 0 to 1"),
    ({"repetition_penalty": 0.0}, "repetition_penalty", "repetition_penalty=0.0: it must be above 0"),
    (
        {"sampler": "ancestral", "temperature": 0, "max_new_tokens": 2},
        "temperature",
        "Ancestral(steps=64, warp=EvenWarp()) has no temperature; use sampler=… to choose one with a pick",
    ),
    ({"label": "sad"}, "label", "has no class 'sad'; it was trained without classes"),
    ({"label": 3}, "label", "label=3: it must be a text"),
    ({"temprature": 1}, "temprature", "temprature=… is not an argument here; did you mean temperature"),
    ({"max_tokens": 3, "gen_length": 3}, "gen_length", "max_tokens=… and gen_length=… mean the same"),
    ({"remasking": "best"}, "remasking", "remasking='best': choose from 'low_confidence', 'random'"),
    ({"cfg_scale": "x"}, "cfg_scale", "cfg_scale='x': it must be a number"),
    ({"alg_temp": 0.5}, "alg_temp", "the unmasking order is not sampled here"),
    ({"diffusion_seed_canvas": "x"}, "diffusion_seed_canvas", "call infill"),
]


@table(("options", "argument", "says"), WRONG)
def test_wrong_arguments_are_named(options: dict[str, Any], argument: str, says: str) -> None:
    with pytest.raises(ArgumentError) as error:
        redraft.generate(MODEL, "a", **options)
    assert error.value.argument == argument
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("model", "prompts", "says"),
    [
        (MODEL, [], "prompts=[]: give at least one text"),
        (MODEL, [None], "give a text or a list of texts"),
        (MODEL, "dog", "does not know 'dog'"),
        (3, "a", "int is not a model"),
        ("no/where", "a", "no/where"),
    ],
)
def test_wrong_models_and_prompts(model: Any, prompts: Any, says: str) -> None:
    with pytest.raises((ValueError, RuntimeError)) as error:
        redraft.generate(model, prompts, max_new_tokens=3)
    assert says in str(error.value)


def test_a_network_of_blocks_has_one_size() -> None:
    with pytest.raises(ArgumentError, match="decode_block=3: this network has blocks of 4; leave it out"):
        redraft.generate(KINDS["blocks"], "a", max_new_tokens=4, decode_block=3)
    assert isinstance(sampler_choice.choose_sampler(as_text_model(KINDS["blocks"]), GenerationSettings())[0], Blocks)


@pytest.mark.parametrize("kind", [GenerationSettings, InfillSettings])
def test_every_argument_says_what_it_is(kind: Any) -> None:
    names = [field.name for field in fields(kind) if field.name != "constraint"]  # a Python object: no flag can say it
    assert [argument.name for argument in arguments_of(kind)] == names
    for argument in arguments_of(kind):
        assert argument.setting.about.endswith(".")
