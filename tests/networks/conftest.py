"""What the tests of networks share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def interpreted() -> Iterator[None]:
    """flex_attention without its compiler, which takes seconds for every new shape."""
    with torch.compiler.set_stance("force_eager"), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "flex_attention called without torch.compile", UserWarning)
        yield
