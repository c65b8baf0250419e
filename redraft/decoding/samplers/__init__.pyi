from .ancestral import Ancestral as Ancestral, FirstHitting as FirstHitting
from .base import Even as Even, Hold as Hold, Sampler as Sampler, Warp as Warp, grid as grid, last as last
from .editing import Edited as Edited
from .euler import Euler as Euler
from .guided import Guided as Guided, GuidedByPrompt as GuidedByPrompt
from .particles import Particles as Particles
from .planning import Planned as Planned, SelfPlanned as SelfPlanned
from .registry import NAMED as NAMED
from .remask import (
    Blind as Blind,
    Critic as Critic,
    Guide as Guide,
    Learned as Learned,
    Remasked as Remasked,
    Revise as Revise,
)
from .replacement import Replaced as Replaced
from .self_correction import Correct as Correct
from .stopping import Reader as Reader, stopped as stopped
from .unmask import Unmask as Unmask
