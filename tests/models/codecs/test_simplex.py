"""SSD-LM: corners of the simplex, blocks of vectors, renoising with drawn tokens."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from conftest import randomize

from redraft.core import (
    Batch,
    Canvas,
    ClampedLogSnr,
    Context,
    CosineOffset,
    Denoiser,
    DenoiserWrapper,
    Gaussian,
    Prediction,
    VariancePreserving,
    WordTokenizer,
    rng,
)
from redraft.decoding import ArgmaxProjection, Blocks, NucleusProjection, Renoise, final_canvas
from redraft.decoding.samplers.stopping import stop_rows
from redraft.models import (
    BlockCausal,
    ConditionOnLogSnr,
    ConditionOnTime,
    DiffusionLM,
    DiffusionLMConfig,
    PredictTokens,
    Simplex,
    TransformerConfig,
)
from redraft.models.checkpoints import serialization
from redraft.training import Objective, StratifiedTimes, TokenCrossEntropy, load_rows, presets

WORDS = WordTokenizer(("a", "b", "c", "d"), ("eos", "mask"))
VOCAB, EOS, BLOCK = WORDS.vocab, WORDS.vocab.eos, 3
PROCESS = Gaussian(VOCAB, VariancePreserving(ClampedLogSnr(CosineOffset(1e-4), -12.0, 6.0)))


def model(block: int = BLOCK) -> DiffusionLM:
    network = TransformerConfig(width=16, layers=2, heads=2, hidden=32, time=8, pattern=BlockCausal(block))
    made = DiffusionLMConfig(PROCESS, network, PredictTokens(), ConditionOnTime(), codec=Simplex())
    return randomize(DiffusionLM(made, WORDS), seed=0).eval()


def batch(rows: int = 2, length: int = 8) -> Batch:
    return Batch.of(torch.arange(rows * length).view(rows, length) % 4)


def test_tokens_are_corners() -> None:
    codec, tokens = model().codec, torch.arange(VOCAB.size)[None]
    assert codec is not None
    x = codec.encode(tokens)
    assert torch.equal(x.unique(), torch.tensor([-1.0, 1.0]))
    assert torch.equal(x.argmax(-1), tokens)
    assert torch.equal(codec.decode(x), tokens)
    assert torch.equal(codec.project(x + 0.3 * x.sin()), x)
    assert list(codec.parameters()) == []


def test_the_network_reads_probabilities() -> None:
    """softmax(K·z), as of the paper's data and noise, both K times ours."""
    codec, z = Simplex(sharpness=5.0).build(VOCAB), rng(0, 2).normal(3, VOCAB.size).float()
    assert torch.allclose(codec.network_input(z), (5.0 * z).softmax(-1))
    corner = codec.encode(torch.tensor([[2]]))
    expected = math.log(1 + (VOCAB.size - 1) * math.exp(-10.0))
    assert float(codec.nll(corner, torch.tensor([[2]]))) == pytest.approx(expected, rel=0.01)


def test_little_noise_leaves_the_token() -> None:
    many = torch.arange(4).repeat(200)[None]
    codec = Simplex().build(VOCAB)
    for t, least in ((1e-6, 1.0), (0.3, 0.8)):
        z = PROCESS.noise(codec.encode(many), torch.full((1, 1), t), rng=rng(0, 1)).z
        assert float((codec.decode(z) == many).float().mean()) >= least
    gone = PROCESS.noise(codec.encode(many), torch.ones(1, 1), rng=rng(0, 1)).z
    assert float((codec.decode(gone) == many).float().mean()) < 0.35


def test_no_block_sees_later_ones() -> None:
    """Neither their noise nor what is clean of them; a block does see the clean blocks before it."""
    net, x = model(), model().read(batch()).x
    t = StratifiedTimes(block=BLOCK)(batch(), rng=rng(0, 2))
    z = PROCESS.noise(x, t, rng=rng(1, 2)).z
    base = net.predict(z, t, Context(clean=x)).x
    other = torch.roll(x, 1, -1)
    later = net.predict(torch.cat([z[:, :6], -z[:, 6:]], 1), t, Context(clean=torch.cat([x[:, :6], other[:, 6:]], 1))).x
    assert torch.equal(later[:, :6], base[:, :6])
    assert not torch.allclose(later[:, 6:], base[:, 6:], atol=1e-3)
    earlier = net.predict(z, t, Context(clean=torch.cat([other[:, :3], x[:, 3:]], 1))).x
    assert torch.equal(earlier[:, :3], base[:, :3])
    assert not torch.allclose(earlier[:, 3:6], base[:, 3:6], atol=1e-3)


def test_two_streams_are_the_cache() -> None:
    """What training computes in one pass is what sampling computes block by block."""
    net, x = model(), model().read(batch()).x
    t = StratifiedTimes(block=BLOCK)(batch(), rng=rng(0, 2))
    z = PROCESS.noise(x, t, rng=rng(1, 2)).z
    together, context = net.predict(z, t, Context(clean=x)).x, Context()
    for lo in range(0, 8, BLOCK):
        here = slice(lo, lo + BLOCK)
        context = replace(context, positions=torch.arange(8)[None, here])
        assert torch.allclose(net.predict(z[:, here], t[:, here], context).x, together[:, here], atol=1e-5)
        context = net.absorb(x[:, here], context)


