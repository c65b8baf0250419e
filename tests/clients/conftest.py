"""A real server with a random Llama of the name smol, as in docs/guides/clients.md."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.apps.server.served import serving
from tests.apps.server.tiny_llama import write_tiny_llama


@pytest.fixture(scope="session")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with serving(write_tiny_llama(tmp_path_factory.mktemp("clients") / "smol")) as server:
        yield server.url
