"""Lazy imports: a package lists its names once, under `if TYPE_CHECKING`, and imports each on first use."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package, from the imports under its `if TYPE_CHECKING`."""
    blocks = (block for block in ast.parse(Path(file).read_text("utf-8")).body if isinstance(block, ast.If))
    imports = [line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom)]
    homes = {alias.name: line.module or package for line in imports for alias in line.names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home = homes[name]
        value = import_module(f"{home}.{name}") if home == package else getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes}), sorted(homes)
