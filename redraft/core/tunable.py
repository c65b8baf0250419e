"""Objects whose number of steps, temperature or threshold a caller may change, wherever inside it stands."""

from __future__ import annotations

import re
from dataclasses import fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

Setting = Literal["steps", "temperature", "threshold"]


class Tunable:
    """A frozen dataclass with some of the settings steps, temperature and threshold, in its fields or those of a part.

    A field of that name is the setting. If there is none, the object asks the part in its field `settings_part`.
    """

    settings_part: ClassVar[str | None] = None
    """Field of the part that has the settings this class lacks; None if there is no such part."""

    def has_setting(self, name: Setting) -> bool:
        """Whether there is such a setting here or in the part."""
        part = self._part()
        return self._owns(name) or (part is not None and part.has_setting(name))

    def setting(self, name: Setting) -> float | None:
        """Return the value of a setting; None if there is no such setting, or if it is None."""
        part = self._part()
        if self._owns(name) or part is None:
            value: float | None = getattr(self, name) if self._owns(name) else None
            return value
        return part.setting(name)

    def with_setting(self, name: Setting, value: float) -> Self:
        """Return a copy with another value of a setting. Raises if there is no such setting."""
        if not self.has_setting(name):
            raise ValueError(f"{self} has no {name}")
        part = self._part()
        if self._owns(name) or part is None:
            return _replaced(self, name, value)
        return _replaced(self, str(self.settings_part), part.with_setting(name, value))

    def describe(self) -> str:
        """Return its name and its settings in a few words; `str()` has all of its fields."""
        values = ((name, getattr(self, name)) for name in get_args(Setting) if self._owns(name))
        settings = [f"{value:g} steps" if name == "steps" else f"{name} {value:g}" for name, value in values if value]
        part = self._part()
        return ", ".join([words_of(self), *([] if part is None else [part.describe()]), *settings])

    def _owns(self, name: Setting) -> bool:
        """Whether a field of this class is the setting."""
        return is_dataclass(self) and any(field.name == name for field in fields(self))

    def _part(self) -> Tunable | None:
        return None if self.settings_part is None else getattr(self, self.settings_part)


def words_of(value: object) -> str:
    """The name of an object's class in words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", type(value).__name__).lower()


def _replaced(value: Any, name: str, to: object) -> Any:
    return replace(value, **{name: to})
