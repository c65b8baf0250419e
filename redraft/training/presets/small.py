"""Small presets for your own text, trained in about half an hour on a laptop; their sizes are not from papers."""

from __future__ import annotations

from dataclasses import replace

from redraft.core.processes.gaussian import Gaussian, VariancePreserving
from redraft.core.schedules.gaussian import TanD
from redraft.core.schedules.tokens import CosineSquared
from redraft.core.schedules.transforms import ClampedLogSnr
from redraft.core.text.tokenizers import Tokenizer
from redraft.models.codecs.compressed import Compressed
from redraft.models.codecs.contextual import Contextual
from redraft.models.codecs.modules.encoder import EncoderConfig, MaskedLM
from redraft.models.codecs.modules.minilm import MiniLM
from redraft.models.codecs.modules.size import TransformerSize
from redraft.models.heads import PredictV
from redraft.training.data.corpora.e2e_nlg import e2e_corpus
from redraft.training.data.framing import DocumentRows
from redraft.training.data.pair_framing import EncoderRows, PairRows
from redraft.training.data.sources import TextFiles
from redraft.training.objectives.losses import OffsetSnrWeight, SquaredError
from redraft.training.presets.tiny import _tiny_run
from redraft.training.presets.tokens import _load_tokenizer
from redraft.training.runs import variations
from redraft.training.runs.run import Run


def diffuseq_e2e(tokenizer: str | Tokenizer = "tokenizer.json", folder: str = "e2e_nlg") -> Run:
    """A small DiffuSeq on E2E, from attributes of a restaurant to a sentence about it: 4 × 128, embeddings of 32.

    The sizes are not from a paper; it learns something in half an hour on a CPU.
    """
    base = variations.with_text(_tiny_run(), _load_tokenizer(tokenizer), e2e_corpus(folder), PairRows(104, 50))
    return variations.with_embedding(variations.with_network(base, layers=4))


def genie_e2e(tokenizer: str | Tokenizer = "tokenizer.json", folder: str = "e2e_nlg") -> Run:
    """A small GENIE on E2E with a two-layer encoder for the attributes: 4 × 128, embeddings of 32.

    The sizes are not from a paper; it learns something in an hour on a CPU. Here a sentence always begins at the first
    position of its row. In `diffuseq_e2e` it follows a source of any length, so learned positions say little.
    """
    base = variations.with_text(_tiny_run(), _load_tokenizer(tokenizer), e2e_corpus(folder), EncoderRows(48, 50))
    return variations.with_encoder(variations.with_embedding(variations.with_network(base, layers=4)))


def ld4tg_codec_e2e(tokenizer: str | Tokenizer = "tokenizer.json", folder: str = "e2e_nlg") -> Run:
    """The codec of `ld4tg_e2e`: a two-layer causal decoder writes a sentence from its latents."""
    return variations.codec_stage(ld4tg_e2e(tokenizer, folder))


def ld4tg_e2e(tokenizer: str | Tokenizer = "tokenizer.json", folder: str = "e2e_nlg") -> Run:
    """A small LD4TG on E2E with a two-layer encoder for the attributes: 4 × 128, 16 latents of width 32.

    Train `ld4tg_codec_e2e` first. The sizes are not from a paper; it learns something in an hour on a CPU. In training
    the codec's decoder sees only half of its earlier tokens, so that it learns to use the latents sooner.
    """
    base = variations.with_text(_tiny_run(), _load_tokenizer(tokenizer), e2e_corpus(folder), EncoderRows(48, 50))
    process = Gaussian(base.model.vocab, VariancePreserving(ClampedLogSnr(CosineSquared(), -12.0, 4.0)))
    codec = Compressed(MaskedLM(48, TransformerSize(width=64)), 48, 16, noise=0.3, forget=0.5)
    run = variations.with_vectors(variations.with_network(base, layers=4), process, codec, PredictV())
    return variations.with_encoder(
        variations.diffusion_stage(run, "runs/ld4tg_codec_e2e", SquaredError(OffsetSnrWeight(1.0)))
    )


def tencdm_codec_prose(
    tokenizer: str | Tokenizer = "tokenizer.json",
    paths: tuple[str, ...] = ("prose.txt",),
    encoder: EncoderConfig = MiniLM(),
) -> Run:
    """The codec of `tencdm_prose`: a one-layer decoder."""
    return variations.codec_stage(tencdm_prose(tokenizer, paths, encoder), 16)


def tencdm_prose(
    tokenizer: str | Tokenizer = "tokenizer.json",
    paths: tuple[str, ...] = ("prose.txt",),
    encoder: EncoderConfig = MiniLM(),
) -> Run:
    """A small TEncDM on paragraphs of prose, with a pretrained encoder: 4 × 256, rows of 64, tan-9 schedule.

    The sizes are not from a paper; it learns something in half an hour on a CPU. With 384 dimensions a word stays
    recognizable under much noise, so the decoder is trained on states of all noise levels, mostly high ones. A decoder
    trained on less noise than is left at the end of sampling gives a bound worse than guessing. The decoder's output
    layer is tied to the encoder's token embeddings.
    """
    loaded = _load_tokenizer(tokenizer)
    base = variations.with_text(_tiny_run(), loaded, TextFiles(paths), DocumentRows(64, fill_with_eos=True))
    base = variations.with_network(base, width=256, layers=4)
    process = Gaussian(loaded.vocab, VariancePreserving(ClampedLogSnr(TanD(9.0), -12.0, 2.0)))
    codec = Contextual(encoder, 64, TransformerSize(256, 1), noise=1.0, tied=True, spread=4.0)
    run = variations.with_vectors(replace(base, batch=16), process, codec)
    return variations.diffusion_stage(run, "runs/tencdm_codec_prose")
