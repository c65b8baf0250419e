"""Speculative decoding: drafters and acceptance rules."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.decoding.speculation.acceptance import (
        RULES,
        Accepted,
        AcceptRule,
        BlockWise,
        Likeliest,
        Matched,
        PointMass,
        Proposal,
        RoundNoise,
        SharedGumbel,
        TokenWise,
        block_wise,
        matched,
        point_mass,
        token_wise,
    )
    from redraft.decoding.speculation.drafters import (
        Attentive,
        DiffusionDraft,
        Drafter,
        DraftRequest,
        NoDraft,
        SampledDraft,
        StateDraft,
        StateMemory,
    )
    from redraft.decoding.speculation.lookup import PromptLookup, TextLookup
    from redraft.decoding.speculation.speculative import Costs, DraftTally, Speculate

__getattr__, __dir__, __all__ = attach(__name__)
