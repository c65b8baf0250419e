from .arguments.aliases import ALIASES as ALIASES, settings_from as settings_from
from .arguments.rules import ArgumentError as ArgumentError
from .arguments.settings import (
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
from .arguments.templates import Hole as Hole, Template as Template, require_holes as require_holes
from .canvases import fill as fill
from .chat import answering as answering
from .choice.choice import Choices as Choices, Chosen as Chosen, choose as choose
from .controlled.controlled import Wishes as Wishes, control as control, controlling as controlling
from .correction.correction import (
    Change as Change,
    Corrected as Corrected,
    Corrections as Corrections,
    correct as correct,
    known_words as known_words,
)
from .correction.edit_channel import EDITS as EDITS, EditChannel as EditChannel
from .correction.human_errors import half_of as half_of, human_errors as human_errors
from .correction.lexicon import (
    LETTERS as LETTERS,
    LONGEST_WORD as LONGEST_WORD,
    WORD as WORD,
    Lexicon as Lexicon,
    encoded as encoded,
)
from .correction.misspellings import (
    ERROR_KINDS as ERROR_KINDS,
    Corrupted as Corrupted,
    ErrorKind as ErrorKind,
    SpellingErrors as SpellingErrors,
)
from .engine.given_text import Verbatim as Verbatim
from .engine.logprobs import LikelyTokens as LikelyTokens
from .engine.loop import Writing as Writing
from .engine.model import Model as Model, Opened as Opened, as_opened as as_opened, opened as opened
from .engine.plan import Plan as Plan
from .engine.profiler import Profile as Profile, profiled as profiled
from .engine.result import Draft as Draft, Record as Record, Written as Written
from .engine.sampler_choice import (
    MOST_STEPS as MOST_STEPS,
    batch_size as batch_size,
    choose_sampler as choose_sampler,
    layers as layers,
    unending as unending,
    with_steps as with_steps,
)
from .engine.stop_strings import StopTexts as StopTexts, with_stops as with_stops
from .engine.streaming import View as View
from .engine.trace import Calls as Calls, calls as calls, generated as generated
from .generation import generate as generate, generation as generation
from .infilling.causal_judge import CausalJudge as CausalJudge
from .infilling.infilling import infill as infill, infilling as infilling
from .infilling.propose_and_judge import (
    NextToken as NextToken,
    ProposeAndJudge as ProposeAndJudge,
    RowJudge as RowJudge,
)
from .rewriting import chosen as chosen, rewrite as rewrite, rewriting as rewriting
from .scoring import Scored as Scored, ScoreRecord as ScoreRecord, score as score
