"""A warning with values that would do."""

from dataclasses import dataclass, field
from typing import Any

from trainers.contract.problems import Problem


@dataclass(frozen=True)
class Suggestion(Problem):
    """A form offers ``suggestion`` beside the input."""

    suggestion: float = 0.0


@dataclass(frozen=True)
class Remedy(Problem):
    """Several settings that go together: a form offers ``changes`` (setting of the spec → value) with one button, which says ``label``."""

    label: str = ""
    changes: dict[str, Any] = field(default_factory=dict)
