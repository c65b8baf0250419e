"""What mkdocs does besides turning pages into HTML (`hooks` in mkdocs.yml). Nothing needs a network.

- The API: a page per storey with the docstrings of the names that it offers.
- Notebooks: their cells and outputs as a page.
- Files outside docs/ that pages link to: a page with their text.
- Formulas: blocks of LaTeX marked `math` become MathML, which browsers draw by themselves.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from html import escape
from importlib import import_module
from inspect import getdoc
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

DOCS = Path(__file__).parents[1]
ROOT = DOCS.parent
STOREYS = ("core", "models", "decoding", "training", "tasks", "evaluation", "apps")
LINK = re.compile(r"(\]\()(?!https?:|mailto:|#)([^)\s#]+)(#[^)\s]+)?(\))")
_UNTESTED = re.compile(r"^(```\w+) no-test$", re.MULTILINE)  # a command that tests do not run
_NAME = re.compile(r"<m[io]>(log|ln|sin|cos|tan|arcsin|exp)</m[io]>(?!<mo[^>]*>&#x00028;)")
_SPACED = r'<mi>\1</mi><mspace width="0.17em"/>'  # "log p", not "logp"
_LANGUAGES = {".py": "python", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml", ".json": "json"}


def on_config(config: MkDocsConfig) -> None:
    fence = {"name": "math", "class": "math", "format": _formula}
    config.mdx_configs["pymdownx.superfences"] = {"custom_fences": [fence]}


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Adds the pages that are not written by hand."""
    pages = {f"reference/{door}.md": _api(door) for door in ("redraft", *(f"redraft.{storey}" for storey in STOREYS))}
    pages |= {f"notebooks/{file.stem}.md": _notebook(file) for file in sorted(DOCS.glob("notebooks/*.ipynb"))}
    written = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for page, text in [*written.items(), *pages.items()]:
        for link in LINK.finditer(text):
            if (file := _outside(page, link[2])) is not None:
                pages[_source_page(file)] = _source(file)
    for page, text in pages.items():
        level = InclusionLevel.NOT_IN_NAV if page.startswith("files/") else InclusionLevel.UNDEFINED
        files.append(File.generated(config, page, content=text, inclusion=level))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to notebooks and to files outside docs/ lead to their pages; fences keep only their language."""

    def led(link: re.Match[str]) -> str:
        if link[2].endswith(".ipynb"):
            return link[0].replace(".ipynb", ".md")
        file = _outside(page.file.src_uri, link[2])
        if file is None:
            return link[0]
        return link[1] + posixpath.relpath(_source_page(file), posixpath.dirname(page.file.src_uri)) + link[4]

    return _UNTESTED.sub(r"\1", LINK.sub(led, markdown))


def _formula(source: str, *_: Any, **__: Any) -> str:
    drawn = convert(" ".join(source.split()), display="block")
    return f'<div class="math">{_NAME.sub(_SPACED, drawn)}</div>'


# The API ------------------------------------------------------------------------------------------------------------


def _api(door: str) -> str:
    """A page that mkdocstrings fills. A name that a storey offers as well is described there and only named here."""
    module = import_module(door)
    about, _, rest = (module.__doc__ or "").partition("\n")
    homes = {} if "." in door else _homes(module)
    below = {name: page for name, home in homes.items() if (page := _storey_with(name, home))}
    named = [
        f"- [`{name}`]({page}.md#{homes[name]}.{name}): {_first_line(getattr(module, name))}"
        for name, page in sorted(below.items())
    ]
    entries = [f"::: {home}.{name}" for name, home in sorted(_homes(module).items()) if name not in below]
    return "\n\n".join([f"# {door}", about, rest.strip(), "\n".join(named), *entries]) + "\n"


def _first_line(thing: Any) -> str:
    return (getdoc(thing) or "").partition("\n")[0].replace("[", "\\[")


def _storey_with(name: str, home: str) -> str | None:
    """The storey that offers this thing, if one does."""
    storeys = (f"redraft.{storey}" for storey in STOREYS)
    return next((storey for storey in storeys if _homes(import_module(storey)).get(name) == home), None)


def _homes(module: Any) -> Mapping[str, str]:
    """Offered classes and functions, each with the module that defines it."""
    things = {name: getattr(module, name) for name in module.__all__}
    return {name: thing.__module__ for name, thing in things.items() if getattr(thing, "__name__", None) == name}


# Notebooks ----------------------------------------------------------------------------------------------------------


def _notebook(file: Path) -> str:
    cells = json.loads(file.read_text("utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _cell(cell)) + "\n"


def _cell(cell: Mapping[str, Any]) -> Iterator[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield source
        return
    yield f"```python\n{source}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {"text/plain": output.get("text", "")})
        kind = next(kind for kind in ("image/svg+xml", "text/html", "image/png", "text/plain") if kind in data)
        yield _output(kind, "".join(data[kind]))


def _output(kind: str, text: str) -> str:
    if kind == "image/png":
        return f'<img alt="the picture drawn by the cell above" src="data:image/png;base64,{text.strip()}">'
    if kind == "text/plain":
        return f'<pre class="output">{escape(text)}</pre>'
    return f'<div class="output">{" ".join(text.split())}</div>'  # in one line: Markdown leaves it alone


# Files outside docs/ ------------------------------------------------------------------------------------------------


def _outside(page: str, link: str) -> Path | None:
    """The file that a page links to, if it is not in docs/."""
    target = (DOCS / posixpath.dirname(page) / link).resolve()
    return None if target.is_relative_to(DOCS) or not target.exists() else target


def _into_docs(file: Path, link: re.Match[str]) -> str:
    """A link of a file outside docs/, as its page needs it if it leads into docs/."""
    target = (file.parent / link[2]).resolve()
    if not target.is_relative_to(DOCS) or not target.exists():
        return link[0]
    place = posixpath.relpath(target.relative_to(DOCS).as_posix(), posixpath.dirname(_source_page(file)))
    return f"{link[1]}{place}{link[3] or ''}{link[4]}"


def _source_page(file: Path) -> str:
    name = file.relative_to(ROOT).as_posix()
    return f"files/{name}" if file.suffix == ".md" else f"files/{name}.md"


def _source(file: Path) -> str:
    name = file.relative_to(ROOT)
    if file.is_dir():
        return f"# {name}\n\n" + "\n".join(f"- `{entry.name}`" for entry in sorted(file.iterdir())) + "\n"
    if file.suffix == ".md":
        return LINK.sub(lambda link: _into_docs(file, link), file.read_text("utf-8"))
    text, language = file.read_text("utf-8"), _LANGUAGES.get(file.suffix, "text")
    return f"# {name}\n\n````{language}\n{text}````\n"
