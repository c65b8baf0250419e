"""Evaluation: likelihood of held-out text, judgements of texts, diagnostics of latents."""

from redraft.evaluate.diagnose import Halfway, NoiseLevel
from redraft.evaluate.heldout import (
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
from redraft.evaluate.judges import Judge, Judged, ModelJudge, TransformersJudge, generative_perplexity
from redraft.evaluate.probe import Probed, linear_probe, pooled, tuned_probe, windowed
from redraft.evaluate.texts import (
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
