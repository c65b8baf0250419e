"""Presets for latent diffusion, in which a codec is trained first: TEncDM, LD4TG, PLANNER, COSMOS."""

from __future__ import annotations

from dataclasses import replace

from redraft.core.processes.gaussian import Gaussian, VariancePreserving
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.gaussian import TanD
from redraft.core.schedules.tokens import CosineSquared
from redraft.core.schedules.transforms import ClampedLogSnr
from redraft.core.text.tokenizers import Tokenizer
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.solvers.grids import TruncatedGrid
from redraft.decoding.solvers.langevin import EulerMaruyama
from redraft.decoding.solvers.ode import Ddim
from redraft.models.codecs.base import CodecConfig
from redraft.models.codecs.compressed import Compressed
from redraft.models.codecs.contextual import Contextual
from redraft.models.codecs.modules.encoder import EncoderConfig, MaskedLM
from redraft.models.codecs.modules.minilm import MiniLM
from redraft.models.codecs.modules.size import TransformerSize
from redraft.models.codecs.paragraph import Paragraph
from redraft.models.codecs.smooth import Smooth, Smoothing
from redraft.models.heads import PredictV, PredictX, VectorHead
from redraft.training.data.corpora.story_tasks import StoryClasses
from redraft.training.data.framing import DocumentRows
from redraft.training.data.sources import TextFiles
from redraft.training.objectives.losses import LossTerm, OffsetSnrWeight, P2Weight, SquaredError
from redraft.training.presets.tiny import STORY_LENGTH, _tiny_run
from redraft.training.presets.tokens import _load_tokenizer, _small_dit_run
from redraft.training.runs import variations
from redraft.training.runs.run import OptimizerConfig, Run


def tencdm_codec_tiny() -> Run:
    """The codec of TEncDM: a masked-language-model encoder, and a decoder for its noisy states."""
    return variations.codec_stage(tencdm_tiny())


def tencdm_tiny() -> Run:
    """TEncDM: diffusion of encoder states, one contextual vector per word; train `tencdm_codec_tiny` first.

    With 64 dimensions less noise hides a word than with the paper's 768. The cosine schedule therefore learns faster
    here than the paper's tan-d.
    """
    codec = Contextual(MaskedLM(STORY_LENGTH, TransformerSize(width=64)), STORY_LENGTH, TransformerSize(layers=1))
    return _tiny_latent_run(codec, CosineSquared(), base="runs/tencdm_codec_tiny")


def ld4tg_codec_tiny() -> Run:
    """The codec of LD4TG: 17 latents of width 32, from which a causal decoder writes the story."""
    return variations.codec_stage(ld4tg_tiny())


def ld4tg_tiny() -> Run:
    """LD4TG: diffusion of a compressed story; train `ld4tg_codec_tiny` first."""
    codec = Compressed(MaskedLM(STORY_LENGTH, TransformerSize(width=64)), STORY_LENGTH, 17, noise=0.3)
    return _tiny_latent_run(
        codec, CosineSquared(), PredictV(), SquaredError(OffsetSnrWeight(1.0)), base="runs/ld4tg_codec_tiny"
    )


def ld4tg_class_tiny() -> Run:
    """LD4TG conditioned on the mood of a story; train `ld4tg_codec_tiny` first."""
    return variations.with_classes(ld4tg_tiny(), StoryClasses("mood"))


def planner_codec_tiny() -> Run:
    """The codec of PLANNER: a variational autoencoder for whole stories, with a causal decoder."""
    return variations.codec_stage(planner_tiny())


def planner_tiny() -> Run:
    """PLANNER: diffusion of a story's embedding; train `planner_codec_tiny` first.

    With substituted input words and a strong KL term, as in the paper, so small a codec recovers only three tokens in
    five. Here the input is clean and the KL term is weak.
    """
    codec = Paragraph(STORY_LENGTH, beta=1e-4, noise=0.0, forget=0.5)
    run = _tiny_latent_run(codec, CosineSquared(), loss=SquaredError(P2Weight()), base="runs/planner_codec_tiny")
    return replace(run, sampler=Ddim(30))


def cosmos_codec_tiny() -> Run:
    """The codec of COSMOS: 17 latents made smooth by noise and masking, and a parallel decoder."""
    return variations.codec_stage(cosmos_tiny())


def cosmos_tiny() -> Run:
    """COSMOS: diffusion in a smooth, compressed latent space; train `cosmos_codec_tiny` first.

    With the default `Smoothing()` so small a codec gets one token in ten wrong, so smoothing is milder here. The
    schedule is the cosine.
    """
    smoothing = Smoothing(positions=0.1, noise=0.5, features=0.2)
    codec = Smooth(MaskedLM(STORY_LENGTH, TransformerSize(width=64)), STORY_LENGTH, 17, smoothing=smoothing)
    return _tiny_latent_run(codec, CosineSquared(), base="runs/cosmos_codec_tiny")


def _tiny_latent_run(
    codec: CodecConfig, schedule: Schedule, head: VectorHead = PredictX(), loss: LossTerm = SquaredError(), *, base: str
) -> Run:
    run = _tiny_run()
    process = Gaussian(run.model.vocab, VariancePreserving(ClampedLogSnr(schedule, -12.0, 4.0)))
    return variations.diffusion_stage(variations.with_vectors(run, process, codec, head), base, loss)


def tencdm_codec_roc(
    tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt", encoder: EncoderConfig = MiniLM()
) -> Run:
    """The codec of `tencdm_roc`: a three-layer decoder; the paper trains it for one epoch on rows of 64 tokens."""
    run = variations.codec_stage(tencdm_roc(tokenizer, path, encoder))
    return replace(run, optimizer=OptimizerConfig(lr=1e-4, warmup=100), steps=10_000, batch=64)


