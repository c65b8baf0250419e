from .causal_judge import CausalJudge as CausalJudge
from .infilling import infill as infill, infilling as infilling
from .propose_and_judge import NextToken as NextToken, ProposeAndJudge as ProposeAndJudge, RowJudge as RowJudge
