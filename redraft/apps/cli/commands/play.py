"""`redraft play`: the playground in a browser."""

from __future__ import annotations

import re
import webbrowser
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from redraft.apps.cli.commands.serve import Serve
from redraft.apps.cli.output import note


@dataclass(frozen=True)
class Play:
    """Open the playground in a browser: write, fill holes, correct, choose, compare, and watch how it is done.

    It is `redraft serve` for this machine alone, with its page opened.
    """

    models: Annotated[Positional[tuple[str, ...]], arg(metavar="[DIR …]")] = ()
    """Directories of trained models. Without any: the model that comes with the package."""
    port: int = 0
    """Port to listen on; 0 chooses a free one."""
    browser: bool = True
    """Open a browser; otherwise only tell the address."""

    def __call__(self) -> None:
        Serve(self.models, port=self.port).serve(self._say)

    def _say(self, line: str) -> None:
        note(line)
        found = re.match(r"listening on (http://\S+)", line)
        if found is None:
            return
        opened = self.browser and webbrowser.open(found[1])
        note("Ctrl-C ends it" if opened else f"open {found[1]} in a browser; Ctrl-C ends it")
