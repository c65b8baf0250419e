"""Presets: functions that return a Run, one per recipe, in one dict."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.training.presets.chat import llada_chat_tiny, story_chat
    from redraft.training.presets.index import PRESETS, PUBLISHED, PURPOSES, TINY
    from redraft.training.presets.latents import (
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
        tencdm_codec_roc,
        tencdm_codec_tiny,
        tencdm_roc,
        tencdm_tiny,
    )
    from redraft.training.presets.small import (
        diffuseq_e2e,
        genie_e2e,
        ld4tg_codec_e2e,
        ld4tg_e2e,
        tencdm_codec_prose,
        tencdm_prose,
    )
    from redraft.training.presets.tiny import (
        STORY_LENGTH,
        ar_code_tiny,
        ar_tagger_tiny,
        ar_tiny,
        bd3_tiny,
        d3pm_tiny,
        flex_tiny,
        gidd_tiny,
        gstar_tiny,
        mdlm_attribute_tiny,
        mdlm_code_tiny,
        mdlm_tagger_tiny,
        mdlm_tiny,
        mdlm_tiny_chars,
        mlm_tiny,
        multinomial_tiny,
        sedd_tiny,
        sedd_uniform_tiny,
        udlm_tiny,
    )
    from redraft.training.presets.tokens import (
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
    from redraft.training.presets.vectors import (
        diffuseq_qqp,
        diffuseq_summary_tiny,
        diffuseq_tiny,
        diffusion_lm_e2e,
        diffusion_lm_roc,
        diffusion_lm_tagger_tiny,
        diffusion_lm_tiny,
        genie_cpd_books,
        genie_cpd_tiny,
        genie_summary_tiny,
        genie_tiny,
        genie_xsum,
        points_class_tiny,
        points_tiny,
        ssd_owt,
        ssd_tiny,
    )

__getattr__, __dir__, __all__ = attach(__name__)
