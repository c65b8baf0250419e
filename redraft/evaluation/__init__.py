"""Evaluation: laws, audits, text metrics, judges, probes, comparisons and lm-eval tasks."""

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
    )
    from redraft.evaluation.comparison.comparison import (
        Comparison as Comparison,
        summaries as summaries,
    )
    from redraft.evaluation.comparison.measurement import (
        MeasurementSize as MeasurementSize,
        proportion as proportion,
        unseen_bits as unseen_bits,
        write_and_judge as write_and_judge,
    )
    from redraft.evaluation.comparison.methods import (
        Method as Method,
        PretrainedMethod as PretrainedMethod,
        TrainingRecipe as TrainingRecipe,
    )
    from redraft.evaluation.comparison.row_file import (
        RowFile as RowFile,
        cpu_timer as cpu_timer,
        filed_digest as filed_digest,
        require_units as require_units,
    )
    from redraft.evaluation.harness.report import Report as Report
    from redraft.evaluation.harness.requests import AnswerRequest as AnswerRequest, RowLayout as RowLayout
    from redraft.evaluation.harness.scoring import (
        AnswerScore as AnswerScore,
        ProgressCallback as ProgressCallback,
        Scorer as Scorer,
    )
    from redraft.evaluation.harness.tasks import (
        TaskFigure as TaskFigure,
        as_lm as as_lm,
        evaluate_tasks as evaluate_tasks,
    )
    from redraft.evaluation.judges import (
        Judge as Judge,
        JudgedPerplexity as JudgedPerplexity,
        ModelJudge as ModelJudge,
        TransformersJudge as TransformersJudge,
        generative_perplexity as generative_perplexity,
    )
    from redraft.evaluation.laws.enumeration import VOCAB as VOCAB, Oracle as Oracle
    from redraft.evaluation.laws.law import Law as Law
    from redraft.evaluation.laws.suite import check_built_in as check_built_in, check_process as check_process
    from redraft.evaluation.noise_levels import InterpolationScore as InterpolationScore, NoiseLevel as NoiseLevel
    from redraft.evaluation.probing import (
        ProbeResult as ProbeResult,
        linear_probe as linear_probe,
        tuned_probe as tuned_probe,
        window_batch as window_batch,
    )
    from redraft.evaluation.referee.auditing import audit as audit
    from redraft.evaluation.referee.log_probs import AuditLogProb as AuditLogProb
    from redraft.evaluation.referee.losses import AuditLoss as AuditLoss
    from redraft.evaluation.referee.processes import AuditProcess as AuditProcess
    from redraft.evaluation.referee.samplers import AuditSampler as AuditSampler
    from redraft.evaluation.referee.verdict import AuditEffort as AuditEffort, Verdict as Verdict
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
