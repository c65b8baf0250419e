"""Uniform noise whose transition forgets to divide by what is already kept at time s."""

import torch

from redraft.evaluation import AuditProcess


def marginal(t, words):
    return (1 - t) * torch.eye(words) + t / words


def transition(s, t, words):
    return (1 - (t - s)) * torch.eye(words) + (t - s) / words


drifting = AuditProcess(marginal, transition, name="drifting")
