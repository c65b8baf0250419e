"""DiffusionLM: text to canvas and back, and a prediction that works only where it is asked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from redraft.core import Batch, Canvas, CharTokenizer, Context, Cosine, Linear, Masked, Precision, Vocab
from redraft.core.text.tokenizers import TEXT8
from redraft.models import (
    AttentionPattern,
    BlockCausal,
    Causal,
    ConditionOnSigma,
    ConditionOnTime,
    DiffusionLM,
    DiffusionLMConfig,
    Full,
    Shift,
    Softmax,
    Subs,
    TransformerConfig,
)

Build = Callable[..., DiffusionLM]
MASK = 6
texts = st.text(TEXT8, max_size=12)


@pytest.fixture(scope="module")
def writer(tiny: TransformerConfig) -> DiffusionLM:
    """A model that reads and writes text8, with all four special tokens."""
    tokenizer = CharTokenizer(TEXT8, ("bos", "eos", "pad", "mask"))
    network = tiny
    return DiffusionLM(DiffusionLMConfig(Masked(tokenizer.vocab), network), tokenizer)


# --- text ↔ canvas ---


@given(prompts=st.lists(texts, min_size=1, max_size=4), new=st.integers(1, 9))
def test_prompts_become_rows(writer: DiffusionLM, prompts: list[str], new: int) -> None:
    canvas, vocab = writer.canvas(prompts, new=new), writer.config.vocab
    assert canvas.z.shape == (len(prompts), 1 + max(map(len, prompts)) + new)
    assert set(canvas.z[:, 0].tolist()) == {vocab.bos}
    assert (~canvas.fixed).sum(-1).tolist() == [new] * len(prompts)
    assert set(canvas.z[~canvas.fixed].tolist()) == {vocab.mask}
    lengths = torch.tensor([1 + len(p) + new for p in prompts])
    pad = torch.arange(canvas.z.shape[1]) >= lengths[:, None]
    if canvas.context.pad is None:
        assert not pad.any(), "equal lengths need no padding"
    else:
        assert torch.equal(canvas.context.pad, pad)
    assert canvas.fixed[pad].all()
    assert set(canvas.z[pad].tolist()) <= {vocab.pad}
    assert writer.text(canvas) == [p + "▒" * new for p in prompts]


@given(pieces=st.lists(st.tuples(texts, st.integers(1, 5)), min_size=1, max_size=3), end=texts)
def test_holes_stand_where_they_were_cut(writer: DiffusionLM, pieces: list[tuple[str, int]], end: str) -> None:
    template = "".join(f"{text}[[{n}]]" for text, n in pieces) + end
    canvas = writer.compose([template])
    assert writer.text(canvas) == ["".join(text + "▒" * n for text, n in pieces) + end]
    assert int((~canvas.fixed).sum()) == sum(n for _, n in pieces)
    composed = writer.compose([[part for piece in pieces for part in piece] + [end]])
    assert torch.equal(composed.z, canvas.z)
    assert torch.equal(composed.fixed, canvas.fixed)


def test_ragged_rows_are_padded_at_the_end(writer: DiffusionLM) -> None:
    canvas = writer.compose(["a[[2]]b", "abc[[1]]", ""])
    assert (~canvas.fixed).nonzero().tolist() == [[0, 2], [0, 3], [1, 4]]
    assert canvas.context.pad is not None
    assert canvas.context.pad.sum(-1).tolist() == [0, 0, 4]
    assert writer.text(canvas) == ["a▒▒b", "abc▒", ""]


def test_one_prompt_may_start_several_rows(writer: DiffusionLM) -> None:
    for canvas in (writer.canvas("ab", new=3, rows=4), writer.compose(["ab[[3]]"] * 4)):
        assert canvas.z.shape == (4, 6)
        assert (canvas.z == canvas.z[0]).all()
    assert writer.canvas(new=3).z.shape == (1, 4), "no prompt at all"


def test_text_ends_at_the_end_sign(writer: DiffusionLM) -> None:
    canvas, vocab = writer.canvas("ab", new=4), writer.config.vocab
    assert vocab.eos is not None
    z = canvas.z.clone()
    z[0, 3:] = torch.tensor([3, vocab.eos, 4, 5])
    assert writer.text(canvas.write(z)) == ["abc"]


def test_a_vocabulary_without_signs(build: Build) -> None:
    """No bos, eos or pad: nothing is added, and padding, which is never read, is id 0."""
    model = build(tokenizer=CharTokenizer("abcdef"))
    canvas = model.compose(["ab[[1]]", "[[1]]"])
    assert canvas.z.tolist() == [[0, 1, MASK], [MASK, 0, 0]]
    assert model.text(canvas) == ["ab▒", "▒"]


@pytest.mark.parametrize("hole", ["x", "0", "", "-1", "1.5", "3 "])
def test_a_hole_without_a_length_is_refused(writer: DiffusionLM, hole: str) -> None:
    with pytest.raises(ValueError, match=r"has no length; write \[\[n\]\] for n tokens"):
        writer.compose([f"a[[{hole}]]b"])


def test_a_hole_of_any_length_is_for_insertion(writer: DiffusionLM) -> None:
    with pytest.raises(
        ValueError, match=r"needs an insertion model such as flex_tiny, but this model uses Masked; write"
    ):
        writer.compose(["a[[*]]b"])


def test_text_needs_a_tokenizer(build: Build) -> None:
    model = build()
    with pytest.raises(ValueError, match="this model has no tokenizer"):
        model.canvas("a", new=1)
    with pytest.raises(ValueError, match=r"read canvas\.z instead"):
        model.text(Canvas(torch.zeros(1, 2, dtype=torch.int64), torch.ones(1, 2, dtype=torch.bool)))


# --- the bundle ---


def test_a_network_has_an_input_and_an_output_for_each_state(tiny: TransformerConfig) -> None:
    for least, rows in ((None, 9), (7, 9), (16, 16)):
        network = DiffusionLM(DiffusionLMConfig(Masked(Vocab(9, mask=8)), replace(tiny, padded_vocab=least))).network
        assert network.output is not None
        assert len(network.embedding.weight) == len(network.output.weight) == rows


def test_a_causal_network_begins_with_the_mask_or_with_an_id_it_has(tiny: TransformerConfig) -> None:
    process, causal = Masked(Vocab(9, mask=8, bos=2)), replace(tiny, pattern=Causal())
    assert DiffusionLMConfig(process, causal).io.start == 8
    assert DiffusionLMConfig(process, replace(causal, pattern=Causal(2))).io.start == 2
    with pytest.raises(ValueError, match="start=9; the start token must be one of"):
        DiffusionLMConfig(process, replace(causal, pattern=Causal(9)))


def test_spare_outputs_of_a_network_are_no_states(build: Build, tiny: TransformerConfig) -> None:
    model = build(Full(), replace(tiny, padded_vocab=16))
    x = model.predict(torch.full((1, 3), MASK), torch.ones(1, 1)).x
    assert x.shape == (1, 3, 7)
    assert torch.allclose(x.exp().sum(-1), torch.ones(1, 3))


@pytest.mark.parametrize(("pattern", "block"), [(Full(), None), (BlockCausal(3), 3), (Causal(MASK), 1)])
def test_the_attention_says_how_many_tokens_are_written_at_a_time(
    build: Build, pattern: AttentionPattern, block: int | None
) -> None:
    model, tokens = build(pattern), torch.zeros(1, 6, dtype=torch.int64)
    assert model.block == block
    assert (model.read(Batch.of(tokens)).context.clean is None) == (block is None)
    if block is None:
        with pytest.raises(ValueError, match="no cache is exact"):
            model.absorb(tokens)
    else:
        cache = model.absorb(tokens).cache
        assert cache is not None
        assert cache.exact
        assert cache.covers.tolist() == [[True] * 6], "the start token of a causal network has no place in the row"


def test_times_have_two_dimensions(build: Build) -> None:
    model, z = build(), torch.zeros(2, 3, dtype=torch.int64)
    for t in (torch.ones(2), torch.ones(2, 2), torch.ones(1, 1)):
        with pytest.raises(ValueError, match="times must have shape"):
            model.predict(z, t)


def test_levels() -> None:
    process, t = Masked(Vocab(7, mask=6), Cosine()), torch.tensor([[0.0, 0.5]], dtype=torch.float64)
    assert ConditionOnTime()(t, process).tolist() == [[0.0, 500.0]]
    assert ConditionOnSigma()(t, process).exp().reciprocal().tolist()[0] == pytest.approx(
        process.schedule.keep(t).tolist()[0]
    )


def test_a_model_that_sees_sigma_has_an_answer_at_time_one(build: Build, tiny: TransformerConfig) -> None:
    model = build(
        Full(), replace(tiny, time=8), process=Masked(Vocab(7, mask=6), Linear()), time_conditioning=ConditionOnSigma()
    )
    assert not model.predict(torch.full((1, 3), MASK), torch.ones(1, 1)).x.isnan().any()


def test_a_causal_network_with_shift_needs_no_row_for_the_mask(tiny: TransformerConfig) -> None:
    config = DiffusionLMConfig(Masked(Vocab(7, mask=6)), replace(tiny, pattern=Causal()), Shift())
    assert (config.io.reads, config.io.start) == (6, None)
    with pytest.raises(ValueError, match="the mask must be the last id"):
        DiffusionLMConfig(Masked(Vocab(7, mask=5)), replace(tiny, pattern=Causal()), Shift())


# --- lazy predictions ---


class Asked:
    """Rows that the first block of the trunk was run on, call by call."""

    def __init__(self, model: DiffusionLM) -> None:
        self.rows: list[int] = []
        self.handle = model.network.blocks[0].register_forward_pre_hook(lambda _, args: self.rows.append(len(args[0])))


def random_question(seed: int, rows: int = 4, length: int = 5) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(seed)
    z, target = torch.randint(0, 7, (rows, length), generator=g), torch.randint(0, 6, (rows, length), generator=g)
    z = torch.where(torch.rand(rows, length, generator=g) < 0.6, MASK, z)
    return z, torch.where(z == MASK, target, z), torch.rand(rows, 1, generator=g), z == MASK


@given(seed=st.integers(0, 10**6), timed=st.booleans(), head=st.sampled_from([Subs(), Softmax(), Shift()]))
def test_all_answers_agree(build: Build, tiny: TransformerConfig, seed: int, timed: bool, head: Subs) -> None:
    model = build(Full(), replace(tiny, time=8 if timed else None), head=head)
    z, target, t, where = random_question(seed)
    context = Context(pad=torch.arange(5) >= torch.tensor([[5], [4], [3], [1]]))
    eager = model.predict(z, t, context)
    x = eager.x
    assert (x.shape, x.dtype) == ((4, 5, 7), torch.float32)
    assert torch.allclose(x.exp().sum(-1), torch.ones(4, 5), atol=1e-5)
    asked = torch.zeros_like(where)
    with torch.no_grad():
        lazy = model.predict(z, t, context)
        for row in (2, 0, 1, 3):  # row by row, in some order, then again all at once
            asked[row] = where[row]
            if bool(asked.any()):
                assert torch.allclose(lazy.at(asked), x[asked], atol=1e-5)
        loss = -x.gather(-1, target[..., None]).squeeze(-1)
        for pred in (lazy, model.predict(z, t, context), eager):
            if bool(where.any()):
                assert torch.allclose(pred.nll(where, target), torch.where(where, loss, 0.0), atol=1e-5)
        assert torch.allclose(lazy.x, x, atol=1e-5)


def test_the_trunk_runs_for_the_rows_that_are_asked_about(build: Build) -> None:
    model = build()
    z, _, t, _ = random_question(0)
    asked = Asked(model)
    where = torch.zeros(4, 5, dtype=torch.bool)
    with torch.no_grad():
        pred = model.predict(z, t)
        assert asked.rows == []
        where[1, 2] = where[3, 0] = True
        pred.at(where)
        assert asked.rows == [2]
        _ = pred.x
        assert asked.rows == [2, 4]


def test_a_batch_with_nothing_to_learn_reaches_every_weight(build: Build) -> None:
    model = build()
    z, _, t, where = random_question(0)
    model.predict(z, t).nll(torch.zeros_like(where), z).sum().backward()
    assert all(p.grad is not None and not p.grad.any() for p in model.parameters())


def test_in_training_the_trunk_runs_once(build: Build) -> None:
    model = build()
    z, _, t, where = random_question(0)
    where[:, 0] = True
    asked = Asked(model)
    pred = model.predict(z, t)
    pred.nll(where, z).sum().backward()
    assert asked.rows == [4]


def test_a_prediction_has_gradients_only_if_born_with_them(build: Build) -> None:
    model = build()
    z, target, t, where = random_question(0)
    with torch.no_grad():
        without = model.predict(z, t)
    assert not without.nll(where, target).requires_grad
    assert not without.x.requires_grad
    assert torch.is_grad_enabled()
    born = model.predict(z, t)
    with torch.no_grad():
        assert born.nll(where, target).requires_grad
        assert not torch.is_grad_enabled()
    born.nll(where, target).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


def test_a_prediction_remembers_the_precision_it_was_born_in(bf16: Precision, build: Build) -> None:
    model = build()
    z, _, t, _ = random_question(0)
    with torch.no_grad():
        exact = model.predict(z, t)
        with torch.autocast("cpu", torch.bfloat16):
            coarse, now = model.predict(z, t), model.predict(z, t).x
            assert torch.equal(exact.x, model.predict(z, t).x) is False
            assert torch.is_autocast_enabled("cpu")
        assert torch.equal(coarse.x, now)
        with torch.autocast("cpu", enabled=False):
            assert torch.equal(exact.x, model.predict(z, t).x)
        assert coarse.x.dtype == torch.float32


@pytest.mark.parametrize("question", ["at", "nll"])
def test_asking_nowhere_is_an_answer(build: Build, question: str) -> None:
    """A batch in which no token happens to be masked: likelihood at small times."""
    z = torch.zeros(2, 3, dtype=torch.int64)
    nowhere = torch.zeros(2, 3, dtype=torch.bool)
    with torch.no_grad():
        pred = build().predict(z, torch.full((2, 1), 1e-3))
        answer = pred.at(nowhere) if question == "at" else pred.nll(nowhere, z)
    assert answer.shape == ((0, 7) if question == "at" else (2, 3))
