"""`python recipes/audits.py`: the verdict of `redraft audit` on every file of examples/audit.

Takes minutes. Rows go to recipes/results/audits.jsonl; existing rows are not measured again.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from results_pages.tables import markdown
from rows import RESULTS, Rows, measure_all, run_recipe

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples" / "audit"


def judge(example: Path) -> dict[str, Any]:
    """The main verdict of a file, and the information beside it."""
    command = [sys.executable, "-m", "redraft.apps.cli", "audit", str(example.relative_to(ROOT)), "--json"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode == 2:
        raise ValueError(f"{example} cannot be audited")
    return summarize([json.loads(line) for line in done.stdout.splitlines()]) | {
        "exit_code": done.returncode,
        "command": f"redraft audit {example.relative_to(ROOT)}",
    }


def summarize(verdicts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    wrong = [verdict for verdict in verdicts if verdict["passed"] is False]
    right = [verdict for verdict in verdicts if verdict["passed"]]
    main = (wrong or right)[-1]
    answer = main["answer"] if wrong or len(right) == 1 else "consistent"
    beside = [v["answer"] for v in verdicts if v["passed"] is None and re.match("unbiased|loose", v["answer"])]
    numbers = {key: main[key] for key in ("value", "error", "p_value")}
    return {
        "answer": "; ".join([answer, *beside]),
        "passed": not wrong,
        "evidence": main["evidence"],
        **numbers,
    }


def tables(results: Path) -> dict[str, str]:
    """The table of verdicts."""
    rows = Rows(results / "audits.jsonl").read()
    cells = (
        [f"`{name}`", f"{'✓' if row['passed'] else '✗'} {row['answer']}", row["evidence"]] for name, row in rows.items()
    )
    return {"verdicts": markdown(["example", "verdict", "evidence"], sorted(cells))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="examples to judge")
    given = parser.parse_args()
    jobs = ((example.stem, partial(judge, example)) for example in sorted(EXAMPLES.glob("*.py")))
    measure_all(Rows(RESULTS / "audits.jsonl"), jobs, given.only)


if __name__ == "__main__":
    run_recipe(main)
