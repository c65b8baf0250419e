"""Variations: each function changes one thing in a run, and everything that depends on it.

Presets, the command line and recipes change runs only through these functions. Input and output sizes of the network
are not set here: they are derived when the model is built.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from redraft.core.processes.base import Process
from redraft.core.processes.gaussian import Gaussian, VariancePreserving
from redraft.core.processes.masked import Masked
from redraft.core.schedules.base import Schedule
from redraft.core.schedules.transforms import PiecewiseLogSnr
from redraft.core.text.tokenizers import Tokenizer, WordTokenizer
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.guided import NoisedPrompt
from redraft.decoding.samplers.remask import GuidedStar
from redraft.models.codecs.base import CodecConfig
from redraft.models.codecs.embedding import Embedding
from redraft.models.codecs.modules.size import TransformerSize
from redraft.models.config import DiffusionLMConfig
from redraft.models.heads import Head, PredictTokens, PredictX, Subs, VectorHead
from redraft.models.networks.patterns import Full
from redraft.models.parts.attribute_classifier import AttributeClassifierConfig
from redraft.models.parts.config import PartConfig
from redraft.models.parts.error_head import ErrorHeadConfig
from redraft.models.parts.source_encoder import SourceEncoderConfig
from redraft.models.parts.tagger import TaggerConfig
from redraft.training.data.annotations import as_annotated
from redraft.training.data.framing import Framing, PackedRows
from redraft.training.data.pair_framing import EncoderRows, LabeledRows, PairRows, SpanRows
from redraft.training.data.pairs import class_names
from redraft.training.data.sources import Corpus, InfiniteCorpus
from redraft.training.objectives.losses import LossTerm, SquaredError, TokenCrossEntropy
from redraft.training.objectives.objective import Objective
from redraft.training.objectives.parts import AttributeObjective, CodecObjective, ErrorHeadObjective
from redraft.training.objectives.tagging import FutureTaggerObjective, TaggerObjective
from redraft.training.runs.run import OptimizerConfig, Run


def with_model(run: Run, **parts: Any) -> Run:
    """Replaces parts of the model: process, head, network …"""
    return replace(run, model=replace(run.model, **parts))


def _with_part(run: Run, part: PartConfig) -> Run:
    """Adds a part to the model, such as a tagger."""
    return replace(run, model=run.model.with_part(part))


def with_network(run: Run, **settings: Any) -> Run:
    """Replaces settings of the network, such as sizes or the attention pattern."""
    return with_model(run, network=replace(run.model.network, **settings))


def _with_codec(run: Run, **settings: Any) -> Run:
    """Replaces settings of the codec."""
    codec: Any = run.model.codec
    return with_model(run, codec=replace(codec, **settings))


# --- text ---


def with_text(run: Run, tokenizer: Tokenizer, data: Corpus | InfiniteCorpus, framing: Framing) -> Run:
    """Uses masked diffusion of other texts, with the same network and one learned position per token of a row."""
    network = replace(run.model.network, positions=framing.length)
    model = DiffusionLMConfig(Masked(tokenizer.vocab), network)
    return replace(run, model=model, data=data, tokenizer=tokenizer, framing=framing)


def with_packed_rows(run: Run, length: int) -> Run:
    """Cuts rows from a stream of documents, for texts that go on; positions are rotary, since rows begin anywhere."""
    run = replace(run, framing=PackedRows(length))
    return with_network(run, positions=None, rotary=10_000.0)


def _without_partial_noising(run: Run) -> Run:
    """Removes partial noising: sources are learned like targets, and given only in sampling."""
    if not isinstance(run.framing, PairRows):
        raise ValueError(f"{type(run.framing).__name__} has no source in its rows; use PairRows")
    return replace(run, framing=replace(run.framing, joint=True), sampler=NoisedPrompt(run.sampler))


# --- conditions ---


def with_encoder(run: Run, layers: int = 2, positions: int | None = None) -> Run:
    """Adds an encoder, as wide as the network, that reads sources outside the row.

    A tenth of the rows drop their source, for classifier-free guidance.
    """
    if not isinstance(run.framing, EncoderRows | SpanRows) or not isinstance(run.objective, Objective):
        raise ValueError(f"an encoder reads sources outside the row: use EncoderRows or SpanRows, not {run.framing}")
    encoder = replace(
        run.model.network,
        layers=layers,
        pattern=Full(),
        time=None,
        positions=positions or run.framing.source,
        head_bias=False,
    )
    return replace(_with_part(run, SourceEncoderConfig(encoder)), objective=replace(run.objective, drop_condition=0.1))


def with_classes(run: Run, data: Corpus | InfiniteCorpus) -> Run:
    """Trains on texts with class labels; the network must see time, since the label embedding is added to it.

    A tenth of the rows drop their label, for classifier-free guidance.
    """
    if not isinstance(run.objective, Objective):
        raise ValueError(
            f"class labels need an objective that trains a denoiser; {type(run.objective).__name__} does not"
        )
    framing = LabeledRows(run.framing.length, fill_with_eos=not run.framing.padded)
    run = replace(run, data=data, framing=framing, objective=replace(run.objective, drop_condition=0.1))
    return with_network(run, classes=_class_count(data))


def _class_count(data: Corpus | InfiniteCorpus) -> int:
    if (names := class_names(data)) is None:
        raise ValueError(f"{type(data).__name__} has no classes; give texts with classes, such as JsonlClasses")
    return len(names)


# --- noise ---


def with_noise(run: Run, process: Process, objective: Objective) -> Run:
    """Replaces the process. The network sees time and may change visible tokens (no carry-over)."""
    network = replace(run.model.network, time=run.model.network.time or 64)
    return replace(run, model=DiffusionLMConfig(process, network, Subs(carry_over=False)), objective=objective)


def with_vectors(
    run: Run,
    process: Gaussian,
    codec: CodecConfig,
    head: VectorHead = PredictX(),
    loss: LossTerm = SquaredError(),
    self_conditioning: bool = True,
) -> Run:
    """Uses Gaussian diffusion of a codec's vectors; the network sees time and, if self-conditioned, its last x̂."""
    network = replace(run.model.network, time=run.model.network.time or 64)
    model = DiffusionLMConfig(process, network, head, codec=codec, self_conditioning=self_conditioning)
    return replace(run, model=model, objective=Objective(loss), sampler=Ancestral(64))


