from .budget import (
    TIMED as TIMED,
    Budget as Budget,
    Fitted as Fitted,
    budgeted as budgeted,
    fitted as fitted,
    seconds_per_step as seconds_per_step,
)
from .comparison import Comparison as Comparison, over_seeds as over_seeds, summaries as summaries, text_of as text_of
from .measurement import (
    Effort as Effort,
    measured as measured,
    quality as quality,
    share_of as share_of,
    unseen_bits as unseen_bits,
    write_and_judge as write_and_judge,
)
from .methods import Method as Method, Ready as Ready, Recipe as Recipe
from .row_file import (
    CpuTime as CpuTime,
    RowFile as RowFile,
    commit as commit,
    cpu as cpu,
    derived as derived,
    file_config as file_config,
    machine_name as machine_name,
    require_units as require_units,
)
