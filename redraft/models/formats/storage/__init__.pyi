from .files import refuse_pickles as refuse_pickles, settings as settings
from .hub import local_folder as local_folder
from .tensors import Held as Held, InFile as InFile, Settings as Settings, Stored as Stored, Weights as Weights
