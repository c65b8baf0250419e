"""Samplers: generators of canvases, from noise to text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.decoding.samplers.ancestral import Ancestral, FirstHitting
    from redraft.decoding.samplers.base import Even, Hold, Sampler, Warp, grid, last
    from redraft.decoding.samplers.editing import Edited
    from redraft.decoding.samplers.euler import Euler
    from redraft.decoding.samplers.guided import Guided, GuidedByPrompt
    from redraft.decoding.samplers.particles import Particles
    from redraft.decoding.samplers.planning import Planned, SelfPlanned
    from redraft.decoding.samplers.registry import NAMED
    from redraft.decoding.samplers.remask import Blind, Critic, Guide, Learned, Remasked, Revise
    from redraft.decoding.samplers.replacement import Replaced
    from redraft.decoding.samplers.self_correction import Correct
    from redraft.decoding.samplers.stopping import Reader, stopped
    from redraft.decoding.samplers.unmask import Unmask

__getattr__, __dir__, __all__ = attach(__name__)
