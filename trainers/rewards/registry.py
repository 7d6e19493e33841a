"""The functions of the library by name, in the order that forms list them."""

from difflib import get_close_matches

from trainers.rewards.base import RewardFunction
from trainers.rewards.embedding_similarity import EmbeddingSimilarity
from trainers.rewards.exact_match import ExactMatch
from trainers.rewards.json_schema import JsonSchema
from trainers.rewards.language import Language
from trainers.rewards.length import Length
from trainers.rewards.math_verify import MathVerify
from trainers.rewards.multiple_choice import MultipleChoice
from trainers.rewards.ngram_similarity import NgramSimilarity
from trainers.rewards.normalised_match import NormalisedMatch
from trainers.rewards.number import Number
from trainers.rewards.regex_match import RegexMatch
from trainers.rewards.repetition import Repetition
from trainers.rewards.reward_ensemble import RewardEnsemble
from trainers.rewards.reward_model import RewardModelScore
from trainers.rewards.rubric_judge import RubricJudge
from trainers.rewards.sections import Sections
from trainers.rewards.sql_result import SqlResult
from trainers.rewards.tags import Tags
from trainers.rewards.unit_tests import UnitTests

BUILT_IN: tuple[type[RewardFunction], ...] = (
    ExactMatch,
    NormalisedMatch,
    Number,
    MultipleChoice,
    MathVerify,
    RegexMatch,
    JsonSchema,
    Tags,
    Sections,
    Length,
    Repetition,
    Language,
    NgramSimilarity,
    EmbeddingSimilarity,
    RewardModelScore,
    RewardEnsemble,
    RubricJudge,
    UnitTests,
    SqlResult,
)
FUNCTIONS: dict[str, type[RewardFunction]] = {kind.name: kind for kind in BUILT_IN}


def suggest_function(name: str) -> str:
    """What to do about a name that no function has."""
    near = get_close_matches(name, FUNCTIONS, n=1)
    return f"did you mean {near[0]}?" if near else f"use one of {', '.join(FUNCTIONS)}"
