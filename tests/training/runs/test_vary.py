"""Variations of runs: what follows from a change follows, and a config of before must have said the same."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch

from redraft.core import CharTokenizer
from redraft.decoding import Blocks, SlidingWindow
from redraft.models import Causal, ConfigError, DiffusionLM
from redraft.models.checkpoints import serialization
from redraft.training import TINY, Run, presets
from redraft.training.runs import variations

LETTERS = CharTokenizer("abc", ("bos", "eos", "mask"))


TAGGERS = [name for name in TINY if "_tagger_" in name]


@pytest.mark.parametrize("name", TAGGERS)
def test_a_tagger_keeps_the_words_of_its_lexicon(name: str) -> None:
    with pytest.raises(ValueError, match=r"for others build it by vary\.with_tagger"):
        variations.with_tokenizer(TINY[name](), LETTERS)


@pytest.mark.parametrize("name", [name for name in TINY if name not in TAGGERS])
def test_the_model_follows_any_tokenizer(name: str) -> None:
    run = variations.with_tokenizer(TINY[name](), LETTERS)
    assert (run.model.vocab, run.tokenizer.vocab) == (LETTERS.vocab, LETTERS.vocab)
    with torch.device("meta"):
        model = DiffusionLM(run.model)
    said = model.network.output if model.encoder is None else model.encoder.embedding
    assert said is not None
    if run.model.codec is None or run.model.encoder is not None:
        assert len(said.weight) == LETTERS.vocab.size


def test_a_start_token_of_another_vocabulary_is_forgotten() -> None:
    run = variations.with_network(presets.ar_tiny(), pattern=Causal(7))
    assert run.model.ports.start == 7
    assert variations.with_tokenizer(run, LETTERS).model.ports.start == LETTERS.vocab.mask


def test_the_network_follows_its_encoder_and_its_hints() -> None:
    genie, words = presets.genie_tiny(), presets.tencdm_tiny()
    assert genie.model.encoder is not None
    wide = variations.with_model(genie, encoder=replace(genie.model.encoder, width=24, heads=2))
    assert (wide.model.ports.cross, variations.with_model(genie, encoder=None).model.ports.cross) == (24, None)
    assert words.model.ports.reads == 2 * variations.with_model(words, hint=False).model.ports.reads


def test_noise_of_tokens_has_no_levels() -> None:
    with pytest.raises(ValueError, match="Masked is not Gaussian noise"):
        variations.with_schedule(presets.mdlm_tiny(), presets.TINY["d3pm_tiny"]().model.process.schedule)  # type: ignore[attr-defined]


# --- configs of before ---


def before(run: Run) -> dict[str, Any]:
    """The config of a run as it was while sizes were stored."""
    data, ports = deepcopy(serialization.to_json(run)), run.model.ports
    network, encoder, sampler = data["model"]["network"], data["model"]["encoder"], data["sampler"]
    del network["ids"]
    network |= {"vocab": ports.writes, "vectors": ports.reads if ports.vectors else None, "cross": ports.cross}
    if encoder is not None:
        encoder |= {"vocab": run.model.vocab.size, "vectors": None, "cross": None, "tied": True}
    if "start" in network["pattern"]:
        network["pattern"]["start"] = ports.start
    if isinstance(run.sampler, Blocks | SlidingWindow):
        sampler["stop"] = run.model.vocab.eos if run.sampler.stop else None
    return data


@pytest.mark.parametrize("name", TINY)
def test_a_run_of_before_is_the_same_run(name: str) -> None:
    run = TINY[name]()
    assert serialization.from_json(before(run)) == run
    assert run.is_held(before(run))


def test_spare_rows_and_another_start_token_are_kept() -> None:
    old = before(presets.ar_tiny())
    network = old["model"]["network"]
    network["vocab"], network["pattern"]["start"] = 1024, 3
    found = serialization.from_json(old).model
    assert (found.network.ids, found.network.pattern) == (1024, Causal(3))
    assert DiffusionLM(found).network.embedding.weight.shape == (1024, found.network.width)


@pytest.mark.parametrize(
    ("name", "part", "size", "message"),
    [
        ("mdlm_tiny", "network", {"vocab": 12}, "the network was stored with vocab=12, but .* needs"),
        ("mdlm_tiny", "network", {"vectors": 8}, "stored with vectors=8, but .* needs None"),
        ("mdlm_tiny", "network", {"cross": 8}, "stored with cross=8, but .* needs None"),
        ("diffusion_lm_tiny", "network", {"vectors": 31}, "stored with vectors=31, but .* needs 32"),
        ("diffusion_lm_tiny", "network", {"vocab": 9999}, "stored with vocab=9999, but"),
        ("genie_tiny", "network", {"cross": 64}, "stored with cross=64, but .* needs 128"),
        ("genie_tiny", "encoder", {"vocab": 12}, "the encoder was stored with vocab=12, but"),
    ],
)
def test_a_config_that_contradicts_itself_is_refused(name: str, part: str, size: dict[str, int], message: str) -> None:
    old = before(TINY[name]())
    old["model"][part] |= size
    with pytest.raises(ConfigError, match=message):
        serialization.from_json(old)


def test_an_end_token_that_is_none_is_refused() -> None:
    old = before(presets.bd3_tiny())
    old["sampler"]["stop"] = 3
    with pytest.raises(ConfigError, match="stored with stop=3, but the end token is"):
        serialization.from_json(old)
