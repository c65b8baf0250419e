from .app import Door as Door, build as build
from .errors import ApiError as ApiError
from .jobs import Bounds as Bounds
from .launch import Serving as Serving, serve as serve
from .request_queue import Desk as Desk, Ledger as Ledger, Room as Room
from .scheduler import (
    Author as Author,
    Cancelled as Cancelled,
    Ended as Ended,
    NotFinite as NotFinite,
    Switchboard as Switchboard,
    TooLate as TooLate,
)
from .supervisor import ONE_ORDER as ONE_ORDER, Care as Care, Supervisor as Supervisor
