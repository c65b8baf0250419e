"""Chat templates: messages → the prompt that a model was trained on.

A template is a program in Jinja that comes with a checkpoint, so it is not trusted. Jinja's sandbox renders it and
refuses attributes that lead out of it, in a process of its own with little time and memory: a template that loops
forever or grows without bound ends in an error. Messages stay text: a special token spelled out in a message is not
special.
"""

from __future__ import annotations

import json
import queue
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from redraft.core.text.tokenizers import Tokenizer

_SECONDS, _BYTES, _MOST = 5, 1 << 29, 1 << 20  # limits: CPU seconds and bytes of the process, characters of a prompt
_CHILD = """
import json, sys
try:
    import resource
except ImportError:
    resource = None
from datetime import datetime
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

def refuse(message):
    raise TemplateError(message)

def limit():
    if resource is None:
        return
    try:
        used = resource.getrusage(resource.RUSAGE_SELF)
        most = resource.getrlimit(resource.RLIMIT_CPU)[1]
        resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + SECONDS, most))
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    except (ValueError, OSError):
        pass

def answered(given):
    try:
        text = env.from_string(given.pop("template")).render(**given)
        return {"text": text} if len(text) <= MOST else {"error": f"it makes a prompt of {len(text):,} characters"}
    except MemoryError:
        return {"error": "it needs too much memory"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:300]}

env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
env.filters["tojson"] = lambda value, indent=None: json.dumps(value, ensure_ascii=False, indent=indent)
env.globals.update(raise_exception=refuse, strftime_now=lambda form: datetime.now().strftime(form))
for line in sys.stdin:
    limit()
    print(json.dumps(answered(json.loads(line))), flush=True)
"""
_CHILD = _CHILD.replace("SECONDS", str(_SECONDS)).replace("BYTES", str(_BYTES)).replace("MOST", str(_MOST))


class _ChatError(ValueError):
    """A chat template failed to produce a prompt."""


_Renderer = Callable[[str, Mapping[str, Any]], str]  # a template and its variables → the text


def _render_template(template: str, variables: Mapping[str, Any]) -> str:
    """Renders a template in a sandboxed process of its own."""
    with TemplateSandbox() as render:
        return render(template, variables)


class TemplateSandbox:
    """A process that renders templates one at a time, each with limited time and memory.

    It starts on first use. A process that fails to answer is killed, and the next template gets a new one.
    """

    def __init__(self) -> None:
        self._child: subprocess.Popen[str] | None = None

    def __enter__(self) -> TemplateSandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __call__(self, template: str, variables: Mapping[str, Any]) -> str:
        answer = self._answer(json.dumps({**variables, "template": template}))
        if "error" in answer:
            raise _ChatError(f"the chat template of this model cannot be used: {answer['error']}")
        text: str = answer["text"]
        return text

    def _answer(self, line: str) -> dict[str, str]:
        child, lines = self._started(), queue.SimpleQueue[str]()
        assert child.stdin is not None
        assert child.stdout is not None
        read = child.stdout.readline
        threading.Thread(target=lambda: lines.put(read()), daemon=True).start()
        try:
            child.stdin.write(line + "\n")
            child.stdin.flush()
            answer: dict[str, str] = json.loads(lines.get(timeout=2 * _SECONDS))
        except queue.Empty:
            answer = {"error": f"it did not end within {2 * _SECONDS} seconds"}
        except (ValueError, OSError):  # its limits ended it before it answered
            answer = {"error": f"it did not end within {_SECONDS} seconds and {_BYTES >> 20} MB of memory"}
        else:
            return answer
        self.close()
        return answer

    def _started(self) -> subprocess.Popen[str]:
        if self._child is None or self._child.poll() is not None:
            self.close()
            pipe = subprocess.PIPE
            command = [sys.executable, "-P", "-c", _CHILD]
            self._child = subprocess.Popen(
                command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
            )
        return self._child

    def close(self) -> None:
        """Kills the process."""
        child, self._child = self._child, None
        if child is not None:
            child.kill()
            child.wait()
            for stream in (child.stdin, child.stdout):
                with suppress(OSError):
                    stream.close()  # type: ignore[union-attr]

    def __del__(self) -> None:
        self.close()


