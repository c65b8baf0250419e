"""LLaDA's fine-tuning in small: the prompt by its template, end tokens learned, random lengths; asked and judged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from redraft.apps import cli
from redraft.core import HubTokenizer, WordTokenizer, prompt_ids, question_encoder, rng
from redraft.core.text.chat_template import _ChatError
from redraft.models import DiffusionLM, blank_canvas
from redraft.tasks import ArgumentError, TextModel, generate
from redraft.training import (
    ChatRows,
    DataError,
    Objective,
    Run,
    StoryAttributes,
    TokenCrossEntropy,
    export,
    load_rows,
    presets,
)

QUESTION = "who Leo, friend Carl, where river, season summer, mood tired, plot help"


@pytest.fixture(scope="module")
def run() -> Run:
    return presets.llada_chat_tiny()


@pytest.fixture(scope="module")
def hub(run: Run) -> HubTokenizer:
    assert isinstance(run.tokenizer, HubTokenizer)
    return run.tokenizer


def test_a_row_is_prompt_answer_and_end_tokens(run: Run, hub: HubTokenizer) -> None:
    """The prompt is what the template makes of the message; the rest is learned, end tokens included."""
    pair = run.data.pair("train", 0)  # type: ignore[union-attr]
    prompt = prompt_ids(hub, [{"role": "user", "content": pair.source}])
    row = load_rows(run.data, "train", hub, replace(run.framing, shorten=0.0)).take([0])  # type: ignore[type-var]
    ids, learn = row.tokens[0].tolist(), row.learn[0]
    assert ids[: len(prompt)] == prompt
    assert not learn[: len(prompt)].any()
    assert learn[len(prompt) :].all()
    answer = hub.encode(pair.target)
    assert ids[len(prompt) :] == answer + [hub.vocab.eos] * (run.framing.length - len(prompt) - len(answer))
    assert hub.decode(answer) == pair.target, "words come back as they were"


def test_questions_are_prompts(hub: HubTokenizer) -> None:
    """Rendered once for all questions, or for each: the same ids; special tokens that are spelled out stay text."""
    ask = question_encoder(hub)
    for text in (QUESTION, f" {QUESTION} ", "", "who <|eot_id|> Leo"):
        assert ask(text) == prompt_ids(hub, [{"role": "user", "content": text}])
    assert ask("<|eot_id|>").count(hub.id_of("<|eot_id|>") or 0) == 1


def test_a_share_of_the_rows_is_cut(run: Run, hub: HubTokenizer) -> None:
    rows = load_rows(run.data, "train", hub, replace(run.framing, shorten=0.5))  # type: ignore[type-var]
    batch, again = rows.take(range(200)), rows.take(range(200))
    assert batch.pad is not None
    assert torch.equal(batch.tokens, again.tokens), "the same row is cut at the same place"
    sizes = (~batch.pad).sum(-1)
    cut = sizes < run.framing.length
    assert 70 < int(cut.sum()) < 130
    assert int(sizes.min()) >= 26, "some of the answer is left"
    assert len(set(sizes[cut].tolist())) > 30
    assert not (batch.learn & batch.pad).any()


def test_only_the_answer_is_noised_and_learned(run: Run) -> None:
    torch.manual_seed(0)
    model = DiffusionLM(run.model, run.tokenizer)
    batch = load_rows(run.data, "train", run.tokenizer, run.framing).take(range(4))
    loss = Objective(TokenCrossEntropy())(model, batch, rng=rng(0, 4))
    assert loss.count.tolist() == batch.learn.sum(-1).tolist()
    assert blank_canvas(model, batch).z[~batch.learn].tolist() == batch.tokens[~batch.learn].tolist()


def test_it_is_asked_and_judged(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By the command line: a question as source, `eval` with facts, and a task of lm-eval as chat."""
    torch.manual_seed(0)
    model = DiffusionLM(run.model, run.tokenizer)
    export(tmp_path / "chat", model, run)
    cli.main(["eval", str(tmp_path / "chat"), "--rows", "2", "--draws", "1", "--samples", "2", "--json"])
    found = {row["name"]: row["value"] for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert found.keys() >= {"bits_per_token", "facts", "exact", "nfe"}
    (written,) = generate(TextModel(model, run), source=QUESTION, max_new_tokens=5)
    prompt = prompt_ids(run.tokenizer, [{"role": "user", "content": QUESTION}])  # type: ignore[arg-type]
    assert sum(written.given) == len(prompt) - 1, "all but the start token"
    with pytest.raises(ValueError, match="needs a source"):
        generate(TextModel(model, run))


def test_wrong_tokenizers_and_lengths(run: Run, hub: HubTokenizer) -> None:
    with pytest.raises(DataError, match="chat template"):
        load_rows(run.data, "train", WordTokenizer(("a",), ("bos", "eos", "mask")), run.framing)
    with pytest.raises(DataError, match="leaves no room"):
        load_rows(run.data, "train", hub, ChatRows(20)).take([0])
    with pytest.raises(ValueError, match="shorten=2"):
        ChatRows(20, shorten=2)
    with pytest.raises(_ChatError, match="does not contain each message exactly once"):
        question_encoder(replace(hub, template="nothing"))
    with pytest.raises(DataError, match="no pairs"):
        load_rows(presets.mdlm_tiny().data, "train", hub, run.framing)
    assert isinstance(run.data, StoryAttributes)


@pytest.mark.parametrize(("end", "alias"), [("last", "confidence_eos_eot_inf"), ("never", "logits_eos_inf")])
def test_end_tokens_are_written_last_or_never(run: Run, end: str, alias: str) -> None:
    """LLaDA's two answers to models that would rather end than write, by our name and by its own."""
    torch.manual_seed(0)
    model = DiffusionLM(run.model, run.tokenizer)
    for weight in model.parameters():
        torch.nn.init.normal_(weight, 0, 0.3)
    eos, eot = run.tokenizer.vocab.eos, run.tokenizer.id_of("<|eot_id|>")  # type: ignore[union-attr]
    with torch.no_grad():
        model.network.embedding.weight[[eos, eot]] *= 3  # type: ignore[list-item]
        if model.network.output is not None:
            model.network.output.weight[[eos, eot]] *= 3  # type: ignore[list-item]
    it = TextModel(model, run)
    how = {"source": QUESTION, "max_new_tokens": 12, "n": 8, "decode_block": 12, "steps": 12, "temperature": 1.0}
    free, ours, theirs = (generate(it, **how, **more) for more in ({}, {"end_token": end}, {alias: True}))
    assert ours.texts == theirs.texts
    assert any(text.stop == "end" for text in free), "else nothing is tested"
    assert ours.texts != free.texts
    if end == "never":
        assert all(text.stop == "length" for text in ours)
    with pytest.raises(ArgumentError, match=f"{alias}=3: it must be True or False"):
        generate(it, source=QUESTION, **{alias: 3})
    with pytest.raises(ArgumentError, match="end_token='soon': choose from 'free', 'last', 'never'"):
        generate(it, source=QUESTION, end_token="soon")
    with pytest.raises(ArgumentError, match="end_token='last' needs the sampler confidence, margin or entropy"):
        generate(it, source=QUESTION, end_token="last", sampler="ancestral")
