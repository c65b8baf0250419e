"""`redraft adapt`: a causal model learns to fill masks."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg

from redraft.apps.cli.arguments import DATA, Flag
from redraft.apps.cli.commands.train import train_run
from redraft.tasks.arguments.settings import optional_argument
from redraft.training.data.registry import CORPUS_NAMES

if TYPE_CHECKING:
    from redraft.training.data.framing import Framing
    from redraft.training.data.pairs import JsonlPairs
    from redraft.training.data.sources import Corpus, InfiniteCorpus
    from redraft.training.runs.run import Run


@dataclass(frozen=True)
class AdaptModel:
    """Make a diffusion model of a causal one (Gong et al. 2024), or continue an interrupted adaptation.

    The weights, the tokenizer and the shift by one token stay; the mask gets a row, attention opens to both sides, and
    the loss is the bound of mask noise. Full fine-tuning, or an adapter of low rank with --lora.
    """

    model: Annotated[Positional[Path], arg(metavar="DIR")]
    """A causal model: an exported one, or a Llama, Qwen or GPT-2 directory; or an adapted one, whose adapter learns
    on."""
    out: Annotated[Path, arg(metavar="DIR")]
    """Where checkpoints and metrics.jsonl go; the same command continues there."""
    data: Annotated[tuple[str, ...], arg(metavar=DATA)]
    """Text to learn from: files, or a directory of them, that end in .txt, .jsonl (field text) or .parquet."""
    length: int = 128
    """Tokens per row; with --draft, a model of ours keeps the rows of its own training."""
    steps: int = 1000
    """Training steps."""
    batch: int = 8
    """Rows per step."""
    lr: float = 1e-4
    """Learning rate; with --lora or --draft ten times as much is usual."""
    lora: Annotated[int | None, optional_argument("RANK", "all weights learn")] = None
    """Only an adapter of this rank learns; the model's own weights stay as they are."""
    block: Annotated[int | None, optional_argument("SIZE", "all tokens see all")] = None
    """Tokens see their block of this size and all earlier ones, as in block diffusion: exact caches, no right side."""
    chat: Flag = False
    """The data are questions and answers (.jsonl, fields source and target) in the model's chat template: only answers
    are masked and learnt."""
    anneal: int = 0
    """Steps in which attention opens from causal to full; 0: full at once."""
    ar: float = 0.0
    """Weight of the causal model's own loss, say 0.3: it stays a causal model, too."""
    align: float = 0.0
    """Weight of 1 − cos between its states and the causal model's, say 10: helps with little text; needs --lora."""
    draft: Annotated[Literal["beside", "self"] | None, optional_argument("beside|self", "it learns to fill masks")] = (
        None
    )
    """Learn to draft for the model instead, which keeps its words and writes them faster (redraft generate --draft):
    beside: a small network that reads its states; self: the model itself, with an adapter at masks alone."""
    draft_length: int = 8
    """With --draft: tokens of a draft, at most."""
    draft_words: Annotated[int | None, optional_argument("N", "all")] = None
    """With --draft beside: only the first N ids are drafted, which costs less; byte-pair tokenizers have the usual ones
    first."""
    temperature: float = 1.0
    """With --draft: the temperature of the texts to be written, say 0.2 for greedy ones."""
    rates: tuple[float, float] = (0.0, 1.0)
    """The shares of tokens that are masked, least and most: 0.05 0.6 to fill holes and to correct."""
    even: Flag = False
    """All masked tokens count alike, instead of by 1/share as in the bound; usual with --rates."""
    seed: int = 0
    """Seed of the noise and of the order of the rows."""
    save_every: int = 100
    """Steps between checkpoints."""
    keep: int = 2
    """Checkpoints to keep, the newest ones."""
    quiet: Flag = False
    """Print no progress to stderr."""
    json: Flag = False
    """Print the lines of metrics.jsonl as they are written, then the result, one JSON object each."""

    def __post_init__(self) -> None:
        if not self.data:
            raise ValueError(f"--data is missing; give {', '.join(CORPUS_NAMES)}, files or a directory of text")
        for name, least in (
            ("length", 2),
            ("steps", 1),
            ("batch", 1),
            ("lora", 1),
            ("block", 1),
            ("draft_length", 1),
            ("draft_words", 1),
            ("save_every", 1),
            ("keep", 1),
        ):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"--{name.replace('_', '-')} {value}: it must be at least {least}")
        if not 0 <= self.rates[0] < self.rates[1] <= 1:
            raise ValueError(f"--rates {self.rates[0]} {self.rates[1]}: give the least share and the most, from 0 to 1")
        if self.anneal and self.block is not None:
            raise ValueError("--anneal opens attention to the whole row; --block has its own: leave one of them out")
        if self.draft is not None:
            self._require_drafting()
        elif self.draft_length != 8 or self.temperature != 1 or self.draft_words is not None:
            raise ValueError(
                "--draft-length, --draft-words and --temperature are about drafts; give --draft beside or --draft self "
                "too"
            )

    def __call__(self) -> None:
        train_run(self._run(), self.out, self.quiet, self.json)

    def _run(self) -> Run:
        from dataclasses import replace

        from redraft.apps.cli.models import open_model
        from redraft.training.data.framing import PackedRows
        from redraft.training.objectives.adaptation import AdaptationObjective
        from redraft.training.objectives.losses import Bound, TokenCrossEntropy
        from redraft.training.objectives.time_samplers import StratifiedTimes
        from redraft.training.runs.adaptation import adaptation_run

        if self.draft is not None:
            return self._drafting(self.draft)
        base = open_model(self.model).lm
        loss = TokenCrossEntropy() if self.even else Bound()
        goal = AdaptationObjective(self.anneal, self.ar, self.align, loss, StratifiedTimes(*self.rates))
        run = adaptation_run(
            base,
            str(self.model),
            *self._text(PackedRows(self.length)),
            lora=self.lora,
            block=self.block,
            objective=goal,
            steps=self.steps,
            batch=self.batch,
            lr=self.lr,
            seed=self.seed,
        )
        return replace(run, save_every=self.save_every, keep=self.keep, eval_rows=16)

    def _text(self, plain: Framing) -> tuple[Corpus | InfiniteCorpus, Framing]:
        """What to learn from, and how it becomes rows; `plain`: where it is no chat."""
        from redraft.apps.cli.run_arguments import parse_source
        from redraft.training.data.pair_framing import ChatRows

        return (_pairs(self.data), ChatRows(self.length)) if self.chat else (parse_source(self.data), plain)

    def _require_drafting(self) -> None:
        for name, usual in (
            ("anneal", 0),
            ("ar", 0.0),
            ("align", 0.0),
            ("rates", (0.0, 1.0)),
            ("even", False),
            ("block", None),
        ):
            if getattr(self, name) != usual:
                raise ValueError(f"--{name} is for filling masks, --draft for drafting; leave one of them out")
        if self.draft == "self" and self.draft_words is not None:
            raise ValueError("--draft-words is for a network beside the model; use it with --draft beside")
        if self.draft == "beside" and self.lora is not None:
            raise ValueError("--lora is an adapter of the model itself; use it with --draft self")

    def _drafting(self, draft: Literal["beside", "self"]) -> Run:
        from dataclasses import replace

        from redraft.apps.cli.models import open_model
        from redraft.models.auxiliary.drafter import SelfDrafter, SideDrafter
        from redraft.training.data.framing import PackedRows
        from redraft.training.objectives.distillation import DrafterObjective
        from redraft.training.runs.distillation import drafter_run

        it = open_model(self.model)
        beside, itself = SideDrafter(self.draft_length, words=self.draft_words), SelfDrafter(self.draft_length)
        run = drafter_run(
            it.lm,
            str(self.model),
            *self._text(PackedRows(self.length) if it.run is None else it.run.framing),
            drafter=beside if draft == "beside" else itself,
            lora=16 if self.lora is None else self.lora,
            objective=DrafterObjective(temperature=self.temperature),
            steps=self.steps,
            batch=self.batch,
            lr=self.lr,
            seed=self.seed,
        )
        return replace(run, save_every=self.save_every, keep=self.keep, eval_rows=16)


def _pairs(names: tuple[str, ...]) -> JsonlPairs:
    """Files of questions and answers; every 20th line is held out."""
    from redraft.training.data.pairs import JsonlPairs

    paths = [path for name in names for path in (sorted(Path(name).glob("*.jsonl")) if Path(name).is_dir() else [name])]
    if wrong := [str(path) for path in paths if Path(path).suffix != ".jsonl"]:
        raise ValueError(f"--chat reads .jsonl files with the fields source and target; got {wrong[0]}")
    if not paths:
        raise ValueError(f"--data {' '.join(names)} holds no .jsonl files, which --chat reads")
    return JsonlPairs(tuple(map(str, paths)))
