"""A part of a model: a module beside the network that says what trains it, and when it is missing."""

from __future__ import annotations

from typing import ClassVar, Protocol, TypeVar

from torch import nn

from redraft.models.codecs.base import Codec
from redraft.models.networks.transformer import Transformer
from redraft.models.parts.config import WholeConfig

_P = TypeVar("_P", bound="Part")


class WholeModel(Protocol):
    """The attributes of its model, a `DiffusionLM`, that a part may use."""

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

    def trained_parameters(self, model: WholeModel) -> list[nn.Parameter]:
        """Return the parameters that an objective for this part trains."""
        return list(self.parameters())

    def pack(self, network: Transformer, kind: type[nn.Module]) -> None:
        """Replace large linear layers by ones of type `kind`, in place, before the network replaces its own."""
