"""Building blocks of codecs: encoders, decoders, resamplers, corruption."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
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

__getattr__, __dir__, __all__ = attach(__name__)
