"""Actions of the model process. Each takes a model and JSON values, sends frames, and returns a JSON record.

An action first prepares (checks arguments, compiles rules, builds canvases), then generates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from redraft.apps.server.errors import _JsonObject
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

_SendFrame = Callable[[_JsonObject], None]
_Work = Callable[[_SendFrame], _JsonObject]


def _prepare_request(model: TextModel, verb: str, given: _JsonObject) -> _Work:
    """Prepares a request and returns the function that runs it; raises on invalid arguments."""
    return _ACTIONS[verb](model, given)


def _compile_rules(verb: str, given: _JsonObject) -> None:
    """Compiles the rules of a request into the cache, which may take seconds."""
    kinds: dict[str, type[DecodingSettings]] = {
        "infill": InfillSettings,
        "rewrite": RewriteSettings,
        "control": ControlSettings,
    }
    settings = settings_from(kinds.get(verb, GenerationSettings), given["options"])
    for pattern in settings.every_pattern:
        compile_rule(Regex(pattern))
    if settings.schema is not None:
        compile_rule(Json(settings.schema))


def _generate(model: TextModel, given: _JsonObject) -> _Work:
    """Generates texts that begin with each prompt."""
    plan = plan_generation(
        model, given["prompts"], settings_from(GenerationSettings, _greedy_sampler(model, given["options"]))
    )
    return lambda send: _run_plans(model, [plan], given, send)


def _chat(model: TextModel, given: _JsonObject) -> _Work:
    """Generates the next message of a conversation."""
    plan = plan_chat_reply(
        model, given["messages"], settings_from(GenerationSettings, _greedy_sampler(model, given["options"]))
    )
    return lambda send: _run_plans(model, [plan], given, send)


def _infill(model: TextModel, given: _JsonObject) -> _Work:
    """Fills the holes between given parts; each hole has a minimum and a maximum length (null if unlimited)."""
    template = Template(tuple(given["parts"]), tuple(Hole(least, most) for least, most in given["holes"]))
    plans = plan_infilling(model, [template], settings_from(InfillSettings, _greedy_sampler(model, given["options"])))
    return lambda send: _run_plans(model, plans, given, send)


def _rewrite(model: TextModel, given: _JsonObject) -> _Work:
    """Edits a text in place."""
    settings = settings_from(RewriteSettings, _greedy_sampler(model, given["options"]))
    plans = plan_rewrite(model, given["text"], settings)
    return lambda send: _run_plans(model, plans, given, send, settings.candidates)


def _control(model: TextModel, given: _JsonObject) -> _Work:
    """Generates texts with the requested attributes, length and parts of speech."""
    plan = plan_control(model, settings_from(ControlSettings, _greedy_sampler(model, given["options"])))
    return lambda send: _run_plans(model, [plan], given, send)


def _choose(model: TextModel, given: _JsonObject) -> _Work:
    def work(send: _SendFrame) -> _JsonObject:
        result = choose(model, given["template"], given["answers"])
        return {"choices": result.to_json(), "nfe": result.nfe, "seconds": result.seconds}

    return work


def _score(model: TextModel, given: _JsonObject) -> _Work:
    def work(send: _SendFrame) -> _JsonObject:
        result = score(model, given["texts"], **given["options"])
        return {"scores": result.to_json(), "exact": result.exact, "nfe": result.nfe, "seconds": result.seconds}

    return work


def _correct(model: TextModel, given: _JsonObject) -> _Work:
    def work(send: _SendFrame) -> _JsonObject:
        result = correct(model, given["texts"], words=given["words"], **given["options"])
        return {"corrections": result.to_json(), "nfe": result.nfe, "seconds": result.seconds}

    return work


_ACTIONS: dict[str, Callable[[TextModel, _JsonObject], _Work]] = {
    "generate": _generate,
    "chat": _chat,
    "infill": _infill,
    "rewrite": _rewrite,
    "control": _control,
    "choose": _choose,
    "score": _score,
    "correct": _correct,
}


def _greedy_sampler(model: TextModel, options: _JsonObject) -> _JsonObject:
    """Uses confidence order if a client asks for temperature 0, which ancestral sampling does not support."""
    if options.get("temperature") == 0 and options.get("sampler", "own") == "own" and _is_ancestral(model.sampler):
        return options | {"sampler": "confidence"}
    return options


def _is_ancestral(sampler: Sampler | None) -> bool:
    while sampler is not None:
        if isinstance(sampler, Ancestral):
            return True
        sampler = getattr(sampler, "sampler", None)
    return False


def _run_plans(
    model: TextModel, plans: Sequence[DecodingPlan], given: _JsonObject, send: _SendFrame, candidates: int = 1
) -> _JsonObject:
    """Runs the plans, sending frames if requested, and returns the record."""
    frames: str | None = given.get("frames")
    records = []
    for plan in plans:
        for writing in plan.loops():
            if frames is not None:
                view = StreamView(model, writing.sampler, writing.first_row, plan.request.given_text)
                for frame in _frames(model, view, writing, plan.request.given_text, whole=frames == "trace"):
                    send(frame)
            records.append(plan.loop_results(writing))
    result = _plain(keep_best(TextResults.joined(records), candidates))
    if "text" in given:  # the whole text was edited, so all of it is new, pinned words included
        result["texts"] = [each | {"new": each["text"]} for each in result["texts"]]
    return result


def _frames(
    model: TextModel, view: StreamView, writing: DecodingLoop, verbatim: GivenText | None, *, whole: bool
) -> Iterator[_JsonObject]:
    """Yields a frame for each changed row: the whole canvas (`whole`), or only the final text of its first hole."""
    shown: dict[int, Any] = {}
    fresh: set[int] = set()  # columns written since the last frame
    for step, canvas in enumerate(writing):
        fresh |= set() if writing.recorder is None else set(writing.recorder.fresh)
        for row in range(len(canvas.z)):
            draft = view.partial_text(canvas, row)
            frame: _JsonObject = {"row": draft.row, "step": step}
            if whole:
                content: Any = (draft.committed, draft.tentative)
                frame |= {"committed": draft.committed, "tentative": draft.tentative}
                frame |= {"nfe": writing.calls.rows / len(canvas.z), "seconds": round(writing.seconds, 4)}
            else:
                content = frame["new"] = _final(model, canvas, row, draft, verbatim)
            if content == shown.get(row, content if not content else None):
                continue
            shown[row] = content
            yield (
                frame | _tokens(model, canvas, row) | _alternatives(model, canvas, writing.recorder, fresh)
                if whole
                else frame
            )
            fresh = set()


def _final(model: TextModel, canvas: Canvas, row: int, draft: PartialText, verbatim: GivenText | None) -> str:
    """The committed text of the first hole."""
    if verbatim is not None:
        text = draft.committed[len(verbatim.parts[0]) :]
        return text if draft.tentative else text.removesuffix(verbatim.parts[-1])
    canvas = model.lm.to_tokens(canvas)
    positions = text_positions(canvas, model.lm.config.vocab, row)
    ids, fixed = canvas.z[row, positions].tolist(), canvas.fixed[row, positions].tolist()
    begin = fixed.index(False) if False in fixed else len(fixed)
    return draft.committed[len(model.tokenizer.decode(ids[:begin])) :]


def _tokens(model: TextModel, canvas: Canvas, row: int) -> _JsonObject:
    """Each token as text (null if masked), whether it was given, and its probability when it was written."""
    canvas, vocab = model.lm.to_tokens(canvas), model.lm.config.vocab
    positions = text_positions(canvas, vocab, row)
    ids = canvas.z[row, positions].tolist()
    pieces = [
        None if token == vocab.mask else piece
        for token, piece in zip(ids, token_texts(model.tokenizer, ids), strict=True)
    ]
    confidence = None if canvas.confidence is None else canvas.confidence[row, positions].tolist()
    return {
        "pieces": pieces,
        "given": canvas.fixed[row, positions].tolist(),
        "confidence": None if confidence is None else [round(p, 4) if p else None for p in confidence],
    }


def _alternatives(model: TextModel, canvas: Canvas, log: LogprobRecorder | None, fresh: Collection[int]) -> _JsonObject:
    """The most likely tokens at positions written since the last frame; `at` indexes the pieces."""
    if log is None:
        return {}
    positions = enumerate(text_positions(canvas, model.lm.config.vocab, 0)) if fresh else ()
    alternatives = [
        {"at": i, "top": top, "entropy": log.entropy_bits[position]}
        for i, position in positions
        if position in fresh and (top := log.alternatives(position, model.tokenizer))
    ]
    return {"alternatives": alternatives}


def _plain(record: TextResults) -> _JsonObject:
    """The record as JSON: each text with its tokens, and the total cost."""
    cost = {"nfe": record.nfe, "seconds": record.seconds, "new_tokens": record.new_tokens, "seed": record.seed}
    settings = {
        "sampler": record.sampler,
        "cache": record.cache,
        "exactness": record.exactness,
        "notes": list(record.notes),
    }
    return {"texts": [_text(result) for result in record], "run": record.run, **cost, **settings}


def _text(result: TextResult) -> _JsonObject:
    new = [i for i, given in enumerate(result.given) if not given]
    pieces = result.pieces
    return {
        "text": result.text,
        "prompt": result.prompt,
        "new": "".join(result.fills) if result.fills else result.new,
        "fills": list(result.fills),
        "stop": result.stop,
        "row": result.row,
        "given_tokens": len(result.tokens) - len(new),
        "new_tokens": len(new),
        "pieces": [pieces[i] for i in new],
        "steps": [result.step[i] for i in new],
        "logprobs": [_log(result.confidence[i]) for i in new],
        "tokens": [result.tokens[i] for i in new],
        **({"alternatives": [result.alternatives[i] for i in new]} if result.alternatives else {}),
    }


def _log(probability: float | None) -> float | None:
    return None if not probability else round(math.log(probability), 6)


def _failure_event(error: ValueError) -> _JsonObject:
    """The failure event for an invalid request."""
    return {"kind": "refused", "param": getattr(error, "argument", None), "message": str(error)}
