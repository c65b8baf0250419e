"""Probes: classes that the states tell, classes that they cannot tell, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from redraft.apps.cli import main
from redraft.core import Batch, Condition
from redraft.evaluation import linear_probe, tuned_probe, window_batch
from redraft.models import DiffusionLM
from redraft.tasks.embedding import mean_states
from redraft.training import LabeledRows, StoryClasses, first_batches, load_rows, presets
from redraft.training.runs import variations


def batches(split: str, count: int = 96) -> list[Batch]:
    run = presets.mdlm_tiny()
    return first_batches(load_rows(StoryClasses("plot"), split, run.tokenizer, LabeledRows(68)), count, 32)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["mdlm_tiny", "ar_tiny", "bd3_tiny", "udlm_tiny"])
def test_states_of_any_network_of_tokens_tell_words_apart(name: str) -> None:
    """Even random states do: the plot is told by its verb, and the mean of random vectors still has it."""
    run = presets.PRESETS[name]()
    torch.manual_seed(0)
    model = DiffusionLM(run.model, run.tokenizer)
    found = linear_probe(model, batches("train"), batches("test", 64), decay=1e-3)
    assert (found.rows, found.classes) == (64, 3)
    assert found.accuracy > max(0.6, found.majority)
    shuffled = [
        Batch(b.tokens, b.learn, b.pad, condition=Condition(label=b.condition.label.flip(0)))
        for b in batches("train")
        if b.condition.label is not None
    ]
    assert linear_probe(model, shuffled, batches("test", 64)).accuracy < 0.6, "classes that nothing tells"


def test_tuning_changes_a_copy() -> None:
    run = variations._shrunken(presets.mdlm_tiny())
    torch.manual_seed(0)
    model = DiffusionLM(run.model, run.tokenizer)
    before = {name: p.clone() for name, p in model.named_parameters()}
    found = tuned_probe(model, batches("train"), batches("test", 64), steps=30, rate=3e-3)
    assert found.accuracy > found.majority
    assert all(torch.equal(before[name], p) for name, p in model.named_parameters())


def test_a_window_hides_the_rest() -> None:
    run = variations._shrunken(presets.mdlm_tiny())
    torch.manual_seed(0)
    model, vocab, (batch, *_) = DiffusionLM(run.model, run.tokenizer).eval(), run.tokenizer.vocab, batches("test", 32)
    for window in ({"first": 5, "last": None}, {"first": None, "last": 5}):
        seen = window_batch(batch, vocab, **window)
        assert bool((seen.learn.sum(-1) == 5).all())
        other = Batch(torch.where(seen.learn, batch.tokens, 7), seen.learn, seen.pad)
        assert torch.allclose(mean_states(model, seen), mean_states(model, other), atol=1e-6)
    assert not bool((batch.tokens == vocab.eos)[window_batch(batch, vocab, None, None).learn].any())


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["probe", "story", "--train", "64", "--test", "32", "--tune", "2", "--json"])
    linear, tuned = map(json.loads, capsys.readouterr().out.splitlines())
    assert (linear["way"], tuned["way"], linear["rows"], linear["classes"]) == ("linear", "tuned", 32, 6)
    texts = [{"text": f"{name} felt sad.", "label": name} for name in ("Clara", "Bruno")] * 40
    (tmp_path / "names.jsonl").write_text("\n".join(map(json.dumps, texts)))
    main(["probe", "story", "--data", str(tmp_path / "names.jsonl"), "--train", "40", "--test", "4"])
    assert capsys.readouterr().out.startswith("linear: 100.0%")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["story", "--topic", "color"], "--topic color"),
        (["story", "--first", "3", "--last", "3"], "give one of them"),
        (["story", "--train", "0"], "--train 0"),
        (["nowhere"], "nowhere is not a directory"),
        (["story", "--data", "nothing.jsonl"], "nothing.jsonl"),
    ],
)
def test_wrong_probes_are_refused(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["probe", *words])
    assert end.value.code == 2
    assert said in capsys.readouterr().err
