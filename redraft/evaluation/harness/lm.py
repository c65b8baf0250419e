"""A model of ours as an `LM` of the harness. Only this file needs the package lm-eval to be imported."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from redraft.core.text.chat_template import TemplateSandbox, encode_rendered, prompt_text
from redraft.core.text.tokenizers import HubTokenizer
from redraft.evaluation.harness.generation import AnswerWriter, TaskGeneration
from redraft.evaluation.harness.report import Report
from redraft.evaluation.harness.requests import AnswerRequest, RowLayout
from redraft.evaluation.harness.scoring import AnswerScore, NoProgress, ProgressCallback, Scorer
from redraft.tasks.engine.model import ModelOrPath, as_text_model

_T = TypeVar("_T")
_JOINT = "\uf8e0"  # marks special tokens that are mere text: a letter of private use


class _Redraft(LM):
    """Answers the three kinds of requests that tasks are made of; `report` keeps what the harness has no place for.

    model: a model, or the directory of one; a directory knows its run, which says how rows look.
    draws: noise levels of a bound, each drawn twice: 64 for the 128 network calls of LLaDA's protocol.
    seed: seed of the noise and of the texts; a request has the same answer whatever is asked beside it.
    length: tokens of a row at most; None: as many as in training.
    steps: of writing, where the task says nothing; None: one for each token for mask noise, else the sampler's own.
    watch: called with the progress.
    """

    def __init__(
        self,
        model: ModelOrPath,
        *,
        draws: int = 16,
        seed: int = 0,
        length: int | None = None,
        steps: int | None = None,
        watch: ProgressCallback = NoProgress(),
    ) -> None:
        super().__init__()
        self.layout = RowLayout(as_text_model(model), length)
        self.layout.model.eval()
        self.draws, self.seed, self.watch = draws, seed, watch
        self.writer = AnswerWriter(self.layout, seed, steps)
        self.report = Report()
        self.templates = TemplateSandbox()  # one for all prompts
        self.chats = False  # whether contexts are prompts that a template made
        self.failure: Exception | None = None

    @property
    def scorer(self) -> Scorer:
        """Made when it is needed: some models can only write."""
        return Scorer(self.layout, self.draws, self.seed)

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """log p(continuation | context) in nats, and whether decoding without chance writes the continuation."""
        return self._guarded(lambda: self._loglikelihood(requests))

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """log p(text) in nats, in windows that do not overlap, each but the first after one token of the one before."""
        return self._guarded(lambda: self._rolling(requests))

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """What the model writes after each context, up to the first of the texts that end an answer."""
        return self._guarded(lambda: self._generate(requests))

    def _loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        asked = [self.layout.request(*_texts(request), self.encode) for request in requests]
        found = [(score.log_p, score.greedy) for score in self._scores(requests, asked)]
        return self._kept("loglikelihood", requests, found)

    def _rolling(self, requests: list[Instance]) -> list[float]:
        asked = [self.layout.request("", request.args[0], self.encode) for request in requests]
        found = [score.log_p for score in self._scores(requests, asked)]
        return self._kept("loglikelihood_rolling", requests, found)

    def _scores(self, requests: list[Instance], asked: Sequence[AnswerRequest]) -> list[AnswerScore]:
        scorer = self.scorer
        self.report.scoring(scorer)
        found = scorer(asked, self.watch)
        for request, score in zip(requests, found, strict=True):
            self.report.add(request.task_name or "", request.doc_id or 0, score)
        return found

    def _generate(self, requests: list[Instance]) -> list[str]:
        asked = []
        for context, settings in (request.args for request in requests):
            how, ignored = TaskGeneration.of(settings)
            self.report.ignored.update(ignored)
            asked.append((AnswerRequest(tuple(self.encode(context))), how))
        return self._kept("generate_until", requests, self.writer(asked, self.watch))

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """A conversation as the prompt that the model was trained on; special tokens that messages spell stay text."""
        return self._guarded(lambda: [self._prompt(chat_history, add_generation_prompt)])[0]

    def _prompt(self, history: list[dict[str, str]], add_generation_prompt: bool) -> str:
        self.chats = True
        return prompt_text(self._hub, history, _JOINT, self.templates, add_generation_prompt=add_generation_prompt)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The template itself, for the record of the harness."""
        return self._guarded(lambda: [self._hub.template or ""])[0] if chat_template else None

    @property
    def tokenizer_name(self) -> str:
        """What tells one template from another in the harness's cache."""
        return hashlib.blake2b(repr(self.layout.model.tokenizer).encode(), digest_size=8).hexdigest()

    @property
    def _hub(self) -> HubTokenizer:
        tokenizer = self.layout.model.tokenizer
        if not isinstance(tokenizer, HubTokenizer) or tokenizer.template is None:
            raise ValueError(f"{self.layout.it.display_name} has no chat template; ask plain questions, without --chat")
        return tokenizer

    def encode(self, text: str) -> list[int]:
        """The ids of a text of a task; in a chat special tokens are spelt out."""
        tokenizer = self.layout.it.tokenizer
        ids = encode_rendered(self._hub, text, _JOINT) if self.chats else tokenizer.encode(text)
        self.report.read(tokenizer, ids)
        return ids

    def _kept(self, kind: str, requests: list[Instance], found: list[_T]) -> list[_T]:
        """Tells the harness's cache, if there is one."""
        for request, answer in zip(requests, found, strict=True):
            self.cache_hook.add_partial(kind, request.args, answer)
        return found

    def _guarded(self, work: Callable[[], list[_T]]) -> list[_T]:
        """Remembers our own errors, so that they can be told from those of a task."""
        try:
            return work()
        except Exception as error:
            self.failure = error
            raise

    def get_model_info(self) -> dict[str, Any]:
        """For the record of the harness."""
        return {"model_dtype": str(next(self.layout.model.parameters()).dtype), "seed": self.seed, "draws": self.draws}


def _texts(request: Instance) -> tuple[str, str]:
    context, continuation = request.args
    return context, continuation
