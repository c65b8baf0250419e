"""`--weights onnx` as a user types it: drafts and company change no text, in the shell, in Python and in the server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import redraft
from redraft.apps.cli import main
from tests.apps.server.served import serving
from tests.apps.server.tiny_llama import write_tiny_llama

PROMPT = "the cat sat on the mat and the dog"


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_llama(tmp_path_factory.mktemp("llama") / "tiny", scale=4.0)


def generated(capsys: pytest.CaptureFixture[str], *words: object) -> list[str]:
    main(["generate", *map(str, words), "--json"])
    return [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()]


def test_the_same_text_everywhere(llama: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    words = (llama, PROMPT, "--new", 12, "--seed", 5, "--weights", "onnx")
    plain = generated(capsys, *words)
    assert generated(capsys, *words, "--draft", "lookup") == plain
    assert generated(capsys, *words, "--n", 3)[:1] == plain
    model = redraft.load(llama, weights="onnx")
    assert [text.text for text in model.generate(PROMPT, max_new_tokens=12, seed=5)] == plain
    with serving(llama, "--weights", "onnx") as server:
        answer = server.client.completions.create(model="tiny", prompt=PROMPT, max_tokens=12, seed=5)
    assert PROMPT + answer.choices[0].text == plain[0]


def test_without_the_packages_one_line_says_what_to_install(
    llama: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("redraft.models.cpu_weights.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="2"):
        main(["generate", str(llama), "--weights", "onnx"])
    told = capsys.readouterr().err
    assert "pip install 'redraft[fast]'" in told
    assert "Traceback" not in told
