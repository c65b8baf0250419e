"""Variations of runs: what follows from a change follows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from redraft.core import CharTokenizer
from redraft.models import Causal, DiffusionLM, SourceEncoder, SourceEncoderConfig
from redraft.training import (
    presets,
)
from redraft.training.presets import (
    TINY,
)
from redraft.training.runs import variations

LETTERS = CharTokenizer("abc", ("bos", "eos", "mask"))


TAGGERS = [name for name in TINY if "_tagger_" in name]


@pytest.mark.parametrize("name", TAGGERS)
def test_a_tagger_keeps_the_words_of_its_lexicon(name: str) -> None:
    with pytest.raises(ValueError, match=r"build the tags for this vocabulary with"):
        TINY[name]().with_tokenizer(LETTERS)


def test_the_model_follows_any_tokenizer() -> None:
    for name in (name for name in TINY if name not in TAGGERS):
        _follows_the_letters(name)


def _follows_the_letters(name: str) -> None:
    run = TINY[name]().with_tokenizer(LETTERS)
    assert (run.model.vocab, run.tokenizer.vocab) == (LETTERS.vocab, LETTERS.vocab)
    with torch.device("meta"):
        model = DiffusionLM(run.model)
    encodes = "encoder" in model.parts
    said = model.part(SourceEncoder).network.embedding if encodes else model.network.output
    assert said is not None
    if run.model.codec is None or encodes:
        assert len(said.weight) == LETTERS.vocab.size


def test_a_start_token_of_another_vocabulary_is_forgotten() -> None:
    run = variations.with_network(presets.ar_tiny(), pattern=Causal(7))
    assert run.model.io.start == 7
    assert run.with_tokenizer(LETTERS).model.io.start == LETTERS.vocab.mask


def test_the_network_follows_its_encoder_and_its_hints() -> None:
    genie, words = presets.genie_tiny(), presets.tencdm_tiny()
    encoder = genie.model.part(SourceEncoderConfig)
    assert encoder is not None
    wide = genie.model.with_part(SourceEncoderConfig(replace(encoder.network, width=24, heads=2)))
    assert (wide.io.cross, variations.with_model(genie, parts=()).model.io.cross) == (24, None)
    assert words.model.io.reads == 2 * variations.with_model(words, self_conditioning=False).model.io.reads


def test_noise_of_tokens_has_no_levels() -> None:
    with pytest.raises(ValueError, match="this schedule is for Gaussian noise, not Masked"):
        variations._with_schedule(presets.mdlm_tiny(), presets.TINY["d3pm_tiny"]().model.process.schedule)  # type: ignore[attr-defined]
