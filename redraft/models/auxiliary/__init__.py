"""Auxiliary networks beside the denoiser: error head, attribute classifier, tagger, drafter."""

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

__getattr__, __dir__, __all__ = attach(__name__)
