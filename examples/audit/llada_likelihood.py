"""LLaDA's likelihood: n of L tokens are masked, n ~ U{1…L}, with weight L/n. NumPy arrays, for a change."""

import numpy as np


def llada_likelihood(x, denoise, rng: np.random.Generator):
    rows, length = x.shape
    n = rng.integers(1, length + 1, (rows, 1))
    masked = rng.random(x.shape).argsort(-1).argsort(-1) < n
    log_p = np.take_along_axis(denoise(np.where(masked, denoise.mask, x)), x[..., None], -1)[..., 0]
    return -(log_p * masked * length / n).sum(-1)
