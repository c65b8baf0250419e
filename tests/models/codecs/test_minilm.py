"""MiniLM against BERT's formula written out, on a checkpoint of random numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from redraft.core import Vocab, rng
from redraft.models import MiniLM
from redraft.models.codecs.modules import minilm
from redraft.models.codecs.modules.minilm import _Bert

V, D, F, POSITIONS = 11, 8, 12, 6
Weights = dict[str, Tensor]


@pytest.fixture(scope="module")
def weights() -> Weights:
    """In the layout of the original: two layers, and a pooler that nobody reads."""
    shapes = {
        "embeddings.word_embeddings.weight": (V, D),
        "embeddings.position_embeddings.weight": (POSITIONS, D),
        "embeddings.token_type_embeddings.weight": (2, D),
        "embeddings.LayerNorm.weight": (D,),
        "embeddings.LayerNorm.bias": (D,),
        "pooler.dense.weight": (D, D),
    }
    for i in range(2):
        at = f"encoder.layer.{i}."
        for name, rows, columns in (
            *((f"attention.self.{part}", D, D) for part in ("query", "key", "value")),
            ("attention.output.dense", D, D),
            ("intermediate.dense", F, D),
            ("output.dense", D, F),
        ):
            shapes |= {f"{at}{name}.weight": (rows, columns), f"{at}{name}.bias": (rows,)}
        for name in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes |= {f"{at}{name}.weight": (D,), f"{at}{name}.bias": (D,)}
    generator = torch.Generator().manual_seed(0)
    return {name: torch.randn(*shape, generator=generator) for name, shape in shapes.items()}


@pytest.fixture(scope="module")
def config(weights: Weights, tmp_path_factory: pytest.TempPathFactory) -> MiniLM:
    path = tmp_path_factory.mktemp("bert")
    save_file(weights, path / "model.safetensors")
    return MiniLM(str(path), layers=2, vocab=V, width=D, heads=2, hidden=F, positions=POSITIONS)


@pytest.fixture(scope="module")
def encoder(config: MiniLM) -> _Bert:
    return config.build(Vocab(V, mask=3)).eval()


def formula(weights: Weights, ids: list[int]) -> Tensor:
    """One text without padding, (L, D): heads in a loop, the softmax by hand."""

    def linear(name: str, h: Tensor) -> Tensor:
        return h @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]

    def norm(name: str, h: Tensor) -> Tensor:
        h = h - h.mean(-1, keepdim=True)
        h = h / (h.square().mean(-1, keepdim=True) + 1e-12).sqrt()
        return h * weights[f"{name}.weight"] + weights[f"{name}.bias"]

    e = "embeddings."
    h = weights[e + "word_embeddings.weight"][ids] + weights[e + "position_embeddings.weight"][: len(ids)]
    h = norm(e + "LayerNorm", h + weights[e + "token_type_embeddings.weight"][0])
    for i in range(2):
        at, heads = f"encoder.layer.{i}.", []
        q, k, v = (linear(f"{at}attention.self.{part}", h) for part in ("query", "key", "value"))
        for part in (slice(0, 4), slice(4, 8)):
            score = (q[:, part] @ k[:, part].T / math.sqrt(4)).exp()
            heads.append(score / score.sum(-1, keepdim=True) @ v[:, part])
        h = norm(at + "attention.output.LayerNorm", h + linear(at + "attention.output.dense", torch.cat(heads, -1)))
        inner = linear(at + "intermediate.dense", h)
        inner = inner * (1 + torch.erf(inner / math.sqrt(2))) / 2
        h = norm(at + "output.LayerNorm", h + linear(at + "output.dense", inner))
    return h


def test_states_are_those_of_the_formula(encoder: _Bert, weights: Weights) -> None:
    ids = [1, 4, 9, 4]
    with torch.no_grad():
        torch.testing.assert_close(encoder.raw(torch.tensor([ids]))[0], formula(weights, ids), atol=1e-4, rtol=1e-4)


def test_padding_is_not_seen(encoder: _Bert, weights: Weights) -> None:
    tokens, pad = torch.tensor([[1, 4, 9, 7, 7]]), torch.tensor([[False, False, False, True, True]])
    with torch.no_grad():
        states = encoder.raw(tokens, pad)[0, :3]
    torch.testing.assert_close(states, formula(weights, [1, 4, 9]), atol=1e-4, rtol=1e-4)


def test_what_is_given_has_unit_scale_and_no_gradient(encoder: _Bert) -> None:
    states = encoder(torch.tensor([[1, 4, 9]]))
    assert not states.requires_grad
    torch.testing.assert_close(states.square().mean(-1), torch.ones(1, 3), atol=1e-3, rtol=0)
    assert encoder.token_vectors(torch.tensor([[4]])).shape == (1, 1, D)
    assert encoder.losses(torch.tensor([[4]]), None, rng=rng(0)) == {}


def test_fewer_layers_are_the_first_ones(config: MiniLM, encoder: _Bert) -> None:
    first = MiniLM(config.path, 1, V, D, 2, F, POSITIONS).build(Vocab(V))
    assert len(first.blocks) == 1
    assert first.blocks[0].q.weight.equal(encoder.blocks[0].q.weight)


def test_on_the_meta_device_no_file_is_read() -> None:
    with torch.device("meta"):
        assert MiniLM("nowhere").build(Vocab(30_522)).word.weight.shape == (30_522, 384)


def test_wrong_files_and_vocabularies_are_refused(config: MiniLM, encoder: _Bert, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="12 ids, but MiniLM reads 11"):
        config.build(Vocab(12))
    with pytest.raises(ValueError, match=r"no model\.safetensors"):
        MiniLM(str(tmp_path), 2, V, D, 2, F, POSITIONS).build(Vocab(V))
    with pytest.raises(ValueError, match=r"not a BERT of 3 layers: it lacks encoder\.layer\.2"):
        MiniLM(config.path, 3, V, D, 2, F, POSITIONS).build(Vocab(V))
    with pytest.raises(ValueError, match="7 tokens are too many"):
        encoder(torch.zeros(1, 7, dtype=torch.int64))


def test_the_package_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(minilm, "_PACKAGE", "no_such_package")
    with pytest.raises(ValueError, match=r"pip install 'redraft\[latent\]'"):
        minilm._minilm_folder()
