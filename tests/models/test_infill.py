"""Holes with given text behind them: no text ends there, so nothing that is given is dropped."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from redraft.core import (
    ByteTokenizer,
    Canvas,
    CappedRate,
    CharTokenizer,
    Gaussian,
    HybridNoise,
    Insertion,
    Interpolating,
    Markov,
    Masked,
    Process,
    Special,
    Tokenizer,
    TokenProcess,
    WordTokenizer,
    rng,
    train_bpe,
)
from redraft.decoding import (
    Ancestral,
    AnyOrder,
    Blocks,
    Confidence,
    ConstantScore,
    Entropy,
    FirstHitting,
    GuidedStar,
    Margin,
    Sampler,
    SlidingWindow,
    Unmask,
    WithRemasking,
    final_canvas,
)
from redraft.models import (
    AttentionPattern,
    BlockCausal,
    Causal,
    DiffusionLM,
    DiffusionLMConfig,
    Embedding,
    Full,
    Head,
    PredictX,
    Softmax,
    Subs,
    TransformerConfig,
)

ALL: tuple[Special, ...] = ("bos", "eos", "pad", "mask")
TEXT = "it was a day, and it was a good day."
LETTERS = CharTokenizer("abcdefghijklmnopqrstuvwxyz ,.", ALL)
TOKENIZERS = [
    LETTERS,
    WordTokenizer(("it", "was", "a", "good", "day", "."), ALL),
    ByteTokenizer(ALL),
    train_bpe([TEXT] * 9, 290, ALL),
]
TEMPLATE, WHOLE = "it was a [[4]] day.[[3]]", re.compile(r"it was a.* ?day\.", re.DOTALL)
ROWS = 20


@dataclass(frozen=True)
class Impatient(Head):
    """Another head, which wants to end the text everywhere."""

    head: Head = Subs()

    def estimate(self, raw: Tensor, z: Tensor, t: Tensor, process: Process) -> Tensor:
        ends = torch.isin(torch.arange(raw.shape[-1]), torch.tensor(process.vocab.ends))
        return self.head.estimate(raw + 20.0 * ends, z, t, process)


def model_of(
    tokenizer: Tokenizer, process: TokenProcess | None = None, head: Head = Subs(), pattern: AttentionPattern = Full()
) -> DiffusionLM:
    process = process or Masked(tokenizer.vocab)
    network = TransformerConfig(width=16, layers=1, heads=2, hidden=32, pattern=pattern)
    if isinstance(process, Insertion):
        network = replace(network, time=8, gaps=12)
    torch.manual_seed(0)
    return DiffusionLM(DiffusionLMConfig(process, network, Impatient(head)), tokenizer)


def filled(model: DiffusionLM, sampler: Sampler, template: str = TEMPLATE) -> tuple[Canvas, list[str]]:
    canvas = model.compose([template] * ROWS)
    end = final_canvas(sampler(model, model.process, canvas, rng=rng(0, ROWS)))
    return end, model.text(end)


def ends_of(model: DiffusionLM, canvas: Canvas, columns: slice) -> int:
    return int(torch.isin(canvas.z[:, columns], torch.tensor(model.config.vocab.ends)).sum())


SAMPLERS: list[Sampler] = [
    Ancestral(6),
    FirstHitting(),
    *(Unmask(3, pick) for pick in (AnyOrder(), Confidence(), Confidence(1.0), Margin(), Entropy(1.0))),
    Blocks(Unmask(2), decode_block=3),
    SlidingWindow(Ancestral(3), window=12, stride=6),
    WithRemasking(Ancestral(6), CappedRate(0.1)),
    GuidedStar(6, ConstantScore()),
]


@pytest.mark.parametrize("tokenizer", TOKENIZERS, ids=lambda tokenizer: type(tokenizer).__name__)
@pytest.mark.parametrize("sampler", SAMPLERS, ids=repr)
def test_given_text_is_kept_whole(tokenizer: Tokenizer, sampler: Sampler) -> None:
    model = model_of(tokenizer)
    canvas, texts = filled(model, sampler)
    assert [text for text in texts if not WHOLE.match(text)] == []
    begin, behind = len(tokenizer.encode("it was a ")) + 1, canvas.z.shape[1] - 3
    assert ends_of(model, canvas, slice(begin, behind)) == 0
    assert ends_of(model, canvas, slice(behind, None)) > ROWS, "where nothing follows, the text may end"


NOISES: list[tuple[TokenProcess, Head, AttentionPattern, Sampler]] = [
    (Interpolating(LETTERS.vocab), Softmax(), Full(), Ancestral(8)),
    (Interpolating(LETTERS.vocab, mixing=HybridNoise(0.2)), Subs(carry_over=False), Full(), Ancestral(8)),
    (Markov(LETTERS.vocab), Softmax(), Full(), Ancestral(8)),
    (Masked(LETTERS.vocab), Subs(), BlockCausal(4), Blocks(Ancestral(4), stop=True)),
    (Masked(LETTERS.vocab), Subs(), BlockCausal(4), Blocks(Ancestral(4), cache=False)),
    (Masked(LETTERS.vocab), Subs(), Causal(LETTERS.vocab.bos or 0), Blocks(Ancestral(1), stop=True)),
]


@pytest.mark.parametrize(("process", "head", "pattern", "sampler"), NOISES, ids=repr)
def test_so_does_any_noise_and_any_order(
    process: TokenProcess, head: Head, pattern: AttentionPattern, sampler: Sampler
) -> None:
    model = model_of(LETTERS, process, head, pattern)
    canvas, texts = filled(model, sampler)
    assert [text for text in texts if not WHOLE.match(text)] == []
    assert ends_of(model, canvas, slice(1, canvas.z.shape[1] - 3)) == 0


@pytest.mark.parametrize("sampler", [Ancestral(12), Unmask(12)], ids=repr)
def test_so_do_texts_that_grow(sampler: Sampler) -> None:
    """Holes of a known and of any length; what follows moves right, and the text still goes on before it."""
    model = model_of(LETTERS, Insertion(LETTERS.vocab))
    with torch.no_grad():  # some gaps of about one token, as after training
        model.network.gaps.output.bias.fill_(-1.5)  # type: ignore[union-attr]
    _, texts = filled(model, sampler, "it was a [[*]] day [[2]]. and[[*]]")
    shape = re.compile(r"it was a .* day ..\. and", re.DOTALL)
    assert [text for text in texts if not shape.match(text)] == []
    assert len({len(text) for text in texts}) > 2, "holes of different lengths"


def test_vectors_read_as_an_end_drop_nothing() -> None:
    network = TransformerConfig(width=16, layers=1, heads=2, hidden=32, time=8)
    config = DiffusionLMConfig(Gaussian(LETTERS.vocab), network, PredictX(), codec=Embedding(8))
    model = DiffusionLM(config, LETTERS)
    canvas = model.to_tokens(model.compose(["a[[3]]b[[2]]"]))
    z = canvas.z.masked_fill(~canvas.fixed, LETTERS.vocab.eos or 0)
    assert model.text(replace(canvas, z=z)) == ["ab"]


def test_a_text_may_end_where_nothing_is_given() -> None:
    inside = model_of(LETTERS).compose(["it [[1]]was[[2]]", "[[2]]"]).context.constraints.no_end_token
    assert inside is not None
    assert inside.nonzero().tolist() == [[0, 4]]
