"""Finding and running lm-eval tasks, and returning their results as figures."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from redraft.evaluation.harness.scoring import ProgressCallback, _NoProgress
from redraft.tasks.engine.model import ModelOrPath

if TYPE_CHECKING:
    from redraft.evaluation.harness.lm import _Redraft

_INSTALL = "tasks need the package lm-eval, which is not installed: pip install 'redraft[tasks]'"


class TaskFigure(NamedTuple):
    """One result of a task."""

    name: str  # task/metric, or task/metric/filter if lm-eval filtered the answers
    value: float
    more: dict[str, float | str | None]  # error over questions, number of questions, how likelihoods were estimated


def as_lm(model: ModelOrPath, **settings: Any) -> _Redraft:
    """Wrap a model as an `LM` for `lm_eval.simple_evaluate`; `settings` are the keyword arguments of `_Redraft`."""
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
    progress: ProgressCallback = _NoProgress(),
) -> list[TaskFigure]:
    """Run lm-eval tasks and return their figures.

    Args:
        lm: the model, from `as_lm`
        tasks: names of tasks or groups, or your own YAML files
        include: a directory of YAML files whose tasks can also be named; `!function` in them runs Python code
        limit: maximum number of questions per task; None for all
        shots: solved examples before each question; None for the task's own number
        chat: ask the questions as messages, with the model's chat template
        progress: called with the progress
    """
    from lm_eval.evaluator import simple_evaluate

    _require_chat(lm, chat)
    with _quiet():
        manager = _task_manager(tasks, include, progress)
        progress.begin("reading the questions", 0)
        try:
            results = simple_evaluate(
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
                f"lm-eval cannot run {', '.join(tasks)} ({_first_line(error)}); check the files of the task, or your "
                "internet connection"
            ) from error
    return list(_figures(results, lm))


def _require_chat(lm: _Redraft, chat: bool) -> None:
    """Raise if a model that was trained on chats is asked without its chat template."""
    if lm.layout.in_chat and not chat:
        raise ValueError(
            f"{lm.layout.model.display_name} was trained on chats; ask in its chat template: chat=True, or --chat"
        )


def require_package() -> None:
    """Raise a one-line error if lm-eval is not installed."""
    try:
        import lm_eval.api.model  # noqa: F401
    except ImportError as error:
        raise ValueError(_INSTALL if error.name == "lm_eval" else f"{_INSTALL} ({error})") from error


def _task_manager(tasks: Sequence[str], include: Path | None, progress: ProgressCallback) -> Any:
    """Find tasks by name. lm-eval's own, fifteen thousand files, are only read if one of them is named."""
    from lm_eval.tasks import TaskManager

    if include is not None and not include.is_dir():
        raise ValueError(f"{include} is not a directory; give one that holds the YAML files of tasks")
    manager = TaskManager(include_path=include and str(include), include_defaults=False)
    names = [task for task in tasks if not _is_file(task)]
    if all(name in manager.all_tasks for name in names):
        return manager
    progress.begin("looking through the tasks of lm-eval", 0)
    manager = TaskManager(include_path=include and str(include))
    for name in names:
        if name not in manager.all_tasks:
            close = get_close_matches(name, manager.all_tasks, n=3)
            advice = f"did you mean {' or '.join(close)}?" if close else "`lm-eval ls tasks` lists them."
            raise ValueError(f"there is no task {name!r}; {advice} For a task of your own give a YAML file")
    return manager


def _is_file(task: str) -> bool:
    """Whether a task is named by a YAML file. Raises if the file does not exist."""
    if task.endswith((".yaml", ".yml")):
        if not Path(task).is_file():
            raise ValueError(f"the task {task} is not an existing file; give the path of a YAML file, or a task's name")
        return True
    return False


def _figures(results: Mapping[str, Any], lm: _Redraft) -> Iterator[TaskFigure]:
    """Yield a figure for each metric of each task and group in lm-eval's results."""
    for task, metrics in {**results["results"], **results.get("groups", {})}.items():
        parts = _leaves(task, results.get("group_subtasks", {}))
        more = _details(results, task, parts, lm)
        for key, value in metrics.items():
            metric, _, answer_filter = key.partition(",")
            if answer_filter and not metric.endswith("_stderr") and isinstance(value, int | float):
                error = metrics.get(f"{metric}_stderr,{answer_filter}")
                name = f"{task}/{metric}" if answer_filter == "none" else f"{task}/{metric}/{answer_filter}"
                yield TaskFigure(name, float(value), {"stderr": error if isinstance(error, float) else None, **more})


def _leaves(task: str, groups: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the tasks in a group, at any depth; a single task is its own leaf."""
    subtasks = [part for part in groups.get(task, ()) if part != task]
    return [leaf for part in subtasks for leaf in _leaves(part, groups)] or [task]


def _details(
    results: Mapping[str, Any], task: str, parts: Sequence[str], lm: _Redraft
) -> dict[str, float | str | None]:
    """Return the number of questions and examples, and how likelihoods were estimated."""
    counts = [results["n-samples"][part]["effective"] for part in parts if part in results.get("n-samples", {})]
    details: dict[str, float | str | None] = {"rows": sum(counts)}
    if (shots := results.get("n-shot", {}).get(task)) is not None:
        details["shots"] = shots
    if (summary := lm.report.summary(parts)) is not None:
        details |= {"likelihood": summary.kind, "calls": summary.calls}
        if summary.kind == "bound":
            details |= {"nats_stderr": summary.stderr, "undecided": summary.undecided}
    return details


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0]:.300}" if lines else type(error).__name__


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence lm-eval's notes, some of which go to stdout; its progress bars are silenced by environment variables."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with redirect_stdout(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
