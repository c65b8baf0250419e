"""Comparing: methods under one budget, rows that say how they came to be, the same measures for all."""

from redraft.compare.comparing import Comparison, over_seeds, summaries, text_of
from redraft.compare.ledger import CpuTime, RowFile, commit, cpu, derived, file_config, machine_name, require_units
from redraft.compare.measuring import (
    Effort,
    measured,
    quality,
    share_of,
    unseen_bits,
    write_and_judge,
)
from redraft.compare.methods import Method, Ready, Recipe
from redraft.compare.training import TIMED, Budget, Fitted, budgeted, fitted, seconds_per_step
