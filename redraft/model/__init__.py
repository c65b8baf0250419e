"""The model: process, network, head and tokenizer in one module, and text as canvases."""

from redraft.model.compose import Piece, UpTo, grows, sized_hole, text_places
from redraft.model.config import DiffusionLMConfig
from redraft.model.denoiser import DiffusionLM, Lazy, eval_mode, evaluating
from redraft.model.drafting import DraftMemory
from redraft.model.levels import ByKeep, ByLogSnr, BySigma, ByTime, Level
from redraft.model.tagging import follows, tag_logits, what_follows
