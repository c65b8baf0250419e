"""Codecs: tokens to vectors and back, for Gaussian noise."""

from redraft.codecs.base import Codec, CodecConfig
from redraft.codecs.compressed import Compressed, CompressedCodec
from redraft.codecs.contextual import Contextual, ContextualCodec
from redraft.codecs.coordinates import (
    CELL,
    NUMERALS,
    Coordinates,
    CoordinatesCodec,
    point_letters,
    read_point,
    spell_point,
)
from redraft.codecs.corrupt import blurred, blurred_up_to, concealed, substituted, without_features, without_places
from redraft.codecs.decoder import Autoregressive, Parallel
from redraft.codecs.embedding import Embedding, EmbeddingCodec, neighbours
from redraft.codecs.encoder import Encoder, EncoderConfig, MaskedEncoder, MaskedLM
from redraft.codecs.minilm import Bert, BertBlock, MiniLM
from redraft.codecs.paragraph import Paragraph, ParagraphCodec, kl_to_standard
from redraft.codecs.perceiver import Reading, Resampler, windows
from redraft.codecs.simplex import Simplex, SimplexCodec
from redraft.codecs.size import Size
from redraft.codecs.smooth import Smooth, SmoothCodec, Smoothing
from redraft.codecs.standard import Standard
