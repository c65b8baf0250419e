from .corruption import (
    blurred as blurred,
    blurred_up_to as blurred_up_to,
    concealed as concealed,
    substituted as substituted,
    without_features as without_features,
    without_places as without_places,
)
from .decoder import Autoregressive as Autoregressive, Parallel as Parallel
from .encoder import (
    Encoder as Encoder,
    EncoderConfig as EncoderConfig,
    MaskedEncoder as MaskedEncoder,
    MaskedLM as MaskedLM,
)
from .minilm import Bert as Bert, BertBlock as BertBlock, MiniLM as MiniLM
from .perceiver import Reading as Reading, Resampler as Resampler, windows as windows
from .size import Size as Size
from .standardize import Standard as Standard
