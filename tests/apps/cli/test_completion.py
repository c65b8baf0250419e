"""Completion in bash, zsh and fish: the script is run by the shell, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from redraft.apps.cli import VERBS
from redraft.decoding import SAMPLER_NAMES

Say = Callable[..., tuple[str, str]]


def completed(script: str, *words: str, where: Path) -> set[str]:
    """What bash offers after these words, the last of which is being typed."""
    typed = " ".join(f"'{word}'" for word in words)
    ask = f'{script}\nCOMP_WORDS=({typed}); COMP_CWORD={len(words) - 1}; _redraft; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, cwd=where)
    assert done.stderr == ""
    return set(done.stdout.split())


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes_verbs_flags_choices_and_names(say: Say, tmp_path: Path) -> None:
    script, _ = say("completion", "bash")
    (tmp_path / "storage").mkdir()

    def offers(*words: str) -> set[str]:
        return completed(script, "redraft", *words, where=tmp_path)

    assert offers("") == set(VERBS)
    assert offers("mo") == {"models"}
    assert offers("generate", "--temp") == {"--temperature"}
    assert offers("train", "mdlm_tiny", "--dev") == {"--device"}
    assert set(SAMPLER_NAMES) <= offers("generate", "story", "--sampler", "")
    assert offers("generate", "--cache", "d") == {"dual"}
    assert offers("generate", "st") == {"story", "storage"}, "names of models, and files"
    assert offers("completion", "") >= {"bash", "zsh", "fish"}
    assert offers("audit", "st") == {"storage"}


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_read_the_script(say: Say, shell: str, tmp_path: Path) -> None:
    script, _ = say("completion", shell)
    for verb in VERBS:
        assert verb in script
    assert "ancestral" in script
    assert "temperature" in script
    if shutil.which(shell) is not None:
        (tmp_path / "script").write_text(script)
        done = subprocess.run([shell, "-n", tmp_path / "script"], capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


def test_an_unknown_shell_is_refused(say: Say) -> None:
    assert "choose from 'bash', 'zsh', 'fish'" in say("completion", "tcsh", code=2)[1]
