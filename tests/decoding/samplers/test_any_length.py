"""Networks of blocks write rows far longer than those they have learned from, if their positions are rotary alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from redraft import tasks
from redraft.apps.cli import main
from redraft.core import Masked, rng
from redraft.decoding import Ancestral, Blocks, Sampler, final_canvas
from redraft.models import DiffusionLM
from redraft.training import DocumentRows, Run, fit, load, presets

LEARNED, LONG = 16, 72  # tokens of a row: in training, and to be written
SAMPLERS: dict[str, Sampler] = {"bd3_tiny": Ancestral(3), "ar_tiny": Ancestral(1)}
both = pytest.mark.parametrize("name", list(SAMPLERS))


def small(name: str) -> Run:
    """Two steps on short rows."""
    base = presets.TINY[name]()
    network = replace(base.model.network, width=16, layers=1, heads=2, hidden=16, positions=None, rotary=10_000.0)
    model = replace(base.model, network=network)
    short = replace(base, model=model, framing=DocumentRows(LEARNED), steps=2, batch=2, eval_rows=2, samples=0)
    return replace(short, sampler=Blocks(SAMPLERS[name]))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    where = {name: tmp_path_factory.mktemp("runs") / name for name in SAMPLERS}
    for name, out in where.items():
        fit(small(name), out, quiet=True)
    return where


def filled(model: DiffusionLM, blocks: Blocks, new: int) -> Tensor:
    return final_canvas(blocks(model, model.process, model.canvas("One spring day,", new=new, rows=2), rng=rng(1, 2))).z


@both
def test_long_rows_are_written_and_the_cache_is_exact(trained: dict[str, Path], name: str) -> None:
    model, inner = load(trained[name]), SAMPLERS[name]
    cached, read_again = (filled(model, Blocks(inner, cache=cache), LONG) for cache in (True, False))
    assert torch.equal(cached, read_again)
    assert cached.shape == (2, 4 + LONG)
    assert model.config.vocab.mask not in cached


@both
def test_a_longer_text_begins_as_the_shorter_one(trained: dict[str, Path], name: str) -> None:
    """What is to come changes nothing; 4 + 36 tokens are whole blocks."""
    model, blocks = load(trained[name]), Blocks(SAMPLERS[name])
    assert torch.equal(filled(model, blocks, LONG)[:, :40], filled(model, blocks, 36))


@both
def test_a_stop_token_ends_long_rows(trained: dict[str, Path], name: str) -> None:
    """The rows are the same up to it, and nobody writes the rest."""
    model, inner = load(trained[name]), SAMPLERS[name]
    free = filled(model, Blocks(inner), LONG)
    stop = int(free[0, 24])
    ended = replace(model.config.vocab, eos=stop)  # no matter which token it is
    model.config = replace(model.config, process=Masked(ended))
    stopped = filled(model, Blocks(inner, stop=True), LONG)
    for with_stop, without in zip(stopped.tolist(), free.tolist(), strict=True):
        end = without.index(stop, 4) if stop in without[4:] else len(without)
        assert with_stop == without[:end] + [stop] * (len(without) - end)
    alone = model.canvas("One spring day,", new=LONG)
    calls = [tasks.sample_canvases(model, Blocks(inner, stop=stop), alone, seed=1).nfe for stop in (False, True)]
    assert calls[1] < calls[0] / 2


@both
def test_the_command_line_writes_long_rows(
    trained: dict[str, Path], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["generate", str(trained[name]), "One spring day,", "--new", str(LONG), "--seed", "1", "--json"])
    said = capsys.readouterr()
    model = load(trained[name])
    canvas = model.canvas("One spring day,", new=LONG)
    assert json.loads(said.out)["text"] == tasks.sample_canvases(model, Blocks(SAMPLERS[name]), canvas, seed=1).texts[0]
    assert f"{4 + LONG} tokens are more than the {LEARNED} of the rows this model was trained on" in said.err


@both
def test_learned_positions_end_somewhere(name: str) -> None:
    run = presets.TINY[name]()
    model = DiffusionLM(run.model, run.tokenizer)
    with pytest.raises(ValueError, match=r"this network has 69 positions; use fewer tokens"):
        filled(model, Blocks(SAMPLERS[name]), LONG)
