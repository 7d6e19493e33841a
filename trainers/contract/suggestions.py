"""A warning about a number, with one that would do."""

from dataclasses import dataclass

from trainers.contract.problems import Problem


@dataclass(frozen=True)
class Suggestion(Problem):
    """A form offers ``suggestion`` beside the input."""

    suggestion: float = 0.0
