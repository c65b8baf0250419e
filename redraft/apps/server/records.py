"""What the model process sends about generated texts: frames while it writes them, and a record of the results."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from redraft.apps.server.errors import _JsonObject
from redraft.core.canvas import Canvas
from redraft.core.text.tokenizers import token_texts
from redraft.models.canvas_builder import text_positions
from redraft.models.causal_base import is_adapted
from redraft.tasks.engine.given_text import GivenText
from redraft.tasks.engine.logprobs import LogprobRecorder
from redraft.tasks.engine.loop import DecodingLoop
from redraft.tasks.engine.model import TextModel
from redraft.tasks.engine.plan import DecodingPlan
from redraft.tasks.engine.result import PartialText, TextResult, TextResults
from redraft.tasks.engine.streaming import StreamView
from redraft.tasks.rewriting import keep_best

_SendFrame = Callable[[_JsonObject], None]
_Work = Callable[[_SendFrame], _JsonObject]


def _greedy_sampler(model: TextModel, options: _JsonObject) -> _JsonObject:
    """Uses confidence order if a client asks for temperature 0, which ancestral sampling does not support."""
    own = model.sampler.is_ancestral and not is_adapted(model.lm)
    if options.get("temperature") == 0 and options.get("sampler", "own") == "own" and own:
        return options | {"sampler": "confidence"}
    return options


def _run_plans(
    model: TextModel, plans: Sequence[DecodingPlan], arguments: _JsonObject, send: _SendFrame, candidates: int = 1
) -> _JsonObject:
    """Runs the plans, sending frames if requested, and returns the record."""
    frames: str | None = arguments.get("frames")
    results = []
    for plan in plans:
        for loop in plan.loops():
            if frames is not None:
                view = StreamView(model, loop.sampler, loop.first_row, plan.request.given_text)
                for frame in _frames(model, view, loop, plan, whole=frames == "trace"):
                    send(frame)
            results.append(plan.loop_results(loop))
    record = _record(keep_best(TextResults.joined(results), candidates))
    if "text" in arguments:  # the whole text was edited, so all of it is new, pinned words included
        record["texts"] = [text | {"new": text["text"]} for text in record["texts"]]
    return record


def _frames(
    model: TextModel, view: StreamView, loop: DecodingLoop, plan: DecodingPlan, *, whole: bool
) -> Iterator[_JsonObject]:
    """Yields a frame for each changed row: the whole canvas (`whole`), or only the final text of its first hole."""
    verbatim = plan.request.given_text
    sent: dict[int, Any] = {}  # row → content of its last frame
    fresh: set[int] = set()  # columns written since the last frame
    for step, canvas in enumerate(loop):
        fresh |= set() if loop.recorder is None else set(loop.recorder.fresh)
        for row in range(len(canvas.z)):
            draft = view.partial_text(canvas, row)
            frame: _JsonObject = {"row": draft.row, "step": step}
            if whole:
                content: Any = (draft.committed, draft.tentative)
                frame |= {"committed": draft.committed, "tentative": draft.tentative}
                frame |= {"nfe": loop.calls.rows / len(canvas.z), "seconds": round(loop.seconds, 4)}
            else:
                content = frame["new"] = _final(model, canvas, row, draft, verbatim)
                frame["echo"] = verbatim.parts[0] if verbatim is not None else plan.prompt(draft.row)
            if content == sent.get(row, content if not content else None):
                continue
            sent[row] = content
            yield (
                frame | _tokens(model, canvas, row) | _alternatives(model, canvas, loop.recorder, fresh)
                if whole
                else frame
            )
            fresh = set()


def _final(model: TextModel, canvas: Canvas, row: int, draft: PartialText, verbatim: GivenText | None) -> str:
    """Returns the committed text of the first hole, or what follows the prompt."""
    if verbatim is not None:
        text = draft.committed[len(verbatim.parts[0]) :]
        return text if draft.tentative else text.removesuffix(verbatim.parts[-1])
    canvas = model.lm.to_tokens(canvas)
    positions = text_positions(canvas, model.lm.config.vocab, row)
    ids, fixed = canvas.z[row, positions].tolist(), canvas.fixed[row, positions].tolist()
    begin = fixed.index(False) if False in fixed else len(fixed)
    return draft.committed[len(model.tokenizer.decode(ids[:begin])) :]


def _tokens(model: TextModel, canvas: Canvas, row: int) -> _JsonObject:
    """Returns each token as text (null if masked), whether it was given, and its probability when it was written."""
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
    """Returns the most likely tokens at positions written since the last frame; `at` indexes the pieces."""
    if log is None:
        return {}
    positions = enumerate(text_positions(canvas, model.lm.config.vocab, 0)) if fresh else ()
    alternatives = [
        {"at": i, "top": top, "entropy": log.entropy_bits[position]}
        for i, position in positions
        if position in fresh and (top := log.alternatives(position, model.tokenizer))
    ]
    return {"alternatives": alternatives}


def _record(results: TextResults) -> _JsonObject:
    """Returns the results as JSON: each text with its tokens, the total cost, and the settings."""
    cost = {"nfe": results.nfe, "seconds": results.seconds, "new_tokens": results.new_tokens, "seed": results.seed}
    settings = {
        "sampler": results.sampler,
        "cache": results.cache,
        "exactness": results.exactness,
        "notes": list(results.notes),
    }
    return {"texts": [_text(result) for result in results], "run_digest": results.run, **cost, **settings}


def _text(result: TextResult) -> _JsonObject:
    new = [i for i, given in enumerate(result.given) if not given]
    pieces = result.pieces
    return {
        "text": result.text,
        "prompt": result.prompt,
        "echo": result.prompt if result.given_text is None else result.given_text.parts[0],
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
