"""A part of a model: a module beside the network that says what it needs, what trains it, and when it is missing."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol, TypeVar

from torch import Tensor, nn

from redraft.core.processes.gaussian import Gaussian
from redraft.core.vocab import Vocab
from redraft.models.codecs.base import Codec, CodecConfig
from redraft.models.networks.config import NetworkIO, TransformerConfig
from redraft.models.networks.transformer import Transformer

_P = TypeVar("_P", bound="Part")


class WholeConfig(Protocol):
    """What a part may know of the config of its model, a `DiffusionLMConfig`."""

    @property
    def network(self) -> TransformerConfig: ...

    @property
    def codec(self) -> CodecConfig | None: ...

    @property
    def vocab(self) -> Vocab: ...

    @property
    def io(self) -> NetworkIO: ...

    @property
    def gaussian(self) -> Gaussian: ...

    def noise_level(self, t: Tensor) -> Tensor | None: ...


class WholeModel(Protocol):
    """What a part may use of its model, a `DiffusionLM`."""

    network: Transformer
    codec: Codec | None

    @property
    def config(self) -> WholeConfig: ...

    def part(self, kind: type[_P]) -> _P: ...


class Part(nn.Module):
    """A module beside the network, found by `model.part(kind)`; its weights are stored as parts.NAME.…"""

    name: ClassVar[str]  # its key in `model.parts`
    missing: ClassVar[str]  # the error if a model has none: what to train
    joint: ClassVar[bool] = False  # trained together with the network, not by an objective of its own

    def trained(self, model: WholeModel) -> list[nn.Parameter]:
        """Return the parameters that an objective for this part trains."""
        return list(self.parameters())

    def pack(self, network: Transformer, kind: type[nn.Module]) -> None:
        """Replace large linear layers by ones of type `kind`, in place, before the network replaces its own."""


class PartConfig(ABC):
    """The configuration of a part, a frozen dataclass in `DiffusionLMConfig.parts`."""

    name: ClassVar[str]  # that of the part it builds
    owns_adapter: ClassVar[bool] = False  # the network's LoRA adapter acts only where this part switches it on

    @property
    def label_count(self) -> int | None:
        """Number of classes that it predicts; None if it predicts no class."""
        return None

    @property
    def source_width(self) -> int | None:
        """Width of the states that the network sees by cross attention; None if the part gives it none."""
        return None

    def require(self, config: WholeConfig) -> None:  # noqa: B027 - most parts fit every model
        """Raise a ValueError unless the part fits a model with this config."""

    @abstractmethod
    def build(self, config: WholeConfig, network: Transformer) -> Part:
        """Build the part of a model with this config and network."""
