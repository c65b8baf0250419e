"""Write the parts of the documentation that come from the code: `make docs`.

`docs/api.md` has the classes and functions of `redraft`: their source without function bodies. A page can show the
signature of a name in the same way, between two marks:

    <!-- redraft.Canvas -->
    …
    <!-- end -->

Such blocks are marked `py`. Blocks marked `python` are examples, which tests/test_docs.py runs. The list of methods in
`docs/methods/README.md` has the title and the first sentence of each page in that folder.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from textwrap import dedent
from typing import Any

import redraft

FOLDER = Path(__file__).parent
MARKED = re.compile(r"(<!-- (redraft\.[\w.]+|methods) -->\n).*?(<!-- end -->)", re.DOTALL)
HEADER = """# API

The classes and functions that `redraft` itself offers, by the module that defines them, without function bodies.
Import all others from their storey, for example `from redraft.decoding import Heun`. `make docs` writes this page: edit
the docstrings instead.
"""


def pages() -> dict[Path, str]:
    """Return the current text of every page with a generated part."""
    texts = {
        page: page.read_text("utf-8")
        for page in FOLDER.rglob("*.md")
        if page.name != "api.md" and page.parent.name != "templates"
    }
    renewed = {page: MARKED.sub(_renewed, text) for page, text in texts.items() if MARKED.search(text)}
    return {**renewed, FOLDER / "api.md": api()}


def _renewed(match: re.Match[str]) -> str:
    name = match[2].removeprefix("redraft.")
    content = methods() if name == "methods" else _block(outline(attrgetter(name)(redraft), prose=False))
    return match[1] + content + match[3]


def methods() -> str:
    """One line per method: its title, a link, and its first sentence."""
    files = [file for file in sorted((FOLDER / "methods").glob("*.md")) if file.name != "README.md"]
    return "\n".join(map(_entry, files)) + "\n"


def _entry(file: Path) -> str:
    title, about, *_ = file.read_text("utf-8").split("\n\n")
    sentence = re.split(r"(?<=\.) (?=[A-Z(])", " ".join(about.split()))[0]
    return f"- [{title.removeprefix('# ')}]({file.name}): {sentence}"


def api() -> str:
    """Return the text of docs/api.md."""
    parts = [HEADER]
    for module, things in groupby(sorted(_offered(), key=_home), key=lambda thing: thing.__module__):
        parts.append(f"## {module}\n")
        parts += [f"### {thing.__name__}\n\n{_block(outline(thing))}" for thing in things]
    return "\n".join(parts)


def _offered() -> Iterator[Any]:
    """Yield the classes and functions that `redraft` itself offers."""
    things = (getattr(redraft, name) for name in redraft.__all__)
    return (thing for thing in things if inspect.isclass(thing) or inspect.isfunction(thing))


def _home(thing: Any) -> tuple[str, str]:
    return thing.__module__, thing.__name__


def _block(code: str) -> str:
    return f"```py\n{code}\n```\n"


def outline(thing: type | object, prose: bool = True) -> str:
    """Return the source of a class or function without bodies, private names and, unless `prose`, docstrings."""
    source = dedent(inspect.getsource(thing))  # type: ignore[arg-type]
    return "\n".join(_outline(ast.parse(source).body[0], source.splitlines(), prose))


def _outline(node: ast.stmt, lines: list[str], prose: bool) -> Iterator[str]:
    if isinstance(node, ast.AnnAssign) and not _private(node.target):
        yield from lines[node.lineno - 1 : node.end_lineno]
    elif isinstance(node, ast.FunctionDef | ast.ClassDef) and not _private(node):
        first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
        body = node.body[0].lineno
        header = lines[first - 1 : max(body - 1, node.lineno)]
        inside = list(_inside(node, lines, prose))
        yield from header if inside or header[-1].endswith("...") else [*header[:-1], f"{header[-1]} ..."]
        yield from inside


def _inside(node: ast.FunctionDef | ast.ClassDef, lines: list[str], prose: bool) -> Iterator[str]:
    """Yield the docstring, the fields and the methods."""
    head = node.body[0]
    if prose and ast.get_docstring(node):
        yield from lines[head.lineno - 1 : head.end_lineno]
    before: ast.stmt = head
    for child in node.body if isinstance(node, ast.ClassDef) else []:
        if prose and isinstance(before, ast.AnnAssign) and isinstance(child, ast.Expr):  # what a field means
            yield from lines[child.lineno - 1 : child.end_lineno]
        elif part := list(_outline(child, lines, prose)):
            yield from part if type(child) is type(before) is ast.AnnAssign or child is head else ["", *part]
            before = child


def _private(node: ast.expr | ast.stmt) -> bool:
    name = node.id if isinstance(node, ast.Name) else getattr(node, "name", "")
    return name.startswith("_") and name not in ("__call__", "__init__")


def main() -> None:
    for page, text in pages().items():
        page.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
