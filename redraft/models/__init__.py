"""Models: the network, codecs, heads and `DiffusionLM`; checkpoints, and the formats of other projects."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.models.auxiliary.attribute_classifier import Attributes as Attributes
    from redraft.models.auxiliary.drafter import (
        Beside as Beside,
        BesideNetwork as BesideNetwork,
        DraftConfig as DraftConfig,
        DraftNetwork as DraftNetwork,
        Itself as Itself,
        MaskedItself as MaskedItself,
        only_for_masks as only_for_masks,
        predicting as predicting,
    )
    from redraft.models.auxiliary.error_head import Errors as Errors
    from redraft.models.auxiliary.tagger import Foresight as Foresight, Kinds as Kinds, Tagger as Tagger
    from redraft.models.canvas_builder import (
        Piece as Piece,
        UpTo as UpTo,
        grows as grows,
        sized_hole as sized_hole,
        text_places as text_places,
    )
    from redraft.models.checkpoints.adapter import (
        AdapterOf as AdapterOf,
        norms_digest as norms_digest,
        write_adapter as write_adapter,
    )
    from redraft.models.checkpoints.lock import Busy as Busy, only_writer as only_writer
    from redraft.models.checkpoints.reader import (
        Checkpoint as Checkpoint,
        CheckpointError as CheckpointError,
        Exported as Exported,
        JoinedTensors as JoinedTensors,
        latest as latest,
    )
    from redraft.models.checkpoints.serialization import (
        JSON as JSON,
        ConfigError as ConfigError,
        digest as digest,
        from_json as from_json,
        to_json as to_json,
    )
    from redraft.models.checkpoints.writer import Alone as Alone, Team as Team, save as save
    from redraft.models.codecs.base import Codec as Codec, CodecConfig as CodecConfig
    from redraft.models.codecs.compressed import Compressed as Compressed, CompressedCodec as CompressedCodec
    from redraft.models.codecs.contextual import Contextual as Contextual, ContextualCodec as ContextualCodec
    from redraft.models.codecs.coordinates import (
        CELL as CELL,
        NUMERALS as NUMERALS,
        Coordinates as Coordinates,
        CoordinatesCodec as CoordinatesCodec,
        point_letters as point_letters,
        read_point as read_point,
        spell_point as spell_point,
    )
    from redraft.models.codecs.embedding import (
        Embedding as Embedding,
        EmbeddingCodec as EmbeddingCodec,
        neighbours as neighbours,
    )
    from redraft.models.codecs.modules.corruption import (
        blurred as blurred,
        blurred_up_to as blurred_up_to,
        concealed as concealed,
        substituted as substituted,
        without_features as without_features,
        without_places as without_places,
    )
    from redraft.models.codecs.modules.decoder import Autoregressive as Autoregressive, Parallel as Parallel
    from redraft.models.codecs.modules.encoder import (
        Encoder as Encoder,
        EncoderConfig as EncoderConfig,
        MaskedEncoder as MaskedEncoder,
        MaskedLM as MaskedLM,
    )
    from redraft.models.codecs.modules.minilm import Bert as Bert, BertBlock as BertBlock, MiniLM as MiniLM
    from redraft.models.codecs.modules.perceiver import Reading as Reading, Resampler as Resampler, windows as windows
    from redraft.models.codecs.modules.size import Size as Size
    from redraft.models.codecs.modules.standardize import Standard as Standard
    from redraft.models.codecs.paragraph import (
        Paragraph as Paragraph,
        ParagraphCodec as ParagraphCodec,
        kl_to_standard as kl_to_standard,
    )
    from redraft.models.codecs.simplex import Simplex as Simplex, SimplexCodec as SimplexCodec
    from redraft.models.codecs.smooth import Smooth as Smooth, SmoothCodec as SmoothCodec, Smoothing as Smoothing
    from redraft.models.config import DiffusionLMConfig as DiffusionLMConfig
    from redraft.models.cpu_weights import in_int8 as in_int8, in_weights as in_weights, weights_form as weights_form
    from redraft.models.diffusion_lm import DiffusionLM as DiffusionLM, eval_mode as eval_mode, evaluating as evaluating
    from redraft.models.draft_state import DraftMemory as DraftMemory
    from redraft.models.formats.checkpoint import Original as Original
    from redraft.models.formats.dit import Ratios as Ratios, dit as dit
    from redraft.models.formats.exporter import OUTWARD as OUTWARD, export_as as export_as
    from redraft.models.formats.gpt2 import gpt2 as gpt2
    from redraft.models.formats.importer import convert as convert, in_package as in_package
    from redraft.models.formats.layout import (
        Layout as Layout,
        flat as flat,
        require as require,
        setting as setting,
        whole_number as whole_number,
    )
    from redraft.models.formats.llada import llada as llada
    from redraft.models.formats.llama import llama as llama, qwen2 as qwen2, qwen3 as qwen3
    from redraft.models.formats.raw import raw_gaps as raw_gaps, raw_outputs as raw_outputs
    from redraft.models.formats.registry import (
        FORMATS as FORMATS,
        Foreign as Foreign,
        read_foreign as read_foreign,
        recognised as recognised,
        understood as understood,
    )
    from redraft.models.formats.storage.files import refuse_pickles as refuse_pickles, settings as settings
    from redraft.models.formats.storage.hub import local_folder as local_folder
    from redraft.models.formats.storage.tensors import (
        Held as Held,
        InFile as InFile,
        LayoutError as LayoutError,
        Settings as Settings,
        Stored as Stored,
        Weights as Weights,
        some as some,
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
        WithSpread as WithSpread,
    )
    from redraft.models.lazy_prediction import Lazy as Lazy
    from redraft.models.networks.attention import (
        Annealed as Annealed,
        BlockCausal as BlockCausal,
        Causal as Causal,
        Full as Full,
        Mask as Mask,
        Pattern as Pattern,
        Rotary as Rotary,
        Sight as Sight,
        Slowed as Slowed,
        Turn as Turn,
        TwoStreams as TwoStreams,
        attend as attend,
        tiled as tiled,
    )
    from redraft.models.networks.config import Lora as Lora, Ports as Ports, TransformerConfig as TransformerConfig
    from redraft.models.networks.forward_pass import Merger as Merger, Pass as Pass, States as States
    from redraft.models.networks.int8 import Int8 as Int8, with_int8 as with_int8
    from redraft.models.networks.kv_cache import (
        HeldStates as HeldStates,
        KeyValue as KeyValue,
        KeyValues as KeyValues,
        Shelf as Shelf,
        Stand as Stand,
    )
    from redraft.models.networks.layers import (
        MLP as MLP,
        RMS as RMS,
        AskedPositions as AskedPositions,
        Attention as Attention,
        Block as Block,
        CrossAttention as CrossAttention,
        GapLayer as GapLayer,
        Norm as Norm,
        PassView as PassView,
        Source as Source,
        SwiGLU as SwiGLU,
        TimeEmbedding as TimeEmbedding,
        TimeOf as TimeOf,
    )
    from redraft.models.networks.linear import (
        Joined as Joined,
        LoraEmbedding as LoraEmbedding,
        LoraLinear as LoraLinear,
        WithLora as WithLora,
        adapter_off as adapter_off,
        lora_layers as lora_layers,
        lora_on as lora_on,
        lora_parameters as lora_parameters,
    )
    from redraft.models.networks.prepacked import (
        PackedLinear as PackedLinear,
        replaced_layers as replaced_layers,
        with_packed as with_packed,
    )
    from redraft.models.networks.ragged_batch import (
        read_out_together as read_out_together,
        run_together as run_together,
    )
    from redraft.models.networks.transformer import (
        Deep as Deep,
        Transformer as Transformer,
        held_states as held_states,
        hidden_matrices as hidden_matrices,
        layer_states as layer_states,
    )
    from redraft.models.tagging import follows as follows, tag_logits as tag_logits, what_follows as what_follows
    from redraft.models.time_conditioning import (
        ByKeep as ByKeep,
        ByLogSnr as ByLogSnr,
        BySigma as BySigma,
        ByTime as ByTime,
        Level as Level,
    )

__getattr__, __dir__, __all__ = attach(__name__, __file__)
