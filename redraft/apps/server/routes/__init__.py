"""POST routes of the server. Every class of this folder that has a path is one."""

from __future__ import annotations

import inspect
from importlib import import_module
from pkgutil import iter_modules

from redraft.apps.server.routes.route import Route


def _find_routes() -> dict[str, type[Route]]:
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    classes = [value for module in modules for value in vars(module).values() if inspect.isclass(value)]
    return {kind.path: kind for kind in classes if issubclass(kind, Route) and hasattr(kind, "path")}


ROUTES = _find_routes()  # path → body
