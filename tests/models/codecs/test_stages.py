"""Latent diffusion in two runs: the codec, then the diffusion of what it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from redraft.core import Gaussian, WordTokenizer, rng
from redraft.decoding import Ancestral
from redraft.models import (
    CheckpointError,
    Compressed,
    Contextual,
    DiffusionLM,
    DiffusionLMConfig,
    Embedding,
    EmbeddingCodec,
    MaskedLM,
    MiniLM,
    PredictX,
    TransformerConfig,
    TransformerSize,
)
from redraft.models.codecs.embedding import cooccurrence_vectors
from redraft.training import (
    CodecObjective,
    DocumentRows,
    Objective,
    OptimizerConfig,
    Run,
    TextFiles,
    export,
    first_batches,
    fit,
    load_rows,
    presets,
    reconstruction_accuracy,
)
from redraft.training.runs import variations
from redraft.training.runs.loading import (
    init_from,
)

NAMES = ("tencdm", "ld4tg", "planner", "cosmos")


@pytest.mark.parametrize("name", NAMES)
def test_both_stages_have_the_same_model(name: str) -> None:
    first, second = presets.PRESETS[f"{name}_codec_tiny"](), presets.PRESETS[f"{name}_tiny"]()
    assert first.model == second.model
    assert isinstance(first.objective, CodecObjective)
    assert isinstance(second.objective, Objective)
    assert (first.base, second.base) == (None, f"runs/{name}_codec_tiny")


@pytest.mark.parametrize("name", ["tencdm", "ld4tg"])
def test_published_recipes_name_their_codec_and_its_encoder(name: str) -> None:
    words = WordTokenizer(tuple(f"w{i}" for i in range(30_518)))
    first, second = (presets.PRESETS[f"{name}{part}_roc"](words) for part in ("_codec", ""))
    assert first.model == second.model
    assert second.base == f"runs/{name}_codec_roc"
    codec = second.model.codec
    assert isinstance(codec, Contextual | Compressed)
    assert codec.encoder == MiniLM()


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A vocabulary of four words, rows of eight, everything narrow."""
    words, small, file = WordTokenizer(tuple("abcd")), TransformerSize(8, 1, 2), tmp_path / "texts"
    file.write_text("a b c d\n\nb b a\n\nd c a b\n\n" * 4)
    network = TransformerConfig(width=8, layers=1, heads=2, time=8)
    codec = Contextual(MaskedLM(8, small), 8, small)
    return Run(
        model=DiffusionLMConfig(Gaussian(words.vocab), network, PredictX(), codec=codec, self_conditioning=True),
        data=TextFiles((str(file),), valid=(str(file),)),
        tokenizer=words,
        framing=DocumentRows(8, fill_with_eos=True),
        sampler=Ancestral(2),
        steps=2,
        batch=4,
        eval_rows=4,
        samples=1,
    )


def test_the_second_stage_keeps_the_codec_of_the_first(run: Run, tmp_path: Path) -> None:
    told: list[dict[str, Any]] = []
    with pytest.raises(CheckpointError, match="train it first"):
        fit(variations.diffusion_stage(run, str(tmp_path / "codec")), tmp_path / "early", quiet=True)
    first = fit(variations.codec_stage(run), tmp_path / "codec", quiet=True, tell=told.append)
    rows = first_batches(load_rows(run.data, "valid", run.tokenizer, run.framing), run.eval_rows)
    assert told[-1] == {"step": 2, "valid_reconstruction": reconstruction_accuracy(first, rows)}
    second = fit(variations.diffusion_stage(run, str(tmp_path / "codec")), tmp_path / "diffusion", quiet=True)
    before, after = dict(first.named_parameters()), dict(second.named_parameters())
    same = {name for name, p in after.items() if p.equal(before[name])}
    assert {name for name in after if name.startswith("codec.")} <= same
    assert {name for name in after if name.startswith("network.blocks.")} - same  # these were trained


def test_training_leaves_out_what_a_finished_codec_cannot_learn(run: Run) -> None:
    """The reconstruction is part of the bound, but not of a training step: it has no gradient and costs a pass."""
    model = DiffusionLM(run.model, run.tokenizer)
    (rows,) = first_batches(load_rows(run.data, "valid", run.tokenizer, run.framing), run.eval_rows)
    assert "reconstruction" not in Objective()(model.train(), rows, rng=rng(0, len(rows.tokens))).parts
    assert "reconstruction" in Objective()(model.eval(), rows, rng=rng(0, len(rows.tokens))).parts


def test_a_base_without_a_codec_is_refused(run: Run, tmp_path: Path) -> None:
    plain, model = presets.mdlm_tiny(), DiffusionLM(variations.diffusion_stage(run, "unused").model, run.tokenizer)
    base = export(tmp_path / "plain", DiffusionLM(plain.model, plain.tokenizer))
    with pytest.raises(
        CheckpointError, match="cannot be the base of this model: it has no codec; build both with the same config"
    ):
        init_from(model, base, model.codec)


def test_a_training_begins_with_a_survey_and_a_resumed_one_does_not(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    surveys: list[EmbeddingCodec] = []
    survey = EmbeddingCodec.fit_statistics
    monkeypatch.setattr(EmbeddingCodec, "fit_statistics", lambda self, rows: (surveys.append(self), survey(self, rows)))
    codec, still = Embedding(8, neighbor_fraction=0.5), OptimizerConfig(lr=0.0)
    model = DiffusionLMConfig(Gaussian(run.tokenizer.vocab), run.model.network, PredictX(), codec=codec)
    run = replace(run, model=model, optimizer=still, samples=0)
    found = fit(run, tmp_path / "run", quiet=True).codec
    assert isinstance(found, EmbeddingCodec)
    assert len(surveys) == 1
    batches = first_batches(load_rows(run.data, "train", run.tokenizer, run.framing), 2000)
    kinds = cooccurrence_vectors(batches, run.tokenizer.vocab.size, 6) * (8 * 0.5) ** 0.5
    torch.testing.assert_close(found.table[:, :6], kinds)
    fit(run, tmp_path / "run", quiet=True)
    assert len(surveys) == 1
