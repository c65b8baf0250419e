"""Uniform noise as a process: tables, their composition, Bayes' rule, and draws."""

import torch

from redraft.evaluation import AuditProcess


def marginal(t, words):
    return (1 - t) * torch.eye(words) + t / words


def transition(s, t, words):
    kept = (1 - t) / (1 - s)
    return kept * torch.eye(words) + (1 - kept) / words


def draw(x, t, rng):
    replaced = torch.rand(x.shape, generator=rng) < t
    return torch.where(replaced, torch.randint(3, x.shape, generator=rng), x)


uniform = AuditProcess(marginal, transition, draw=draw, name="uniform")
