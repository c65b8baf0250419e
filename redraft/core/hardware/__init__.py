"""Hardware: what this machine grants, which instructions work, and the precision that is faster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.core.hardware.batch_invariance import alike_from, steady_rows
    from redraft.core.hardware.forked import Outcome, attempt, can_fork
    from redraft.core.hardware.precision import (
        BELOW_AMX,
        ISA,
        TYPICAL,
        VARIABLE,
        Precision,
        PrecisionError,
        PrecisionName,
        Shapes,
        choose_precision,
        compare,
        shapes_like,
    )
    from redraft.core.hardware.system import (
        GB,
        Cpu,
        Facts,
        InstructionSet,
        Memory,
        advice,
        best_device,
        cpu_quota,
        examine,
        free_memory,
        memory_limit,
    )

__getattr__, __dir__, __all__ = attach(__name__)