def prompt_ids(hub: Tokenizer, messages: Sequence[Mapping[str, str]], **options: Any) -> list[int]:
    """The ids of a conversation, up to the point where the model's answer begins.

    hub: a tokenizer with a template.
    messages: each {"role": "user", "content": "…"}; roles are those that the template knows.
    options: further variables of the template, such as enable_thinking=False.
    """
    if hub.template is None:
        raise _ChatError("this tokenizer has no chat template; give a prompt instead of messages")
    joint = _unused(hub.template, messages)
    return encode_rendered(hub, prompt_text(hub, messages, joint, **options), joint)


def prompt_text(
    hub: Tokenizer,
    messages: Sequence[Mapping[str, str]],
    joint: str,
    render: _Renderer = _render_template,
    **options: Any,
) -> str:
    """The text of a conversation up to the model's answer, for `encode_rendered`.

    joint: a character that occurs in no message; it breaks up spelled-out special tokens.
    render: a `TemplateSandbox`, for many prompts.
    """
    safe = [{key: _apart(text, hub.special_texts, joint) for key, text in message.items()} for message in messages]
    return _prompt(hub, safe, render, **options)


def question_encoder(hub: Tokenizer) -> Callable[[str], list[int]]:
    """A function from a question to the ids of its prompt: like `prompt_ids` for a single user message, but faster.

    The template is rendered once, around a stand-in for the message, whose outer white space is left out.
    """
    joint, slot = (_unused(hub.template or "", [], number) for number in (0, 1))
    before, *after = _prompt(hub, [{"role": "user", "content": slot}], _render_template).split(slot)
    if len(after) != 1:
        raise _ChatError("the chat template of this model does not contain each message exactly once and unchanged")
    return lambda text: encode_rendered(hub, before + _apart(text.strip(), hub.special_texts, joint) + after[0], joint)


def encode_rendered(hub: Tokenizer, text: str, joint: str = "") -> list[int]:
    """The ids of a rendered text, in which special tokens are spelled out; `joint` marks those that are plain text."""
    ids: list[int] = []
    for part in _split(text, hub.special_texts):
        token = hub.id_of(part) if part in hub.special_texts else None
        ids += hub.encode(part.replace(joint, "") if joint else part) if token is None else [token]
    return ids


def _prompt(hub: Tokenizer, messages: Sequence[Mapping[str, str]], render: _Renderer, **options: Any) -> str:
    """The text of a conversation, up to the point where the model's answer begins."""
    if hub.template is None:
        raise _ChatError("this tokenizer has no chat template; give a prompt instead of messages")
    names = {f"{name}_token": token for name, token in hub.special_names.items() if name != "mask"}
    return render(hub.template, {"messages": list(messages), "add_generation_prompt": True, **names, **options})


def _unused(template: str, messages: Sequence[Mapping[str, str]], number: int = 0) -> str:
    """A private-use character that occurs in neither template nor messages; `number` selects among several."""
    seen = set(template).union(*(text for message in messages for text in message.values()))
    free = (letter for letter in map(chr, range(0xE000, 0xF8FF)) if letter not in seen)
    return next(islice(free, number, None))


def _apart(text: str, specials: Sequence[str], joint: str) -> str:
    """Insert `joint` into every spelled-out special token of a text, so that it stays plain text."""
    for token in specials:
        text = text.replace(token, token[:1] + joint + token[1:])
    return text


def _split(text: str, specials: Sequence[str]) -> list[str]:
    """Split a text into special tokens and the plain text between them."""
    if not specials:
        return [text]
    longest = sorted(specials, key=len, reverse=True)
    return [part for part in re.split(f"({'|'.join(map(re.escape, longest))})", text) if part]
