from .gaussian import Mixture as Mixture, MixtureOracle as MixtureOracle, modes as modes
from .insertion import (
    SENTENCE_VOCAB as SENTENCE_VOCAB,
    AtOnce as AtOnce,
    SentenceOracle as SentenceOracle,
    Sentences as Sentences,
    Ways as Ways,
    sentence_integrand as sentence_integrand,
    written_sentences as written_sentences,
)
from .law import Law as Law, integral as integral, quadrature as quadrature
from .schedules import every_schedule as every_schedule
from .solvers import (
    PROCESS as PROCESS,
    ModeClassifier as ModeClassifier,
    TokenOracle as TokenOracle,
    blank as blank,
    density as density,
    renoised as renoised,
)
from .suite import (
    check as check,
    check_all as check_all,
    check_built_in as check_built_in,
    processes_of as processes_of,
)
from .tokens import VOCAB as VOCAB, Oracle as Oracle, sampled as sampled
