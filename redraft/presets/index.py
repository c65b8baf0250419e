"""Presets: functions that return a Run, one per recipe, in one dict.

The tiny ones learn the embedded stories in minutes on a CPU. The published ones carry their papers' hyperparameters;
they read their tokenizer from a file of the user's, say `tokenizer.json` of GPT-2, and their data from files or a hub.
"""

from __future__ import annotations

from collections.abc import Callable

from redraft.presets.latents import (
    cosmos_codec_roc,
    cosmos_codec_tiny,
    cosmos_roc,
    cosmos_tiny,
    ld4tg_class_tiny,
    ld4tg_codec_roc,
    ld4tg_codec_tiny,
    ld4tg_roc,
    ld4tg_tiny,
    planner_codec_reviews,
    planner_codec_tiny,
    planner_reviews,
    planner_tiny,
    tencdm_codec_prose,
    tencdm_codec_roc,
    tencdm_codec_tiny,
    tencdm_prose,
    tencdm_roc,
    tencdm_tiny,
)
from redraft.presets.tiny import (
    ar_tiny,
    bd3_tiny,
    d3pm_tiny,
    flex_tiny,
    gidd_tiny,
    gstar_tiny,
    mdlm_tiny,
    mdlm_tiny_chars,
    multinomial_tiny,
    sedd_tiny,
    sedd_uniform_tiny,
    udlm_tiny,
)
from redraft.presets.tokens import (
    ar_owt,
    bd3_owt,
    d3pm_lm1b,
    d3pm_text8,
    flex_owt,
    gidd_owt,
    llada_8b,
    mdlm_lm1b,
    mdlm_owt,
    mdlm_text8,
    multinomial_enwik8,
    multinomial_text8,
    sedd_owt,
    sedd_text8,
    sedd_uniform_text8,
    udlm_lm1b,
    udlm_text8,
)
from redraft.presets.vectors import (
    diffuseq_e2e,
    diffuseq_qqp,
    diffuseq_summary_tiny,
    diffuseq_tiny,
    diffusion_lm_e2e,
    diffusion_lm_roc,
    diffusion_lm_tiny,
    genie_cpd_books,
    genie_cpd_tiny,
    genie_summary_tiny,
    genie_tiny,
    genie_xsum,
    ssd_owt,
    ssd_tiny,
)
from redraft.runs import Run

PURPOSES: dict[str, tuple[Callable[..., Run], ...]] = {
    "Minutes on a laptop, on the embedded stories: noise of tokens": (
        mdlm_tiny,
        ar_tiny,
        bd3_tiny,
        mdlm_tiny_chars,
        udlm_tiny,
        gidd_tiny,
        multinomial_tiny,
        d3pm_tiny,
        sedd_tiny,
        sedd_uniform_tiny,
        gstar_tiny,
        flex_tiny,
    ),
    "The same: Gaussian noise of word vectors": (
        diffusion_lm_tiny,
        diffuseq_tiny,
        diffuseq_summary_tiny,
        genie_tiny,
        genie_summary_tiny,
        genie_cpd_tiny,
        ssd_tiny,
    ),
    "The same: Gaussian noise of latents, each after its codec": (
        tencdm_codec_tiny,
        tencdm_tiny,
        ld4tg_codec_tiny,
        ld4tg_tiny,
        ld4tg_class_tiny,
        planner_codec_tiny,
        planner_tiny,
        cosmos_codec_tiny,
        cosmos_tiny,
    ),
    "Half an hour on a laptop, on text of your own": (
        diffuseq_e2e,
        tencdm_codec_prose,
        tencdm_prose,
    ),
    "Published sizes, for GPUs: noise of tokens": (
        mdlm_text8,
        mdlm_lm1b,
        mdlm_owt,
        ar_owt,
        bd3_owt,
        llada_8b,
        multinomial_text8,
        multinomial_enwik8,
        d3pm_text8,
        d3pm_lm1b,
        udlm_text8,
        udlm_lm1b,
        gidd_owt,
        sedd_owt,
        sedd_text8,
        sedd_uniform_text8,
        flex_owt,
    ),
    "Published sizes: Gaussian noise of word vectors": (
        diffusion_lm_e2e,
        diffusion_lm_roc,
        diffuseq_qqp,
        genie_xsum,
        genie_cpd_books,
        ssd_owt,
    ),
    "Published sizes: Gaussian noise of latents, each after its codec": (
        tencdm_codec_roc,
        tencdm_roc,
        ld4tg_codec_roc,
        ld4tg_roc,
        cosmos_codec_roc,
        cosmos_roc,
        planner_codec_reviews,
        planner_reviews,
    ),
}
PRESETS: dict[str, Callable[..., Run]] = {f.__name__: f for functions in PURPOSES.values() for f in functions}
TINY: dict[str, Callable[[], Run]] = {name: f for name, f in PRESETS.items() if "_tiny" in name}
PUBLISHED: dict[str, Callable[..., Run]] = {name: f for name, f in PRESETS.items() if name not in TINY}
