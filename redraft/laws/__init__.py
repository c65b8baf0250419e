"""Laws: every process and sampler held to exact enumeration on toys."""

from redraft.laws.gaussian import Mixture, MixtureOracle, modes
from redraft.laws.insertion import (
    _LONGEST,
    SENTENCE_VOCAB,
    AtOnce,
    SentenceOracle,
    Sentences,
    Ways,
    sentence_integrand,
    written_sentences,
)
from redraft.laws.law import Law, integral, quadrature
from redraft.laws.proof import check, check_all, check_built_in, processes_of
from redraft.laws.schedules import every_schedule
from redraft.laws.solvers import PROCESS, ModeClassifier, TokenOracle, blank, density, renoised
from redraft.laws.tokens import VOCAB, Oracle, sampled
