from .flow import climb as climb, log_likelihood as log_likelihood
from .gradient_control import (
    Adagrad as Adagrad,
    AtPlace as AtPlace,
    Descent as Descent,
    Energy as Energy,
    SignSteps as SignSteps,
    Steer as Steer,
    Together as Together,
)
from .grids import (
    GENERATIVE_END as GENERATIVE_END,
    EvenLogSnr as EvenLogSnr,
    EvenTime as EvenTime,
    Grid as Grid,
    Karras as Karras,
    Until as Until,
)
from .langevin import EulerMaruyama as EulerMaruyama, Langevin as Langevin, PredictorCorrector as PredictorCorrector
from .ode import (
    Ddim as Ddim,
    DpmPP as DpmPP,
    DpmPPSde as DpmPPSde,
    Heun as Heun,
    OdeEuler as OdeEuler,
    Solver as Solver,
)
from .renoise import (
    Average as Average,
    Greedy as Greedy,
    MultiHot as MultiHot,
    Projection as Projection,
    Renoise as Renoise,
    Sampled as Sampled,
)
from .step import Move as Move, PreviousStep as PreviousStep, Scales as Scales, scales as scales, walk as walk