@pytest.mark.parametrize("project", [NucleusProjection(), ArgmaxProjection()])
def test_blocks_with_the_cache_and_without(project: NucleusProjection | ArgmaxProjection) -> None:
    net, sampler = model(), Blocks(Renoise(4, project=project))
    canvas = net.canvas("a b c d", new=7, rows=3)
    keys = rng(3, 3)
    cached = final_canvas(sampler(net, PROCESS, canvas, rng=keys))
    whole = final_canvas(replace(sampler, cache=False)(net, PROCESS, canvas, rng=keys))
    assert torch.equal(net.to_tokens(cached).z, net.to_tokens(whole).z)
    assert torch.equal(cached.z.abs(), torch.ones_like(cached.z))  # every token is a corner in the end
    assert net.to_tokens(cached).z[:, :4].tolist() == [[0, 1, 2, 3]] * 3


def test_finished_blocks_are_at_level_zero() -> None:
    """Of the log-SNR time zero has another number, which the cache would not know."""
    with pytest.raises(ValueError, match="a noise level that is 0 at time 0"):
        replace(model().config, time_conditioning=ConditionOnLogSnr())


def test_rows_end_at_the_stop_token() -> None:
    net = model()
    sampler = Blocks(Renoise(3), stop=True)
    for cache in (True, False):
        end = final_canvas(replace(sampler, cache=cache)(net, PROCESS, net.canvas(new=12, rows=40), rng=rng(0, 40)))
        ids = net.to_tokens(end).z
        ended = (ids == EOS).any(-1)
        first = (ids == EOS).int().argmax(-1)
        assert 10 < int(ended.sum()) < 40
        assert all(ids[row, first[row] :].eq(EOS).all() for row in ended.nonzero().flatten())


class Wrapped(DenoiserWrapper):
    """Guidance that changes nothing."""

    def predict(self, z: torch.Tensor, t: torch.Tensor, context: Context) -> Prediction:
        return self.denoise.predict(z, t, context)


@dataclass
class Stranger:
    """A denoiser that knows nothing of tokens."""

    inner: Denoiser
    block: int | None = 3

    def predict(self, z: torch.Tensor, t: torch.Tensor, context: Context) -> Prediction:
        return self.inner.predict(z, t, context)

    def absorb(self, z: torch.Tensor, context: Context, t: torch.Tensor | None = None) -> Context:
        return self.inner.absorb(z, context, t)


def test_a_stop_that_nobody_can_read_is_refused() -> None:
    net = model()
    stopping = Blocks(Renoise(2), stop=True)
    with pytest.raises(ValueError, match="Stranger cannot decode vectors to find the end token"):
        final_canvas(stopping(Stranger(net, net.block), PROCESS, net.canvas(new=6), rng=rng(0, 1)))
    guided, plain = (
        final_canvas(stopping(d, PROCESS, net.canvas(new=6), rng=rng(0, 1))).z for d in (Wrapped(net), net)
    )
    assert torch.equal(guided, plain)


def test_noise_that_looks_like_the_stop_token_is_no_stop() -> None:
    """Of vectors and of tokens under uniform noise: only what is written counts."""
    net = model()
    z = torch.full((1, 6), EOS)
    nothing = torch.zeros(1, 6, dtype=torch.bool)
    for canvas, denoise in ((Canvas(z, nothing), Wrapped(net)), (net.to_vectors(Canvas(z, nothing)), net)):
        assert stop_rows(canvas, EOS, 0, denoise).fixed.tolist() == [[False] * 6]
        assert stop_rows(canvas, EOS, 3, denoise).fixed.tolist() == [[False] + [True] * 5]
        assert stop_rows(canvas, EOS, torch.arange(6)[None] >= 4, denoise).fixed.tolist() == [[False] * 5 + [True]]
        assert stop_rows(canvas, None, 6, denoise) is canvas


def test_cross_entropy_of_blocks_is_learned() -> None:
    torch.manual_seed(0)
    net, data = DiffusionLM(model().config, WORDS), batch(rows=16)
    objective = Objective(TokenCrossEntropy(), StratifiedTimes(block=BLOCK))
    adam = torch.optim.Adam(net.parameters(), lr=1e-2)
    losses = []
    for step in range(40):
        loss = objective(net, data, rng=rng(step, 16))
        adam.zero_grad()
        loss.mean.backward()
        adam.step()
        losses.append(float(loss.parts["diffusion"]))
    assert losses[0] == pytest.approx(math.log(VOCAB.size), rel=1e-3)  # it begins with an even guess
    assert losses[-1] < 0.5 * losses[0]


def test_the_preset() -> None:
    for block in (17, 4):
        run = presets.ssd_tiny(block)
        assert serialization.from_json(serialization.to_json(run)) == run
        assert DiffusionLM(run.model, run.tokenizer).block == block
    rows = load_rows(run.data, "train", run.tokenizer, run.framing).take(range(2))
    loss = run.objective(DiffusionLM(run.model, run.tokenizer), rows, rng=rng(0, 2))
    assert float(loss.parts["diffusion"]) == pytest.approx(math.log(run.model.vocab.size), rel=0.01)
