"""Training: the one visible loop, its optimisers, its log, its workers."""

from redraft.train.bar import ProgressBar, waiting
from redraft.train.distributed import Workers, asked_to_stop, local, same_bits, shard_like, whole, workers
from redraft.train.log import Log
from redraft.train.loop import clip, fit, update
from redraft.train.optim import Muon, adjust, optimisers, orthogonal, rate
from redraft.train.state import State, TrainingError
