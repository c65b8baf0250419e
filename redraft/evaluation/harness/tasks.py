"""Tasks of the harness: found, run, and their results as figures."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from redraft.evaluation.harness.scoring import NoProgress, ProgressCallback
from redraft.tasks.engine.model import ModelOrPath

if TYPE_CHECKING:
    from redraft.evaluation.harness.lm import _Redraft

_INSTALL = "tasks need the package lm-eval, which is not installed: pip install 'redraft[tasks]'"


class TaskFigure(NamedTuple):
    """One result of a task."""

    name: str  # task/metric, and the filter of answers if there is one
    value: float
    more: dict[str, float | str | None]  # error over questions, number of questions, how likelihoods were estimated


def as_lm(model: ModelOrPath, **settings: Any) -> _Redraft:
    """A model as an `LM` of the harness, for `lm_eval.simple_evaluate`; the settings are those of `_Redraft`."""
    with _quiet():
        require_package()
        from redraft.evaluation.harness.lm import _Redraft

        return _Redraft(model, **settings)


def evaluate_tasks(
    lm: _Redraft,
    tasks: Sequence[str],
    *,
    include: Path | None = None,
    limit: int | None = None,
    shots: int | None = None,
    chat: bool = False,
    watch: ProgressCallback = NoProgress(),
) -> list[TaskFigure]:
    """Runs tasks of the harness and returns their figures.

    tasks: names of tasks or groups, or YAML files of your own
    include: a directory of YAML files whose tasks may be named too; `!function` in them runs Python code
    limit: questions of each task at most; None: all
    shots: examples before each question; None: as many as the task says
    chat: questions as messages, by the model's chat template
    """
    from lm_eval.evaluator import simple_evaluate

    if lm.layout.in_chat and not chat:
        raise ValueError(
            f"{lm.layout.it.display_name} was trained on questions of a chat; ask so: chat=True, or --chat"
        )
    with _quiet():
        manager = _manager(tasks, include, watch)
        watch.begin("reading the questions", 0)
        try:
            found = simple_evaluate(
                lm,
                tasks=[str(Path(task).resolve()) if _is_file(task) else task for task in tasks],
                num_fewshot=shots,
                limit=limit,
                apply_chat_template=chat,
                task_manager=manager,
                log_samples=False,
                bootstrap_iters=1000,
                random_seed=lm.seed,
                torch_random_seed=None,
            )
        except Exception as error:
            if error is lm.failure:
                raise
            raise ValueError(
                f"lm-eval cannot run {', '.join(tasks)} ({_short(error)}); check the files of the task, or the network"
            ) from error
    return list(_figures(found, lm))


def require_package() -> None:
    """Raises one clear line if lm-eval is missing."""
    try:
        import lm_eval.api.model  # noqa: F401
    except ImportError as error:
        raise ValueError(_INSTALL if error.name == "lm_eval" else f"{_INSTALL} ({error})") from error


def _manager(tasks: Sequence[str], include: Path | None, watch: ProgressCallback) -> Any:
    """Finds tasks by name. The harness's own, fifteen thousand files, are read only if they are asked for."""
    from lm_eval.tasks import TaskManager

    if include is not None and not include.is_dir():
        raise ValueError(f"{include} is not a directory; give one that holds the YAML files of tasks")
    manager = TaskManager(include_path=include and str(include), include_defaults=False)
    named = [task for task in tasks if not _is_file(task)]
    if all(name in manager.all_tasks for name in named):
        return manager
    watch.begin("looking through the tasks of lm-eval", 0)
    manager = TaskManager(include_path=include and str(include))
    for name in named:
        if name not in manager.all_tasks:
            close = get_close_matches(name, manager.all_tasks, n=3)
            advice = f"did you mean {' or '.join(close)}?" if close else "`lm-eval ls tasks` lists them"
            raise ValueError(f"there is no task {name!r}; {advice} A task of your own is a YAML file")
    return manager


def _is_file(task: str) -> bool:
    if task.endswith((".yaml", ".yml")):
        if not Path(task).is_file():
            raise ValueError(f"the task {task} is no file that exists; give the path of a YAML file, or a name")
        return True
    return False


def _figures(found: Mapping[str, Any], lm: _Redraft) -> Iterator[TaskFigure]:
    results = {**found["results"], **found.get("groups", {})}
    for task, metrics in results.items():
        parts = _leaves(task, found.get("group_subtasks", {}))
        more = _about(found, task, parts, lm)
        for key, value in metrics.items():
            metric, _, kind = key.partition(",")
            if kind and not metric.endswith("_stderr") and isinstance(value, int | float):
                error = metrics.get(f"{metric}_stderr,{kind}")
                name = f"{task}/{metric}" if kind == "none" else f"{task}/{metric}/{kind}"
                yield TaskFigure(name, float(value), {"stderr": error if isinstance(error, float) else None, **more})


def _leaves(task: str, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """The tasks of a group, at any depth; of a task itself."""
    below = [part for part in groups.get(task, ()) if part != task]
    return [leaf for part in below for leaf in _leaves(part, groups)] or [task]


def _about(found: Mapping[str, Any], task: str, parts: Sequence[str], lm: _Redraft) -> dict[str, float | str | None]:
    """How many questions and examples there were, and how their likelihoods were estimated."""
    counts = [found["n-samples"][part]["effective"] for part in parts if part in found.get("n-samples", {})]
    more: dict[str, float | str | None] = {"rows": sum(counts)}
    if (shots := found.get("n-shot", {}).get(task)) is not None:
        more["shots"] = shots
    if (estimated := lm.report.of(parts)) is not None:
        more |= {"likelihood": estimated.kind, "calls": estimated.calls}
        if estimated.kind == "bound":
            more |= {"nats_stderr": estimated.stderr, "undecided": estimated.undecided}
    return more


def _short(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]:.300}" if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the harness's own notes, some of which go to stdout; environment variables silence its bars."""
    logger = logging.getLogger("lm_eval")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(before)
