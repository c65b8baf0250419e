"""Fills the table of docs/guides/audit.md: every file of examples/audit, by `redraft audit`, in minutes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "guides" / "audit.md"
HEAD = "| example | verdict | evidence |\n| --- | --- | --- |\n"
TABLE = re.compile(re.escape(HEAD) + r"(?:\|.*\n)+")
REASONS = re.compile(r"^- `(\w+)`: ", re.MULTILINE)


def verdicts(file: Path) -> list[dict[str, object]]:
    """What the command says about a file."""
    command = [sys.executable, "-m", "redraft.apps.cli", "audit", str(file.relative_to(ROOT)), "--json"]
    said = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if said.returncode == 2:
        raise SystemExit(f"{file}: it cannot be audited")
    return [json.loads(line) for line in said.stdout.splitlines()]


def row(file: Path) -> str:
    """The line of a file: its main verdict, and the information beside it."""
    found = verdicts(file)
    wrong = [v for v in found if v["passed"] is False]
    main = (wrong or [v for v in found if v["passed"]])[0]
    beside = next((v for v in found if v["passed"] is None and re.match("unbiased|loose", str(v["answer"]))), None)
    answer = str(main["answer"]) + (f"; {beside['answer']}" if beside else "")
    if file.stem.startswith("process") and not wrong:
        answer = "consistent"
    mark = "✗" if wrong else "✓"
    return f"| `{file.stem}` | {mark} {answer} | {main['evidence']} |"


def main() -> None:
    rows = [row(file) for file in sorted((ROOT / "examples" / "audit").glob("*.py"))]
    text = PAGE.read_text("utf-8")
    PAGE.write_text(TABLE.sub(lambda _: HEAD + "".join(f"{row}\n" for row in rows), text), "utf-8")


if __name__ == "__main__":
    main()
