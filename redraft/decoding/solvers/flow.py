"""Encoding to noise and likelihood by the probability flow ODE."""

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
from redraft.core.processes.gaussian import Gaussian
from redraft.core.randomness import Rng
from redraft.decoding.samplers.base import time_column
from redraft.decoding.solvers.grids import UniformLogSnrGrid
from redraft.decoding.solvers.ode import Heun
from redraft.decoding.solvers.step import SolverStep, noise_scales


def encode_to_noise(
    denoise: Denoiser, process: Process, canvas: Canvas, *, steps: int, rng: Rng
) -> Iterator[tuple[float, Canvas]]:
    """Integrate the probability flow from x to noise with Heun's method; yield times and canvases up to t = 1.

    Steps are equal in log-SNR. Self-conditioning is not used, because the flow must depend on z and t alone.
    """
    path = process.narrowed(Gaussian, "a solver", "use Ancestral(steps)").path
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
    """(B,) float64: log p(x) in nats of the vectors on a canvas, given its fixed positions, by the probability flow.

    log p(y_0) = log p(y_1) + ∫ div(dy/dς) dς, where the divergence is (n − tr ∂x̂/∂y)/ς for n coordinates (Song et al.
    2021, eq. 39). With `exact`, the trace takes n backward passes per step, which is only for tiny n. Otherwise it is
    estimated as vᵀJv with one v ∈ {±1}ⁿ for the whole path (Hutchinson). The result is the density of z/a at the clean
    end, where a little noise is left. A density of vectors is not a likelihood of tokens.
    """
    path, free = process.narrowed(Gaussian, "a solver", "use Ancestral(steps)").path, ~canvas.fixed[..., None]
    probes = free * (_unit_vectors(canvas.z) if exact else randomness.sign_like(canvas.z, rng)[None])
    count = free.expand_as(canvas.z).sum((1, 2)).to(ops.widest_float(canvas.z.device))
    rates, log_ratios = [], []
    for t, noisy in encode_to_noise(denoise, process, canvas, steps=steps, rng=rng):
        scales = noise_scales(path, t)
        rates.append(count - scales.signal * _trace(denoise, noisy, t, probes))
        log_ratios.append(-scales.half_log_snr)
    flow = torch.trapezoid(torch.stack(rates), count.new_tensor(log_ratios), dim=0)
    prior = (noisy.z.to(count.dtype) / path.prior_std).square() / 2 + math.log(path.prior_std * math.sqrt(2 * math.pi))
    return flow - (free * prior).sum((1, 2)) + count * math.log(scales.signal)


def _trace(denoise: Denoiser, canvas: Canvas, t: float, probes: Tensor) -> Tensor:
    """(B,) Σ_v vᵀ(∂x̂/∂z)v over the probes (P, B, N, D)."""
    with torch.enable_grad():
        z = canvas.z.detach().requires_grad_()
        x = denoise.predict(z, canvas.time(time_column(canvas, t)), canvas.context).x
        products = (torch.autograd.grad(x, z, v, retain_graph=True)[0] for v in probes.to(x.dtype))
        return torch.stack([(vj * v).sum((1, 2)) for vj, v in zip(products, probes, strict=True)]).sum(0)


def _unit_vectors(z: Tensor) -> Tensor:
    """(N·D, B, N, D) unit vectors, one per coordinate."""
    _, N, D = z.shape
    return torch.eye(N * D, dtype=z.dtype, device=z.device).view(N * D, 1, N, D).expand(-1, *z.shape)
