"""Laws: every process and sampler held to exact enumeration on toys."""

from redraft.laws.gaussian import Mixture, MixtureOracle, modes
from redraft.laws.proof import built_in, check, check_all, processes_of
from redraft.laws.row import Row, integral, quadrature
from redraft.laws.sentences import LONGEST, AtOnce, Sentences, Ways, expected, written
from redraft.laws.solvers import PROCESS, ModeClassifier, TokenOracle, blank, density, renoised
from redraft.laws.tokens import VOCAB, Oracle, every_schedule, sampled
