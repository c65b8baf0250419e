from .aliases import ALIASES as ALIASES, settings_from as settings_from
from .rules import ArgumentError as ArgumentError
from .settings import (
    MOST_ROWS as MOST_ROWS,
    MOST_SEED as MOST_SEED,
    Controlling as Controlling,
    Correcting as Correcting,
    Decoding as Decoding,
    Generation as Generation,
    Infilling as Infilling,
    Rewriting as Rewriting,
    Scoring as Scoring,
    optional as optional,
    out_of_range as out_of_range,
    require_texts as require_texts,
    short as short,
    wrong_seed as wrong_seed,
)
from .templates import Hole as Hole, Template as Template, require_holes as require_holes
