"""Evaluation: laws, likelihood, text metrics, judges, probes, comparisons and lm-eval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.evaluation.comparison.budget import TIMED, Budget, Fitted, budgeted, fitted, seconds_per_step
    from redraft.evaluation.comparison.comparison import Comparison, over_seeds, summaries, text_of
    from redraft.evaluation.comparison.measurement import (
        Effort,
        measured,
        quality,
        share_of,
        unseen_bits,
        write_and_judge,
    )
    from redraft.evaluation.comparison.methods import Method, Ready, Recipe
    from redraft.evaluation.comparison.row_file import (
        CpuTime,
        RowFile,
        commit,
        cpu,
        derived,
        file_config,
        machine_name,
        require_units,
    )
    from redraft.evaluation.harness.generation import Wanted, Writer
    from redraft.evaluation.harness.report import Estimated, Report
    from redraft.evaluation.harness.requests import Request, RowLayout
    from redraft.evaluation.harness.scoring import AnswerScore, Scorer, Unwatched, Watch, greedy
    from redraft.evaluation.harness.tasks import TaskFigure, evaluate_tasks, language_model, require_package
    from redraft.evaluation.judges import Judge, Judged, ModelJudge, TransformersJudge, generative_perplexity
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
    from redraft.evaluation.noise_levels import Halfway, NoiseLevel
    from redraft.evaluation.probing import Probed, linear_probe, pooled, tuned_probe, windowed
    from redraft.evaluation.text_metrics import (
        Grammar,
        bleu,
        distinct,
        grammatical,
        minimum_risk,
        possible,
        record,
        seen,
        stitched,
        unigram_entropy,
    )
    from redraft.training.heldout import (
        BIT,
        HeldOut,
        Likelihood,
        Truth,
        decoded,
        ending,
        excess,
        likelihood,
        reconstruction,
        token_bound,
    )

__getattr__, __dir__, __all__ = attach(__name__)
