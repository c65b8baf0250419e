"""Latent codecs: what holds for all of them, and what each promises."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from redraft.core import Batch, Condition, Context, Gaussian, Vocab, WordTokenizer, rng
from redraft.models import (
    Codec,
    CodecConfig,
    Compressed,
    CompressedCodec,
    Contextual,
    ContextualCodec,
    DiffusionLM,
    DiffusionLMConfig,
    MaskedLM,
    Paragraph,
    ParagraphCodec,
    PredictX,
    Smooth,
    SmoothCodec,
    Smoothing,
    TransformerConfig,
    TransformerSize,
)
from redraft.models.codecs.modules.decoder import AutoregressiveDecoder
from redraft.models.codecs.modules.standardize import Standardizer
from redraft.models.codecs.paragraph import _kl_to_standard_normal
from redraft.training import CodecObjective, Objective, SquaredError, TrainStep, export, load

M = TypeVar("M", bound=nn.Module)
VOCAB = Vocab(9, mask=8, eos=7)
L, SMALL = 8, TransformerSize(width=32, layers=1, heads=4)
ENCODER = MaskedLM(L, SMALL, mask_fraction=0.3)
CONFIGS: dict[str, CodecConfig] = {
    "contextual": Contextual(ENCODER, L, SMALL, noise=0.3),
    "compressed": Compressed(ENCODER, L, count=4, width=6, compressor=SMALL, decoder=SMALL),
    "paragraph": Paragraph(L, count=4, width=6, embedder=SMALL, decoder=SMALL, beta=0.01, noise=0.1, forget=0.1),
    "smooth": Smooth(
        ENCODER, L, count=4, width=12, compressor=SMALL, decompressor=SMALL, smoothing=Smoothing(0.1, 0.2, 0.1)
    ),
}
WHOLE = ("compressed", "paragraph", "smooth")
every = pytest.mark.parametrize("name", CONFIGS)


def codec(name: str) -> Codec:
    """With random weights throughout: no zero hides anything."""
    torch.manual_seed(0)
    return shaken(CONFIGS[name].build(VOCAB))


def shaken(module: M) -> M:
    with torch.no_grad():
        for p in module.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return module.eval()


def texts(rows: int, seed: int = 0) -> Tensor:
    """Two words, three times, then the end."""
    words = torch.randint(0, 7, (rows, 2), generator=torch.Generator().manual_seed(seed))
    return torch.cat([words.repeat(1, 3), torch.full((rows, L - 6), VOCAB.eos)], 1)


def model(name: str) -> DiffusionLM:
    network = TransformerConfig(width=16, layers=1, heads=2, time=8)
    torch.manual_seed(0)
    return shaken(DiffusionLM(DiffusionLMConfig(Gaussian(VOCAB), network, PredictX(), codec=CONFIGS[name])))


# --- all of them ---


@every
def test_shapes(name: str) -> None:
    made, tokens = codec(name), texts(3)
    N, D = made.latents or L, CONFIGS[name].vectors(VOCAB)
    z = made.encode(tokens)
    assert z.shape == (3, N, D)
    assert made.latents == (4 if name in WHOLE else None)
    assert made.nll(z, tokens).shape == made.decode(z).shape == (3, L)
    learn = torch.arange(L).expand(3, -1) > 2
    expected = torch.ones(3, 4, dtype=torch.bool) if name in WHOLE else learn
    assert made.position_mask(learn).equal(expected)


@every
def test_a_row_does_not_depend_on_its_batch(name: str) -> None:
    made, tokens = codec(name), texts(4)
    together, alone = made.encode(tokens), made.encode(tokens[2:3])
    torch.testing.assert_close(together[2:3], alone)
    losses = made.losses(tokens, None, rng=rng(1, 4))
    for cost, single in zip(
        losses.values(), made.losses(tokens[2:3], None, rng=rng(1, torch.tensor([2]))).values(), strict=True
    ):
        assert cost.shape == (4, L)
        torch.testing.assert_close(cost[2:3], single)


@every
def test_what_stands_under_padding_changes_nothing(name: str) -> None:
    made, tokens = codec(name), texts(2)
    pad = (torch.arange(L) >= 5).expand(2, -1)
    other = torch.where(pad, 3, tokens)
    z = made.encode(tokens, pad)
    torch.testing.assert_close(made.encode(other, pad), z)
    assert not torch.allclose(made.encode(texts(2, seed=1), pad), z)
    torch.testing.assert_close(made.nll(z, other, pad)[~pad], made.nll(z, tokens, pad)[~pad])


@every
def test_a_short_training_teaches_to_give_texts_back(name: str) -> None:
    torch.manual_seed(0)
    made, held_out = CONFIGS[name].build(VOCAB), texts(64, seed=99)
    optimizer = torch.optim.AdamW(made.parameters(), 1e-2, betas=(0.9, 0.95))

    def right() -> float:
        with torch.no_grad():
            return float((made.decode(made.encode(held_out)) == held_out)[:, :6].float().mean())

    before = right()
    for step in range(80):
        costs = made.losses(texts(64, seed=step), None, rng=rng(step, 64))
        optimizer.zero_grad()
        torch.stack([cost.mean() for cost in costs.values()]).sum().backward()
        optimizer.step()
    assert before < 0.35
    assert right() > 0.7


@every
def test_the_diffusion_leaves_a_trained_codec_alone(name: str) -> None:
    made, batch = model(name), Batch.of(texts(4))
    loss = TrainStep(made, Objective(SquaredError())).train()(batch, rng(0, 4))
    loss.mean.backward()
    assert made.codec is not None
    assert [n for n, p in made.codec.named_parameters() if p.grad is not None or p.requires_grad] == []
    assert all(p.grad is not None for p in made.network.blocks.parameters())


@every
def test_the_codec_is_trained_alone(name: str) -> None:
    made = model(name)
    loss = TrainStep(made, CodecObjective()).train()(Batch.of(texts(4)), rng(0, 4))
    loss.mean.backward()
    assert all(p.grad is None for p in made.network.parameters())
    assert made.codec is not None
    assert [n for n, p in made.codec.named_parameters() if p.grad is None and not n.endswith("nothing")] == []


@every
def test_the_codec_learns_to_write_given_tokens_too(name: str) -> None:
    """Such as a start token: what a decoder has never learned, it would write wrong, and go on from there."""
    made, whole = model(name), Batch.of(texts(4))
    given = replace(whole, learn=whole.learn & (torch.arange(L) > 0))
    known, all_learned = (CodecObjective()(made, batch, rng=rng(0, 4)) for batch in (given, whole))
    torch.testing.assert_close(known.nats, all_learned.nats)
    assert known.count.tolist() == [L - 1] * 4


@every
def test_saving_and_loading_gives_the_same_numbers(name: str, tmp_path: Path) -> None:
    made, tokens = model(name), texts(2)
    again = load(export(tmp_path / "model", made))
    assert again.config == made.config
    assert made.codec is not None
    assert again.codec is not None
    z = made.codec.encode(tokens)
    assert again.codec.encode(tokens).equal(z)
    assert again.codec.nll(z, tokens).equal(made.codec.nll(z, tokens))


# --- tokens one after another ---


def test_the_chain_rule_sums_to_one() -> None:
    decoder = shaken(AutoregressiveDecoder(SMALL, 6, L, VOCAB))
    tokens = torch.tensor(list(product(range(9), repeat=2)))
    z = torch.randn(1, 4, 6).expand(81, -1, -1)
    with torch.no_grad():
        nll = decoder.nll(z, tokens)
    assert float((-nll.sum(-1)).exp().sum()) == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(nll[:, 0].view(9, 9), nll[::9, :1].expand(-1, 9))  # later tokens do not matter


def test_a_decoder_that_forgets_all_reads_the_latents_alone() -> None:
    decoder = shaken(AutoregressiveDecoder(SMALL, 6, L, VOCAB))
    z, tokens = torch.randn(3, 4, 6), torch.randint(0, 7, (3, L))
    blank = torch.full_like(tokens, decoder.vocab.start)
    with torch.no_grad():
        nothing = decoder.nll_with_forgetting(z, tokens, None, 0.0, rng=rng(0, 3))
        everything = decoder.nll_with_forgetting(z, tokens, None, 1.0, rng=rng(0, 3))
        table = decoder.network.logits(decoder.network(blank, None, Context(condition=Condition(source=z))))
    torch.testing.assert_close(nothing, decoder.nll(z, tokens))
    torch.testing.assert_close(everything, -table.log_softmax(-1).gather(-1, tokens[..., None])[..., 0])
    assert not torch.allclose(nothing, everything)


def test_greedy_decoding_takes_the_likeliest_token_at_each_step() -> None:
    decoder = shaken(AutoregressiveDecoder(SMALL, 6, L, VOCAB))
    z = torch.randn(5, 4, 6, generator=torch.Generator().manual_seed(1))
    ids = decoder.decode(z)
    for row in range(5):
        for i in range(L):
            tries = ids[row, : i + 1].repeat(9, 1)
            tries[:, i] = torch.arange(9)
            best = int(decoder.nll(z[row : row + 1].expand(9, -1, -1), tries)[:, i].argmin())
            assert int(ids[row, i]) == best
            if best == VOCAB.eos:
                assert ids[row, i:].tolist() == [VOCAB.eos] * (L - i)
                break


def test_decoding_stops_when_all_rows_have_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder, calls = AutoregressiveDecoder(SMALL, 6, L, VOCAB), []
    assert decoder.network.output is not None
    monkeypatch.setattr(decoder.network, "logits", lambda h: calls.append(h) or torch.eye(9)[7].expand(len(h), 1, 9))
    assert decoder.decode(torch.randn(3, 4, 6)).equal(torch.full((3, L), VOCAB.eos))
    assert len(calls) == 1


# --- each of them ---


def test_standardising_and_back_is_the_identity() -> None:
    standard, h = shaken(Standardizer(5)), torch.randn(4, 3, 5)
    torch.testing.assert_close(standard.inverse(standard(h)), h)


def test_the_statistics_are_those_of_the_data() -> None:
    """The likelihood is least at the mean and the deviation: its gradient vanishes there, and not elsewhere."""
    h = 3 + 2 * torch.randn(100, 5, dtype=torch.float64)
    standard = Standardizer(5).double()
    with torch.no_grad():
        standard.mean.copy_(h.mean(0))
        standard.log_std.copy_(h.std(0, correction=0).log())
    here, elsewhere = (torch.autograd.grad(standard.nll(h + d).mean(), list(standard.parameters())) for d in (0, 0.1))
    assert float(torch.stack(here).abs().max()) < 1e-12
    assert float(torch.stack(elsewhere).abs().max()) > 1e-3


def test_end_signs_have_one_vector_whatever_the_text() -> None:
    made = codec("contextual")
    z = made.encode(texts(5)).detach()
    ends = z[:, 6:].flatten(0, 1)
    torch.testing.assert_close(ends, ends[:1].expand_as(ends))
    torch.testing.assert_close(ends.norm(dim=-1), torch.full((10,), math.sqrt(made.width)))
    assert float(z[:, :6].std(0).min()) > 0


def test_only_words_enter_the_statistics() -> None:
    made, tokens = codec("contextual"), texts(3)
    assert isinstance(made, ContextualCodec)
    cost = made.losses(tokens, None, rng=rng(0, 3))["statistics"]
    assert (cost == 0).equal(tokens == VOCAB.eos)


def test_a_tied_decoder_names_tokens_by_the_vectors_of_the_encoder() -> None:
    """It begins with the frequencies of tokens, whatever it reads; then with vectors that point at tokens."""
    torch.manual_seed(0)
    made = Contextual(ENCODER, L, SMALL, tied=True).build(VOCAB)
    tokens = texts(5)
    learn = tokens != VOCAB.eos
    made.fit_statistics(lambda _: [Batch(tokens, learn), Batch(tokens[:2], learn[:2])])
    counts = torch.bincount(torch.cat([tokens[learn], tokens[:2][learn[:2]]]), minlength=VOCAB.size) + 0.1
    z = torch.randn(3, L, made.width)
    guess = made.logits(z).softmax(-1)
    torch.testing.assert_close(guess, (counts / counts.sum()).expand_as(guess))
    said = shaken(made).decoder(z)
    expected = said @ made.encoder.token_vectors(torch.arange(VOCAB.size)).T + made.bias
    torch.testing.assert_close(made.logits(z), expected)
    torch.testing.assert_close(
        made.nll(z, tokens[:3]), -expected.log_softmax(-1).gather(-1, tokens[:3, :, None])[..., 0]
    )
    made.nll(z, tokens[:3]).sum().backward()
    assert all(p.grad is None for p in made.encoder.parameters()), "their vectors are read, not changed"
    assert made.decoder_input(z, torch.tensor(0.0)).equal(torch.zeros_like(z)), "no signal, nothing to read"
    assert codec("contextual").decoder_input(z, torch.tensor(0.0)) is z


def test_compressed_latents_have_the_norm_of_unit_variance() -> None:
    made = codec("compressed")
    assert isinstance(made, CompressedCodec)
    torch.testing.assert_close(made.encode(texts(3)).norm(dim=-1), torch.full((3, 4), math.sqrt(6)))


def test_smooth_latents_are_normalized() -> None:
    z = codec("smooth").encode(texts(3))
    torch.testing.assert_close(z.mean(-1), torch.zeros(3, 4), atol=1e-6, rtol=0)
    torch.testing.assert_close(z.square().mean(-1), torch.ones(3, 4), atol=1e-3, rtol=0)


def test_smoothing_of_nothing_changes_nothing() -> None:
    h, none = torch.randn(3, 5, 4), Smoothing(0, 0, 0)
    assert none.corrupt_activations(h, rng=rng(0, 3)).equal(h)
    assert none.corrupt_latents(h, rng=rng(0, 3)).equal(h)
    assert not Smoothing().corrupt_latents(h, rng=rng(0, 3)).equal(h)


def test_the_squared_error_compares_with_unspoilt_activations() -> None:
    """With no smoothing and m = 2 the cost is twice the error of the decompressed activations."""
    config = CONFIGS["smooth"]
    assert isinstance(config, Smooth)
    made, tokens = shaken(SmoothCodec(replace(config, mse=2.0, smoothing=Smoothing(0, 0, 0)), VOCAB)), texts(3)
    h = made.standard(made.encoder(tokens))
    expected = 2 * (made.decompressor(made.encode(tokens)) - h).square().mean(-1)
    torch.testing.assert_close(made.losses(tokens, None, rng=rng(0, 3))["activations"], expected)


def test_the_kl_is_that_of_normal_distributions() -> None:
    mean, log_variance = torch.randn(2, 50, dtype=torch.float64)
    ours = torch.distributions.Normal(mean, (log_variance / 2).exp())
    standard = torch.distributions.Normal(torch.zeros_like(mean), torch.ones_like(mean))
    torch.testing.assert_close(
        _kl_to_standard_normal(mean, log_variance), torch.distributions.kl_divergence(ours, standard)
    )


def test_the_kl_counts_in_nats_per_token() -> None:
    made, tokens = codec("paragraph"), texts(3)
    assert isinstance(made, ParagraphCodec)
    quiet = shaken(ParagraphCodec(replace(made.config, noise=0.0, beta=0.5), VOCAB))
    kl = _kl_to_standard_normal(*quiet.posterior(tokens)).sum((1, 2))
    torch.testing.assert_close(quiet.losses(tokens, None, rng=rng(0, 3))["kl"].sum(-1), 0.5 * kl)
    assert float(made.encode(tokens).detach().abs().max()) < 1


# --- errors ---


@pytest.mark.parametrize("name", WHOLE)
def test_whole_texts_take_no_prompt(name: str) -> None:
    made = model(name)
    made.tokenizer = WordTokenizer(tuple("abcdef"), ("eos", "mask"))
    with pytest.raises(ValueError, match="leave out the prompt and holes"):
        made.canvas("a b", new=4)
    assert made.canvas(new=L, rows=2).z.shape == (2, 4, CONFIGS[name].vectors(VOCAB))


def test_a_paragraph_needs_tokens_enough() -> None:
    with pytest.raises(ValueError, match="rows of 3 tokens are too short for 4 latents"):
        codec("paragraph").encode(texts(1)[:, :3])


def test_rows_longer_than_the_codec_are_refused() -> None:
    with pytest.raises(ValueError, match="too many"):
        codec("compressed").encode(torch.zeros(1, L + 1, dtype=torch.int64))


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match=r"noise=1\.5"):
        Contextual(ENCODER, L, noise=1.5)
    with pytest.raises(ValueError, match=r"noise=-0\.1"):
        Compressed(ENCODER, L, noise=-0.1)
    with pytest.raises(ValueError, match="beta=-1"):
        Paragraph(L, beta=-1)
    with pytest.raises(ValueError, match="features=2"):
        Smoothing(features=2)
    with pytest.raises(ValueError, match=r"mask_fraction=0\.0"):
        MaskedLM(L, mask_fraction=0.0)
