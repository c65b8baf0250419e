"""Core: values, random numbers, noise schedules, noising processes, text, hardware. Knows no network and no sampler.

Letters, everywhere: x clean, z noisy, t the time of z (0 clean, 1 noise), s < t an earlier time; B batch, L length,
V states including the mask, D width. Times have shape (B, 1) or (B, L), never (B,): a time per token makes prompts
(t = 0), infilling and block diffusion ordinary. Where a codec makes vectors, x and z are (B, N, D), of N ≤ L places.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.core.batch import Batch as Batch, Encoded as Encoded, Loss as Loss, Noised as Noised, Times as Times
    from redraft.core.canvas import Cache as Cache, Canvas as Canvas, Context as Context, Marks as Marks
    from redraft.core.hardware.batch_invariance import alike_from as alike_from, steady_rows as steady_rows
    from redraft.core.hardware.forked import Outcome as Outcome, attempt as attempt, can_fork as can_fork
    from redraft.core.hardware.precision import (
        BELOW_AMX as BELOW_AMX,
        ISA as ISA,
        TYPICAL as TYPICAL,
        VARIABLE as VARIABLE,
        Precision as Precision,
        PrecisionError as PrecisionError,
        PrecisionName as PrecisionName,
        Shapes as Shapes,
        choose_precision as choose_precision,
        compare as compare,
        shapes_like as shapes_like,
    )
    from redraft.core.hardware.system import (
        GB as GB,
        Cpu as Cpu,
        Facts as Facts,
        InstructionSet as InstructionSet,
        Memory as Memory,
        advice as advice,
        best_device as best_device,
        cpu_quota as cpu_quota,
        examine as examine,
        free_memory as free_memory,
        memory_limit as memory_limit,
    )
    from redraft.core.ops import (
        CrossEntropy as CrossEntropy,
        Excluded as Excluded,
        Ranking as Ranking,
        dropout as dropout,
        entropy as entropy,
        exclude as exclude,
        expected_log as expected_log,
        extrapolate as extrapolate,
        host as host,
        intensity_nll as intensity_nll,
        likeliest as likeliest,
        log_softplus as log_softplus,
        marked as marked,
        nll as nll,
        nucleus as nucleus,
        pkl as pkl,
        spread as spread,
        top as top,
        wide as wide,
    )
    from redraft.core.prediction import (
        Around as Around,
        Denoiser as Denoiser,
        Drawn as Drawn,
        Gaps as Gaps,
        Independent as Independent,
        Known as Known,
        Mean as Mean,
        Prediction as Prediction,
    )
    from redraft.core.processes.base import (
        HeldOutBatch as HeldOutBatch,
        Process as Process,
        TokenProcess as TokenProcess,
        never_masked as never_masked,
        require_times as require_times,
        require_vectors as require_vectors,
    )
    from redraft.core.processes.gaussian import (
        Between as Between,
        Exploding as Exploding,
        Gaussian as Gaussian,
        Large as Large,
        Path as Path,
        Preserving as Preserving,
        Small as Small,
        Straight as Straight,
        Variance as Variance,
        eps_from_x as eps_from_x,
        score_from_x as score_from_x,
        v_from_x as v_from_x,
        x_from_eps as x_from_eps,
        x_from_score as x_from_score,
        x_from_v as x_from_v,
    )
    from redraft.core.processes.insertion import (
        Counted as Counted,
        Expected as Expected,
        Insertion as Insertion,
        inserted as inserted,
    )
    from redraft.core.processes.interpolating import (
        Hybrid as Hybrid,
        Interpolating as Interpolating,
        MaskNoise as MaskNoise,
        Mix as Mix,
        Mixing as Mixing,
        StateLaw as StateLaw,
        Steering as Steering,
        UniformNoise as UniformNoise,
        next_law as next_law,
    )
    from redraft.core.processes.markov import (
        BandJumps as BandJumps,
        Jumps as Jumps,
        Markov as Markov,
        MaskJumps as MaskJumps,
        NearJumps as NearJumps,
        Spectrum as Spectrum,
        UniformJumps as UniformJumps,
        mutual_information as mutual_information,
        nearest as nearest,
    )
    from redraft.core.processes.masked import (
        Chance as Chance,
        Choice as Choice,
        Masked as Masked,
        Pick as Pick,
        Revealed as Revealed,
    )
    from redraft.core.processes.remasking import (
        ByConfidence as ByConfidence,
        Cap as Cap,
        Loop as Loop,
        Moment as Moment,
        Rate as Rate,
        Remask as Remask,
        Rescale as Rescale,
        Star as Star,
        Switch as Switch,
    )
    from redraft.core.processes.sedd import (
        log_scores as log_scores,
        mask_limit as mask_limit,
        proper as proper,
        ratios as ratios,
        tweedie as tweedie,
        uniform_limit as uniform_limit,
    )
    from redraft.core.randomness import (
        Rng as Rng,
        draw as draw,
        normal_like as normal_like,
        poisson as poisson,
        rng as rng,
        sign_like as sign_like,
        thin as thin,
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
        Chain as Chain,
        Clamped as Clamped,
        Jumping as Jumping,
        Mirrored as Mirrored,
        Retimed as Retimed,
        Shifted as Shifted,
        Tabulated as Tabulated,
    )
    from redraft.core.text.bleu import bleu as bleu, minimum_risk as minimum_risk
    from redraft.core.text.chat_template import (
        ChatError as ChatError,
        Render as Render,
        TemplateProcess as TemplateProcess,
        prompt_ids as prompt_ids,
        prompt_text as prompt_text,
        question_ids as question_ids,
        rendered as rendered,
        spelt_ids as spelt_ids,
    )
    from redraft.core.text.tokenizers import (
        Bytes as Bytes,
        Characters as Characters,
        Hub as Hub,
        Special as Special,
        Tokenizer as Tokenizer,
        Words as Words,
        shares as shares,
        spell as spell,
        split_words as split_words,
        train_bpe as train_bpe,
    )
    from redraft.core.vocab import Vocab as Vocab, require_range as require_range

__getattr__, __dir__, __all__ = attach(__name__, __file__)
