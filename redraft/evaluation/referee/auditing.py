"""The audit of a function, or of everything in a file that can be audited."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from redraft.evaluation.referee.calls import _name_of, _parameters_of
from redraft.evaluation.referee.log_probs import AuditLogProb
from redraft.evaluation.referee.losses import AuditLoss
from redraft.evaluation.referee.processes import AuditProcess
from redraft.evaluation.referee.samplers import AuditSampler
from redraft.evaluation.referee.verdict import AuditEffort, Verdict

_Audited = AuditLoss | AuditSampler | AuditProcess | AuditLogProb
_KINDS: dict[tuple[str, ...], Callable[[Callable[..., Any]], _Audited]] = {
    ("x", "denoise", "rng"): AuditLoss,
    ("denoise", "length", "rng"): AuditSampler,
    ("t", "words"): AuditProcess,
}
_TAKES = "a loss takes (x, denoise, rng), a sampler (denoise, length, rng), a marginal (t, words)"


def audit(subject: _Audited | Callable[..., Any], effort: AuditEffort = AuditEffort()) -> list[Verdict]:
    """Judge a loss, sampler, process or estimate of log p by languages whose exact answers are known.

    A plain function is a loss if it takes `(x, denoise, rng)`, a sampler if it takes `(denoise, length, rng)`, and the
    marginal of a process if it takes `(t, words)`. The first three of its arguments must have these names.
    """
    return list(audit_verdicts(subject, effort))


def audit_verdicts(subject: _Audited | Callable[..., Any], effort: AuditEffort = AuditEffort()) -> Iterator[Verdict]:
    """Yield the verdicts of `audit` one by one."""
    yield from _as_audited(subject).verdicts(effort)


def _as_audited(subject: Any) -> _Audited:
    """Return the object to audit; the names of a function's arguments decide its kind."""
    if isinstance(subject, _Audited):
        if getattr(subject, "function", subject) is None:
            raise ValueError(f"{type(subject).__name__}(…) has no function; write it above one as a decorator")
        return subject
    if not callable(subject) or inspect.isclass(subject):
        raise ValueError(f"{_name_of(subject)} is not a function; {_TAKES}")
    kind = _kind(subject)
    if kind is None:
        raise ValueError(f"{_name_of(subject)}({', '.join(_parameters_of(subject))}) cannot be audited: {_TAKES}")
    return kind(subject)


def _kind(function: Callable[..., Any]) -> Callable[[Callable[..., Any]], _Audited] | None:
    names = _parameters_of(function)
    return next((kind for head, kind in _KINDS.items() if names[: len(head)] == head), None)


def audited_in(module: ModuleType, name: str | None = None) -> list[_Audited]:
    """Return the named object of a user's file, or all of its objects that can be audited."""
    own = {key: value for key, value in vars(module).items() if not key.startswith("_") and _own(value, module)}
    if name is not None:
        if name not in vars(module):
            raise ValueError(f"{module.__file__} has no {name!r}; it has: {', '.join(own) or 'nothing to audit'}")
        return [_as_audited(vars(module)[name])]
    marked = [value for value in own.values() if isinstance(value, _Audited)]
    subjects = marked or [_as_audited(value) for value in own.values() if callable(value) and _kind(value)]
    if not subjects:
        seen = ", ".join(f"{key}({', '.join(_parameters_of(value))})" for key, value in own.items())
        raise ValueError(f"{module.__file__} has nothing to audit: {_TAKES}; it has {seen or 'no functions'}")
    return subjects


def _own(value: Any, module: ModuleType) -> bool:
    """Whether a file defines a value that may be audited, and did not import it."""
    return isinstance(value, _Audited) or (inspect.isfunction(value) and value.__module__ == module.__name__)
