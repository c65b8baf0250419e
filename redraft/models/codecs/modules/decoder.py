"""Decoders p(w | z): from latents to tokens, all at once or one after another."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from redraft.core.canvas import Context
from redraft.core.condition import Condition
from redraft.core.ops import token_nll
from redraft.core.randomness import Rng
from redraft.core.vocab import Vocab
from redraft.models.codecs.modules.size import TransformerSize
from redraft.models.networks.config import NetworkIO
from redraft.models.networks.patterns import Causal
from redraft.models.networks.transformer import Transformer


class ParallelDecoder(nn.Module):
    """p(w | z) = Π_l p(w_l | z): one vector per token, all decoded at once (TEncDM)."""

    def __init__(self, size: TransformerSize, reads: int, length: int, writes: int) -> None:
        super().__init__()
        self.network = Transformer(size.network(length), NetworkIO(reads, writes, vectors=True))

    def forward(self, z: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L, D) latents → (B, L, writes) outputs"""
        return self.network.logits(self.network(z, None, Context(pad=pad)))


class AutoregressiveDecoder(nn.Module):
    """p(w | z) = Π_l p(w_l | w_<l, z): a causal transformer with cross attention to the latents (LD4TG, PLANNER).

    In training, a fraction of the previous tokens can be hidden, because a decoder that predicts well from these hardly
    uses the latents (Bowman et al. 2016, §3.2).
    """

    def __init__(self, size: TransformerSize, reads: int, length: int, vocab: Vocab) -> None:
        super().__init__()
        self.vocab, self.length = vocab, length
        io = NetworkIO(vocab.size, vocab.size, cross=reads, start=vocab.start)
        self.network = Transformer(size.network(length + 1, Causal()), io)

    def nll(self, z: Tensor, tokens: Tensor, pad: Tensor | None = None) -> Tensor:
        """(B, L) nats −log p(w_l | w_<l, z) of each token, by the chain rule."""
        return self._nll(z, tokens, tokens, pad)

    def nll_with_forgetting(
        self, z: Tensor, tokens: Tensor, pad: Tensor | None, fraction: float, *, rng: Rng
    ) -> Tensor:
        """(B, L) nats of each token, where a random fraction of the previous tokens is hidden from the decoder."""
        hidden = rng.uniform(tokens.shape[1]) < fraction
        return self._nll(z, tokens, tokens.masked_fill(hidden, self.vocab.start), pad)

    def _nll(self, z: Tensor, tokens: Tensor, past: Tensor, pad: Tensor | None) -> Tensor:
        states = self.network(past, None, Context(pad=pad, condition=Condition(source=z)))
        return token_nll(self.network.logits(states), tokens)

    @torch.no_grad()
    def decode(self, z: Tensor) -> Tensor:
        """(B, N, D) → (B, length) ids by greedy decoding; end tokens fill the row after the first one."""
        end = self.vocab.filler if self.vocab.eos is None else self.vocab.eos
        ids = torch.full((len(z), self.length), end, device=z.device)
        ended = torch.zeros(len(z), 1, dtype=torch.bool, device=z.device)
        context = Context(condition=Condition(source=z))
        context = replace(context, cache=self.network.absorb(ids[:, :0], context))
        for i, position in enumerate(torch.arange(self.length, device=z.device)):
            context = replace(context, positions=position.view(1, 1))
            best = self.network.logits(self.network(ids[:, i : i + 1], None, context)).argmax(-1)
            ids[:, i : i + 1] = best.masked_fill(ended, end)
            ended = ended | (best == end) if end == self.vocab.eos else ended
            if bool(ended.all()):
                break
            context = replace(context, cache=self.network.absorb(ids[:, i : i + 1], context))
        return ids
