from .attribute_classifier import Attributes as Attributes
from .drafter import (
    Beside as Beside,
    BesideNetwork as BesideNetwork,
    DraftConfig as DraftConfig,
    DraftNetwork as DraftNetwork,
    Itself as Itself,
    MaskedItself as MaskedItself,
    only_for_masks as only_for_masks,
    predicting as predicting,
)
from .error_head import Errors as Errors
from .tagger import Foresight as Foresight, Kinds as Kinds, Tagger as Tagger
