"""An argument is declared once: a wrong value gets the same sentence from Python, the shell and HTTP."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import Say

from redraft.apps.cli import VERB_GROUPS, VERBS
from redraft.apps.cli.arguments import parse_verb
from redraft.apps.cli.parsing import Option, verb_arguments
from redraft.apps.server.bodies.fields import parse_body
from redraft.apps.server.errors import _ApiError
from redraft.apps.server.routes import ROUTES
from redraft.tasks import (
    ArgumentError,
    ControlSettings,
    CorrectSettings,
    GenerationSettings,
    InfillSettings,
    RewriteSettings,
    ScoreSettings,
)
from redraft.tasks.arguments.setting import Argument, arguments_of

VERB_OF = {
    "generate": GenerationSettings,
    "infill": InfillSettings,
    "rewrite": RewriteSettings,
    "control": ControlSettings,
    "score": ScoreSettings,
    "correct": CorrectSettings,
}
ROUTE_OF: dict[type[Any], str] = {
    InfillSettings: "/v1/infill",
    ScoreSettings: "/v1/score",
    CorrectSettings: "/v1/correct",
}
TOP = {"max_new_tokens": "max_tokens", **{name: name for name in ("n", "seed", "temperature", "top_p", "stop")}}
ANY_TEXT = {  # any text is right, or only the model can say that it is wrong; a wrong type is tested below
    *("pattern", "schema", "source", "label", "negative_prompt", "draft", "pos", "lexicon", "classifier"),
}
NOT_HTTP = {"lexicon", "classifier", "chat"}  # two name files, and chats have a route of their own
LIMITED = {"draws", "n", "temperature", "candidates"}  # a server has smaller limits, which its sentence names
TOP |= {name: name for name in ("frequency_penalty", "presence_penalty", "logit_bias")}


def wrong_values(argument: Argument) -> Iterator[tuple[Any, str]]:
    """Values outside the range or of another type, and the word that the shell reads as the same value."""
    values = [*_wrong_words(argument)]
    yield from zip(values, map(str, values), strict=True)
    if argument.setting.read is not None and argument.count == 0 and argument.name != "pattern":  # "" matches nothing
        yield [""], ""
    if argument.name == "logit_bias":
        yield "[", "["


def _wrong_words(argument: Argument) -> Iterator[Any]:
    about = argument.setting
    if argument.count is None and argument.kind in (int, float):
        yield "x"
        bounds = [bound - 1 for bound in (about.least, about.above) if bound is not None]
        bounds += [] if about.most is None else [about.most + 1]
        yield from map(argument.kind, bounds)
    if argument.choices:
        yield "no-such-choice"


def wrong_types(argument: Argument) -> Iterator[Any]:
    """Values of another type, as Python and JSON have them."""
    yield 3 if argument.kind in (str, bool) else "x"
    if not argument.setting.objects:  # in Python a list may be one
        yield ["a", 3]
    if argument.kind is not bool:
        yield True


def sentence(call: Callable[[], Any]) -> str:
    try:
        call()
    except (ValueError, _ApiError) as error:
        return getattr(error, "message", str(error))
    raise AssertionError("the value was not refused")


def in_python(kind: type[Any], argument: Argument, value: Any) -> str:
    return sentence(lambda: kind(**{argument.name: value}))


def over_http(kind: type[Any], argument: Argument, value: Any) -> str | None:
    """The message of the server, under our name for the argument; None if it has no such parameter."""
    name = TOP.get(argument.name, argument.name)
    if argument.name in NOT_HTTP:
        return None
    if kind in (ScoreSettings, CorrectSettings):
        body = {"texts": "a", argument.name: value}
    else:
        body = {TOP[argument.name]: value} if argument.name in TOP else {"diffusion": {argument.name: value}}
    raw = json.dumps(body).encode()
    found = sentence(lambda: parse_body(ROUTES[ROUTE_OF.get(kind, "/v1/completions")], raw))
    return found.replace(f"{name}=", f"{argument.name}=", 1)


def test_a_wrong_value_gets_the_same_sentence_from_python_shell_and_http(say: Say) -> None:
    compared = 0
    for verb, kind in VERB_OF.items():
        cases = [(argument, *wrong) for argument in arguments_of(kind) for wrong in wrong_values(argument)]
        for argument, value, word in cases:
            python, http = in_python(kind, argument, value), over_http(kind, argument, value)
            _, shell = say(verb, "x", argument.flag, word, code=2)
            assert shell == f"redraft: {python.replace(f'{argument.name}=', f'{argument.flag} ', 1)}\n"
            if argument.name not in LIMITED:
                assert http in (None, python)
                compared += http is not None
        fields_with_a_case = {argument.name for argument, *_ in cases}
        free_texts = {argument.name for argument in arguments_of(kind)} - fields_with_a_case - ANY_TEXT
        assert free_texts <= {argument.name for argument in arguments_of(kind) if argument.kind is bool}
    assert compared > 60


def test_a_value_of_another_type_gets_the_same_sentence_from_python_and_http() -> None:
    """Every argument of every task has one, except those without a parameter."""
    for kind in VERB_OF.values():
        for argument in arguments_of(kind):
            for value in wrong_types(argument):
                http = over_http(kind, argument, value)
                assert http in (None, in_python(kind, argument, value)), (argument.name, value)
                assert (http is None) == (argument.name in NOT_HTTP)
    sampler = next(argument for argument in arguments_of(GenerationSettings) if argument.name == "sampler")
    assert "choose from" in str(over_http(GenerationSettings, sampler, ["a", 3]))


def test_flags_are_unique_and_every_argument_has_a_sentence() -> None:
    for verb, kind in VERBS.items():
        flags = [flag for option in map(Option.of, verb_arguments(kind)) for flag in option.flags]
        assert len(flags) == len(set(flags)), verb
        assert all(argument.setting.about.rstrip(")").endswith((".", "…")) for argument in verb_arguments(kind)), verb


def test_help_is_grouped_and_rare_options_are_under_help_all(say: Say) -> None:
    overview, common, everything = (
        say(*words)[0] for words in (["--help"], ["generate", "--help"], ["generate", "--help-all"])
    )
    assert all(f"\n{group}:\n" in overview for group in VERB_GROUPS)
    assert all(
        f"\n{group}:\n" in common for group in ("Text", "Sampling", "Constraints", "Guidance", "Speed", "Output")
    )
    assert "--min-p" not in common
    assert "--min-p" in everything
    assert "ships with Redraft: story, smol" in common


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_names_every_verb_and_flag(say: Say, shell: str) -> None:
    script, _ = say("completion", shell)
    assert all(verb in script for verb in VERBS)
    assert "max-new-tokens" in script


def test_flags_may_stand_between_positional_arguments() -> None:
    parsed: Any = parse_verb(VERBS, ["generate", "x", "--n=2", "--temperature", "0.5", "a text"])
    assert (parsed.model, parsed.prompt, parsed.settings.n, parsed.settings.temperature) == ("x", "a text", 2, 0.5)
    with pytest.raises(ArgumentError, match=r"temperature=-1\.0"):
        parse_verb(VERBS, ["generate", "--temperature", "-1"])
