from .auxiliary.attribute_classifier import Attributes as Attributes
from .auxiliary.drafter import (
    Beside as Beside,
    BesideNetwork as BesideNetwork,
    DraftConfig as DraftConfig,
    DraftNetwork as DraftNetwork,
    Itself as Itself,
    MaskedItself as MaskedItself,
    only_for_masks as only_for_masks,
    predicting as predicting,
)
from .auxiliary.error_head import Errors as Errors
from .auxiliary.tagger import Foresight as Foresight, Kinds as Kinds, Tagger as Tagger
from .canvas_builder import (
    Piece as Piece,
    UpTo as UpTo,
    grows as grows,
    sized_hole as sized_hole,
    text_places as text_places,
)
from .checkpoints.adapter import AdapterOf as AdapterOf, norms_digest as norms_digest, write_adapter as write_adapter
from .checkpoints.lock import Busy as Busy, only_writer as only_writer
from .checkpoints.reader import (
    Checkpoint as Checkpoint,
    CheckpointError as CheckpointError,
    Exported as Exported,
    JoinedTensors as JoinedTensors,
    latest as latest,
)
from .checkpoints.serialization import (
    JSON as JSON,
    ConfigError as ConfigError,
    digest as digest,
    from_json as from_json,
    to_json as to_json,
)
from .checkpoints.writer import Alone as Alone, Team as Team, save as save
from .codecs.base import Codec as Codec, CodecConfig as CodecConfig
from .codecs.compressed import Compressed as Compressed, CompressedCodec as CompressedCodec
from .codecs.contextual import Contextual as Contextual, ContextualCodec as ContextualCodec
from .codecs.coordinates import (
    CELL as CELL,
    NUMERALS as NUMERALS,
    Coordinates as Coordinates,
    CoordinatesCodec as CoordinatesCodec,
    point_letters as point_letters,
    read_point as read_point,
    spell_point as spell_point,
)
from .codecs.embedding import Embedding as Embedding, EmbeddingCodec as EmbeddingCodec, neighbours as neighbours
from .codecs.modules.corruption import (
    blurred as blurred,
    blurred_up_to as blurred_up_to,
    concealed as concealed,
    substituted as substituted,
    without_features as without_features,
    without_places as without_places,
)
from .codecs.modules.decoder import Autoregressive as Autoregressive, Parallel as Parallel
from .codecs.modules.encoder import (
    Encoder as Encoder,
    EncoderConfig as EncoderConfig,
    MaskedEncoder as MaskedEncoder,
    MaskedLM as MaskedLM,
)
from .codecs.modules.minilm import Bert as Bert, BertBlock as BertBlock, MiniLM as MiniLM
from .codecs.modules.perceiver import Reading as Reading, Resampler as Resampler, windows as windows
from .codecs.modules.size import Size as Size
from .codecs.modules.standardize import Standard as Standard
from .codecs.paragraph import Paragraph as Paragraph, ParagraphCodec as ParagraphCodec, kl_to_standard as kl_to_standard
from .codecs.simplex import Simplex as Simplex, SimplexCodec as SimplexCodec
from .codecs.smooth import Smooth as Smooth, SmoothCodec as SmoothCodec, Smoothing as Smoothing
from .config import DiffusionLMConfig as DiffusionLMConfig
from .diffusion_lm import DiffusionLM as DiffusionLM, eval_mode as eval_mode, evaluating as evaluating
from .draft_state import DraftMemory as DraftMemory
from .formats.checkpoint import Original as Original
from .formats.dit import Ratios as Ratios
from .formats.dit_layout import dit as dit
from .formats.exporter import OUTWARD as OUTWARD, export_as as export_as
from .formats.gpt2 import gpt2 as gpt2
from .formats.importer import convert as convert, in_package as in_package
from .formats.layout import (
    Layout as Layout,
    LayoutError as LayoutError,
    flat as flat,
    require as require,
    setting as setting,
    some as some,
    whole_number as whole_number,
)
from .formats.llada import llada as llada
from .formats.llama import llama as llama, qwen2 as qwen2, qwen3 as qwen3
from .formats.raw import raw_gaps as raw_gaps, raw_outputs as raw_outputs
from .formats.registry import (
    FORMATS as FORMATS,
    Foreign as Foreign,
    read_foreign as read_foreign,
    recognised as recognised,
    understood as understood,
)
from .formats.storage.files import refuse_pickles as refuse_pickles, settings as settings
from .formats.storage.hub import local_folder as local_folder
from .formats.storage.tensors import (
    Held as Held,
    InFile as InFile,
    Settings as Settings,
    Stored as Stored,
    Weights as Weights,
)
from .heads import (
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
from .lazy_prediction import Lazy as Lazy
from .networks.attention import (
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
from .networks.config import Lora as Lora, Ports as Ports, TransformerConfig as TransformerConfig
from .networks.forward_pass import Merger as Merger, Pass as Pass, States as States
from .networks.int8 import Int8 as Int8, with_int8 as with_int8
from .networks.kv_cache import (
    HeldStates as HeldStates,
    KeyValue as KeyValue,
    KeyValues as KeyValues,
    Shelf as Shelf,
    Stand as Stand,
)
from .networks.layers import (
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
from .networks.linear import (
    Joined as Joined,
    LoraEmbedding as LoraEmbedding,
    LoraLinear as LoraLinear,
    WithLora as WithLora,
    adapter_off as adapter_off,
    lora_layers as lora_layers,
    lora_on as lora_on,
    lora_parameters as lora_parameters,
)
from .networks.prepacked import (
    PackedLinear as PackedLinear,
    replaced_layers as replaced_layers,
    with_packed as with_packed,
)
from .networks.ragged_batch import read_out_together as read_out_together, run_together as run_together
from .networks.transformer import (
    Deep as Deep,
    Transformer as Transformer,
    held_states as held_states,
    hidden_matrices as hidden_matrices,
    layer_states as layer_states,
)
from .tagging import follows as follows, tag_logits as tag_logits, what_follows as what_follows
from .time_conditioning import (
    ByKeep as ByKeep,
    ByLogSnr as ByLogSnr,
    BySigma as BySigma,
    ByTime as ByTime,
    Level as Level,
)
