from .base import Codec as Codec, CodecConfig as CodecConfig
from .compressed import Compressed as Compressed, CompressedCodec as CompressedCodec
from .contextual import Contextual as Contextual, ContextualCodec as ContextualCodec
from .coordinates import (
    CELL as CELL,
    NUMERALS as NUMERALS,
    Coordinates as Coordinates,
    CoordinatesCodec as CoordinatesCodec,
    point_letters as point_letters,
    read_point as read_point,
    spell_point as spell_point,
)
from .embedding import Embedding as Embedding, EmbeddingCodec as EmbeddingCodec, neighbours as neighbours
from .modules.corruption import (
    blurred as blurred,
    blurred_up_to as blurred_up_to,
    concealed as concealed,
    substituted as substituted,
    without_features as without_features,
    without_places as without_places,
)
from .modules.decoder import Autoregressive as Autoregressive, Parallel as Parallel
from .modules.encoder import (
    Encoder as Encoder,
    EncoderConfig as EncoderConfig,
    MaskedEncoder as MaskedEncoder,
    MaskedLM as MaskedLM,
)
from .modules.minilm import Bert as Bert, BertBlock as BertBlock, MiniLM as MiniLM
from .modules.perceiver import Reading as Reading, Resampler as Resampler, windows as windows
from .modules.size import Size as Size
from .modules.standardize import Standard as Standard
from .paragraph import Paragraph as Paragraph, ParagraphCodec as ParagraphCodec, kl_to_standard as kl_to_standard
from .simplex import Simplex as Simplex, SimplexCodec as SimplexCodec
from .smooth import Smooth as Smooth, SmoothCodec as SmoothCodec, Smoothing as Smoothing
