"""What a package offers, found in its source: files are imported on first use, so `redraft --help` imports no torch.

A door lists its names once, under `if TYPE_CHECKING`. Files of other folders may end with a dictionary `_NAMED` of
pieces that have a name on the command line.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

_NAMED = re.compile(r"^_NAMED\b.*? = \{$(.*?)^\}$", re.MULTILINE | re.DOTALL)
_KEY = re.compile(r'^    "([^"]+)":', re.MULTILINE)


def attach(package: str, file: str) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return `__getattr__`, `__dir__` and `__all__` for a package, from the imports under its `if TYPE_CHECKING`.

    A class that is not listed is found by its name all the same, so that stored configs may name it.
    """
    blocks = (block for block in ast.parse(Path(file).read_text("utf-8")).body if isinstance(block, ast.If))
    imports = [line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom)]
    homes = {alias.name: line.module or package for line in imports for alias in line.names}

    def get(name: str) -> Any:
        home = homes.get(name) or _module_of_class(package, Path(file).parent, name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = import_module(f"{home}.{name}") if home == package else getattr(import_module(home), name)
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted({*vars(sys.modules[package]), *homes}), sorted(homes)


def _module_of_class(package: str, folder: Path, name: str) -> str | None:
    """Return the module below a folder that defines a class; None if there is none."""
    if not name[:1].isupper():
        return None
    definition = re.compile(rf"^class {re.escape(name)}\b", re.MULTILINE)
    files = (file for file in folder.rglob("*.py") if definition.search(file.read_text("utf-8")))
    first = next(files, None)
    return None if first is None else ".".join([package, *first.relative_to(folder).with_suffix("").parts])


def read_names(package: str, folder: Path) -> dict[str, str]:
    """Return the keys of all dictionaries `_NAMED` in the files of a folder, each with its module."""
    texts = {f"{package}.{file.stem}": file.read_text("utf-8") for file in sorted(folder.glob("*.py"))}
    return {
        key: module for module, text in texts.items() for table in _NAMED.findall(text) for key in _KEY.findall(table)
    }


def named_value(names: dict[str, str], name: str) -> Any:
    """Return what has this name in the dictionary `_NAMED` of its module."""
    return import_module(names[name])._NAMED[name]
