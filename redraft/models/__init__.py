"""Models: the network, codecs, heads and `DiffusionLM`; checkpoints, and the formats of other projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.models.auxiliary.attribute_classifier import Attributes
    from redraft.models.auxiliary.drafter import (
        Beside,
        BesideNetwork,
        DraftConfig,
        DraftNetwork,
        Itself,
        MaskedItself,
        only_for_masks,
        predicting,
    )
    from redraft.models.auxiliary.error_head import Errors
    from redraft.models.auxiliary.tagger import Foresight, Kinds, Tagger
    from redraft.models.canvas_builder import Piece, UpTo, grows, sized_hole, text_places
    from redraft.models.checkpoints.adapter import AdapterOf, norms_digest, write_adapter
    from redraft.models.checkpoints.lock import Busy, only_writer
    from redraft.models.checkpoints.reader import Checkpoint, CheckpointError, Exported, JoinedTensors, latest
    from redraft.models.checkpoints.serialization import JSON, ConfigError, digest, from_json, to_json
    from redraft.models.checkpoints.writer import Alone, Team, save
    from redraft.models.codecs.base import Codec, CodecConfig
    from redraft.models.codecs.compressed import Compressed, CompressedCodec
    from redraft.models.codecs.contextual import Contextual, ContextualCodec
    from redraft.models.codecs.coordinates import (
        CELL,
        NUMERALS,
        Coordinates,
        CoordinatesCodec,
        point_letters,
        read_point,
        spell_point,
    )
    from redraft.models.codecs.embedding import Embedding, EmbeddingCodec, neighbours
    from redraft.models.codecs.modules.corruption import (
        blurred,
        blurred_up_to,
        concealed,
        substituted,
        without_features,
        without_places,
    )
    from redraft.models.codecs.modules.decoder import Autoregressive, Parallel
    from redraft.models.codecs.modules.encoder import Encoder, EncoderConfig, MaskedEncoder, MaskedLM
    from redraft.models.codecs.modules.minilm import Bert, BertBlock, MiniLM
    from redraft.models.codecs.modules.perceiver import Reading, Resampler, windows
    from redraft.models.codecs.modules.size import Size
    from redraft.models.codecs.modules.standardize import Standard
    from redraft.models.codecs.paragraph import Paragraph, ParagraphCodec, kl_to_standard
    from redraft.models.codecs.simplex import Simplex, SimplexCodec
    from redraft.models.codecs.smooth import Smooth, SmoothCodec, Smoothing
    from redraft.models.config import DiffusionLMConfig
    from redraft.models.diffusion_lm import DiffusionLM, Lazy, eval_mode, evaluating
    from redraft.models.draft_state import DraftMemory
    from redraft.models.formats.checkpoint import Original
    from redraft.models.formats.dit import Ratios
    from redraft.models.formats.dit_layout import dit
    from redraft.models.formats.exporter import OUTWARD, export_as
    from redraft.models.formats.gpt2 import gpt2
    from redraft.models.formats.importer import convert, in_package
    from redraft.models.formats.layout import Layout, LayoutError, flat, require, setting, some, whole_number
    from redraft.models.formats.llada import llada
    from redraft.models.formats.llama import llama, qwen2, qwen3
    from redraft.models.formats.raw import raw_gaps, raw_outputs
    from redraft.models.formats.registry import FORMATS, Foreign, read_foreign, recognised, understood
    from redraft.models.formats.storage.files import refuse_pickles, settings
    from redraft.models.formats.storage.hub import local_folder
    from redraft.models.formats.storage.tensors import Held, InFile, Settings, Stored, Weights
    from redraft.models.heads import (
        Head,
        PredictEps,
        PredictScore,
        PredictTokens,
        PredictV,
        PredictX,
        Score,
        Shift,
        Softmax,
        Subs,
        VectorHead,
        WithSpread,
    )
    from redraft.models.networks.attention import (
        Annealed,
        BlockCausal,
        Causal,
        Full,
        Mask,
        Pattern,
        Rotary,
        Sight,
        Slowed,
        Turn,
        TwoStreams,
        attend,
        tiled,
    )
    from redraft.models.networks.config import Lora, Ports, TransformerConfig
    from redraft.models.networks.forward_pass import Merger, Pass, States
    from redraft.models.networks.int8 import Int8, with_int8
    from redraft.models.networks.kv_cache import HeldStates, KeyValue, KeyValues, Shelf, Stand
    from redraft.models.networks.layers import (
        MLP,
        RMS,
        AskedPositions,
        Attention,
        Block,
        CrossAttention,
        GapLayer,
        Norm,
        PassView,
        Source,
        SwiGLU,
        TimeEmbedding,
        TimeOf,
    )
    from redraft.models.networks.linear import (
        Joined,
        LoraEmbedding,
        LoraLinear,
        WithLora,
        adapter_off,
        lora_layers,
        lora_on,
        lora_parameters,
    )
    from redraft.models.networks.prepacked import PackedLinear, replaced_layers, with_packed
    from redraft.models.networks.ragged_batch import read_out_together, run_together
    from redraft.models.networks.transformer import Deep, Transformer, held_states, hidden_matrices, layer_states
    from redraft.models.tagging import follows, tag_logits, what_follows
    from redraft.models.time_conditioning import ByKeep, ByLogSnr, BySigma, ByTime, Level

__getattr__, __dir__, __all__ = attach(__name__)
