"""The server: OpenAI's routes and our own in front of a model process in which many requests share every pass.

The HTTP side imports no torch, the model process (`worker`, `verbs`, `switchboard`) nothing of the HTTP side: so each
part is imported when it is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from redraft.core.lazy import attach

if TYPE_CHECKING:
    from redraft.apps.server.app import Door, build
    from redraft.apps.server.errors import ApiError
    from redraft.apps.server.jobs import Bounds
    from redraft.apps.server.launch import Serving, serve
    from redraft.apps.server.request_queue import Desk, Ledger, Room
    from redraft.apps.server.scheduler import Author, Cancelled, Ended, NotFinite, Switchboard, TooLate
    from redraft.apps.server.supervisor import ONE_ORDER, Care, Supervisor

__getattr__, __dir__, __all__ = attach(__name__)
