"""outlines in its vLLM mode: choices, schemas and regular expressions."""

from __future__ import annotations

import re
from typing import Any, Literal

import openai
import pytest

outlines = pytest.importorskip("outlines", reason="needs redraft[clients]")

from tests.apps.server.served import run_blocks  # noqa: E402
from tests.clients.questions import MODELS, Sum, Weather  # noqa: E402


def model(url: str) -> Any:
    return outlines.from_vllm(openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0), "smol")


def test_text(url: str) -> None:
    assert isinstance(model(url)("Is Rome in Italy?", max_tokens=6), str)


@pytest.mark.parametrize("answers", [("yes", "no"), ("a", "ab", "abc"), ("1", "2")])
def test_choices(url: str, answers: tuple[str, ...]) -> None:
    assert model(url)("Is Rome in Italy?", Literal[answers], max_tokens=10) in answers


@pytest.mark.parametrize("kind", MODELS)
def test_pydantic(url: str, kind: Any) -> None:
    kind.model_validate_json(model(url)("Is Rome in Italy?", kind, max_tokens=90))


def test_json_schema(url: str) -> None:
    Sum.model_validate_json(model(url)("A sum.", outlines.json_schema(Sum.model_json_schema()), max_tokens=60))


@pytest.mark.parametrize("pattern", ["[0-9]{3}", "(ab|c)d?", "[A-Z][a-z]{2,5}"])
def test_regular_expressions(url: str, pattern: str) -> None:
    assert re.fullmatch(pattern, model(url)("A word.", outlines.regex(pattern), max_tokens=20))


def test_streams(url: str) -> None:
    text = "".join(model(url).stream("A city.", Weather, max_tokens=60))
    Weather.model_validate_json(text)


def test_grammars_are_refused(url: str) -> None:
    with pytest.raises(Exception, match="grammar"):
        model(url)("A word.", outlines.cfg('start: "a"'), max_tokens=5)


def test_the_page(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    run_blocks("outlines", url)
    assert capsys.readouterr().out.strip() in ("yes", "no")
