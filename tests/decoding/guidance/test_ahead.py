"""Looking ahead (FUDGE): with the exact future it writes p(x | y) itself, with a cache and without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from redraft.core import Canvas, Context, Masked, Prediction, rng
from redraft.decoding import Ancestral, Blocks, GuidedSampler, LookAhead, final_canvas
from redraft.evaluation import VOCAB, Oracle
from redraft.evaluation.laws.enumeration import _WORDS, ToyLanguage
from redraft.models import DiffusionLM, FutureTagger, TaggerConfig
from redraft.training import presets
from redraft.training.runs import variations

PValue = Callable[[Tensor, Tensor], float]
PROCESS, TOY = Masked(VOCAB), ToyLanguage.of()
DRAWS = 3_000
ODD = TOY.sequences.sum(-1) % 2 == 1


@dataclass(frozen=True)
class Writer:
    """The exact denoiser, which is asked from left to right."""

    block: int | None = 1

    def predict(self, z: Tensor, t: Tensor, context: Context) -> Prediction:
        return Oracle(TOY, PROCESS).predict(z, t, context)

    def absorb(self, z: Tensor, context: Context, t: Tensor | None = None) -> Context:
        return context


def future(prefix: Tensor, candidates: Tensor) -> Tensor:
    """log p(the sum will be odd | prefix, candidate), by enumeration"""
    n = prefix.shape[1]
    begins = (TOY.sequences[:, :n] == prefix[:, None]).all(-1)[:, None] & (TOY.sequences[:, n] == candidates[..., None])
    return ((begins * (TOY.p * ODD)).sum(-1) / (begins * TOY.p).sum(-1)).log().nan_to_num(0.0, neginf=-torch.inf)


def test_the_exact_future_gives_the_exact_conditional(p_value: PValue) -> None:
    z = torch.zeros(DRAWS, TOY.sequences.shape[1], dtype=torch.int64)
    blank = Canvas(z, torch.zeros_like(z, dtype=torch.bool))
    sampler = GuidedSampler(Blocks(Ancestral(1), cache=False), LookAhead(future, top=_WORDS, least=0.0))
    written = final_canvas(sampler(Writer(), PROCESS, blank, rng=rng(3, DRAWS))).z
    found = (written * _WORDS ** torch.arange(z.shape[1] - 1, -1, -1)).sum(-1).bincount(minlength=len(TOY.p))
    assert int(found[~ODD].sum()) == 0, "what cannot become odd is never written"
    expected = TOY.p[ODD] / TOY.p[ODD].sum() * DRAWS
    kept = expected >= 5
    observed = found[ODD][kept]
    assert p_value(observed, expected[kept] * observed.sum() / expected[kept].sum()) > 1e-4


def test_a_cache_changes_no_text() -> None:
    run = variations._shrunken(presets.ar_tagger_tiny())
    torch.manual_seed(0)
    model = DiffusionLM(run.model, run.tokenizer).eval()
    tags = run.model.part(TaggerConfig)
    assert tags is not None
    wanted = torch.arange(12) % len(tags.names)
    guidance = LookAhead(model.part(FutureTagger).log_prob(wanted), 2.0, top=5, least=0.0)
    texts = [
        final_canvas(
            GuidedSampler(Blocks(Ancestral(1), cache=cache), guidance)(
                model, model.process, model.canvas(new=10, rows=3), rng=rng(1, 3)
            )
        ).z
        for cache in (True, False)
    ]
    assert torch.equal(*texts)


def test_few_candidates_are_tried_and_none_where_one_is_certain() -> None:
    asked: list[int] = []

    def count(prefix: Tensor, candidates: Tensor) -> Tensor:
        asked.append(candidates.shape[1])
        return torch.zeros(candidates.shape)

    z = torch.full((1, TOY.sequences.shape[1]), VOCAB.masked)
    where = torch.zeros_like(z, dtype=torch.bool)
    where[0, 0] = True
    pred = LookAhead(count, top=2, least=0.0)(Writer()).predict(z, torch.ones(1, 1), Context())
    assert int((pred.at(where) > -torch.inf).sum()) == 2
    assert asked == [2]
    certain = LookAhead(count, least=1.0)(Writer()).predict(z, torch.ones(1, 1), Context()).at(where)
    assert asked == [2], "nothing is asked of a certain word"
    assert float(certain.max()) == 0.0


def test_errors() -> None:
    with pytest.raises(ValueError, match="LookAhead needs a causal network"):
        LookAhead(future)(replace(Writer(), block=None))
    with pytest.raises(ValueError, match="top=0"):
        LookAhead(future, top=0)
    denoise = LookAhead(future)(Writer())
    with pytest.raises(ValueError, match="rows with padding"):
        denoise.absorb(torch.zeros(1, 1, dtype=torch.int64), Context(pad=torch.ones(1, 1, dtype=torch.bool)))
