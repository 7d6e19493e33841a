"""What is wrong with a spec or a dataset, said so that a person can fix it: the field, its value, the reason and the way out."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

SHOWN = 120  # characters of a value in a message


@dataclass(frozen=True)
class Problem:
    """One thing wrong: where (a dotted path), with what value, why, and what to do about it. ``given`` is False where there is no value."""

    field: str
    value: Any
    message: str
    fix: str = ""
    given: bool = True

    def __str__(self) -> str:
        where = f"{self.field} = {shorten_value(repr(self.value))}" if self.field and self.given else self.field or "spec"
        return f"{where}: {self.message}" + (f" ({self.fix})" if self.fix else "")


def shorten_value(text: str) -> str:
    return text if len(text) <= SHOWN else text[: SHOWN - 1] + "…"


class SpecError(ValueError):
    """A run that must not start; ``problems`` holds every reason found, not only the first."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type["SpecError"], tuple[list[Problem]]]:
        return SpecError, (self.problems,)

    def as_json(self) -> list[dict[str, Any]]:
        return [asdict(problem) for problem in self.problems]


class Contradiction(ValueError):
    """Raised by a model's validator: fields that do not go together. Fields are named relative to the model, ``spec`` adds where it is."""

    def __init__(self, *problems: Problem) -> None:
        self.problems = problems
        super().__init__("; ".join(str(problem) for problem in problems))
