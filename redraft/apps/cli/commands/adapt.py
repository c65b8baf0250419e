"""`redraft adapt`: turning a causal model into a diffusion model, or training a drafter for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from redraft.apps.cli.arguments import DATA
from redraft.apps.cli.commands.train import _train_run
from redraft.apps.cli.model_flags import ModelFlags, device_setting
from redraft.tasks.arguments.setting import MOST_SEED, REQUIRED, Checked, setting
from redraft.training.data.registry import CORPUS_NAMES

if TYPE_CHECKING:
    from redraft.training.data.framing import Framing
    from redraft.training.data.pairs import JsonlPairs
    from redraft.training.data.sources import Corpus, InfiniteCorpus
    from redraft.training.runs.run import Run


@dataclass(frozen=True)
class AdaptModel(Checked):
    """Adapt a causal model to diffusion (Gong et al. 2024), or continue an interrupted adaptation.

    Training starts from its weights and keeps its tokenizer and its shift by one token. The mask token gets an
    embedding, attention becomes bidirectional, and the loss is the bound of masked diffusion. Trains all weights, or a
    low-rank adapter with --lora.
    """

    model: Path = setting(
        REQUIRED,
        "A causal model: an exported one or a Llama, Qwen or GPT-2 directory; or an adapter to train further.",
        metavar="DIR",
        positional=True,
    )
    out: Path = setting(
        REQUIRED,
        "Directory for checkpoints and metrics.jsonl; the same command continues there.",
        metavar="DIR",
        group="Output",
    )
    data: tuple[str, ...] = setting(
        REQUIRED,
        "Text to train on: files that end in .txt, .jsonl (field text) or .parquet, or directories of them.",
        metavar=DATA,
    )
    length: int = setting(
        128,
        "Tokens per row; a causal model trained here, or any model with --draft, keeps the rows of its run.",
        least=2,
    )
    steps: int = setting(1000, "Training steps.", least=1, most=10**8)
    batch: int = setting(8, "Rows per step.", least=1)
    lr: float = setting(0.0001, "Learning rate; with --lora or --draft ten times as much is usual.")
    lora: int | None = setting(
        None,
        "Train only a low-rank adapter of this rank; the model's own weights are frozen.",
        otherwise="train all weights",
        metavar="RANK",
        least=1,
    )
    block: int | None = setting(
        None,
        "Block-causal attention with blocks of this size, as in block diffusion: allows exact caches, but no "
        "token sees later blocks.",
        otherwise="full attention",
        metavar="SIZE",
        least=1,
    )
    chat: bool = setting(
        False,
        "The data are questions and answers (.jsonl with fields source and target). They are put into the "
        "model's chat template, and only answers are masked and learned.",
    )
    anneal: int = setting(0, "Steps over which attention changes from causal to full; 0 starts with full attention.")
    ar: float = setting(0.0, "Weight of the causal model's own loss, e.g. 0.3, so that it also remains a causal model.")
    align: float = setting(
        0.0,
        "Weight of 1 − cos between its hidden states and those of the causal model, e.g. 10. Helps with "
        "little text; needs --lora.",
    )
    draft: Literal["beside", "self"] | None = setting(
        None,
        "Train a drafter for the model instead; its output does not change but is written faster (redraft "
        "generate --draft). beside: a small network that reads its states. self: the model itself, with an "
        "adapter that is active only at masks.",
        otherwise="adapt it to diffusion",
        metavar="beside|self",
    )
    draft_length: int = setting(8, "With --draft: maximum number of tokens per draft.", least=1)
    draft_words: int | None = setting(
        None,
        "With --draft beside: draft only the first N token ids, which is cheaper; byte-pair tokenizers have "
        "the frequent tokens first.",
        otherwise="all",
        metavar="N",
        least=1,
    )
    temperature: float = setting(
        1.0, "With --draft: the temperature of the text to draft for, e.g. 0.2 for greedy decoding."
    )
    rates: tuple[float, float] = setting(
        (0.0, 1.0), "Smallest and largest fraction of masked tokens; 0.05 0.6 for infilling and correction."
    )
    even: bool = setting(
        False,
        "Weigh all masked tokens equally, rather than by 1/(masked fraction) as in the bound; usual with --rates.",
    )
    seed: int = setting(0, "Seed of the noise and of the order of the rows.", least=0, most=MOST_SEED)
    save_every: int = setting(100, "Steps between checkpoints.", least=1, rare=True)
    keep: int = setting(2, "Number of checkpoints to keep; older ones are deleted.", least=1, rare=True)
    device: str = device_setting()
    quiet: bool = setting(False, "Print no progress to stderr.", group="Output")
    json: bool = setting(
        False,
        "Print the lines of metrics.jsonl as they are written, then the result; each is a JSON object.",
        group="Output",
    )

    def _require_agreement(self) -> None:
        if not self.data:
            raise ValueError(f"--data is missing; give {', '.join(CORPUS_NAMES)}, files or a directory of text")
        if not 0 <= self.rates[0] < self.rates[1] <= 1:
            raise ValueError(
                f"--rates {self.rates[0]} {self.rates[1]}: give the smallest and the largest fraction, from 0 to 1"
            )
        if self.anneal and self.block is not None:
            raise ValueError("--anneal ends in full attention, --block in block-causal attention; give one of them")
        if self.draft is not None:
            self._require_draft_flags(self.draft)
        elif self.draft_length != 8 or self.temperature != 1 or self.draft_words is not None:
            raise ValueError(
                "--draft-length, --draft-words and --temperature are for drafters; also give --draft beside or --draft "
                "self"
            )

    def __call__(self) -> None:
        _train_run(self._run(), self.out, self.device, self.quiet, self.json)

    def _run(self) -> Run:
        from dataclasses import replace

        from redraft.apps.cli.models import open_model
        from redraft.training.data.framing import PackedRows
        from redraft.training.objectives.adaptation import AdaptationObjective
        from redraft.training.objectives.losses import Bound, TokenCrossEntropy
        from redraft.training.objectives.time_samplers import StratifiedTimes
        from redraft.training.runs.adaptation import adaptation_run

        if self.draft is not None:
            return self._drafter_run(self.draft)
        model = open_model(self.model, ModelFlags(self.device))
        framing = model.run.framing if model.run and model.lm.config.has_start_token else PackedRows(self.length)
        loss = TokenCrossEntropy() if self.even else Bound()
        objective = AdaptationObjective(self.anneal, self.ar, self.align, loss, StratifiedTimes(*self.rates))
        run = adaptation_run(
            model.lm,
            str(self.model),
            *self._text(framing),
            lora=self.lora,
            block=self.block,
            objective=objective,
            steps=self.steps,
            batch=self.batch,
            lr=self.lr,
            seed=self.seed,
        )
        return replace(run, save_every=self.save_every, keep_checkpoints=self.keep, eval_rows=16)

    def _text(self, plain: Framing) -> tuple[Corpus | InfiniteCorpus, Framing]:
        """Return the training data and its framing, which is `plain` unless --chat is given."""
        from redraft.apps.cli.run_arguments import parse_source
        from redraft.training.data.pair_framing import ChatRows

        return (_pairs(self.data), ChatRows(self.length)) if self.chat else (parse_source(self.data), plain)

    def _require_draft_flags(self, draft: Literal["beside", "self"]) -> None:
        """Raise if a flag is set that training this kind of drafter does not use."""
        for name, default in (
            ("anneal", 0),
            ("ar", 0.0),
            ("align", 0.0),
            ("rates", (0.0, 1.0)),
            ("even", False),
            ("block", None),
        ):
            if getattr(self, name) != default:
                raise ValueError(f"--{name} is for adapting to diffusion, --draft trains a drafter; give one of them")
        if draft == "self" and self.draft_words is not None:
            raise ValueError("--draft-words is for a network beside the model; use it with --draft beside")
        if draft == "beside" and self.lora is not None:
            raise ValueError("--lora adapts the model itself; use it with --draft self")

    def _drafter_run(self, draft: Literal["beside", "self"]) -> Run:
        from dataclasses import replace

        from redraft.apps.cli.models import open_model
        from redraft.models.parts.self_drafter import SelfDrafter
        from redraft.models.parts.side_drafter import SideDrafter
        from redraft.training.data.framing import PackedRows
        from redraft.training.objectives.distillation import DrafterObjective
        from redraft.training.runs.distillation import drafter_run

        model = open_model(self.model, ModelFlags(self.device))
        side_drafter = SideDrafter(self.draft_length, words=self.draft_words)
        run = drafter_run(
            model.lm,
            str(self.model),
            *self._text(PackedRows(self.length) if model.run is None else model.run.framing),
            drafter=side_drafter if draft == "beside" else SelfDrafter(self.draft_length),
            lora=16 if self.lora is None else self.lora,
            objective=DrafterObjective(temperature=self.temperature),
            steps=self.steps,
            batch=self.batch,
            lr=self.lr,
            seed=self.seed,
        )
        return replace(run, save_every=self.save_every, keep_checkpoints=self.keep, eval_rows=16)


def _pairs(names: tuple[str, ...]) -> JsonlPairs:
    """Load files of questions and answers; every 20th line is held out."""
    from redraft.training.data.pairs import JsonlPairs

    paths = [path for name in names for path in (sorted(Path(name).glob("*.jsonl")) if Path(name).is_dir() else [name])]
    if wrong := [str(path) for path in paths if Path(path).suffix != ".jsonl"]:
        raise ValueError(f"--chat reads .jsonl files with the fields source and target; got {wrong[0]}")
    if not paths:
        raise ValueError(f"--data {' '.join(names)} has no .jsonl files, which --chat reads; give files or a directory")
    return JsonlPairs(tuple(map(str, paths)))
