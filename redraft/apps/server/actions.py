"""What the model process can do: each verb takes a model and plain values, tells frames, and returns a plain record.

A verb prepares first (checks, compiles rules, lays out canvases) and writes afterwards: preparing needs no network, so
it may happen beside the writing of others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from redraft.apps.server.errors import JsonObject
from redraft.core.canvas import Canvas
from redraft.core.text.tokenizers import token_texts
from redraft.decoding.constraints.rules import Json, Regex, compile_rule
from redraft.decoding.samplers.ancestral import Ancestral
from redraft.decoding.samplers.base import Sampler
from redraft.models.canvas_builder import text_positions
from redraft.tasks.arguments.aliases import settings_from
from redraft.tasks.arguments.settings import (
    ControlSettings,
    DecodingSettings,
    GenerationSettings,
    InfillSettings,
    RewriteSettings,
)
from redraft.tasks.arguments.templates import Hole, Template
from redraft.tasks.chat import plan_chat_reply
from redraft.tasks.choice.choice import choose
from redraft.tasks.controlled.controlled import plan_control
from redraft.tasks.correction.correction import correct
from redraft.tasks.engine.given_text import GivenText
from redraft.tasks.engine.logprobs import LogprobRecorder
from redraft.tasks.engine.loop import DecodingLoop
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.plan import DecodingPlan
from redraft.tasks.engine.result import PartialText, TextResult, TextResults
from redraft.tasks.engine.streaming import StreamView
from redraft.tasks.generation import plan_generation
from redraft.tasks.infilling.infilling import plan_infilling
from redraft.tasks.rewriting import keep_best, plan_rewrite
from redraft.tasks.scoring import score

SendFrame = Callable[[JsonObject], None]
Work = Callable[[SendFrame], JsonObject]


def prepare_request(it: TextModel, verb: str, given: JsonObject) -> Work:
    """What a request asks for, ready to be done; wrong arguments are refused here."""
    return ACTIONS[verb](it, given)


def compile_rules(verb: str, given: JsonObject) -> None:
    """Compiles the rules of a request, which may take seconds; afterwards they are known."""
    kinds: dict[str, type[DecodingSettings]] = {
        "infill": InfillSettings,
        "rewrite": RewriteSettings,
        "control": ControlSettings,
    }
    asked = settings_from(kinds.get(verb, GenerationSettings), given["options"])
    for pattern in asked.every_pattern:
        compile_rule(Regex(pattern))
    if asked.schema is not None:
        compile_rule(Json(asked.schema))


def _generate(it: TextModel, given: JsonObject) -> Work:
    """Texts that begin with each prompt."""
    plan = plan_generation(it, given["prompts"], settings_from(GenerationSettings, _own_choice(it, given["options"])))
    return lambda tell: _written(it, [plan], given, tell)


def _chat(it: TextModel, given: JsonObject) -> Work:
    """The next message of a conversation."""
    plan = plan_chat_reply(it, given["messages"], settings_from(GenerationSettings, _own_choice(it, given["options"])))
    return lambda tell: _written(it, [plan], given, tell)


def _infill(it: TextModel, given: JsonObject) -> Work:
    """Given parts and the least and most tokens of the holes between them; most is null: any number."""
    template = Template(tuple(given["parts"]), tuple(Hole(least, most) for least, most in given["holes"]))
    plans = plan_infilling(it, [template], settings_from(InfillSettings, _own_choice(it, given["options"])))
    return lambda tell: _written(it, plans, given, tell)


def _rewrite(it: TextModel, given: JsonObject) -> Work:
    """A text, edited in place."""
    asked = settings_from(RewriteSettings, _own_choice(it, given["options"]))
    plans = plan_rewrite(it, given["text"], asked)
    return lambda tell: _written(it, plans, given, tell, asked.candidates)


def _control(it: TextModel, given: JsonObject) -> Work:
    """A text as wished."""
    plan = plan_control(it, settings_from(ControlSettings, _own_choice(it, given["options"])))
    return lambda tell: _written(it, [plan], given, tell)


def _choose(it: TextModel, given: JsonObject) -> Work:
    def work(tell: SendFrame) -> JsonObject:
        found = choose(it, given["template"], given["answers"])
        return {"choices": found.to_json(), "nfe": found.nfe, "seconds": found.seconds}

    return work


def _score(it: TextModel, given: JsonObject) -> Work:
    def work(tell: SendFrame) -> JsonObject:
        found = score(it, given["texts"], **given["options"])
        return {"scores": found.to_json(), "exact": found.exact, "nfe": found.nfe, "seconds": found.seconds}

    return work


def _correct(it: TextModel, given: JsonObject) -> Work:
    def work(tell: SendFrame) -> JsonObject:
        found = correct(it, given["texts"], words=given["words"], **given["options"])
        return {"corrections": found.to_json(), "nfe": found.nfe, "seconds": found.seconds}

    return work


ACTIONS: dict[str, Callable[[TextModel, JsonObject], Work]] = {
    "generate": _generate,
    "chat": _chat,
    "infill": _infill,
    "rewrite": _rewrite,
    "control": _control,
    "choose": _choose,
    "score": _score,
    "correct": _correct,
}


def _own_choice(it: TextModel, options: JsonObject) -> JsonObject:
    """Clients that want the likeliest text send temperature 0, which ancestral sampling does not have: then the token
    that the network is surest of is written first."""
    if options.get("temperature") == 0 and options.get("sampler", "own") == "own" and _ancestral(it.sampler):
        return options | {"sampler": "confidence"}
    return options


def _ancestral(sampler: Sampler | None) -> bool:
    while sampler is not None:
        if isinstance(sampler, Ancestral):
            return True
        sampler = getattr(sampler, "sampler", None)
    return False


def _written(
    it: TextModel, plans: Sequence[DecodingPlan], given: JsonObject, tell: SendFrame, candidates: int = 1
) -> JsonObject:
    """Writes all of it, telling frames if they are wanted."""
    frames: str | None = given.get("frames")
    records = []
    for plan in plans:
        for writing in plan.writings():
            if frames is not None:
                view = StreamView(it, writing.sampler, writing.first, plan.order.verbatim)
                for frame in _frames(it, view, writing, plan.order.verbatim, whole=frames == "trace"):
                    tell(frame)
            records.append(plan.finished(writing))
    found = _plain(keep_best(TextResults.joined(records), candidates))
    if "text" in given:  # edited as a whole, and pinned words are part of it
        found["texts"] = [each | {"new": each["text"]} for each in found["texts"]]
    return found


def _frames(
    it: TextModel, view: StreamView, writing: DecodingLoop, verbatim: GivenText | None, *, whole: bool
) -> Iterator[JsonObject]:
    """A frame for each row that changed: how it looks (`whole`), or only what is new and final of its first hole."""
    said: dict[int, Any] = {}
    fresh: set[int] = set()  # columns written since the last frame
    for step, canvas in enumerate(writing):
        fresh |= set() if writing.log is None else set(writing.log.fresh)
        for row in range(len(canvas.z)):
            draft = view.draft(canvas, row)
            frame: JsonObject = {"row": draft.row, "step": step}
            if whole:
                now: Any = (draft.committed, draft.tentative)
                frame |= {"committed": draft.committed, "tentative": draft.tentative}
                frame |= {"nfe": writing.calls.rows / len(canvas.z), "seconds": round(writing.seconds, 4)}
            else:
                now = frame["new"] = _final(it, canvas, row, draft, verbatim)
            if now == said.get(row, now if not now else None):
                continue
            said[row] = now
            yield frame | _tokens(it, canvas, row) | _alternatives(it, canvas, writing.log, fresh) if whole else frame
            fresh = set()


def _final(it: TextModel, canvas: Canvas, row: int, draft: PartialText, verbatim: GivenText | None) -> str:
    """The part of the committed text that stands in the first hole."""
    if verbatim is not None:
        text = draft.committed[len(verbatim.parts[0]) :]
        return text if draft.tentative else text.removesuffix(verbatim.parts[-1])
    canvas = it.model.to_tokens(canvas)
    places = text_positions(canvas, it.model.config.vocab, row)
    ids, fixed = canvas.z[row, places].tolist(), canvas.fixed[row, places].tolist()
    begin = fixed.index(False) if False in fixed else len(fixed)
    return draft.committed[len(it.tokenizer.decode(ids[:begin])) :]


def _tokens(it: TextModel, canvas: Canvas, row: int) -> JsonObject:
    """Each token as text (null: masked), whether it was given, and the probability it had when it was written."""
    canvas, vocab = it.model.to_tokens(canvas), it.model.config.vocab
    places = text_positions(canvas, vocab, row)
    ids = canvas.z[row, places].tolist()
    pieces = [
        None if token == vocab.mask else piece for token, piece in zip(ids, token_texts(it.tokenizer, ids), strict=True)
    ]
    sure = None if canvas.confidence is None else canvas.confidence[row, places].tolist()
    return {
        "pieces": pieces,
        "given": canvas.fixed[row, places].tolist(),
        "confidence": None if sure is None else [round(p, 4) if p else None for p in sure],
    }


def _alternatives(it: TextModel, canvas: Canvas, log: LogprobRecorder | None, fresh: Collection[int]) -> JsonObject:
    """The likeliest tokens of the places that were written since the last frame, by their number among the pieces."""
    if log is None:
        return {}
    places = enumerate(text_positions(canvas, it.model.config.vocab, 0)) if fresh else ()
    found = [
        {"at": i, "top": top, "entropy": log.bits[place]}
        for i, place in places
        if place in fresh and (top := log.spelt(place, it.tokenizer))
    ]
    return {"alternatives": found}


def _plain(record: TextResults) -> JsonObject:
    """The record as JSON: each text with its tokens, and what all of them cost."""
    cost = {"nfe": record.nfe, "seconds": record.seconds, "new_tokens": record.new_tokens, "seed": record.seed}
    said = {
        "sampler": record.sampler,
        "cache": record.cache,
        "exactness": record.exactness,
        "notes": list(record.notes),
    }
    return {"texts": [_text(each) for each in record], "run": record.run, **cost, **said}


def _text(each: TextResult) -> JsonObject:
    new = [i for i, given in enumerate(each.given) if not given]
    pieces = each.pieces
    return {
        "text": each.text,
        "prompt": each.prompt,
        "new": "".join(each.fills) if each.fills else each.new,
        "fills": list(each.fills),
        "stop": each.stop,
        "row": each.row,
        "given_tokens": len(each.tokens) - len(new),
        "new_tokens": len(new),
        "pieces": [pieces[i] for i in new],
        "steps": [each.step[i] for i in new],
        "logprobs": [_log(each.confidence[i]) for i in new],
        "tokens": [each.tokens[i] for i in new],
        **({"alternatives": [each.alternatives[i] for i in new]} if each.alternatives else {}),
    }


def _log(probability: float | None) -> float | None:
    return None if not probability else round(math.log(probability), 6)


def failure_event(error: ValueError) -> JsonObject:
    """An error of the user's, as the front tells it."""
    return {"kind": "refused", "param": getattr(error, "argument", None), "message": str(error)}