def with_embedding(run: Run) -> Run:
    """Uses diffusion of learned 32-dimensional word vectors; the network predicts words, and x̂ is their mean vector.

    Cross-entropy, with the posterior of z alone as prior logits (Plaid), learns faster here than the squared error of
    Diffusion-LM. The schedule covers the noise levels at which a word or its kind is uncertain; `redraft levels`
    measures them.
    """
    process = Gaussian(run.model.vocab, VariancePreserving(PiecewiseLogSnr((1.0, -6.0))))
    return with_vectors(
        run,
        process,
        Embedding(32, neighbor_fraction=0.75),
        PredictTokens(prior=True),
        TokenCrossEntropy(),
        self_conditioning=False,
    )


def _with_schedule(run: Run, schedule: Schedule) -> Run:
    """Replaces the schedule of Gaussian noise."""
    process = run.model.process.narrowed(Gaussian, "this schedule", "replace the process instead")
    return with_model(run, process=replace(process, path=VariancePreserving(schedule)))


def _with_head(run: Run, head: Head | VectorHead, loss: LossTerm) -> Run:
    """Replaces the head, and the loss that goes with it."""
    return replace(with_model(run, head=head), objective=Objective(loss))


# --- stages ---


def with_errors(run: Run, base: str) -> Run:
    """Trains the error head of G-Star for a masked diffusion model; the model, in the directory `base`, is frozen."""
    return replace(
        _with_part(run, ErrorHeadConfig()),
        base=base,
        objective=ErrorHeadObjective(),
        sampler=GuidedStar(64),
        optimizer=OptimizerConfig(lr=1e-2, warmup=20, floor=0.0, ema=0.98),
        steps=run.steps // 4,
    )


