"""What the address of the feed asks for."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlencode

from django.db.models import Max, Min
from django.http import QueryDict

from lab.lib.numbers import MAX_INTEGER, parse_whole_number
from lab.rollouts.trajectories.steps import PHASE_LABELS

TOKEN_VIEWS = {"": "Off", "entropy": "Entropy", "logprob": "Log-probability", "weight": "Token weight", "advantage": "Token advantage"}
LAYOUTS = {"cards": "Cards", "list": "List"}
METHOD_VIEWS = ("weight", "advantage")  # only where methods may have given tokens their own

# What a sort shows first, as (label, aggregate that orders the groups, order of the rollouts inside a group).
ORDERS: dict[str, tuple[str, Any, tuple[str, ...]]] = {
    "order": ("Order", None, ("sample", "pk")),
    "best": ("Best", Max("reward"), ("-reward", "sample", "pk")),
    "worst": ("Worst", Min("reward"), ("reward", "sample", "pk")),
    "longest": ("Longest", Max("length"), ("-length", "sample", "pk")),
    "uncertain": ("Most uncertain", Max("mean_entropy"), ("-mean_entropy", "sample", "pk")),
}


@dataclass(frozen=True)
class Selection:
    """What the address asks for. ``step`` None follows the newest; ``group`` and ``row`` are where the page starts in the sorted step;
    ``layout`` is empty where it is left to what the person chose last.
    """

    phase: str = ""
    step: int | None = None
    order: str = "order"
    tokens: str = ""
    layout: str = ""
    tries: bool = False
    zero: bool = False  # only groups whose rollouts all earned the same
    filtered: bool = False  # only rollouts that were left out of the loss
    group: int = 0
    row: int = 0

    @classmethod
    def read(cls, query: QueryDict) -> Selection:
        """Anything that is not on offer counts as absent: an old or mangled address still shows rollouts."""
        group, _, row = query.get("after", "").partition(".")
        return cls(
            phase=query.get("phase", "") if query.get("phase") in PHASE_LABELS else "",
            step=parse_whole_number(query.get("step"), MAX_INTEGER),
            order=query.get("sort", "") if query.get("sort") in ORDERS else "order",
            tokens=query.get("tokens", "") if query.get("tokens") in TOKEN_VIEWS else "",
            layout=query.get("layout", "") if query.get("layout") in LAYOUTS else "",
            tries=query.get("tries") == "1",
            zero=query.get("zero") == "1",
            filtered=query.get("filtered") == "1",
            group=parse_whole_number(group, MAX_INTEGER) or 0,
            row=parse_whole_number(row, MAX_INTEGER) or 0,
        )

    def query(self, **changes: Any) -> str:
        """The query string of this selection with changes; defaults are left out."""
        chosen = replace(self, **{"group": 0, "row": 0, **changes})
        asked = {
            "phase": chosen.phase,
            "step": "" if chosen.step is None else chosen.step,
            "sort": "" if chosen.order == "order" else chosen.order,
            "tokens": chosen.tokens,
            "layout": chosen.layout,
            "tries": "1" if chosen.tries else "",
            "zero": "1" if chosen.zero else "",
            "filtered": "1" if chosen.filtered else "",
            "after": f"{chosen.group}.{chosen.row}" if chosen.group or chosen.row else "",
        }
        return "?" + urlencode({key: value for key, value in asked.items() if value != ""})

    @property
    def query_following(self) -> str:
        return self.query(step=None)
