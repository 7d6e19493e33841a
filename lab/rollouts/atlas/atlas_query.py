"""What the address of the atlas asks for. Anything that is not on offer counts as absent."""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, QueryDict

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.rollouts.trajectories.steps import PHASE_LABELS


@dataclass(frozen=True)
class TokenQuantity:
    """A number of each token: ``array`` of RolloutTokens, and its sign."""

    label: str
    unit: str
    help: str
    array: str
    sign: int = 1


@dataclass(frozen=True)
class RolloutField:
    """A number of each rollout: its column, and its name in the browser's filters."""

    label: str
    unit: str
    column: str


QUANTITIES = {
    "entropy": TokenQuantity("Entropy", "nats", "of the policy's next-token distribution", "entropies"),
    "surprise": TokenQuantity("Negative log-probability", "nats", "of the sampled token", "logprobs", -1),
    "weight": TokenQuantity("Token weight", "", "factor that the methods apply to a token's policy gradient", "weights"),
}
FIELDS = {
    "reward": RolloutField("Reward", "", "reward"),
    "length": RolloutField("Length", "tokens", "length"),
    "mean_entropy": RolloutField("Mean entropy", "nats", "mean_entropy"),
}
BY = {"position": "Position", "class": "Kind of token"}
SCALES = {"linear": "Linear", "log": "Log"}


@dataclass(frozen=True)
class AtlasQuery:
    """``of`` and ``by``: which number of the tokens over what; ``field``: which number of the rollouts. ``steps`` and ``positions`` are
    the first and last of a chosen cell, ``kind`` its class of token.
    """

    phase: str = ""
    step: int | None = None
    of: str = "entropy"
    by: str = "position"
    scale: str = "linear"
    field: str = "reward"
    steps: tuple[int, int] | None = None
    positions: tuple[int, int] | None = None
    kind: str = ""

    @classmethod
    def read(cls, request: HttpRequest) -> AtlasQuery:
        query = request.GET

        def one_of(name: str, offered: dict[str, object], default: str) -> str:
            return query[name] if query.get(name) in offered else default

        return cls(
            phase=one_of("phase", {**PHASE_LABELS}, ""),
            step=parse_whole_number(query.get("step"), MAX_INTEGER),
            of=one_of("of", {**QUANTITIES}, "entropy"),
            by=one_of("by", {**BY}, "position"),
            scale=one_of("scale", {**SCALES}, "linear"),
            field=one_of("field", {**FIELDS}, "reward"),
            steps=parse_number_range(query, "steps"),
            positions=parse_number_range(query, "positions"),
            kind=query.get("kind", ""),
        )


def parse_number_range(query: QueryDict, name: str) -> tuple[int, int] | None:
    """``3-7`` as (3, 7); None for anything else."""
    first, _, last = query.get(name, "").partition("-")
    low, high = parse_whole_number(first, MAX_INTEGER), parse_whole_number(last, MAX_INTEGER)
    return (low, high) if low is not None and high is not None and low <= high else None