def with_tagger(run: Run, base: str, lexicon: Mapping[str, str] | None = None, layers: int = 2) -> Run:
    """Trains a tagger for a word model: of noisy rows, or of future words if the model is causal.

    The model, in the directory `base`, is frozen. lexicon: the tag of each word, such as its part of speech; None for
    the tags of the run's corpus.
    """
    if not isinstance(words := run.tokenizer, WordTokenizer):
        raise ValueError("a tagger needs a model whose tokens are words; use WordTokenizer")
    if (tags := as_annotated(run.data).tags() if lexicon is None else lexicon) is None:
        raise ValueError("a tagger needs the tag of each word, which this corpus does not know; give a lexicon")
    causal = run.model.network.pattern.causal
    return replace(
        _with_part(run, TaggerConfig.of_words(words.words, run.model.vocab.size, tags, layers)),
        base=base,
        objective=FutureTaggerObjective() if causal else TaggerObjective(),
        optimizer=OptimizerConfig(lr=3e-3, warmup=20, floor=0.0, ema=0.98),
        steps=run.steps // 2,
        samples=0,  # the model itself does not change
        eval_every=run.steps // 2,
    )


def with_attribute(run: Run, base: str, data: Corpus | InfiniteCorpus) -> Run:
    """Trains an attribute classifier of noisy text for a token model; the model, in the directory `base`, is frozen."""
    return replace(
        _with_part(run, AttributeClassifierConfig(_class_count(data))),
        base=base,
        data=data,
        framing=LabeledRows(run.framing.length, fill_with_eos=not run.framing.padded),
        objective=AttributeObjective(),
        optimizer=OptimizerConfig(lr=3e-3, warmup=20, floor=0.0, ema=0.98),
        steps=run.steps // 4,
        samples=0,  # the model itself does not change
        eval_every=run.steps // 4,
    )


def codec_stage(run: Run, batch: int = 8) -> Run:
    """Returns the first stage of latent diffusion, which trains only the codec, by its own losses.

    Batches are small, to fit many steps into a few minutes.
    """
    return replace(run, base=None, objective=CodecObjective(), samples=0, batch=batch)


def diffusion_stage(run: Run, base: str, loss: LossTerm = SquaredError()) -> Run:
    """Returns the second stage of latent diffusion, which trains the denoiser on latents of the codec in `base`."""
    return replace(run, base=base, objective=Objective(loss))


# --- sizes and budgets ---


def _shrunken(run: Run) -> Run:
    """Shrinks network, codec and encoder to one narrow layer each, small enough to train in a second."""
    narrow: dict[str, Any] = {"width": 16, "layers": 1, "heads": 2, "hidden": 32, "padded_vocab": None}
    network = replace(run.model.network, **narrow, time=8 if run.model.network.time else None)
    if (encoder := run.model.part(SourceEncoderConfig)) is not None:
        run = _with_part(run, replace(encoder, network=replace(encoder.network, **narrow)))
    return with_model(run, network=network, codec=_shrunken_codec(run.model.codec))


def _shrunken_codec(codec: Any) -> Any:
    values = {field.name: getattr(codec, field.name) for field in fields(codec)} if codec is not None else {}
    sizes = {name: TransformerSize(16, 1, 2) for name, value in values.items() if isinstance(value, TransformerSize)}
    return replace(codec, **sizes) if sizes else codec


def with_budget(run: Run, steps: int) -> Run:
    """Trains for `steps` steps, with one evaluation at the end and without samples."""
    return replace(run, steps=steps, eval_every=steps, eval_rows=16, samples=0, log_every=50, keep_checkpoints=1)
