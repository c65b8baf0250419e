"""fp32 or bf16 for matrix products: measured, never assumed. `choose_precision` is the only place that decides.

The flags of a CPU say which instructions exist. Only a trial shows whether they work (virtual machines advertise AMX
and then trap) and whether they are faster than fp32 (emulated bf16 is a hundred times slower). It runs in a forked
child, where an illegal instruction does no harm.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias, get_args

import torch
from torch import Tensor

from redraft.core.hardware.forked import _ForkedResult, run_forked

_PRECISION_ENV = "REDRAFT_PRECISION"
_ISA_ENV = "ONEDNN_MAX_CPU_ISA"
_BELOW_AMX = "AVX512_CORE_FP16"  # the largest instruction set of oneDNN without tiles
_BF16_THRESHOLD = 0.9  # bf16 rounds coarsely: it must save at least a tenth of the time
_ROUNDS = 6  # the first one builds the kernels
_TRIAL_SECONDS = 10.0  # limit of a trial that takes 0.05 s, or 1 s where bf16 is emulated
PrecisionName: TypeAlias = Literal["fp32", "bf16"]
Shapes: TypeAlias = tuple[tuple[int, int, int], ...]  # rows, inputs, outputs of a linear layer
_TYPICAL_SHAPES: Shapes = ((256, 384, 1024), (256, 384, 384))
_CPU = torch.device("cpu")


class PrecisionError(ValueError):
    """Raised if the requested precision does not exist, or does not work on this machine."""


@dataclass(frozen=True)
class Precision:
    """The precision of matrix products, and why."""

    name: PrecisionName
    reason: str

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16 if self.name == "bf16" else torch.float32

    def autocast(self, device: torch.device) -> torch.autocast:
        """A context in which matrix products have this precision."""
        return torch.autocast(device.type, torch.bfloat16, enabled=self.name == "bf16")

    def __str__(self) -> str:
        return f"{self.name} ({self.reason})"


def choose_precision(
    wish: Literal["auto", "fp32", "bf16"] = "auto",
    device: torch.device = _CPU,
    shapes: Shapes = _TYPICAL_SHAPES,
    held: PrecisionName | None = None,
) -> Precision:
    """The precision of matrix products on a device.

    The run's own request comes first, then the environment (REDRAFT_PRECISION=fp32|bf16), then the precision of a
        resumed run. If none of them decides, bf16 is used wherever it is faster: on GPUs that have it, and on CPUs if a
        trial, made once per process and shapes, shows it.

        Args:
            wish: the precision that the run requests
            device: where the products are computed
            shapes: rows, inputs and outputs of linear layers like the model's own
            held: the precision that a resumed run began with
    """
    name, by, instead = _wanted(wish, held)
    if name == "fp32":
        return Precision("fp32", by)
    if device.type != "cpu":
        return _on_gpu(device, name, by, instead)
    with _lock:
        trial, how = _measured(shapes)
    if name == "auto":
        return _judged(trial, how)
    if trial.trouble and trial.tried:
        raise PrecisionError(f"{by}, but a bf16 product {trial.trouble} on this CPU. To go on, {instead}{_hint()}")
    ratio = f"not tried: it {trial.trouble}" if trial.trouble else f"{_ratio(trial)}{how}"
    return Precision("bf16", f"{by}; {ratio}")


def _forced_precision() -> PrecisionName | None:
    """The precision that the environment variable requests."""
    value = os.environ.get(_PRECISION_ENV, "").strip().lower()
    if value in ("", "auto"):
        return None
    for name in get_args(PrecisionName):
        if value == name:
            return name
    raise PrecisionError(f"{_PRECISION_ENV}={value}: it must be fp32, bf16 or auto")


def block_shapes(rows: int, width: int, hidden: int) -> Shapes:
    """The linear layers of a transformer block, small enough for a trial of milliseconds."""
    rows, width, hidden = min(rows, 256), min(width, 512), min(hidden, 2048)
    return (rows, width, hidden), (rows, width, width)


def _wanted(
    wish: Literal["auto", "fp32", "bf16"], held: PrecisionName | None
) -> tuple[Literal["auto", "fp32", "bf16"], str, str]:
    """The requested precision, where the request comes from, and what to do if that precision does not work."""
    if wish != "auto":
        return wish, f"the run asks for {wish}", "use --precision fp32 or auto"
    if (value := _forced_precision()) is not None:
        return value, f"{_PRECISION_ENV}={value}", f"set {_PRECISION_ENV}=fp32"
    if held is not None:
        other = f"resume it where bf16 works, or set {_PRECISION_ENV}=fp32: no longer bit for bit, but in fp32"
        return held, f"the run began in {held}", other
    return "auto", "", ""


def _on_gpu(device: torch.device, name: str, by: str, instead: str) -> Precision:
    has = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    if name == "bf16" and device.type == "cuda" and not has:
        raise PrecisionError(f"{by}, but {torch.cuda.get_device_name(device)} has no bf16. To go on, {instead}")
    if name == "bf16":
        return Precision("bf16", by)
    return Precision("bf16", "this GPU has bf16") if has else Precision("fp32", f"no fast bf16 on {device.type}")


# --- the trial ---

_lock = threading.Lock()
_known: dict[Shapes, tuple[_ForkedResult, str]] = {}


def _hint() -> str:
    """Advice if lowering the instruction set came too late, was left to the user, or does not help."""
    return (
        ""
        if os.environ.get(_ISA_ENV) == _BELOW_AMX
        else f"; {_ISA_ENV}={_BELOW_AMX} may help, if it is set before Python starts"
    )


def _judged(trial: _ForkedResult, how: str) -> Precision:
    if trial.trouble:
        return Precision("fp32", f"a bf16 product {trial.trouble}")
    return Precision("bf16" if trial.value < _BF16_THRESHOLD else "fp32", f"{_ratio(trial)}{how}")


def _ratio(trial: _ForkedResult) -> str:
    return f"bf16 takes {trial.value:.2f} × the time of fp32 here"


def _measured(shapes: Shapes) -> tuple[_ForkedResult, str]:
    """The result of a trial, cached, and a note on what had to be changed for it."""
    if shapes not in _known:
        _known[shapes] = _try(shapes)
    return _known[shapes]


def _try(shapes: Shapes) -> tuple[_ForkedResult, str]:
    """Runs a trial; if bf16 traps, runs it again without tiles, by a variable that oneDNN reads at its first use.

    The variable stays lowered even if fp32 is chosen in the end, so that no other bf16 product can kill the process.
    """
    work = partial(_bf16_time_ratio, shapes)
    trial = run_forked(work, _TRIAL_SECONDS)
    if not trial.tried or not trial.trouble or _ISA_ENV in os.environ:
        return trial, ""
    os.environ[_ISA_ENV] = _BELOW_AMX
    again = run_forked(work, _TRIAL_SECONDS)
    if again.trouble:
        del os.environ[_ISA_ENV]
        return trial, ""
    _matrix(8, 8) @ _matrix(8, 8)  # oneDNN's first use here: later changes of the variable have no effect
    return again, f", with {_ISA_ENV}={_BELOW_AMX}; without, it {trial.trouble}"


def _bf16_time_ratio(shapes: Shapes) -> float:
    """The time of bf16 relative to fp32, measured alternately: the largest ratio over all shapes."""
    worst = 0.0
    for rows, inputs, outputs in shapes:
        x, w = _matrix(rows, inputs), _matrix(outputs, inputs)
        both = [(x.to(dtype), w.to(dtype)) for dtype in (torch.float32, torch.bfloat16)]
        best = [float("inf")] * 2
        for _ in range(_ROUNDS):
            best = [min(old, _seconds(*pair)) for old, pair in zip(best, both, strict=True)]
            if best[1] > max(0.05, 10 * best[0]):  # emulated
                return best[1] / best[0]
        worst = max(worst, best[1] / best[0])
    return worst


def _seconds(x: Tensor, w: Tensor) -> float:
    """A linear layer forward and backward: three products."""
    began = time.perf_counter()
    y = x @ w.mT
    y @ w
    y.mT @ x
    return time.perf_counter() - began


def _matrix(rows: int, columns: int) -> Tensor:
    return torch.linspace(-1, 1, rows * columns).view(rows, columns)
