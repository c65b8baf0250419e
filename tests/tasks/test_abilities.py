"""A model can do a task if and only if the list of its abilities has it, for one model of each kind."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from redraft.models import DiffusionLM
from redraft.tasks import TextModel, choose, control, correct, generate, infill, rewrite, score
from redraft.tasks.abilities import abilities
from redraft.training.presets.index import PRESETS

TEXT = "One spring day, Anna felt sad."
TRIES: dict[str, list[Callable[[TextModel], object]]] = {  # one that works is enough
    "generate": [
        lambda model: generate(model, "", steps=2, max_new_tokens=4),
        lambda model: generate(model, "", steps=2, max_new_tokens=4, source=TEXT),
    ],
    "infill": [lambda model: infill(model, "One spring day, [[1]] felt sad.", steps=2)],
    "choose": [lambda model: choose(model, "One spring day, Anna felt [[?]].", ["sad", "tired"])],
    "correct": [lambda model: correct(model, "One spring day, Anna flet sad.")],
    "rewrite": [lambda model: rewrite(model, TEXT, steps=2)],
    "control": [
        lambda model: control(model, required=["Anna"], length=12, steps=2),
        lambda model: control(model, length=8, steps=2),
    ],
    "score": [lambda model: score(model, TEXT, draws=1)],
}
KINDS = ("mdlm", "ar", "bd3", "gidd", "d3pm", "gstar", "mdlm_attribute", "flex")
KINDS += ("llada_chat", "diffusion_lm", "genie", "ssd", "ld4tg", "ld4tg_class")


def works(task: Callable[[TextModel], object], model: TextModel) -> bool:
    try:
        task(model)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("kind", KINDS)
def test_the_list_agrees_with_what_works(kind: str) -> None:
    run = PRESETS[f"{kind}_tiny"]()
    model = TextModel(DiffusionLM(run.model, run.tokenizer).eval(), run)
    working = tuple(task for task, tries in TRIES.items() if any(works(call, model) for call in tries))
    assert abilities(model) == working
    assert working


def test_a_codec_alone_can_do_nothing() -> None:
    run = PRESETS["ld4tg_codec_tiny"]()
    assert abilities(TextModel(DiffusionLM(run.model, run.tokenizer), run)) == ()
