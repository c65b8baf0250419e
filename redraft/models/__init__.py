"""Models: the network, codecs, heads and `DiffusionLM`; checkpoints, and the formats of other projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.models.auxiliary.attribute_classifier import AttributeClassifier as AttributeClassifier
    from redraft.models.auxiliary.drafter import (
        DraftConfig as DraftConfig,
        DraftNetwork as DraftNetwork,
        SelfDrafter as SelfDrafter,
        SelfDrafterNetwork as SelfDrafterNetwork,
        SideDrafter as SideDrafter,
        SideDrafterNetwork as SideDrafterNetwork,
        gate_lora_to_masks as gate_lora_to_masks,
        predictor_states as predictor_states,
    )
    from redraft.models.auxiliary.error_head import ErrorHead as ErrorHead
    from redraft.models.auxiliary.tagger import FutureTagger as FutureTagger, Tagger as Tagger, TagSet as TagSet
    from redraft.models.canvas_builder import (
        TemplatePiece as TemplatePiece,
        VariableHole as VariableHole,
        inserts_tokens as inserts_tokens,
        make_hole as make_hole,
        text_positions as text_positions,
    )
    from redraft.models.checkpoints.adapter import AdapterConfig as AdapterConfig, write_adapter as write_adapter
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
    from redraft.models.codecs.base import Codec as Codec, CodecConfig as CodecConfig
    from redraft.models.codecs.compressed import Compressed as Compressed, CompressedCodec as CompressedCodec
    from redraft.models.codecs.contextual import Contextual as Contextual, ContextualCodec as ContextualCodec
    from redraft.models.codecs.coordinates import (
        CELL_SIZE as CELL_SIZE,
        POINT_ALPHABET as POINT_ALPHABET,
        Coordinates as Coordinates,
        CoordinatesCodec as CoordinatesCodec,
        format_point as format_point,
        parse_point as parse_point,
        point_length as point_length,
    )
    from redraft.models.codecs.embedding import (
        Embedding as Embedding,
        EmbeddingCodec as EmbeddingCodec,
        cooccurrence_vectors as cooccurrence_vectors,
    )
    from redraft.models.codecs.modules.corruption import (
        add_noise as add_noise,
        add_random_noise as add_random_noise,
        drop_features as drop_features,
        drop_positions as drop_positions,
        mask_tokens as mask_tokens,
        substitute_tokens as substitute_tokens,
    )
    from redraft.models.codecs.modules.decoder import (
        AutoregressiveDecoder as AutoregressiveDecoder,
        ParallelDecoder as ParallelDecoder,
    )
    from redraft.models.codecs.modules.encoder import (
        Encoder as Encoder,
        EncoderConfig as EncoderConfig,
        MaskedEncoder as MaskedEncoder,
        MaskedLM as MaskedLM,
    )
    from redraft.models.codecs.modules.minilm import Bert as Bert, BertBlock as BertBlock, MiniLM as MiniLM
    from redraft.models.codecs.modules.perceiver import (
        Resampler as Resampler,
        ResamplerBlock as ResamplerBlock,
    )
    from redraft.models.codecs.modules.size import TransformerSize as TransformerSize
    from redraft.models.codecs.modules.standardize import Standardizer as Standardizer
    from redraft.models.codecs.paragraph import (
        Paragraph as Paragraph,
        ParagraphCodec as ParagraphCodec,
        kl_to_standard_normal as kl_to_standard_normal,
    )
    from redraft.models.codecs.simplex import Simplex as Simplex, SimplexCodec as SimplexCodec
    from redraft.models.codecs.smooth import Smooth as Smooth, SmoothCodec as SmoothCodec, Smoothing as Smoothing
    from redraft.models.config import DiffusionLMConfig as DiffusionLMConfig
    from redraft.models.cpu_weights import (
        weight_format as weight_format,
        with_weight_format as with_weight_format,
    )
    from redraft.models.diffusion_lm import DiffusionLM as DiffusionLM, eval_mode as eval_mode, inference as inference
    from redraft.models.draft_state import DraftState as DraftState
    from redraft.models.formats.dit import UniformScoreHead as UniformScoreHead
    from redraft.models.formats.exporter import export_as as export_as
    from redraft.models.formats.importer import import_checkpoint as import_checkpoint
    from redraft.models.formats.raw import reference_gaps as reference_gaps, reference_outputs as reference_outputs
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
    from redraft.models.networks.attention import (
        AnnealedCausal as AnnealedCausal,
        AttentionMask as AttentionMask,
        AttentionPattern as AttentionPattern,
        BlockCausal as BlockCausal,
        Causal as Causal,
        Full as Full,
        MaskTensor as MaskTensor,
        RopeScaling as RopeScaling,
        RotaryEmbedding as RotaryEmbedding,
        TwoStreams as TwoStreams,
        attend as attend,
        use_flex_attention as use_flex_attention,
    )
    from redraft.models.networks.config import (
        LoraConfig as LoraConfig,
        NetworkIO as NetworkIO,
        TransformerConfig as TransformerConfig,
    )
    from redraft.models.networks.forward_pass import (
        ForwardPass as ForwardPass,
        PassExecutor as PassExecutor,
        PassOutput as PassOutput,
    )
    from redraft.models.networks.int8 import Int8Linear as Int8Linear, quantize_int8 as quantize_int8
    from redraft.models.networks.kv_cache import (
        CachedStates as CachedStates,
        KeyValue as KeyValue,
        KeyValueBuffer as KeyValueBuffer,
        KeyValueCache as KeyValueCache,
        TokenPositions as TokenPositions,
    )
    from redraft.models.networks.layers import (
        MLP as MLP,
        Attention as Attention,
        Block as Block,
        CrossAttention as CrossAttention,
        EncodedSource as EncodedSource,
        GapHead as GapHead,
        LayerInputs as LayerInputs,
        Norm as Norm,
        QueryPositions as QueryPositions,
        TimeEmbedding as TimeEmbedding,
        TimeEmbeddings as TimeEmbeddings,
    )
    from redraft.models.networks.linear import (
        FusedLinear as FusedLinear,
        LoraEmbedding as LoraEmbedding,
        LoraLinear as LoraLinear,
        LoraWrapper as LoraWrapper,
        lora_disabled as lora_disabled,
        lora_enabled as lora_enabled,
        lora_layers as lora_layers,
        lora_parameters as lora_parameters,
    )
    from redraft.models.networks.prepacked import (
        PrepackedLinear as PrepackedLinear,
        prepack as prepack,
        replace_linears as replace_linears,
    )
    from redraft.models.networks.ragged_batch import (
        project_ragged as project_ragged,
        run_ragged as run_ragged,
    )
    from redraft.models.networks.transformer import (
        HasHiddenMatrices as HasHiddenMatrices,
        Transformer as Transformer,
        cached_states as cached_states,
        hidden_matrices as hidden_matrices,
        record_layer_states as record_layer_states,
    )
    from redraft.models.tagging import (
        future_tag_log_prob as future_tag_log_prob,
        tag_log_prob as tag_log_prob,
        tag_logits as tag_logits,
    )
    from redraft.models.time_conditioning import (
        ConditionOnKeep as ConditionOnKeep,
        ConditionOnLogSnr as ConditionOnLogSnr,
        ConditionOnSigma as ConditionOnSigma,
        ConditionOnTime as ConditionOnTime,
        TimeConditioning as TimeConditioning,
    )

__getattr__, __dir__, __all__ = attach(__name__, __file__)
