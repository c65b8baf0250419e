"""The server: OpenAI's routes and our own in front of a model process in which many requests share every pass.

The HTTP side imports no torch, the model process (`worker`, `verbs`, `switchboard`) nothing of the HTTP side: so each
part is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from redraft.serve.app import Door, build
    from redraft.serve.desk import Desk, Ledger, Room
    from redraft.serve.errors import ApiError
    from redraft.serve.jobs import Bounds
    from redraft.serve.run import Serving, serve
    from redraft.serve.supervisor import ONE_ORDER, Care, Supervisor
    from redraft.serve.switchboard import Author, Cancelled, Ended, NotFinite, Switchboard, TooLate

_HOMES = {
    "app": "Door build",
    "desk": "Desk Ledger Room",
    "errors": "ApiError",
    "switchboard": "Cancelled Ended Switchboard NotFinite TooLate Author",
    "jobs": "Bounds",
    "run": "Serving serve",
    "supervisor": "Care ONE_ORDER Supervisor",
}
_HOME = {name: f"redraft.serve.{file}" for file, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'redraft.serve' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
