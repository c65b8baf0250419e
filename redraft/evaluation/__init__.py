"""Evaluation: laws, likelihood, text metrics, judges, probes, comparisons and lm-eval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.evaluation.comparison.budget import (
        TIMED as TIMED,
        Budget as Budget,
        Fitted as Fitted,
        budgeted as budgeted,
        fitted as fitted,
        seconds_per_step as seconds_per_step,
    )
    from redraft.evaluation.comparison.comparison import (
        Comparison as Comparison,
        over_seeds as over_seeds,
        summaries as summaries,
        text_of as text_of,
    )
    from redraft.evaluation.comparison.measurement import (
        Effort as Effort,
        measured as measured,
        quality as quality,
        share_of as share_of,
        unseen_bits as unseen_bits,
        write_and_judge as write_and_judge,
    )
    from redraft.evaluation.comparison.methods import Method as Method, Ready as Ready, Recipe as Recipe
    from redraft.evaluation.comparison.row_file import (
        CpuTime as CpuTime,
        RowFile as RowFile,
        commit as commit,
        cpu as cpu,
        derived as derived,
        file_config as file_config,
        machine_name as machine_name,
        require_units as require_units,
    )
    from redraft.evaluation.harness.generation import Wanted as Wanted, Writer as Writer
    from redraft.evaluation.harness.report import Estimated as Estimated, Report as Report
    from redraft.evaluation.harness.requests import Request as Request, RowLayout as RowLayout
    from redraft.evaluation.harness.scoring import (
        AnswerScore as AnswerScore,
        Scorer as Scorer,
        Unwatched as Unwatched,
        Watch as Watch,
        greedy as greedy,
    )
    from redraft.evaluation.harness.tasks import (
        TaskFigure as TaskFigure,
        evaluate_tasks as evaluate_tasks,
        language_model as language_model,
        require_package as require_package,
    )
    from redraft.evaluation.judges import (
        Judge as Judge,
        Judged as Judged,
        ModelJudge as ModelJudge,
        TransformersJudge as TransformersJudge,
        generative_perplexity as generative_perplexity,
    )
    from redraft.evaluation.laws.enumeration import VOCAB as VOCAB, Oracle as Oracle
    from redraft.evaluation.laws.gaussian import Mixture as Mixture, MixtureOracle as MixtureOracle, modes as modes
    from redraft.evaluation.laws.insertion import (
        SENTENCE_VOCAB as SENTENCE_VOCAB,
        AtOnce as AtOnce,
        SentenceOracle as SentenceOracle,
        Sentences as Sentences,
        Ways as Ways,
        sentence_integrand as sentence_integrand,
        written_sentences as written_sentences,
    )
    from redraft.evaluation.laws.law import Law as Law, integral as integral, quadrature as quadrature
    from redraft.evaluation.laws.sampling import sampled as sampled
    from redraft.evaluation.laws.schedules import every_schedule as every_schedule
    from redraft.evaluation.laws.solvers import (
        PROCESS as PROCESS,
        ModeClassifier as ModeClassifier,
        TokenOracle as TokenOracle,
        blank as blank,
        density as density,
        renoised as renoised,
    )
    from redraft.evaluation.laws.suite import (
        check as check,
        check_all as check_all,
        check_built_in as check_built_in,
        processes_of as processes_of,
    )
    from redraft.evaluation.noise_levels import Halfway as Halfway, NoiseLevel as NoiseLevel
    from redraft.evaluation.probing import (
        Probed as Probed,
        linear_probe as linear_probe,
        pooled as pooled,
        tuned_probe as tuned_probe,
        windowed as windowed,
    )
    from redraft.evaluation.text_metrics import (
        Grammar as Grammar,
        distinct as distinct,
        grammatical as grammatical,
        possible as possible,
        record as record,
        seen as seen,
        stitched as stitched,
        unigram_entropy as unigram_entropy,
    )

__getattr__, __dir__, __all__ = attach(__name__, __file__)
