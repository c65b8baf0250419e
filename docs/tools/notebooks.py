"""Runs notebooks in Jupyter and stores what their cells show: `python docs/tools/notebooks.py [NAME…]`.

A cell whose output depends on the processor, such as texts of a model that the cell before has trained, has the tag
`varies`; tests compare the outputs of all other cells.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

import nbformat
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).parents[1] / "notebooks"


@contextmanager
def started_kernel() -> Iterator[KernelManager]:
    """One kernel for several notebooks: importing torch takes longer than many of their cells."""
    kernel = KernelManager(kernel_name="python3")
    kernel.start_kernel()
    try:
        yield kernel
    finally:
        kernel.shutdown_kernel(now=True)


def executed(file: Path, folder: Path, kernel: KernelManager) -> Any:
    """The notebook with new outputs; its cells run in `folder`, without the names of notebooks that ran before."""
    notebook = nbformat.read(file, as_version=4)
    first = nbformat.v4.new_code_cell(f"%reset -f\n%cd -q {folder}", id="first")
    notebook["cells"].insert(0, first)
    NotebookClient(notebook, timeout=300, km=kernel).execute()
    notebook["cells"].remove(first)
    notebook["metadata"]["language_info"] = {"name": "python"}  # without the version
    for number, cell in enumerate(code_cells(notebook), 1):
        cell["execution_count"], cell["metadata"] = number, {k: v for k, v in cell["metadata"].items() if k == "tags"}
        cell["outputs"] = [_tidy(output) for output in _joined(cell["outputs"])]
    return notebook


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def _joined(outputs: list[Any]) -> Iterator[Any]:
    """Text that was printed in several pieces is one output."""
    for name, group in groupby(outputs, key=lambda output: output.get("name")):
        first, *others = group
        if name is not None:
            first["text"] += "".join(output["text"] for output in others)
        yield from [first] if name is not None else [first, *others]


def _tidy(output: Any) -> Any:
    """Of an object that can be displayed only the best picture of it stays."""
    if "data" in output:
        kinds = ("image/svg+xml", "text/html", "text/plain")
        kind = next(kind for kind in kinds if kind in output["data"])
        output["data"] = {kind: output["data"][kind]}
        if "execution_count" in output:
            output["execution_count"] = None
    return output


def main(names: list[str]) -> None:
    files = [NOTEBOOKS / f"{name}.ipynb" for name in names] or sorted(NOTEBOOKS.glob("*.ipynb"))
    with tempfile.TemporaryDirectory() as folder, started_kernel() as kernel:
        for file in files:
            nbformat.write(executed(file, Path(folder), kernel), file)
            print(file.name)


if __name__ == "__main__":
    main(sys.argv[1:])
