"""Exact likelihood along the probability flow."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from redraft.core import ops, randomness
from redraft.core.canvas import Canvas
from redraft.core.prediction import Denoiser
from redraft.core.processes.base import Process
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import time_column
from redraft.decoding.solvers.grids import UniformLogSnrGrid
from redraft.decoding.solvers.ode import Heun
from redraft.decoding.solvers.step import SolverStep, _require_gaussian, noise_scales


def encode_to_noise(
    denoise: Denoiser, process: Process, canvas: Canvas, *, steps: int, rng: Rng
) -> Iterator[tuple[float, Canvas]]:
    """The probability flow from x to noise: times and canvases from the clean end to t = 1, by Heun's rule.

    Equal steps of log-SNR. There is no hint on the way: the flow is a function of z and t alone.
    """
    path = _require_gaussian(process).path
    times = UniformLogSnrGrid()(path, steps + 1)[-2::-1]
    canvas = canvas.write(noise_scales(path, times[0]).signal * canvas.z)
    yield times[0], canvas
    for t, s in pairwise(times):
        with torch.no_grad():
            canvas = canvas.write(Heun().step(SolverStep(denoise, path, canvas, t, s, rng)))
        yield s, canvas


def flow_log_likelihood(
    denoise: Denoiser, process: Process, canvas: Canvas, *, steps: int, rng: Rng, exact: bool = False
) -> Tensor:
    """(B,) nats log p(x) of the vectors on a canvas, given its fixed places, under the probability flow; float64.

    log p(y_0) = log p(y_1) + ∫ div(dy/dς) dς, where the divergence is (n − tr ∂x̂/∂y)/ς for n coordinates (Song et al.
    2021, eq. 39). The trace is exact (n backward passes: for tiny n), or vᵀJv with one v ∈ {±1}ⁿ for the whole path
    (Hutchinson). This is the density of z/a at the clean end, with the noise that is left there; a density of vectors
    is not a likelihood of tokens.
    """
    path, free = _require_gaussian(process).path, ~canvas.fixed[..., None]
    probes = free * (_coordinates(canvas.z) if exact else randomness.sign_like(canvas.z, rng)[None])
    count = free.expand_as(canvas.z).sum((1, 2)).to(ops.widest_float(canvas.z.device))
    rates, log_ratios = [], []
    for t, there in encode_to_noise(denoise, process, canvas, steps=steps, rng=rng):
        at = noise_scales(path, t)
        rates.append(count - at.signal * _trace(denoise, there, t, probes))
        log_ratios.append(-at.level)
    flow = torch.trapezoid(torch.stack(rates), count.new_tensor(log_ratios), dim=0)
    end = (there.z.to(count.dtype) / path.prior_std).square() / 2 + math.log(path.prior_std * math.sqrt(2 * math.pi))
    return flow - (free * end).sum((1, 2)) + count * math.log(at.signal)


def _trace(denoise: Denoiser, canvas: Canvas, t: float, probes: Tensor) -> Tensor:
    """(B,) Σ_v vᵀ(∂x̂/∂z)v over the probes (P, B, N, D)."""
    with torch.enable_grad():
        z = canvas.z.detach().requires_grad_()
        x = denoise(z, canvas.time(time_column(canvas, t)), canvas.context).x
        pulled = (torch.autograd.grad(x, z, v, retain_graph=True)[0] for v in probes.to(x.dtype))
        return torch.stack([(g * v).sum((1, 2)) for g, v in zip(pulled, probes, strict=True)]).sum(0)


def _coordinates(z: Tensor) -> Tensor:
    """(N·D, B, N, D) the unit vectors."""
    _, N, D = z.shape
    return torch.eye(N * D, dtype=z.dtype, device=z.device).view(N * D, 1, N, D).expand(-1, *z.shape)
