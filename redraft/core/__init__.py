"""Core: values, random numbers, noise schedules, noising processes, text, hardware. Knows no network and no sampler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.core.hardware.batch_invariance import alike_from, steady_rows
    from redraft.core.hardware.forked import Outcome, attempt, can_fork
    from redraft.core.hardware.precision import (
        BELOW_AMX,
        ISA,
        TYPICAL,
        VARIABLE,
        Precision,
        PrecisionError,
        PrecisionName,
        Shapes,
        choose_precision,
        compare,
        shapes_like,
    )
    from redraft.core.hardware.system import (
        GB,
        Cpu,
        Facts,
        InstructionSet,
        Memory,
        advice,
        best_device,
        cpu_quota,
        examine,
        free_memory,
        memory_limit,
    )
    from redraft.core.ops import (
        CrossEntropy,
        Excluded,
        Ranking,
        Rng,
        draw,
        dropout,
        entropy,
        exclude,
        expected_log,
        extrapolate,
        host,
        intensity_nll,
        likeliest,
        log_softplus,
        marked,
        nll,
        normal_like,
        nucleus,
        pkl,
        poisson,
        rng,
        sign_like,
        spread,
        thin,
        top,
        wide,
    )
    from redraft.core.processes.base import (
        HeldOutBatch,
        Process,
        TokenProcess,
        never_masked,
        require_times,
        require_vectors,
    )
    from redraft.core.processes.gaussian import (
        Between,
        Exploding,
        Gaussian,
        Large,
        Path,
        Preserving,
        Small,
        Straight,
        Variance,
        eps_from_x,
        score_from_x,
        v_from_x,
        x_from_eps,
        x_from_score,
        x_from_v,
    )
    from redraft.core.processes.insertion import Counted, Expected, Insertion, inserted
    from redraft.core.processes.interpolating import (
        Hybrid,
        Interpolating,
        MaskNoise,
        Mix,
        Mixing,
        StateLaw,
        Steering,
        UniformNoise,
        next_law,
    )
    from redraft.core.processes.markov import (
        BandJumps,
        Jumps,
        Markov,
        MaskJumps,
        NearJumps,
        Spectrum,
        UniformJumps,
        mutual_information,
        nearest,
    )
    from redraft.core.processes.masked import Chance, Choice, Masked, Pick, Revealed
    from redraft.core.processes.remasking import ByConfidence, Cap, Loop, Moment, Rate, Remask, Rescale, Star, Switch
    from redraft.core.processes.sedd import log_scores, mask_limit, proper, ratios, tweedie, uniform_limit
    from redraft.core.schedules import (
        Chain,
        Clamped,
        Cosine,
        CosineOffset,
        CosineRatio,
        CosineSquared,
        Exponential,
        Geometric,
        Jumping,
        Linear,
        Mirrored,
        Polynomial,
        Retimed,
        Schedule,
        Shifted,
        Sqrt,
        Tabulated,
        TanD,
        VPLinear,
    )
    from redraft.core.text.chat_template import (
        ChatError,
        Render,
        TemplateProcess,
        prompt_ids,
        prompt_text,
        question_ids,
        rendered,
        spelt_ids,
    )
    from redraft.core.text.tokenizers import (
        Bytes,
        Characters,
        Hub,
        Special,
        Tokenizer,
        Words,
        shares,
        spell,
        split_words,
        train_bpe,
    )
    from redraft.core.types import (
        Around,
        Batch,
        Cache,
        Canvas,
        Context,
        Denoiser,
        Drawn,
        Encoded,
        Gaps,
        Independent,
        Known,
        Loss,
        Marks,
        Mean,
        Noised,
        Prediction,
        Times,
        Vocab,
        require_range,
    )

__getattr__, __dir__, __all__ = attach(__name__)
