"""Commands that measure or inspect a model."""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.apps.cli.commands.measure.check import Check, Demo
    from redraft.apps.cli.commands.measure.compare import Compare
    from redraft.apps.cli.commands.measure.doctor import Doctor
    from redraft.apps.cli.commands.measure.eval import Eval
    from redraft.apps.cli.commands.measure.levels import Levels
    from redraft.apps.cli.commands.measure.noise import Noise
    from redraft.apps.cli.commands.measure.picture import Picture
    from redraft.apps.cli.commands.measure.probe import Probe

__getattr__, __dir__, __all__ = attach(__name__)
