"""POST /v1/infill, and the job of filling holes, which other routes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from redraft.apps.server.bodies.fields import StrictModel, with_settings
from redraft.apps.server.bodies.schemas import _TOP, CommonBody, _Choices, _Text
from redraft.apps.server.errors import _bad_request, _JsonObject
from redraft.apps.server.jobs import RequestLimits, _as_api_error, _Job, _text_job
from redraft.apps.server.options import _options
from redraft.apps.server.responses import _infill_choices, _texts_body
from redraft.apps.server.routes.route import Route
from redraft.apps.server.streams import EventStream
from redraft.tasks.arguments.aliases import ALIASES
from redraft.tasks.arguments.setting import ArgumentError
from redraft.tasks.arguments.settings import InfillSettings
from redraft.tasks.arguments.templates import Hole, Template

if TYPE_CHECKING:
    from redraft.apps.server.records import _Work
    from redraft.tasks.engine.model import TextModel

_Pieces = Annotated[  # texts, numbers (holes with that many tokens) and null (a hole of any length)
    list[str | int | None],
    Field(min_length=1, max_length=256, description="Texts, lengths of holes, null: any length."),
]


@with_settings(InfillSettings, without=_TOP, aliases=ALIASES)
class InfillExtras(StrictModel):
    """Settings of infilling."""

    choices: _Choices | None = None


class InfillBody(Route, CommonBody):
    """POST /v1/infill: fill the holes of a template such as "She opened the [[6]] and left.", or of pieces."""

    path = "/v1/infill"
    kind = "infill"
    template: _Text | None = Field(None, description="Text with holes, such as [[6]] for 6 tokens.")
    pieces: _Pieces | None = None
    diffusion: InfillExtras | None = None

    def job(self, models: Sequence[_JsonObject], limits: RequestLimits) -> _Job:
        return _template_job(self, self.template, self.pieces, models, limits)

    def event_stream(self, job: _Job, accept: str) -> EventStream | None:
        if self.stream:
            raise _bad_request(
                "stream", "an infilling cannot be streamed; use /v1/diffusion/trace instead", "unsupported_parameter"
            )
        return None

    def response(self, job: _Job, record: _JsonObject) -> _JsonObject:
        return _texts_body(self.header(job), record, _infill_choices(record))


def _template_job(
    body: CommonBody,
    text: str | None,
    pieces: Sequence[str | int | None] | None,
    models: Sequence[_JsonObject],
    limits: RequestLimits,
) -> _Job:
    """Builds the job of a template, given as a text with holes or as pieces."""
    if (text is None) == (pieces is None):
        raise _bad_request(
            "template", "give either a template with holes [[n]], or pieces (texts and numbers), not both"
        )
    if body.max_tokens is not None:
        raise _bad_request("max_tokens", "the holes set the number of tokens; leave max_tokens out")
    options, names = _options(body)
    param = "template" if text is not None else "pieces"
    names |= {"": param, "templates": param, "max_new_tokens": param}
    try:
        template = Template.parse(text) if text is not None else _pieces_template(pieces or [])
    except ArgumentError as error:
        raise _as_api_error(error, names) from None
    holes = [(hole.least, hole.most, hole.is_word) for hole in template.holes]
    return _hole_job(models, body, template.parts, holes, options, names, limits)


def _hole_job(
    models: Sequence[_JsonObject],
    body: CommonBody,
    parts: Sequence[str],
    holes: Sequence[tuple[int, int | None] | tuple[int, int | None, bool]],
    options: _JsonObject,
    names: Mapping[str, str],
    limits: RequestLimits,
) -> _Job:
    """Builds a job that fills the holes between given parts."""
    arguments = {"parts": list(parts), "holes": list(holes), "options": options}
    room = options.get("room", 32)
    size = sum((room if isinstance(room, int) else 32) if most is None else most for _, most, *_ in holes)
    texts = ["".join(parts)]
    return _text_job(models, body, f"{__name__}:_infill", arguments, InfillSettings, names, limits, texts, size)


def _pieces_template(pieces: Sequence[str | int | None]) -> Template:
    """Returns the template of texts, hole sizes and null (any size); [[n]] in a text is not a hole."""
    parts, holes = [""], []
    for piece in pieces:
        if isinstance(piece, str):
            parts[-1] += piece
        elif isinstance(piece, bool) or (piece is not None and piece < 1):
            raise _bad_request("pieces", "a hole needs at least 1 token; use null for any length")
        else:
            parts.append("")
            holes.append(Hole(0 if piece is None else piece, piece))
    return Template(tuple(parts), tuple(holes))


def _infill(model: TextModel, arguments: _JsonObject) -> _Work:
    """Fills the holes between given parts; a hole has a least and a most length (null: any), and may be a word."""
    from redraft.apps.server.records import _greedy_sampler, _run_plans
    from redraft.tasks.infilling.infilling import plan_infilling

    template = Template(tuple(arguments["parts"]), tuple(Hole(*hole) for hole in arguments["holes"]))
    plans = plan_infilling(model, [template], InfillSettings(**_greedy_sampler(model, arguments["options"])))
    return lambda send: _run_plans(model, plans, arguments, send)
