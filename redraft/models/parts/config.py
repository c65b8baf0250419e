"""The configuration of a part of a model: whether it fits the model, and how it is built."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Protocol

from torch import Tensor, nn

from redraft.core.processes.gaussian import Gaussian
from redraft.core.vocab import Vocab
from redraft.models.codecs.base import CodecConfig
from redraft.models.networks.config import NetworkIO, TransformerConfig


class WholeConfig(Protocol):
    """The attributes of its model's config, a `DiffusionLMConfig`, that a part may use."""

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


class PartConfig(ABC):
    """The configuration of a part, a frozen dataclass in `DiffusionLMConfig.parts`."""

    name: ClassVar[str]  # name of the part that it builds
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
    def build(self, config: WholeConfig) -> nn.Module:
        """Build the part, a `Part`, of a model with this config."""
