"""Presets with Gaussian noise on one vector per token: Diffusion-LM, DiffuSeq, GENIE, SSD-LM."""

from __future__ import annotations

from dataclasses import replace

from redraft.core.processes.gaussian import Gaussian, VariancePreserving
from redraft.core.schedules.gaussian import CosineOffset, Sqrt, VPLinear
from redraft.core.schedules.transforms import ClampedLogSnr
from redraft.core.text.tokenizers import CharTokenizer, Tokenizer, WordTokenizer
from redraft.decoding.blocks.blocks import Blocks
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.solvers.renoise import NucleusProjection, Renoise
from redraft.models.codecs.coordinates import POINT_ALPHABET, Coordinates, point_length
from redraft.models.codecs.embedding import Embedding
from redraft.models.codecs.simplex import Simplex
from redraft.models.config import DiffusionLMConfig
from redraft.models.heads import PredictEps, PredictTokens
from redraft.models.networks.config import TransformerConfig
from redraft.models.networks.patterns import BlockCausal
from redraft.models.time_conditioning import ConditionOnLogSnr
from redraft.training.data.corpora.e2e_nlg import e2e_corpus
from redraft.training.data.corpora.points import GaussianMixtureCorpus
from redraft.training.data.corpora.stories import STORY_LANGUAGE
from redraft.training.data.corpora.story_tasks import StoryAttributes, StoryCorpus, StorySummaries
from redraft.training.data.framing import DocumentRows, Framing, PackedRows
from redraft.training.data.pair_framing import EncoderRows, PairRows, SpanRows
from redraft.training.data.pairs import JsonlPairs
from redraft.training.data.sources import Corpus, HubDataset, InfiniteCorpus, TextFiles
from redraft.training.objectives.losses import OffsetSnrWeight, SquaredError, TokenCrossEntropy
from redraft.training.objectives.objective import Objective
from redraft.training.objectives.time_samplers import StratifiedTimes
from redraft.training.presets.tiny import _ATTRIBUTES_LENGTH, _SUMMARY_LENGTH, STORY_LENGTH, _tiny_run
from redraft.training.presets.tokens import _load_tokenizer, _small_dit_run, mdlm_owt
from redraft.training.runs import variations
from redraft.training.runs.run import OptimizerConfig, Run


def diffusion_lm_tiny() -> Run:
    """Diffusion-LM: Gaussian noise on learned word embeddings."""
    return variations.with_embedding(_tiny_run())


def diffusion_lm_tagger_tiny() -> Run:
    """A part-of-speech tagger for noisy vectors, for `redraft control`; train its base `diffusion_lm_tiny` first."""
    return variations.with_tagger(diffusion_lm_tiny(), base="runs/diffusion_lm_tiny")


def diffuseq_tiny() -> Run:
    """DiffuSeq: the attributes of a story and the story itself in one row; only the story is noised."""
    return _embedded_pairs_run(StoryAttributes(), PairRows(_ATTRIBUTES_LENGTH + 1 + STORY_LENGTH, _ATTRIBUTES_LENGTH))


def diffuseq_summary_tiny() -> Run:
    """DiffuSeq: a story and its one-sentence summary in one row; only the summary is noised."""
    return _embedded_pairs_run(StorySummaries(), PairRows(STORY_LENGTH + _SUMMARY_LENGTH, STORY_LENGTH - 1))


def genie_tiny() -> Run:
    """GENIE: an encoder reads the attributes of a story, and the denoiser attends to the encoder's states."""
    return _tiny_genie_run(StoryAttributes(), EncoderRows(STORY_LENGTH + 1, _ATTRIBUTES_LENGTH + 1))


def genie_summary_tiny() -> Run:
    """GENIE: an encoder reads a story, and the denoiser writes its summary."""
    return _tiny_genie_run(StorySummaries(), EncoderRows(_SUMMARY_LENGTH + 1, STORY_LENGTH))


