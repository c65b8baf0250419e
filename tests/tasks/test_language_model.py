"""`redraft.load`: one object with every task as a method, the same texts as the functions, and how results show."""

from __future__ import annotations

import inspect
import re
import tomllib
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch

import redraft
from redraft.core import find_device
from redraft.tasks import LanguageModel

TASKS = ("generate", "infill", "choose", "correct", "rewrite", "control", "score")
TEXT = "One spring day, Anna walked to the garden."


@pytest.fixture(scope="module")
def story() -> LanguageModel:
    return redraft.load("story", "cpu")


def test_every_task_is_a_method_with_the_arguments_of_its_function() -> None:
    for name in TASKS:
        function, method = (list(inspect.signature(getattr(x, name)).parameters) for x in (redraft, LanguageModel))
        assert method == ["self", *function[1:]], name


def test_methods_give_what_the_functions_give(story: LanguageModel) -> None:
    options = {"steps": 4, "seed": 3, "max_new_tokens": 8}
    assert story.generate("One", **options).texts == redraft.generate("story", "One", **options).texts
    *_, last = story.generate("One", stream=True, **options)
    assert last.written is not None
    assert last.written.text == story.generate("One", **options)[0].text
    template = "One spring day, [[1]] walked to the [[1]]."
    assert story.infill(template, steps=2).texts == redraft.infill("story", template, steps=2).texts
    assert [part.committed for part in story.infill(template, steps=2, stream=True)]
    assert story.choose("One spring day, Anna felt [[?]] and", ["sad", "fresh"])[0].best in ("sad", "fresh")
    assert story.correct("One spring day, Anna wlaked to the garden.").texts == [TEXT]
    assert story.rewrite(TEXT, steps=2)[0].text
    assert "Anna" in story.control(required="Anna", steps=4)[0].text
    assert story.score(TEXT, draws=1)[0].bits > 0


def test_a_model_tells_what_it_is_and_is_saved(story: LanguageModel, tmp_path: Path) -> None:
    run = story.run
    assert run is not None
    assert repr(story) == (
        f"LanguageModel('story': 507,136 parameters, Masked, WordTokenizer of 376 ids, run {run.digest}, cpu)"
    )
    again = redraft.load(story.save(tmp_path / "mine", card="# Mine"), "cpu")
    assert repr(again) == repr(story).replace("'story'", repr(str(tmp_path / "mine")))
    assert (tmp_path / "mine" / "README.md").read_text().startswith("# Mine")
    assert again.generate("One", steps=2, seed=1).texts == story.generate("One", steps=2, seed=1).texts
    assert all(torch.equal(a, b) for a, b in zip(again.lm.parameters(), story.lm.parameters(), strict=True))


def test_results_print_as_text_and_show_in_a_notebook(story: LanguageModel) -> None:
    written = story.generate(["One", "One"], steps=4, seed=0, max_new_tokens=6)
    assert str(written) == "\n".join(written.texts)
    assert str(written[0]) == written[0].text
    shown = ElementTree.fromstring(f"<div>{written._repr_html_()}</div>")
    assert ["".join(p.itertext()) for p in shown.findall("p")] == written.texts
    alphas = [float(a) for a in re.findall(r"rgba\([\d,]+,([\d.]+)\)", written[0]._repr_html_())]
    assert alphas == [round(0.6 * (1 - c), 2) for c in written[0].confidence if c is not None]
    assert 'title="given">One</span>' in written[0]._repr_html_()
    corrected = story.correct("One spring day, Anna wlaked to the garden.")[0]
    assert "<del>wlaked</del> <ins" in corrected._repr_html_()
    assert str(corrected) == TEXT
    chosen = story.choose("One spring day, Anna felt [[?]] and", ["sad", "fresh"])[0]
    assert str(chosen).split()[0] == chosen.best
    rows = ElementTree.fromstring(chosen._repr_html_()).findall("tbody/tr")
    assert [row[0].text for row in rows] == [answer for answer, _ in chosen.ranked]
    assert str(story.score(TEXT, draws=1)[0]).endswith(f"per character: {TEXT}")


def test_text_from_models_cannot_break_out_of_a_notebook() -> None:
    from redraft.core.text.shading import changes_html, shaded_html, table_html

    evil = "<script>&\"'"
    pages = (
        shaded_html([(evil, 0.5, False), (evil, None, True), (evil, None, False)]),
        changes_html(f"x{evil}y", [(1, evil, evil, 0.5)]),
        table_html((evil,), [(evil,)]),
    )
    for page in pages:
        assert "<script" not in page
        assert evil in "".join(ElementTree.fromstring(page).itertext())


def test_devices_are_found_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_device("cpu") == find_device(torch.device("cpu")) == torch.device("cpu")
    for name in ("gpu", "cuda:x", "", "meta"):
        with pytest.raises(ValueError, match=r"it must be auto, cpu, cuda, cuda:1 \(or another number\) or mps"):
            find_device(name)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    with pytest.raises(ValueError, match="torch finds no CUDA GPU here; choose auto or cpu"):
        redraft.load("story", "cuda")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert find_device("cuda:1") == torch.device("cuda", 1)
    assert find_device("cuda", 1) == torch.device("cuda", 1), "the GPU of this worker"
    with pytest.raises(ValueError, match="only 2 GPUs, numbered from 0,"):
        find_device("cuda:2")


def test_the_package_tells_its_version_and_its_types() -> None:
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text("utf-8"))
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "redraft.core.version.__version__"}
    assert re.fullmatch(r"\d+\.\d+\.\d+", redraft.__version__)
    assert Path(redraft.__file__).with_name("py.typed").is_file()
