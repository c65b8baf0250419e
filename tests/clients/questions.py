"""What all clients are asked: `make test-clients`."""

from __future__ import annotations

from typing import Any, Literal

import httpx
from pydantic import BaseModel, Field

ASK: Any = [{"role": "user", "content": "Is Rome in Italy?"}]
SYSTEM: Any = [{"role": "system", "content": "Be brief."}, *ASK]
TURNS: Any = [*ASK, {"role": "assistant", "content": "Yes."}, *ASK]


class Weather(BaseModel):
    """The weather of a city."""

    city: Literal["Rome", "Oslo"]
    sunny: bool


class Sum(BaseModel):
    """A sum."""

    a: int = Field(ge=0, le=99)
    b: int = Field(ge=0, le=99)


class Trip(BaseModel):
    """A trip to one or two cities."""

    stops: list[Literal["Rome", "Oslo"]] = Field(min_length=1, max_length=2)
    weather: Weather


MODELS = [Weather, Sum, Trip]


def close_soon(url: str) -> dict[str, int]:
    """A bias towards closing braces: a random model seldom ends a JSON object by itself."""
    answer = httpx.post(f"{url}/tokenize", json={"model": "smol", "prompt": "}"}).json()
    return {str(token): 60 for token in answer["tokens"]}
