"""Evaluation: laws, likelihood, text metrics, judges, probes, comparisons and lm-eval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.evaluation.comparison.budget import (
        TIMED_STEPS as TIMED_STEPS,
        Budget as Budget,
        TrainedMethod as TrainedMethod,
        seconds_per_step as seconds_per_step,
        train_under_budget as train_under_budget,
        with_budget_steps as with_budget_steps,
    )
    from redraft.evaluation.comparison.comparison import (
        Comparison as Comparison,
        mean_over_seeds as mean_over_seeds,
        summaries as summaries,
        text_description as text_description,
    )
    from redraft.evaluation.comparison.measurement import (
        MeasurementSize as MeasurementSize,
        measure_model as measure_model,
        proportion as proportion,
        text_quality as text_quality,
        unseen_bits as unseen_bits,
        write_and_judge as write_and_judge,
    )
    from redraft.evaluation.comparison.methods import (
        Method as Method,
        PretrainedMethod as PretrainedMethod,
        TrainingRecipe as TrainingRecipe,
    )
    from redraft.evaluation.comparison.row_file import (
        CpuTime as CpuTime,
        RowFile as RowFile,
        code_version as code_version,
        cpu_timer as cpu_timer,
        filed_digest as filed_digest,
        machine_name as machine_name,
        require_units as require_units,
        store_config as store_config,
    )
    from redraft.evaluation.harness.generation import AnswerWriter as AnswerWriter, TaskGeneration as TaskGeneration
    from redraft.evaluation.harness.report import EstimateSummary as EstimateSummary, Report as Report
    from redraft.evaluation.harness.requests import AnswerRequest as AnswerRequest, RowLayout as RowLayout
    from redraft.evaluation.harness.scoring import (
        AnswerScore as AnswerScore,
        NoProgress as NoProgress,
        ProgressCallback as ProgressCallback,
        Scorer as Scorer,
        is_greedy as is_greedy,
    )
    from redraft.evaluation.harness.tasks import (
        TaskFigure as TaskFigure,
        as_lm as as_lm,
        evaluate_tasks as evaluate_tasks,
        require_package as require_package,
    )
    from redraft.evaluation.judges import (
        Judge as Judge,
        JudgedPerplexity as JudgedPerplexity,
        ModelJudge as ModelJudge,
        TransformersJudge as TransformersJudge,
        generative_perplexity as generative_perplexity,
    )
    from redraft.evaluation.laws.enumeration import VOCAB as VOCAB, Oracle as Oracle
    from redraft.evaluation.laws.gaussian import (
        Mixture as Mixture,
        MixtureOracle as MixtureOracle,
        nearest_modes as nearest_modes,
    )
    from redraft.evaluation.laws.insertion import (
        SENTENCE_VOCAB as SENTENCE_VOCAB,
        InsertAtOnce as InsertAtOnce,
        NoisedSentences as NoisedSentences,
        SentenceLanguage as SentenceLanguage,
        SentenceOracle as SentenceOracle,
        sentence_integrand as sentence_integrand,
        written_sentences as written_sentences,
    )
    from redraft.evaluation.laws.law import Law as Law, integral as integral, quadrature as quadrature
    from redraft.evaluation.laws.sampling import sampling_p_value as sampling_p_value
    from redraft.evaluation.laws.schedules import every_schedule as every_schedule
    from redraft.evaluation.laws.solvers import (
        PROCESS as PROCESS,
        ModeClassifier as ModeClassifier,
        TokenOracle as TokenOracle,
        blank_canvas as blank_canvas,
        density as density,
        renoised as renoised,
    )
    from redraft.evaluation.laws.suite import (
        check_all as check_all,
        check_built_in as check_built_in,
        check_process as check_process,
        processes_of as processes_of,
    )
    from redraft.evaluation.noise_levels import InterpolationScore as InterpolationScore, NoiseLevel as NoiseLevel
    from redraft.evaluation.probing import (
        ProbeResult as ProbeResult,
        linear_probe as linear_probe,
        mean_states as mean_states,
        tuned_probe as tuned_probe,
        window_batch as window_batch,
    )
    from redraft.evaluation.text_metrics import (
        GrammarScore as GrammarScore,
        distinct_ngrams as distinct_ngrams,
        figure_record as figure_record,
        fraction_copied as fraction_copied,
        fraction_possible as fraction_possible,
        grammar_score as grammar_score,
        unigram_entropy as unigram_entropy,
    )

__getattr__, __dir__, __all__ = attach(__name__, __file__)
