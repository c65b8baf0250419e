"""Codecs: tokens to vectors and back, for Gaussian noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
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

__getattr__, __dir__, __all__ = attach(__name__)
