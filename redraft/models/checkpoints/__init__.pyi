from .adapter import AdapterOf as AdapterOf, norms_digest as norms_digest, write_adapter as write_adapter
from .lock import Busy as Busy, only_writer as only_writer
from .reader import (
    Checkpoint as Checkpoint,
    CheckpointError as CheckpointError,
    Exported as Exported,
    JoinedTensors as JoinedTensors,
    latest as latest,
)
from .serialization import (
    JSON as JSON,
    ConfigError as ConfigError,
    digest as digest,
    from_json as from_json,
    to_json as to_json,
)
from .writer import Alone as Alone, Team as Team, save as save
