"""Laws: every process and sampler held to exact enumeration on toys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.evaluation.laws.gaussian import Mixture, MixtureOracle, modes
    from redraft.evaluation.laws.insertion import (
        SENTENCE_VOCAB,
        AtOnce,
        SentenceOracle,
        Sentences,
        Ways,
        sentence_integrand,
        written_sentences,
    )
    from redraft.evaluation.laws.law import Law, integral, quadrature
    from redraft.evaluation.laws.schedules import every_schedule
    from redraft.evaluation.laws.solvers import PROCESS, ModeClassifier, TokenOracle, blank, density, renoised
    from redraft.evaluation.laws.suite import check, check_all, check_built_in, processes_of
    from redraft.evaluation.laws.tokens import VOCAB, Oracle, sampled

__getattr__, __dir__, __all__ = attach(__name__)
