"""Presets: functions that return a `Run`, one per method and size."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.training.presets.chat import (
        llada_chat_tiny as llada_chat_tiny,
        story_chat_tokenizer as story_chat_tokenizer,
    )
    from redraft.training.presets.index import (
        PRESETS as PRESETS,
        PUBLISHED as PUBLISHED,
        PURPOSES as PURPOSES,
        TINY as TINY,
    )
    from redraft.training.presets.latents import (
        cosmos_codec_roc as cosmos_codec_roc,
        cosmos_codec_tiny as cosmos_codec_tiny,
        cosmos_roc as cosmos_roc,
        cosmos_tiny as cosmos_tiny,
        ld4tg_class_tiny as ld4tg_class_tiny,
        ld4tg_codec_roc as ld4tg_codec_roc,
        ld4tg_codec_tiny as ld4tg_codec_tiny,
        ld4tg_roc as ld4tg_roc,
        ld4tg_tiny as ld4tg_tiny,
        planner_codec_reviews as planner_codec_reviews,
        planner_codec_tiny as planner_codec_tiny,
        planner_reviews as planner_reviews,
        planner_tiny as planner_tiny,
        tencdm_codec_roc as tencdm_codec_roc,
        tencdm_codec_tiny as tencdm_codec_tiny,
        tencdm_roc as tencdm_roc,
        tencdm_tiny as tencdm_tiny,
    )
    from redraft.training.presets.small import (
        diffuseq_e2e as diffuseq_e2e,
        genie_e2e as genie_e2e,
        ld4tg_codec_e2e as ld4tg_codec_e2e,
        ld4tg_e2e as ld4tg_e2e,
        tencdm_codec_prose as tencdm_codec_prose,
        tencdm_prose as tencdm_prose,
    )
    from redraft.training.presets.tiny import (
        STORY_LENGTH as STORY_LENGTH,
        ar_code_tiny as ar_code_tiny,
        ar_tagger_tiny as ar_tagger_tiny,
        ar_tiny as ar_tiny,
        bd3_tiny as bd3_tiny,
        d3pm_tiny as d3pm_tiny,
        flex_tiny as flex_tiny,
        gidd_tiny as gidd_tiny,
        gstar_tiny as gstar_tiny,
        mdlm_attribute_tiny as mdlm_attribute_tiny,
        mdlm_code_tiny as mdlm_code_tiny,
        mdlm_long_tiny as mdlm_long_tiny,
        mdlm_tagger_tiny as mdlm_tagger_tiny,
        mdlm_tiny as mdlm_tiny,
        mdlm_tiny_chars as mdlm_tiny_chars,
        mlm_tiny as mlm_tiny,
        multinomial_tiny as multinomial_tiny,
        sedd_tiny as sedd_tiny,
        sedd_uniform_tiny as sedd_uniform_tiny,
        udlm_tiny as udlm_tiny,
    )
    from redraft.training.presets.tokens import (
        ar_owt as ar_owt,
        bd3_owt as bd3_owt,
        d3pm_lm1b as d3pm_lm1b,
        d3pm_text8 as d3pm_text8,
        flex_owt as flex_owt,
        gidd_owt as gidd_owt,
        llada_8b as llada_8b,
        mdlm_lm1b as mdlm_lm1b,
        mdlm_owt as mdlm_owt,
        mdlm_text8 as mdlm_text8,
        multinomial_enwik8 as multinomial_enwik8,
        multinomial_text8 as multinomial_text8,
        sedd_owt as sedd_owt,
        sedd_text8 as sedd_text8,
        sedd_uniform_text8 as sedd_uniform_text8,
        udlm_lm1b as udlm_lm1b,
        udlm_text8 as udlm_text8,
    )
    from redraft.training.presets.vectors import (
        diffuseq_qqp as diffuseq_qqp,
        diffuseq_summary_tiny as diffuseq_summary_tiny,
        diffuseq_tiny as diffuseq_tiny,
        diffusion_lm_e2e as diffusion_lm_e2e,
        diffusion_lm_roc as diffusion_lm_roc,
        diffusion_lm_tagger_tiny as diffusion_lm_tagger_tiny,
        diffusion_lm_tiny as diffusion_lm_tiny,
        genie_cpd_books as genie_cpd_books,
        genie_cpd_tiny as genie_cpd_tiny,
        genie_summary_tiny as genie_summary_tiny,
        genie_tiny as genie_tiny,
        genie_xsum as genie_xsum,
        points_class_tiny as points_class_tiny,
        points_tiny as points_tiny,
        ssd_owt as ssd_owt,
        ssd_tiny as ssd_tiny,
    )

__getattr__, __dir__, __all__ = attach(__name__, __file__)
