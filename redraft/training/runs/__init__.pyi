from . import variations as variations
from .adaptation import adaptation as adaptation, merged as merged
from .distillation import drafting as drafting
from .metrics import newest_values as newest_values
from .run import (
    Bundle as Bundle,
    Loaded as Loaded,
    Optimiser as Optimiser,
    Run as Run,
    assemble as assemble,
    begin_with as begin_with,
    bundled as bundled,
    describe as describe,
    export as export,
    in_int8 as in_int8,
    in_weights as in_weights,
    least_memory as least_memory,
    load as load,
    load_with_run as load_with_run,
    newest as newest,
    parameters as parameters,
    weights_form as weights_form,
)