def tencdm_roc(
    tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt", encoder: EncoderConfig = MiniLM()
) -> Run:
    """TEncDM on ROCStories, one per line (Shabalin et al. 2024): 12 × 768, rows of 64, tan-9, 200k steps of 512 rows.

    The paper's encoder is BERT-base, `MiniLM(folder, 12, vocab, 768, 12, 3072)`; its network has skip connections.
    """
    codec = Contextual(encoder, 64, TransformerSize(768, 3, 12), noise=0.9)  # noise of tan-9 at t = 0.15
    return _with_tencdm_training(
        _roc_latent_run(_load_tokenizer(tokenizer), path, codec, TanD(9.0)), "runs/tencdm_codec_roc"
    )


def _with_tencdm_training(run: Run, base: str) -> Run:
    optimizer = OptimizerConfig(lr=2e-4, betas=(0.9, 0.98), weight_decay=0.01, warmup=5000)
    run = replace(run, optimizer=optimizer, sampler=EulerMaruyama(50, TruncatedGrid(0.01)), steps=200_000, batch=512)
    return variations.diffusion_stage(run, base)


def ld4tg_codec_roc(
    tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt", encoder: EncoderConfig = MiniLM()
) -> Run:
    """The codec of `ld4tg_roc`: 50k steps of 256 rows."""
    run = variations.codec_stage(ld4tg_roc(tokenizer, path, encoder))
    return replace(run, optimizer=OptimizerConfig(lr=1e-4, warmup=1000), steps=50_000, batch=256)


def ld4tg_roc(
    tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt", encoder: EncoderConfig = MiniLM()
) -> Run:
    """LD4TG on ROCStories (Lovelace et al. 2022): 32 latents of width 64, 12 × 768, v-prediction, cosine, 250k steps.

    The paper uses BART's encoder and decoder; here the decoder is causal and trained from scratch in the first stage.
    The paper samples with the forward variance, whose bound has no continuous-time limit; here it is the posterior's.
    """
    codec = Compressed(encoder, 64, 32, 64, TransformerSize(768, 3, 12), TransformerSize(768, 6, 12))
    run = _roc_latent_run(_load_tokenizer(tokenizer), path, codec, CosineSquared(), PredictV())
    optimizer = OptimizerConfig(lr=2e-4, warmup=1000, floor=0.0)
    run = replace(run, optimizer=optimizer, sampler=Ancestral(250), steps=250_000, batch=128)
    return variations.diffusion_stage(run, "runs/ld4tg_codec_roc", SquaredError(OffsetSnrWeight(1.0)))


def cosmos_codec_roc(
    tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt", encoder: EncoderConfig = MiniLM()
) -> Run:
    """The codec of `cosmos_roc`: 50k steps of 256 rows."""
    run = variations.codec_stage(cosmos_roc(tokenizer, path, encoder))
    return replace(run, optimizer=OptimizerConfig(lr=1e-4, warmup=1000), steps=50_000, batch=256)


def cosmos_roc(
    tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt", encoder: EncoderConfig = MiniLM()
) -> Run:
    """COSMOS on ROCStories (2025): 16 latents of width 768, 12 × 768, trained like `tencdm_roc`.

    The depths of compressor and decompressor and tan-3 are our choices: the paper only says that d is smaller.
    """
    codec = Smooth(encoder, 64, 16, 768, TransformerSize(768, 6, 12), TransformerSize(768, 6, 12))
    return _with_tencdm_training(
        _roc_latent_run(_load_tokenizer(tokenizer), path, codec, TanD(3.0)), "runs/cosmos_codec_roc"
    )


def planner_codec_reviews(tokenizer: str | Tokenizer = "tokenizer.json", path: str = "reviews.txt") -> Run:
    """The codec of `planner_reviews`: 50k steps of 64 rows."""
    return replace(variations.codec_stage(planner_reviews(tokenizer, path)), steps=50_000, batch=64)


def planner_reviews(tokenizer: str | Tokenizer = "tokenizer.json", path: str = "reviews.txt") -> Run:
    """PLANNER on hotel reviews, one per line (Zhang et al. 2023): 16 latents of width 1024, 28 layers, P2 weight.

    Encoder and decoder have the sizes of BERT-large and GPT-2-medium but start untrained. Rows of 256 tokens and the
    number of steps are our choices.
    """
    codec = Paragraph(256, 16, 1024, TransformerSize(1024, 24, 16), TransformerSize(1024, 24, 16))
    run = _small_dit_run(
        _load_tokenizer(tokenizer), TextFiles((path,), split_by="line"), DocumentRows(256, fill_with_eos=True)
    )
    run = variations.with_network(run, width=1152, layers=28, heads=16)
    process = Gaussian(run.model.vocab, VariancePreserving(ClampedLogSnr(CosineSquared())))
    run = variations.with_vectors(run, process, codec, self_conditioning=False)
    run = replace(run, optimizer=OptimizerConfig(lr=1e-4, warmup=1000), sampler=Ddim(30), steps=250_000, batch=128)
    return variations.diffusion_stage(run, "runs/planner_codec_reviews", SquaredError(P2Weight()))


def _roc_latent_run(
    tokenizer: Tokenizer, path: str, codec: CodecConfig, schedule: Schedule, head: VectorHead = PredictX()
) -> Run:
    """Return a run on rows of 64 tokens filled up with end tokens: the small DiT on latents, with self-conditioning."""
    run = _small_dit_run(tokenizer, TextFiles((path,), split_by="line"), DocumentRows(64, fill_with_eos=True))
    return variations.with_vectors(
        run, Gaussian(tokenizer.vocab, VariancePreserving(ClampedLogSnr(schedule))), codec, head
    )
