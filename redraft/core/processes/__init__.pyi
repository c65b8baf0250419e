from .base import (
    HeldOutBatch as HeldOutBatch,
    Process as Process,
    TokenProcess as TokenProcess,
    never_masked as never_masked,
    require_times as require_times,
    require_vectors as require_vectors,
)
from .gaussian import (
    Between as Between,
    Exploding as Exploding,
    Gaussian as Gaussian,
    Large as Large,
    Path as Path,
    Preserving as Preserving,
    Small as Small,
    Straight as Straight,
    Variance as Variance,
    eps_from_x as eps_from_x,
    score_from_x as score_from_x,
    v_from_x as v_from_x,
    x_from_eps as x_from_eps,
    x_from_score as x_from_score,
    x_from_v as x_from_v,
)
from .insertion import Counted as Counted, Expected as Expected, Insertion as Insertion, inserted as inserted
from .interpolating import (
    Hybrid as Hybrid,
    Interpolating as Interpolating,
    MaskNoise as MaskNoise,
    Mix as Mix,
    Mixing as Mixing,
    StateLaw as StateLaw,
    Steering as Steering,
    UniformNoise as UniformNoise,
    next_law as next_law,
)
from .markov import (
    BandJumps as BandJumps,
    Jumps as Jumps,
    Markov as Markov,
    MaskJumps as MaskJumps,
    NearJumps as NearJumps,
    Spectrum as Spectrum,
    UniformJumps as UniformJumps,
    mutual_information as mutual_information,
    nearest as nearest,
)
from .masked import Chance as Chance, Choice as Choice, Masked as Masked, Pick as Pick, Revealed as Revealed
from .remasking import (
    ByConfidence as ByConfidence,
    Cap as Cap,
    Loop as Loop,
    Moment as Moment,
    Rate as Rate,
    Remask as Remask,
    Rescale as Rescale,
    Star as Star,
    Switch as Switch,
)
from .sedd import (
    log_scores as log_scores,
    mask_limit as mask_limit,
    proper as proper,
    ratios as ratios,
    tweedie as tweedie,
    uniform_limit as uniform_limit,
)
