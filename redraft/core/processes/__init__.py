"""Processes: how a clean sequence becomes noise, and what Bayes' rule says about the way back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.core.processes.base import (
        HeldOutBatch,
        Process,
        TokenProcess,
        never_masked,
        require_times,
        require_vectors,
    )
    from redraft.core.processes.gaussian import (
        Between,
        Exploding,
        Gaussian,
        Large,
        Path,
        Preserving,
        Small,
        Straight,
        Variance,
        eps_from_x,
        score_from_x,
        v_from_x,
        x_from_eps,
        x_from_score,
        x_from_v,
    )
    from redraft.core.processes.insertion import Counted, Expected, Insertion, inserted
    from redraft.core.processes.interpolating import (
        Hybrid,
        Interpolating,
        MaskNoise,
        Mix,
        Mixing,
        StateLaw,
        Steering,
        UniformNoise,
        next_law,
    )
    from redraft.core.processes.markov import (
        BandJumps,
        Jumps,
        Markov,
        MaskJumps,
        NearJumps,
        Spectrum,
        UniformJumps,
        mutual_information,
        nearest,
    )
    from redraft.core.processes.masked import Chance, Choice, Masked, Pick, Revealed
    from redraft.core.processes.remasking import ByConfidence, Cap, Loop, Moment, Rate, Remask, Rescale, Star, Switch
    from redraft.core.processes.sedd import log_scores, mask_limit, proper, ratios, tweedie, uniform_limit

__getattr__, __dir__, __all__ = attach(__name__)
