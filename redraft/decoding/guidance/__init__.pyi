from .base import Extrapolated as Extrapolated, Guidance as Guidance
from .classifier_free import ClassifierFree as ClassifierFree, OtherPrompt as OtherPrompt
from .filters import Filter as Filter, Filtered as Filtered
from .lookahead import LookAhead as LookAhead
from .per_position import AtPlaces as AtPlaces
from .token_classifier import FirstOrder as FirstOrder, TokenClassifier as TokenClassifier
from .vectors import (
    Classifier as Classifier,
    Projected as Projected,
    Threshold as Threshold,
    ThroughDenoiser as ThroughDenoiser,
    UnitScale as UnitScale,
)
