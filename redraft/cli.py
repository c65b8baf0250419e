"""The command line: verbs, each a few lines. Whatever needs torch is imported inside the verb."""

from __future__ import annotations

import json as jsonlib
import sys
from dataclasses import asdict
from pathlib import Path

import tyro

app = tyro.extras.SubcommandApp()


@app.command
def check(file: tyro.conf.Positional[Path | None] = None, /, json: bool = False) -> None:
    """Prove processes and samplers by exact enumeration on a toy language.

    Args:
        file: a Python file with processes of your own; without it the built-in ones are checked
        json: one JSON object per law
    """
    from redraft import check as laws
    from redraft.config import load_module

    processes = laws.built_in() if file is None else laws.processes_of(load_module(file))
    failed = 0
    for row in laws.check_all(processes):
        failed += not row.ok
        print(jsonlib.dumps(asdict(row)) if json else _law(row), flush=True)
    if failed:
        raise SystemExit(1)


def _law(row: object) -> str:
    r = asdict(row)  # type: ignore[call-overload]
    within = f" ± {r['tolerance']:g}" if r["tolerance"] else ""
    sign = "ok  " if r["ok"] else "FAIL"
    return f"{sign}  {r['process']:<22} {r['law']:<52} {r['value']:.6g} {r['rule']} {r['expected']:.6g}{within}"


def main() -> None:
    """Errors that a user can mend end in one line and exit code 2."""
    try:
        app.cli(prog="redraft", description="Diffusion language models on one small, proven core.")
    except (ValueError, FileNotFoundError) as error:
        print(f"redraft: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        sys.stderr.close()
        raise SystemExit(0) from None


if __name__ == "__main__":
    main()
