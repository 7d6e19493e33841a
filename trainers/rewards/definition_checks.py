"""What is wrong with a definition, each problem at its dotted path: functions, their parameters, and what this machine lacks to score with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from trainers.contract.problems import Problem, SpecError
from trainers.contract.refusals import join_field_path, problems_of
from trainers.contract.reward_definitions import CodeReward, GateReward, LibraryReward, ProductReward, SumReward
from trainers.rewards.registry import FUNCTIONS, suggest_function
from trainers.rewards.sandboxed import find_missing_sandbox

if TYPE_CHECKING:
    from trainers.contract.reward_definitions import RewardDefinition


def find_definition_problems(definition: RewardDefinition, path: str, here: bool = True) -> list[Problem]:
    """``path``: where the definition stands, ``rewards.0.definition``. ``here``: also what scoring needs and this machine does not have."""
    found: list[Problem] = []
    for place, part in walk_with_paths(definition, path):
        if isinstance(part, LibraryReward):
            found += find_function_problems(part, place, here)
        elif isinstance(part, CodeReward):
            found += find_code_problems(part, place, here)
    return found


def find_function_problems(part: LibraryReward, path: str, here: bool) -> list[Problem]:
    if part.function not in FUNCTIONS:
        return [Problem(f"{path}.function", part.function, "there is no such reward function", suggest_function(part.function))]
    try:
        parameters = parse_parameters(part, path)
    except SpecError as error:
        return error.problems
    missing = FUNCTIONS[part.function].find_missing(parameters) if here else []
    return [move_problem(problem, f"{path}.config") for problem in missing]


def find_code_problems(part: CodeReward, path: str, here: bool) -> list[Problem]:
    try:
        compile(part.source, "<reward>", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = f" (line {error.lineno})" if isinstance(error, SyntaxError) and error.lineno else ""
        message = f"is not valid Python: {getattr(error, 'msg', None) or error}{line}"
        return [Problem(f"{path}.source", None, message, "correct it", given=False)]
    return [move_problem(problem, path) for problem in find_missing_sandbox()] if here else []


def parse_parameters(part: LibraryReward, path: str) -> Any:
    """Raises SpecError."""
    kind = FUNCTIONS[part.function].Parameters
    try:
        return kind.model_validate(part.config)
    except ValidationError as error:
        raise SpecError([move_problem(problem, f"{path}.config") for problem in problems_of(error, kind)]) from None


def move_problem(problem: Problem, path: str) -> Problem:
    return Problem(join_field_path(path, problem.field) if problem.field else path, problem.value, problem.message, problem.fix, problem.given)


def walk_with_paths(definition: RewardDefinition, path: str) -> Iterator[tuple[str, RewardDefinition]]:
    yield path, definition
    for place, part in list_placed_parts(definition):
        yield from walk_with_paths(part, f"{path}.{place}")


def list_placed_parts(definition: RewardDefinition) -> list[tuple[str, RewardDefinition]]:
    """The definitions directly inside a composition, with their keys in the file."""
    if isinstance(definition, SumReward):
        return [(f"parts.{number}.reward", part.reward) for number, part in enumerate(definition.parts)]
    if isinstance(definition, ProductReward):
        return [(f"parts.{number}", part) for number, part in enumerate(definition.parts)]
    return [("gate", definition.gate), ("reward", definition.reward)] if isinstance(definition, GateReward) else []
