"""Processes: how a clean sequence becomes noise, and what Bayes' rule says about the way back."""

from redraft.processes.base import (
    HeldOutBatch,
    Process,
    TokenProcess,
    never_masked,
    require_times,
    require_vectors,
)
from redraft.processes.gaussian import (
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
from redraft.processes.insertion import Counted, Expected, Insertion, inserted
from redraft.processes.interpolating import (
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
from redraft.processes.markov import (
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
from redraft.processes.masked import Chance, Choice, Masked, Pick, Revealed
from redraft.processes.score import log_scores, mask_limit, proper, ratios, tweedie, uniform_limit
from redraft.processes.star import ByConfidence, Cap, Loop, Moment, Rate, Remask, Rescale, Star, Switch
