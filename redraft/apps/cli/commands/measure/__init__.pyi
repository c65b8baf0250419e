from .check import Check as Check, Demo as Demo
from .compare import Compare as Compare
from .doctor import Doctor as Doctor
from .eval import Eval as Eval
from .levels import Levels as Levels
from .noise import Noise as Noise
from .picture import Picture as Picture
from .probe import Probe as Probe
