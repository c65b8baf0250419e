"""The machine: what it grants, which instructions work, and the precision that is faster."""

from redraft.machine.facts import (
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
from redraft.machine.guarded import Outcome, attempt, can_fork
from redraft.machine.precision import (
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
from redraft.machine.steady import alike_from, steady_rows
