"""Many writers, one network: requests run as they are, and their passes are merged.

A request runs its ordinary sampler in a *greenlet*, a stack that switches by hand inside one thread. Where the sampler
needs the network, it stops with its question; when all writers have stopped, the switchboard answers all questions by
one pass (`redraft.models.run_ragged`) and lets them go on. Samplers, caches, guidance and rules know nothing of it,
and writers join and leave between two passes.

Gradient mode and autocast belong to the thread: whoever runs a switchboard sets them once, for all writers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any

import greenlet
from torch import Tensor

from redraft.models.networks.forward_pass import ForwardPass, PassOutput
from redraft.models.networks.ragged_batch import project_ragged, run_ragged
from redraft.models.networks.transformer import Transformer

_LONGEST = 0.5  # seconds that a writer waits for others
_HASTE = 0.5  # what a short row pays for its tokens beside one that is more than twice as long


class RequestEnded(Exception):
    """Raised in a writer at its next question: it is no longer wanted, or cannot go on."""


class Cancelled(RequestEnded):
    """Nobody waits for the text any more."""


class DeadlineExceeded(RequestEnded):
    """The deadline has passed."""


class NonFiniteOutput(RequestEnded):
    """The network has answered this writer with numbers that are not finite."""


@dataclass
class PendingPass:
    """What a writer waits for: a pass through the layers, or the output layer."""

    network: Transformer
    asked: ForwardPass | Tensor

    @property
    def cost(self) -> int:
        """Tokens to be computed."""
        return self.asked.tokens.shape[0] * self.asked.tokens.shape[1] if isinstance(self.asked, ForwardPass) else 0


@dataclass(eq=False)
class ScheduledRequest:
    """One request being written; it has ended when its greenlet is dead."""

    work: Callable[[], None]
    deadline: float | None = None  # as time.monotonic()
    question: PendingPass | None = None
    spent: float = 0.0  # in tokens, as fairness counts them
    passes: int = 0
    latest: float = field(default_factory=time.monotonic)  # when its last pass was
    verdict: type[RequestEnded] | None = None
    counts: list[Callable[[int], None]] = field(default_factory=list, repr=False)  # of rows that it asks about
    stack: greenlet.greenlet = field(init=False, repr=False)

    def cancel(self) -> None:
        """It ends at its next question."""
        self.verdict = Cancelled


class BatchScheduler:
    """Runs writers side by side: `round` answers those that wait and lets each run to its next question.

    overhead: what a pass costs besides its tokens, in tokens; fairness counts with it.
    least: products have at least this many rows.
    alive: called often, as a sign of life.
    """

    def __init__(
        self,
        networks: Iterable[Transformer],
        *,
        least: int = 1,
        overhead: float = 64.0,
        alive: Callable[[], None] | None = None,
    ) -> None:
        self.least, self.overhead, self.alive = least, overhead, alive
        self.authors: list[ScheduledRequest] = []
        self.passes = 0  # merged ones
        self.merged = 0  # passes of writers that they answered
        self._current: ScheduledRequest | None = None
        self._outside: list[Callable[[int], None]] = []  # counts of passes that no writer asks for
        self._main = greenlet.getcurrent()
        for network in networks:
            network.merger = _Asking(self, network)

    def close(self, networks: Iterable[Transformer]) -> None:
        """The networks run by themselves again; writers that are left are cancelled."""
        for writer in list(self.authors):
            self._resume(writer, Cancelled())
        for network in networks:
            network.merger = None

    def start(self, work: Callable[[], None], deadline: float | None = None) -> ScheduledRequest:
        """A new writer, which runs to its first question now."""
        writer = ScheduledRequest(work, deadline)
        writer.spent = min((other.spent for other in self.authors), default=0.0)
        writer.stack = greenlet.greenlet(lambda _: work(), parent=self._main)
        self.authors.append(writer)
        self._resume(writer, None)
        largest = max((self._cost(other) for other in self.authors), default=0.0)
        if 2 * self._cost(writer) < largest:
            writer.spent -= largest  # a short row does not wait for the long pass that would come next
        return writer

    def run(self, works: Iterable[Callable[[], None]]) -> None:
        """Several writers together, until all have ended."""
        self._main = greenlet.getcurrent()
        for work in works:
            self.start(work)
        while self.authors:
            self.round()

    def round(self) -> None:
        """One merged pass for those whose turn it is; output layers are always answered first, so that all get in
        step again."""
        self._dismiss()
        for writers in _by_network([w for w in self.authors if w.question and isinstance(w.question.asked, Tensor)]):
            self._answer(writers, self._read_out)
        for writers in _by_network(self._turn()):
            self._answer(writers, self._pass)

    def _turn(self) -> list[ScheduledRequest]:
        """Whose pass comes next. A long row waits while a short one catches up, which gets twice its time
        (`python -m bench.serving` has what that means for a short request).

        Writers that are less than one short pass ahead of the last one take part, so that passes are full; and those
        that have waited for long, however many short ones come in.
        """
        waiting = [writer for writer in self.authors if writer.question is not None]
        if not waiting or any(isinstance(w.question.asked, Tensor) for w in waiting if w.question):
            return []
        largest = max(self._cost(writer) for writer in waiting)
        price = {id(w): self._cost(w) * (_HASTE if 2 * self._cost(w) < largest else 1.0) for w in waiting}
        behind, slack, now = min(writer.spent for writer in waiting), min(price.values()), time.monotonic()
        turn = [w for w in waiting if w.spent <= behind + slack or now - w.latest > _LONGEST]
        for writer in turn:
            writer.spent += price[id(writer)]
            writer.passes, writer.latest = writer.passes + 1, now
        return turn

    def _cost(self, writer: ScheduledRequest) -> float:
        return self.overhead + (writer.question.cost if writer.question else 0)

    def _dismiss(self) -> None:
        """Ends writers that were cancelled or are too late."""
        now = time.monotonic()
        for writer in list(self.authors):
            if writer.verdict is not None:
                self._resume(writer, writer.verdict())
            elif writer.deadline is not None and now > writer.deadline:
                self._resume(writer, DeadlineExceeded())

    def _pass(self, network: Transformer, asked: Sequence[Any]) -> list[PassOutput]:
        self.passes, self.merged = self.passes + 1, self.merged + len(asked)
        return run_ragged(network, asked, self.least, self.alive)

    def _read_out(self, network: Transformer, asked: Sequence[Any]) -> list[Tensor]:
        return project_ragged(network, asked, self.least)

    def _answer(
        self, writers: Sequence[ScheduledRequest], by: Callable[[Transformer, Sequence[Any]], Sequence[Any]]
    ) -> None:
        """Answers the questions of some writers about one network and lets each run on to its next question."""
        questions = [writer.question for writer in writers if writer.question is not None]
        try:
            answers = by(questions[0].network, [question.asked for question in questions])
        except Exception as error:  # of one of them; the others must not suffer
            if len(writers) == 1:
                return self._resume(writers[0], error)
            for writer in writers:
                self._answer([writer], by)
            return None
        for writer, found in zip(writers, answers, strict=True):
            self._resume(writer, found)
            if self.alive is not None:
                self.alive()
        return None

    def _resume(self, writer: ScheduledRequest, answer: PassOutput | Tensor | Exception | None) -> None:
        """Lets a writer run to its next question or its end."""
        writer.question, self._current = None, writer
        try:
            if isinstance(answer, Tensor) and not bool(answer.sum(-1).isfinite().all()):
                answer = NonFiniteOutput()
            writer.stack.throw(answer) if isinstance(answer, Exception) else writer.stack.switch(answer)
        except RequestEnded:
            pass  # nobody in the writer had anything to say about it
        finally:
            self._current = None
            if writer.stack.dead:
                self.authors.remove(writer)

    def ask(self, network: Transformer, asked: ForwardPass | Tensor) -> Any:
        """Stops the current writer until its question is answered; outside of a writer answers at once."""
        writer = self._current
        if writer is None:
            self._count(self._outside, asked)
            return (self._pass if isinstance(asked, ForwardPass) else self._read_out)(network, [asked])[0]
        writer.question = PendingPass(network, asked)
        self._count(writer.counts, asked)
        return self._main.switch()

    def _count(self, counts: Sequence[Callable[[int], None]], asked: ForwardPass | Tensor) -> None:
        for count in counts:
            if isinstance(asked, ForwardPass):
                count(len(asked.tokens))

    @contextmanager
    def counting(self, count: Callable[[int], None]) -> Iterator[None]:
        """While it lasts, the rows of the current writer's passes are counted."""
        counts = self._outside if self._current is None else self._current.counts
        counts.append(count)
        try:
            yield
        finally:
            counts.remove(count)


def _by_network(writers: Sequence[ScheduledRequest]) -> list[list[ScheduledRequest]]:
    groups: dict[int, list[ScheduledRequest]] = {}
    for writer in writers:
        assert writer.question is not None
        groups.setdefault(id(writer.question.network), []).append(writer)
    return list(groups.values())


class _Asking:
    """The merger of one network: every pass is a question to the switchboard."""

    def __init__(self, switchboard: BatchScheduler, network: Transformer) -> None:
        self._board, self._network = switchboard, network

    def trunk(self, one: ForwardPass) -> PassOutput:
        found: PassOutput = self._board.ask(self._network, one)
        return found

    def logits(self, h: Tensor) -> Tensor:
        found: Tensor = self._board.ask(self._network, h)
        return found

    def counting(self, count: Callable[[int], None]) -> AbstractContextManager[None]:
        return self._board.counting(count)
