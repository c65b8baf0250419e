from .constrained import Conditioned as Conditioned, Constrained as Constrained
from .dfa import TooLarge as TooLarge
from .placement import (
    AllMarked as AllMarked,
    Marked as Marked,
    constrain as constrain,
    hole as hole,
    lengths as lengths,
    numbered_holes as numbered_holes,
)
from .rules import (
    AllOf as AllOf,
    AnyOf as AnyOf,
    Banned as Banned,
    Json as Json,
    Length as Length,
    OneOf as OneOf,
    Regex as Regex,
    Required as Required,
    Rule as Rule,
    Spaced as Spaced,
    TextRule as TextRule,
    compiled as compiled,
)
