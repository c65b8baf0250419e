"""Presets: functions that return a Run, one per recipe, in one dict."""

from redraft.presets.index import PRESETS, PUBLISHED, PURPOSES, TINY
from redraft.presets.latents import (
    codec_of,
    cosmos_tiny,
    diffusion_on,
    ld4tg_class_tiny,
    ld4tg_codec_tiny,
    ld4tg_tiny,
    planner_tiny,
    tencdm_codec_tiny,
    tencdm_tiny,
    with_classes,
)
from redraft.presets.own import diffuseq_e2e, tencdm_codec_prose, tencdm_prose
from redraft.presets.tiny import (
    STORY_LENGTH,
    ar_tiny,
    bd3_tiny,
    d3pm_tiny,
    flex_tiny,
    gidd_tiny,
    gstar,
    gstar_tiny,
    mdlm_tiny,
    mdlm_tiny_chars,
    multinomial_tiny,
    sedd_tiny,
    sedd_uniform_tiny,
    udlm_tiny,
)
from redraft.presets.vectors import (
    diffuseq_summary_tiny,
    diffuseq_tiny,
    diffusion_lm_tiny,
    genie_cpd_tiny,
    genie_summary_tiny,
    genie_tiny,
    ssd_tiny,
    whole_rows,
    with_encoder,
)
