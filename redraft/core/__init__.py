"""Core: values, random numbers, noise schedules, noising processes, text, hardware. No networks, no samplers.

Notation used everywhere: x is clean, z is noisy, t is the time of z (0 is clean, 1 is noise), and s < t is an earlier
time. B is the batch size, L the length, V the number of states including the mask, D the width. Times have shape (B, 1)
or (B, L), never (B,): with one time per token, prompts (t = 0), infilling and block diffusion need no special case.
If a codec makes vectors, x and z are (B, N, D) with N ≤ L positions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.core.batch import (
        Batch as Batch,
        BatchOrigin as BatchOrigin,
        CleanBatch as CleanBatch,
        Loss as Loss,
        NoiseTimes as NoiseTimes,
        NoisySample as NoisySample,
    )
    from redraft.core.canvas import (
        Cache as Cache,
        Canvas as Canvas,
        Constraints as Constraints,
        Context as Context,
        PlacedRules as PlacedRules,
    )
    from redraft.core.condition import Condition as Condition
    from redraft.core.hardware.batch_invariance import (
        batch_invariant_rows as batch_invariant_rows,
        least_invariant_rows as least_invariant_rows,
    )
    from redraft.core.hardware.device import best_device as best_device, find_device as find_device
    from redraft.core.hardware.forked import (
        run_forked as run_forked,
    )
    from redraft.core.hardware.precision import (
        Precision as Precision,
        PrecisionError as PrecisionError,
        PrecisionName as PrecisionName,
        Shapes as Shapes,
        block_shapes as block_shapes,
        choose_precision as choose_precision,
    )
    from redraft.core.hardware.system import (
        InstructionSet as InstructionSet,
        MemoryInfo as MemoryInfo,
        SystemReport as SystemReport,
        diagnose_system as diagnose_system,
        free_memory as free_memory,
        inspect_system as inspect_system,
    )
    from redraft.core.ops import (
        Ranking as Ranking,
        dropout as dropout,
        entropy as entropy,
        exclude as exclude,
        extrapolate as extrapolate,
        flat_positions as flat_positions,
        intensity_nll as intensity_nll,
        log_softplus as log_softplus,
        mean_log_prob as mean_log_prob,
        nll as nll,
        nucleus_mask as nucleus_mask,
        poisson_kl as poisson_kl,
        scatter as scatter,
        to_numpy as to_numpy,
        top_k_mask as top_k_mask,
        top_per_row as top_per_row,
        widest_float as widest_float,
    )
    from redraft.core.prediction import (
        Denoiser as Denoiser,
        DenoiserWrapper as DenoiserWrapper,
        Draw as Draw,
        GapPrediction as GapPrediction,
        IndependentDraw as IndependentDraw,
        Prediction as Prediction,
        TablePrediction as TablePrediction,
        VectorPrediction as VectorPrediction,
    )
    from redraft.core.processes.base import (
        Process as Process,
        TokenProcess as TokenProcess,
        exclude_mask as exclude_mask,
        require_times as require_times,
        require_vectors as require_vectors,
    )
    from redraft.core.processes.gaussian import (
        ForwardVariance as ForwardVariance,
        Gaussian as Gaussian,
        LearnedVariance as LearnedVariance,
        NoisePath as NoisePath,
        PosteriorVariance as PosteriorVariance,
        ReverseVariance as ReverseVariance,
        StraightPath as StraightPath,
        VarianceExploding as VarianceExploding,
        VariancePreserving as VariancePreserving,
        eps_from_x as eps_from_x,
        score_from_x as score_from_x,
        v_from_x as v_from_x,
        x_from_eps as x_from_eps,
        x_from_score as x_from_score,
        x_from_v as x_from_v,
    )
    from redraft.core.processes.insertion import (
        CategoricalGaps as CategoricalGaps,
        Insertion as Insertion,
        PoissonGaps as PoissonGaps,
    )
    from redraft.core.processes.interpolating import (
        HybridNoise as HybridNoise,
        Interpolating as Interpolating,
        MaskNoise as MaskNoise,
        NoiseDistribution as NoiseDistribution,
        StateLogProbs as StateLogProbs,
        UniformNoise as UniformNoise,
        reverse_log_probs as reverse_log_probs,
    )
    from redraft.core.processes.markov import (
        AbsorbingRates as AbsorbingRates,
        BandedRates as BandedRates,
        JumpRates as JumpRates,
        Markov as Markov,
        NeighborRates as NeighborRates,
        UniformRates as UniformRates,
        mutual_information_schedule as mutual_information_schedule,
        nearest_words as nearest_words,
    )
    from redraft.core.processes.masked import (
        IndependentReveal as IndependentReveal,
        Masked as Masked,
        Pick as Pick,
        PickResult as PickResult,
    )
    from redraft.core.processes.remasking import (
        CappedRate as CappedRate,
        ConfidenceRate as ConfidenceRate,
        LoopRate as LoopRate,
        Remask as Remask,
        RemaskRate as RemaskRate,
        RescaledRate as RescaledRate,
        StarRate as StarRate,
        WindowedRate as WindowedRate,
    )
    from redraft.core.processes.sedd import (
        clip_and_normalize as clip_and_normalize,
        log_scores as log_scores,
        score_ratios as score_ratios,
        tweedie_probs as tweedie_probs,
    )
    from redraft.core.randomness import (
        Rng as Rng,
        normal_like as normal_like,
        rng as rng,
        sample_categorical as sample_categorical,
        sample_poisson as sample_poisson,
        sign_like as sign_like,
        thin_counts as thin_counts,
    )
    from redraft.core.schedules.base import Schedule as Schedule
    from redraft.core.schedules.gaussian import (
        CosineOffset as CosineOffset,
        Sqrt as Sqrt,
        TanD as TanD,
        VPLinear as VPLinear,
    )
    from redraft.core.schedules.tokens import (
        Cosine as Cosine,
        CosineRatio as CosineRatio,
        CosineSquared as CosineSquared,
        Exponential as Exponential,
        Geometric as Geometric,
        Linear as Linear,
        Polynomial as Polynomial,
    )
    from redraft.core.schedules.transforms import (
        ClampedLogSnr as ClampedLogSnr,
        DiscreteChain as DiscreteChain,
        ExactEnds as ExactEnds,
        PiecewiseKeep as PiecewiseKeep,
        PiecewiseLogSnr as PiecewiseLogSnr,
        ShiftedLogSnr as ShiftedLogSnr,
        TimeReversed as TimeReversed,
    )
    from redraft.core.text.bleu import bleu as bleu, minimum_bayes_risk as minimum_bayes_risk
    from redraft.core.text.chat_template import (
        TemplateSandbox as TemplateSandbox,
        encode_rendered as encode_rendered,
        prompt_ids as prompt_ids,
        prompt_text as prompt_text,
        question_encoder as question_encoder,
    )
    from redraft.core.text.tokenizers import (
        ByteTokenizer as ByteTokenizer,
        CharTokenizer as CharTokenizer,
        HubTokenizer as HubTokenizer,
        Special as Special,
        Tokenizer as Tokenizer,
        WordTokenizer as WordTokenizer,
        join_words as join_words,
        split_words as split_words,
        token_texts as token_texts,
        train_bpe as train_bpe,
    )
    from redraft.core.vocab import Vocab as Vocab, require_range as require_range

__getattr__, __dir__, __all__ = attach(__name__, __file__)
