"""A route: the body of a request, which makes the job for the model process and the response."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from redraft.apps.server.bodies.fields import StrictModel
from redraft.apps.server.errors import _JsonObject
from redraft.apps.server.jobs import RequestLimits, _Job
from redraft.apps.server.responses import _ResponseHeader
from redraft.apps.server.streams import EventStream


class Route(StrictModel, ABC):
    """The body of a POST route. The model process runs the function that the job names."""

    path: ClassVar[str]
    kind: ClassVar[str]  # `object` of the response

    @abstractmethod
    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        """Returns the job of this request; raises if it is invalid."""

    def event_stream(self, job: _Job, accept: str) -> EventStream | None:
        """Returns how to stream the response; None for a single JSON object. `accept` is the header of the request."""
        return None

    def header(self, job: _Job) -> _ResponseHeader:
        """Returns the fields that all chunks of the response share."""
        return _ResponseHeader(self.kind, self.kind, job.model["id"])

    def response(self, job: _Job, record: _JsonObject) -> _JsonObject:
        """Returns the response, made from the record of the finished job."""
        return self.header(job).body() | record