def genie_cpd_tiny() -> Run:
    """GENIE's pre-training: predict a span of three tenths of a story from the rest.

    Other GENIE runs can start from it: `redraft train genie_tiny --base runs/genie_cpd_tiny`.
    """
    return _tiny_genie_run(StoryCorpus(), SpanRows(STORY_LENGTH // 3, STORY_LENGTH))


def _tiny_genie_run(data: InfiniteCorpus, framing: EncoderRows | SpanRows) -> Run:
    """Return a GENIE run; positions suffice for all tiny GENIE presets, so each can start from another's weights."""
    run = variations.with_network(_embedded_pairs_run(data, framing), positions=STORY_LENGTH + 1)
    return variations.with_encoder(run, positions=STORY_LENGTH)


def _embedded_pairs_run(data: InfiniteCorpus, framing: PairRows | EncoderRows | SpanRows) -> Run:
    """Return a tiny run that embeds the words of source and target pairs."""
    return variations.with_embedding(
        variations.with_text(_tiny_run(), WordTokenizer(STORY_LANGUAGE.words(), ("bos", "eos", "mask")), data, framing)
    )


def points_tiny() -> Run:
    """Plain DDPM on points in the plane: the network predicts the noise, and the true density is known."""
    points = CharTokenizer(POINT_ALPHABET, ())
    network = TransformerConfig(width=64, layers=3, heads=1, rotary=None, positions=1, time=64)
    process = Gaussian(points.vocab, VariancePreserving(ClampedLogSnr(VPLinear(), -10.0, 8.0)))
    return Run(
        model=DiffusionLMConfig(process, network, PredictEps(), ConditionOnLogSnr(), codec=Coordinates()),
        data=GaussianMixtureCorpus(),
        tokenizer=points,
        framing=DocumentRows(point_length(2), fill_with_eos=True),
        objective=Objective(SquaredError(OffsetSnrWeight())),
        sampler=Ancestral(128),
        optimizer=OptimizerConfig(lr=3e-3, warmup=40, floor=0.0, ema=0.995),
        steps=2000,
        batch=128,
        eval_rows=512,
    )


def points_class_tiny() -> Run:
    """`points_tiny` conditioned on classes, for guidance: the class is dropped for a tenth of the rows."""
    return variations.with_classes(points_tiny(), GaussianMixtureCorpus())


def ssd_tiny(block: int = 17) -> Run:
    """SSD-LM: words are corners of a simplex; a story is written in four blocks, each of them in 32 steps."""
    base = variations.with_network(_tiny_run(), pattern=BlockCausal(block))
    process = Gaussian(base.model.vocab, VariancePreserving(ClampedLogSnr(CosineOffset(1e-4), -12.0, 6.0)))
    return replace(
        variations.with_vectors(base, process, Simplex(), PredictTokens(), self_conditioning=False),
        objective=Objective(TokenCrossEntropy(), StratifiedTimes(block=block)),
        sampler=Blocks(Renoise(32, project=NucleusProjection()), stop=True),
    )


def diffusion_lm_e2e(tokenizer: str | Tokenizer = "tokenizer.json", folder: str = "e2e_nlg") -> Run:
    """Diffusion-LM on the sentences of E2E (Li et al. 2022): 12 × 768, embeddings of 16, rows of 64, 200k steps."""
    return _diffusion_lm_run(_load_tokenizer(tokenizer), e2e_corpus(folder), Embedding(16, unit=False), 200_000)


def diffusion_lm_roc(tokenizer: str | Tokenizer = "tokenizer.json", path: str = "roc.txt") -> Run:
    """Diffusion-LM on ROCStories, one per line: embeddings of 128, 800k steps (400k in the authors' code)."""
    stories = TextFiles((path,), split_by="line")
    return _diffusion_lm_run(_load_tokenizer(tokenizer), stories, Embedding(128, unit=False), 800_000)


def _diffusion_lm_run(tokenizer: Tokenizer, data: Corpus, codec: Embedding, steps: int) -> Run:
    run = _published_vector_run(tokenizer, data, DocumentRows(64, fill_with_eos=True), layers=12)
    optimizer = OptimizerConfig(lr=1e-4, floor=0.0)
    return replace(variations.with_model(run, codec=codec), optimizer=optimizer, steps=steps, batch=64)


def diffuseq_qqp(tokenizer: str | Tokenizer = "tokenizer.json", folder: str = "QQP", steps: int = 50_000) -> Run:
    """DiffuSeq on paraphrases (Gong et al. 2023): 12 × 768, embeddings of 128, rows of 128, batches of 2048 rows.

    For other tasks of the paper change folder and steps: question generation 40k, dialogue 140k, simplification 80k.
    The authors' code samples times by importance (`redraft.training.fit_importance_times`) and picks one of ten texts.
    """
    files = _pair_files(folder, "src", "trg")
    run = _published_vector_run(_load_tokenizer(tokenizer), files, PairRows(128, 63), layers=12)
    return replace(run, optimizer=OptimizerConfig(lr=1e-4), steps=steps, batch=2048)


def genie_xsum(tokenizer: str | Tokenizer = "tokenizer.json", folder: str = "xsum") -> Run:
    """GENIE on news summaries, XSum (Lin et al. 2023): 6 + 6 layers × 768, sources of 512 tokens, 120k steps.

    It starts from the weights of `genie_cpd_books`. In the paper the encoder starts from BERT.
    """
    files = _pair_files(folder, "src", "trg")
    run = _published_vector_run(_load_tokenizer(tokenizer), files, EncoderRows(64, 512), layers=6, positions=156)
    optimizer = OptimizerConfig(lr=5e-5, warmup=7200)
    return replace(
        variations.with_encoder(run, 6), optimizer=optimizer, base="runs/genie_cpd_books", steps=120_000, batch=64
    )


def genie_cpd_books(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """GENIE's pre-training on spans of 156 of 512 tokens; the paper used 160 GB of text and took fifty days."""
    data = HubDataset("bookcorpus", field="text")
    run = variations.with_encoder(
        _published_vector_run(_load_tokenizer(tokenizer), data, SpanRows(156, 512), layers=6), 6
    )
    return replace(run, optimizer=OptimizerConfig(lr=1e-4, warmup=300_000), steps=5_000_000, batch=4096)


def ssd_owt(tokenizer: str | Tokenizer = "tokenizer.json") -> Run:
    """SSD-LM on OpenWebText (Han et al. 2023): 24 × 1024, rows of 200 in blocks of 25, trained for 100k steps.

    Sampling takes 1000 steps per block. The paper starts from RoBERTa and trains on one block after a context of random
    length. Here all blocks of a row are trained at once, each given the clean blocks before it. The batch size is our
    choice.
    """
    run = _small_dit_run(_load_tokenizer(tokenizer), mdlm_owt(tokenizer).data, PackedRows(200))
    run = variations.with_network(run, width=1024, layers=24, heads=16, pattern=BlockCausal(25))
    process = Gaussian(run.model.vocab, VariancePreserving(ClampedLogSnr(CosineOffset(1e-4))))
    return replace(
        variations.with_vectors(run, process, Simplex(), PredictTokens(), self_conditioning=False),
        objective=Objective(TokenCrossEntropy(), StratifiedTimes(block=25)),
        sampler=Blocks(Renoise(1000, project=NucleusProjection(0.9))),
        optimizer=OptimizerConfig(lr=1e-4, weight_decay=0.01, warmup=2000),
        steps=100_000,
    )


def _published_vector_run(
    tokenizer: Tokenizer, data: Corpus, framing: Framing, layers: int, positions: int | None = None
) -> Run:
    """Return a published-size run with Diffusion-LM's noise and loss, learned positions, and 2000 sampling steps."""
    run = _small_dit_run(tokenizer, data, framing)
    run = variations.with_network(run, layers=layers, rotary=None, positions=positions or framing.length)
    process = Gaussian(tokenizer.vocab, VariancePreserving(ClampedLogSnr(Sqrt())))
    return replace(
        variations.with_vectors(run, process, Embedding(128, unit=False), self_conditioning=False),
        sampler=Ancestral(2000),
    )


def _pair_files(folder: str, source: str, target: str) -> JsonlPairs:
    """Return the pairs in train.jsonl, valid.jsonl and test.jsonl, the file names of DiffuSeq's data sets."""
    train, valid, test = ((f"{folder}/{split}.jsonl",) for split in ("train", "valid", "test"))
    return JsonlPairs(train, valid, test, source=source, target=target)
