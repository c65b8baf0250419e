from .acceptance import (
    RULES as RULES,
    Accepted as Accepted,
    AcceptRule as AcceptRule,
    BlockWise as BlockWise,
    Likeliest as Likeliest,
    Matched as Matched,
    PointMass as PointMass,
    Proposal as Proposal,
    RoundNoise as RoundNoise,
    SharedGumbel as SharedGumbel,
    TokenWise as TokenWise,
    block_wise as block_wise,
    matched as matched,
    point_mass as point_mass,
    token_wise as token_wise,
)
from .drafters import (
    Attentive as Attentive,
    DiffusionDraft as DiffusionDraft,
    Drafter as Drafter,
    DraftRequest as DraftRequest,
    NoDraft as NoDraft,
    SampledDraft as SampledDraft,
    StateDraft as StateDraft,
    StateMemory as StateMemory,
)
from .lookup import PromptLookup as PromptLookup, TextLookup as TextLookup
from .speculative import Costs as Costs, DraftTally as DraftTally, Speculate as Speculate
