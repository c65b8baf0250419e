from .blocks import Blocks as Blocks
from .multi_block import MultiBlock as MultiBlock, Once as Once
from .strides import Strides as Strides
from .sub_blocks import Parts as Parts
from .windows import Approximate as Approximate, Dual as Dual, Prefix as Prefix, Stale as Stale, Window as Window
