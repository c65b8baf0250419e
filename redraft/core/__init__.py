"""Core: values, random numbers, noise schedules, noising processes, text, hardware. Knows no network and no sampler.

Letters, everywhere: x clean, z noisy, t the time of z (0 clean, 1 noise), s < t an earlier time; B batch, L length,
V states including the mask, D width. Times have shape (B, 1) or (B, L), never (B,): a time per token makes prompts
(t = 0), infilling and block diffusion ordinary. Where a codec makes vectors, x and z are (B, N, D), of N ≤ L places.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
