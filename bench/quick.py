"""`make bench`: the quick ratios, one JSON line each. A missed goal prints "ok": false and ends with exit code 1."""

from __future__ import annotations

import sys
from itertools import chain

from bench import core, engine


def main() -> None:
    benches = chain(core.training(), core.sampling(), core.long_sampling(), core.exactness(), engine.overhead())
    sys.exit(0 if all(list(benches)) else 1)


if __name__ == "__main__":
    main()
