from .comparison.budget import (
    TIMED as TIMED,
    Budget as Budget,
    Fitted as Fitted,
    budgeted as budgeted,
    fitted as fitted,
    seconds_per_step as seconds_per_step,
)
from .comparison.comparison import (
    Comparison as Comparison,
    over_seeds as over_seeds,
    summaries as summaries,
    text_of as text_of,
)
from .comparison.measurement import (
    Effort as Effort,
    measured as measured,
    quality as quality,
    share_of as share_of,
    unseen_bits as unseen_bits,
    write_and_judge as write_and_judge,
)
from .comparison.methods import Method as Method, Ready as Ready, Recipe as Recipe
from .comparison.row_file import (
    CpuTime as CpuTime,
    RowFile as RowFile,
    commit as commit,
    cpu as cpu,
    derived as derived,
    file_config as file_config,
    machine_name as machine_name,
    require_units as require_units,
)
from .harness.generation import Wanted as Wanted, Writer as Writer
from .harness.report import Estimated as Estimated, Report as Report
from .harness.requests import Request as Request, RowLayout as RowLayout
from .harness.scoring import (
    AnswerScore as AnswerScore,
    Scorer as Scorer,
    Unwatched as Unwatched,
    Watch as Watch,
    greedy as greedy,
)
from .harness.tasks import (
    TaskFigure as TaskFigure,
    evaluate_tasks as evaluate_tasks,
    language_model as language_model,
    require_package as require_package,
)
from .judges import (
    Judge as Judge,
    Judged as Judged,
    ModelJudge as ModelJudge,
    TransformersJudge as TransformersJudge,
    generative_perplexity as generative_perplexity,
)
from .laws.enumeration import VOCAB as VOCAB, Oracle as Oracle
from .laws.gaussian import Mixture as Mixture, MixtureOracle as MixtureOracle, modes as modes
from .laws.insertion import (
    SENTENCE_VOCAB as SENTENCE_VOCAB,
    AtOnce as AtOnce,
    SentenceOracle as SentenceOracle,
    Sentences as Sentences,
    Ways as Ways,
    sentence_integrand as sentence_integrand,
    written_sentences as written_sentences,
)
from .laws.law import Law as Law, integral as integral, quadrature as quadrature
from .laws.sampling import sampled as sampled
from .laws.schedules import every_schedule as every_schedule
from .laws.solvers import (
    PROCESS as PROCESS,
    ModeClassifier as ModeClassifier,
    TokenOracle as TokenOracle,
    blank as blank,
    density as density,
    renoised as renoised,
)
from .laws.suite import (
    check as check,
    check_all as check_all,
    check_built_in as check_built_in,
    processes_of as processes_of,
)
from .noise_levels import Halfway as Halfway, NoiseLevel as NoiseLevel
from .probing import (
    Probed as Probed,
    linear_probe as linear_probe,
    pooled as pooled,
    tuned_probe as tuned_probe,
    windowed as windowed,
)
from .text_metrics import (
    Grammar as Grammar,
    distinct as distinct,
    grammatical as grammatical,
    possible as possible,
    record as record,
    seen as seen,
    stitched as stitched,
    unigram_entropy as unigram_entropy,
)
