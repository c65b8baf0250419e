"""A Redraft model as an `LM` of lm-eval. No other file imports the package lm-eval when it is loaded."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM

from redraft.core.text.chat_template import TemplateSandbox, encode_rendered, prompt_text
from redraft.core.text.tokenizers import Tokenizer
from redraft.evaluation.harness.generation import _AnswerWriter, _TaskGeneration
from redraft.evaluation.harness.report import Report
from redraft.evaluation.harness.requests import AnswerRequest, RowLayout
from redraft.evaluation.harness.scoring import AnswerScore, ProgressCallback, Scorer, _NoProgress
from redraft.tasks.engine.model import ModelOrPath, as_text_model

_T = TypeVar("_T")
_JOINT = "\uf8e0"  # a private-use character that marks special tokens spelled out in messages, which stay text


class _Redraft(LM):
    """Answers the three kinds of requests that lm-eval makes; `report` records how scores were estimated.

    Args:
        model: a model, or its directory; the run in the directory determines the layout of rows
        draws: noise levels of a bound, with two noise samples each; 64 gives the 128 network calls of LLaDA's protocol
        seed: seed of the noise and of the texts; an answer does not depend on the other requests
        length: maximum number of tokens per row; None for that of training
        steps: sampling steps if the task does not set them; None for one per token with mask noise, else the
            sampler's own
        progress: called with the progress
    """

    def __init__(
        self,
        model: ModelOrPath,
        *,
        draws: int = 16,
        seed: int = 0,
        length: int | None = None,
        steps: int | None = None,
        progress: ProgressCallback = _NoProgress(),
    ) -> None:
        super().__init__()
        self.layout = RowLayout(as_text_model(model), length)
        self.layout.lm.eval()
        self.draws, self.seed, self.progress = draws, seed, progress
        self.writer = _AnswerWriter(self.layout, seed, steps)
        self.report = Report()
        self.templates = TemplateSandbox()  # shared, because starting it is slow
        self.in_chat = False  # whether contexts were rendered by the chat template
        self.failure: Exception | None = None  # the last exception raised by this class rather than by a task

    @property
    def scorer(self) -> Scorer:
        """The scorer, built on demand, because some models cannot score but can write."""
        return Scorer(self.layout, self.draws, self.seed)

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Return log p(continuation | context) in nats, and whether greedy decoding writes the continuation."""
        return self._remember_failure(lambda: self._loglikelihood(requests))

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Return log p(text) in nats over disjoint windows; each but the first sees the one token before it."""
        return self._remember_failure(lambda: self._rolling(requests))

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Return the text that the model writes after each context, up to the first stop string."""
        return self._remember_failure(lambda: self._generate(requests))

    def _loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        answers = [self.layout.request(*_texts(request), self.encode) for request in requests]
        results = [(score.log_p, score.greedy) for score in self._scores(requests, answers)]
        return self._cache("loglikelihood", requests, results)

    def _rolling(self, requests: list[Instance]) -> list[float]:
        answers = [self.layout.request("", request.args[0], self.encode) for request in requests]
        results = [score.log_p for score in self._scores(requests, answers)]
        return self._cache("loglikelihood_rolling", requests, results)

    def _scores(self, requests: list[Instance], answers: Sequence[AnswerRequest]) -> list[AnswerScore]:
        scorer = self.scorer
        self.report.record_scorer(scorer)
        scores = scorer(answers, self.progress)
        for request, score in zip(requests, scores, strict=True):
            self.report.add(request.task_name or "", request.doc_id or 0, score)
        return scores

    def _generate(self, requests: list[Instance]) -> list[str]:
        prompts = []
        for context, settings in (request.args for request in requests):
            generation, ignored = _TaskGeneration.of(settings)
            self.report.ignored.update(ignored)
            prompts.append((AnswerRequest(tuple(self.encode(context))), generation))
        return self._cache("generate_until", requests, self.writer(prompts, self.progress))

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """Render a conversation with the model's chat template; special tokens spelled out in messages stay text."""
        return self._remember_failure(lambda: [self._prompt(chat_history, add_generation_prompt)])[0]

    def _prompt(self, history: list[dict[str, str]], add_generation_prompt: bool) -> str:
        self.in_chat = True
        return prompt_text(self._hub, history, _JOINT, self.templates, add_generation_prompt=add_generation_prompt)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Return the template itself; lm-eval records it with the results."""
        return self._remember_failure(lambda: [self._hub.template or ""])[0] if chat_template else None

    @property
    def tokenizer_name(self) -> str:
        """A digest of the tokenizer, which distinguishes chat templates in lm-eval's cache."""
        return hashlib.blake2b(repr(self.layout.lm.tokenizer).encode(), digest_size=8).hexdigest()

    @property
    def _hub(self) -> Tokenizer:
        """The tokenizer with its chat template."""
        tokenizer = self.layout.model.tokenizer
        if tokenizer.template is None:
            raise ValueError(f"{self.layout.model.display_name} has no chat template; run the task without --chat")
        return tokenizer

    def encode(self, text: str) -> list[int]:
        """Return the ids of a task's text; in a rendered chat the special tokens of the template get their own ids."""
        tokenizer = self.layout.model.tokenizer
        ids = encode_rendered(self._hub, text, _JOINT) if self.in_chat else tokenizer.encode(text)
        self.report.count_tokens(tokenizer, ids)
        return ids

    def _cache(self, kind: str, requests: list[Instance], results: list[_T]) -> list[_T]:
        """Give the results to lm-eval's cache, and return them."""
        for request, result in zip(requests, results, strict=True):
            self.cache_hook.add_partial(kind, request.args, result)
        return results

    def _remember_failure(self, work: Callable[[], list[_T]]) -> list[_T]:
        """Do some work; remember its exception, so that `evaluate_tasks` can tell it from an error of the task."""
        try:
            return work()
        except Exception as error:
            self.failure = error
            raise

    def get_model_info(self) -> dict[str, Any]:
        """Return the entries that lm-eval records about the model."""
        return {"model_dtype": str(next(self.layout.lm.parameters()).dtype), "seed": self.seed, "draws": self.draws}


def _texts(request: Instance) -> tuple[str, str]:
    context, continuation = request.args
    return context, continuation
