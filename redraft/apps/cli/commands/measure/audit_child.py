"""The process that runs a user's file under an audit: limited time and memory, results as JSON lines on stdout."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Any


def _main() -> None:
    """Read the request from the command line; write a verdict per line, or an error."""
    request = json.loads(sys.argv[1])
    _limit(request["gigabytes"], request["seconds"])
    results = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # whatever the user's file prints goes to stderr
    try:
        for record in _records(request):
            results.write(json.dumps(record) + "\n")
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except MemoryError:
        results.write(json.dumps({"error": f"needs more than {request['gigabytes']} GB; raise --gigabytes"}) + "\n")
    except (Exception, SystemExit) as error:
        results.write(json.dumps({"error": _blame(error)}) + "\n")


def _records(request: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The verdicts on everything that the file offers, or on the named object."""
    from redraft.apps.cli.user_code import load_module
    from redraft.evaluation.referee.auditing import audit_verdicts, audited_in
    from redraft.evaluation.referee.verdict import AuditEffort

    effort = AuditEffort(**request["effort"])
    for audited in audited_in(load_module(request["file"]), request["name"]):
        for verdict in audit_verdicts(audited, effort):
            yield {**asdict(verdict), "text": str(verdict)}


def _blame(error: BaseException) -> str:
    """One line: an error inside the user's function is shown with its place."""
    from redraft.apps.cli.user_code import user_code_location

    place = user_code_location(error)
    kind = "" if isinstance(error, ValueError) else f"{type(error).__name__}: "
    return f"{place}: {kind}{error}" if place else f"{kind}{error}"


def _limit(gigabytes: float, seconds: float) -> None:
    """Limit memory and CPU time where the system can."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        size, most = int(gigabytes * 2**30), int(seconds) + 1
        resource.setrlimit(resource.RLIMIT_AS, (size, size))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_CPU, (most, most))


if __name__ == "__main__":
    _main()
