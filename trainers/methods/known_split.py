"""Which questions a policy can answer from its weights alone: it is made to answer at once, and its right answers are counted.

For methods that treat what a policy knows otherwise than what it has to look up. A question of a world with tools is answered closed-book where the
answer's opening tag is forced before its first turn. How often that has to be right before a question counts as known depends on the task: where an
answer is one of six words, a guess is right often enough.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from trainers.maths.thresholds import is_at_least
from trainers.tasks.answers import ANSWER

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

T = TypeVar("T")


def measure_closed_book(run: "RunContext", examples: "Sequence[Example]", samples: int, key: object) -> list[float]:
    """Share right of ``samples`` answers that the policy gives to each example at once, with randomness of its own that ``key`` names."""
    session = run.session(examples, key)
    return session.success([episode.root for episode in session.begin()], samples, force=ANSWER)


def mark_known(shares: Sequence[float], least: float) -> list[bool]:
    """Whether each question is known: right in at least ``least`` of its answers; with 0, right at all."""
    return [share > 0 and is_at_least(share, least) for share in shares]


def balance_known(rows: Sequence[T], known: Sequence[bool], rng: random.Random) -> list[T]:
    """As many of ``rows`` that are known as that are not, drawn from the larger part, in their order. All of them where one part is empty."""
    parts = [[place for place, one in enumerate(known) if one is kind] for kind in (True, False)]
    fewest = min(map(len, parts))
    if not fewest:
        return list(rows)
    return [rows[place] for place in sorted(place for part in parts for place in rng.sample(part, fewest))]
