"""Reward functions as data: composed from the library, or Python that somebody wrote; a run's spec, a task's file and the team's rewards hold them.

A definition is complete: it names functions of ``trainers/rewards`` with their parameters and never refers to a row of a database. Scores may be
None, "no opinion". What a composition makes of that is said at each kind.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Contradiction, Problem

COLUMN_NAME = r"^[a-z][a-z0-9_-]{0,39}$"
MOST_PARTS = 20  # parts of one sum or product
MOST_DEPTH = 5  # compositions inside compositions
LONGEST_SOURCE = 20_000  # characters
SHADOW = " (shadow)"  # after a column's name, which cannot end so, in charts and stored rewards: scored, and in no reward


class LibraryReward(Strict):
    """One function of the library, by name, with its parameters."""

    kind: Literal["library"] = "library"
    function: str = param(..., "A function of the reward library.", title="Function", min_length=1, max_length=60)
    config: dict[str, Any] = param({}, "Its parameters; those left out have their defaults.", title="Parameters")


class CodeReward(Strict):
    """Python with ``def score(completion, reference, data)`` that returns a finite number or None. It is run only in the sandbox."""

    kind: Literal["code"] = "code"
    source: str = param(..., "Python that defines score(completion, reference, data).", title="Source", min_length=1, max_length=LONGEST_SOURCE)


class WeightedPart(Strict):
    reward: "RewardDefinition"
    weight: float = param(1.0, "Factor of this part in the sum.", title="Weight", ge=-1000, le=1000)


class SumReward(Strict):
    """Sum of weight x score over the parts with an opinion; None when none has one."""

    kind: Literal["sum"] = "sum"
    parts: list[WeightedPart] = Field(min_length=1, max_length=MOST_PARTS)


class ProductReward(Strict):
    """Product of all parts; None when one has no opinion."""

    kind: Literal["product"] = "product"
    parts: "list[RewardDefinition]" = Field(min_length=1, max_length=MOST_PARTS)


class GateReward(Strict):
    """``reward`` where ``gate`` scores ``at_least`` or more, else ``otherwise``; None when the gate has no opinion."""

    kind: Literal["gate"] = "gate"
    gate: "RewardDefinition"
    at_least: float = param(1.0, "The gate is open from this score on.", title="Open from")
    reward: "RewardDefinition"
    otherwise: float = param(0.0, "Score while the gate is closed.", title="Otherwise")


RewardDefinition = Annotated[LibraryReward | CodeReward | SumReward | ProductReward | GateReward, Field(discriminator="kind")]


class RewardOrigin(Strict):
    """The team's reward function that a definition was taken from: for links and comparisons, never read to score."""

    id: int = Field(ge=1)
    version: int = Field(ge=1)


class RewardColumn(Strict):
    """One more reward function of a run or a task, with its column's name."""

    name: str = param(..., "Name of its column in charts and tables.", title="Name", pattern=COLUMN_NAME)
    definition: RewardDefinition
    weight: float = param(1.0, "Weight in the summed reward; 0: only measured.", title="Weight", ge=-1000, le=1000)
    shadow: bool = param(
        False,
        "Scored by a process of its own while the run trains: charted, never in the gradient, until somebody promotes it.",
        title="Shadow",
    )
    origin: RewardOrigin | None = None

    @model_validator(mode="after")
    def is_shallow_enough(self) -> "RewardColumn":
        if (depth := measure_depth(self.definition)) > MOST_DEPTH:
            message = f"compositions are nested {depth} deep"
            raise Contradiction(Problem("definition", None, message, f"nest them at most {MOST_DEPTH} deep", given=False))
        return self


for model in (WeightedPart, SumReward, ProductReward, GateReward, RewardColumn):
    model.model_rebuild()


def list_parts(definition: Any) -> list[Any]:
    """The definitions directly inside a composition; none of a library function or of code."""
    if isinstance(definition, SumReward):
        return [part.reward for part in definition.parts]
    if isinstance(definition, ProductReward):
        return list(definition.parts)
    return [definition.gate, definition.reward] if isinstance(definition, GateReward) else []


def walk_definition(definition: Any) -> Iterator[Any]:
    """The definition and everything inside it, outermost first."""
    yield definition
    for part in list_parts(definition):
        yield from walk_definition(part)


def measure_depth(definition: Any) -> int:
    """1 for a function; a composition is one deeper than its deepest part."""
    return 1 + max((measure_depth(part) for part in list_parts(definition)), default=0)


def has_code(definition: Any) -> bool:
    """Whether any part is Python that somebody wrote."""
    return any(isinstance(part, CodeReward) for part in walk_definition(definition))
