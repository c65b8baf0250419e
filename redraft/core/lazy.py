"""Lazy doors: a package lists its names once, under `if TYPE_CHECKING`; each is imported when first used."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any


def attach(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of a package, from the imports under its `if TYPE_CHECKING`."""
    module = sys.modules[package]
    source = module.__spec__.loader.get_source(package)  # type: ignore[union-attr]
    homes = {}
    for block in ast.parse(source).body:
        if isinstance(block, ast.If) and isinstance(block.test, ast.Name) and block.test.id == "TYPE_CHECKING":
            for node in block.body:
                if isinstance(node, ast.ImportFrom):
                    homes |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        home, original = homes[name]
        if home != package:
            try:
                return getattr(import_module(home), original)
            except AttributeError:
                pass
        return import_module(f"{home}.{original}")

    return get, lambda: sorted({*vars(module), *homes}), sorted(homes)
