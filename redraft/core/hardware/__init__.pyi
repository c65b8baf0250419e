from .batch_invariance import alike_from as alike_from, steady_rows as steady_rows
from .forked import Outcome as Outcome, attempt as attempt, can_fork as can_fork
from .precision import (
    BELOW_AMX as BELOW_AMX,
    ISA as ISA,
    TYPICAL as TYPICAL,
    VARIABLE as VARIABLE,
    Precision as Precision,
    PrecisionError as PrecisionError,
    PrecisionName as PrecisionName,
    Shapes as Shapes,
    choose_precision as choose_precision,
    compare as compare,
    shapes_like as shapes_like,
)
from .system import (
    GB as GB,
    Cpu as Cpu,
    Facts as Facts,
    InstructionSet as InstructionSet,
    Memory as Memory,
    advice as advice,
    best_device as best_device,
    cpu_quota as cpu_quota,
    examine as examine,
    free_memory as free_memory,
    memory_limit as memory_limit,
)
