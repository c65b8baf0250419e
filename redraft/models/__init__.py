"""Models: the network, codecs, heads and `DiffusionLM`; checkpoints, and the formats of other projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.models.canvas_builder import (
        TemplatePiece as TemplatePiece,
        VariableHole as VariableHole,
    )
    from redraft.models.canvases import blank_canvas as blank_canvas, chat_canvas as chat_canvas
    from redraft.models.checkpoints.adapter import (
        AdapterConfig as AdapterConfig,
        write_adapter as write_adapter,
    )
    from redraft.models.checkpoints.reader import (
        CheckpointError as CheckpointError,
        latest_checkpoint as latest_checkpoint,
    )
    from redraft.models.checkpoints.serialization import (
        JSON as JSON,
        ConfigError as ConfigError,
        digest as digest,
        from_json as from_json,
        to_json as to_json,
    )
    from redraft.models.codecs.base import (
        Codec as Codec,
        CodecConfig as CodecConfig,
    )
    from redraft.models.codecs.compressed import (
        Compressed as Compressed,
        CompressedCodec as CompressedCodec,
    )
    from redraft.models.codecs.contextual import (
        Contextual as Contextual,
        ContextualCodec as ContextualCodec,
    )
    from redraft.models.codecs.coordinates import (
        Coordinates as Coordinates,
        CoordinatesCodec as CoordinatesCodec,
    )
    from redraft.models.codecs.embedding import (
        Embedding as Embedding,
        EmbeddingCodec as EmbeddingCodec,
    )
    from redraft.models.codecs.modules.encoder import (
        Encoder as Encoder,
        EncoderConfig as EncoderConfig,
        MaskedLM as MaskedLM,
    )
    from redraft.models.codecs.modules.minilm import MiniLM as MiniLM
    from redraft.models.codecs.modules.size import TransformerSize as TransformerSize
    from redraft.models.codecs.paragraph import (
        Paragraph as Paragraph,
        ParagraphCodec as ParagraphCodec,
    )
    from redraft.models.codecs.simplex import (
        Simplex as Simplex,
        SimplexCodec as SimplexCodec,
    )
    from redraft.models.codecs.smooth import (
        Smooth as Smooth,
        SmoothCodec as SmoothCodec,
        Smoothing as Smoothing,
    )
    from redraft.models.config import DiffusionLMConfig as DiffusionLMConfig
    from redraft.models.cpu_weights import (
        weight_format as weight_format,
        with_weight_format as with_weight_format,
    )
    from redraft.models.diffusion_lm import (
        DiffusionLM as DiffusionLM,
        inference as inference,
    )
    from redraft.models.formats.dit import UniformScoreHead as UniformScoreHead
    from redraft.models.formats.exporter import export_as as export_as
    from redraft.models.formats.importer import import_checkpoint as import_checkpoint
    from redraft.models.formats.raw import (
        reference_gaps as reference_gaps,
        reference_outputs as reference_outputs,
    )
    from redraft.models.heads import (
        Head as Head,
        PredictEps as PredictEps,
        PredictScore as PredictScore,
        PredictTokens as PredictTokens,
        PredictV as PredictV,
        PredictX as PredictX,
        Score as Score,
        Shift as Shift,
        Softmax as Softmax,
        Subs as Subs,
        VectorHead as VectorHead,
        WithVariance as WithVariance,
    )
    from redraft.models.lazy_prediction import LazyPrediction as LazyPrediction
    from redraft.models.networks.attention import RopeScaling as RopeScaling
    from redraft.models.networks.config import NetworkIO as NetworkIO, TransformerConfig as TransformerConfig
    from redraft.models.networks.kv_cache import KeyValueCache as KeyValueCache
    from redraft.models.networks.linear import (
        LoraConfig as LoraConfig,
        lora_disabled as lora_disabled,
        lora_enabled as lora_enabled,
    )
    from redraft.models.networks.patterns import (
        AttentionPattern as AttentionPattern,
        BlockCausal as BlockCausal,
        Causal as Causal,
        Full as Full,
        FullAfterStart as FullAfterStart,
    )
    from redraft.models.networks.transformer import Transformer as Transformer
    from redraft.models.parts.attribute_classifier import (
        AttributeClassifier as AttributeClassifier,
        AttributeClassifierConfig as AttributeClassifierConfig,
    )
    from redraft.models.parts.base import Part as Part
    from redraft.models.parts.config import PartConfig as PartConfig
    from redraft.models.parts.drafter import (
        DraftConfig as DraftConfig,
        DraftNetwork as DraftNetwork,
        DraftState as DraftState,
    )
    from redraft.models.parts.error_head import (
        ErrorCritic as ErrorCritic,
        ErrorHead as ErrorHead,
        ErrorHeadConfig as ErrorHeadConfig,
    )
    from redraft.models.parts.self_drafter import SelfDrafter as SelfDrafter
    from redraft.models.parts.side_drafter import SideDrafter as SideDrafter
    from redraft.models.parts.source_encoder import (
        SourceEncoder as SourceEncoder,
        SourceEncoderConfig as SourceEncoderConfig,
    )
    from redraft.models.parts.tagger import (
        FutureTagger as FutureTagger,
        Tagger as Tagger,
        TaggerConfig as TaggerConfig,
    )
    from redraft.models.time_conditioning import (
        ConditionOnKeep as ConditionOnKeep,
        ConditionOnLogSnr as ConditionOnLogSnr,
        ConditionOnSigma as ConditionOnSigma,
        ConditionOnTime as ConditionOnTime,
        TimeConditioning as TimeConditioning,
    )

__getattr__, __dir__, __all__ = attach(__name__, __file__)
