"""What a finished question shows: its members in order, page by page, the inputs of their groups, and the tokens both ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import numpy as np

from lab.lib.numbers import parse_whole_number
from lab.rollouts.replay.answers import find_sign_flips, load_effective_advantages
from lab.rollouts.replay.models import Replay
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.text_pieces import CUT_AT, Piece, escape_invisible_text, iterate_text_pieces
from lab.rollouts.trajectories.tokens import SHOWN_TOKENS, arrays_of, build_token_units, round_for_json
from lab.training.runs.stack import MethodChip, build_method_chips, build_stack
from trainers.contract.arrays import PackError

PAGE = 24
ORDERS = {"change": "most changed first", "place": "in their groups", "stored": "best stored first", "replayed": "best what-if first"}
MOST_LISTED = 12  # tokens in the table of flips
MOST_IDS = 64
WEIGHED = "after token weights"


@dataclass(frozen=True)
class MemberListing:
    """The address of a list: its order, whether only members with flipped signs are in it, and which page."""

    order: str = "change"
    only_flipped: bool = False
    page: int = 1

    @classmethod
    def read(cls, query: Mapping[str, str]) -> MemberListing:
        order, number = query.get("sort", ""), parse_whole_number(query.get("page"), 99_999, 1) or 1
        return cls(order if order in ORDERS else "change", query.get("flipped") == "1", number)

    def query(self, **changes: Any) -> str:
        order, only, page = (changes.get(name, getattr(self, name)) for name in ("order", "only_flipped", "page"))
        page = page if "page" in changes else 1
        parameters = {"sort": order if order != "change" else "", "flipped": "1" if only else "", "page": page if page > 1 else ""}
        return "?" + urlencode({name: value for name, value in parameters.items() if value})


@dataclass(frozen=True)
class ReplayedMember:
    rollout: Rollout
    data: dict[str, Any]

    @property
    def came_about(self) -> list[tuple[str, str]]:
        """How the stored advantage came about: (what, number) in order."""
        chain = build_advantage_chain(self.rollout.shaped, self.rollout.contributions or {"base": self.rollout.advantage})
        return [*chain, (WEIGHED, self.stored)] if self.data["weighed_before"] else chain

    @property
    def would_come_about(self) -> list[tuple[str, str]]:
        chain = build_advantage_chain(self.data["shaped"], self.data["contributions"])
        return [*chain, (WEIGHED, self.replayed)] if self.data["weights"] else chain

    @property
    def stored(self) -> str:
        return format_signed_advantage(self.data["before"])

    @property
    def replayed(self) -> str:
        return format_signed_advantage(self.data["after"])

    @property
    def question(self) -> str:
        return escape_invisible_text(self.rollout.prompt.text)

    @property
    def pieces(self) -> list[Piece]:
        """The completion, until a script has put its tokens there."""
        return list(iterate_text_pieces(self.rollout.completion[:CUT_AT]))


def format_signed_advantage(value: float | None) -> str:
    """With its sign, which is what an advantage is about; a minus sign as wide as a plus."""
    return "n/a" if value is None else f"{value:+.3g}".replace("-", "\u2212") if value else "0"


def members_page(replay: Replay, listing: MemberListing) -> tuple[list[ReplayedMember], int, int]:
    """(members of the page, members of the list, pages)."""
    assert replay.result is not None
    rows = [member for member in replay.result["members"] if not listing.only_flipped or member["flipped"] or member["sign_flipped"]]
    if listing.order in ("stored", "replayed"):
        key = "before" if listing.order == "stored" else "after"
        rows.sort(key=lambda member: (-member[key], member["group"], member["sample"]))
    elif listing.order == "place":
        rows.sort(key=lambda member: (member["group"], member["sample"]))
    pages = max(1, -(-len(rows) // PAGE))
    page = min(listing.page, pages)
    page_rows = rows[(page - 1) * PAGE : page * PAGE]
    rollouts = Rollout.objects.of(replay.team).filter(run=replay.run).select_related("prompt").in_bulk([member["id"] for member in page_rows])
    return [ReplayedMember(rollouts[member["id"]], member) for member in page_rows if member["id"] in rollouts], len(rows), pages


def build_advantage_chain(shaped: Mapping[str, float], contributions: Mapping[str, float | None]) -> list[tuple[str, str]]:
    """Rewards after the methods that shape them, then advantages: the base's, and after each method."""
    names = sorted(contributions, key=lambda name: name != "base")
    return [(f"reward, {name}", format_signed_advantage(value)) for name, value in shaped.items()] + [
        (name, format_signed_advantage(contributions[name])) for name in names
    ]


@dataclass(frozen=True)
class GroupInputs:
    """Mean and standard deviation (n - 1) of the rewards of a group, as they were and as the recipe shapes them."""

    number: int
    count: int
    mean: float | None
    std: float | None
    shaped_mean: float | None
    shaped_std: float | None


def groups_of(replay: Replay, members: Sequence[ReplayedMember]) -> list[GroupInputs]:
    """The inputs of the groups on the page."""
    numbers = sorted({member.rollout.group for member in members})
    assert replay.result is not None
    answers = {answer["id"]: answer for answer in replay.result["members"]}
    rows = Rollout.objects.filter(run=replay.run, step=replay.step, group__in=numbers, pk__in=list(answers)).values_list("pk", "group", "reward")
    by_group: dict[int, list[tuple[float | None, float | None]]] = {number: [] for number in numbers}
    for key, number, reward in rows:
        shaped = list(answers[key]["shaped"].values())
        by_group[number].append((reward, shaped[-1] if shaped else reward))
    return [build_group_inputs(number, pairs) for number, pairs in by_group.items()]


def build_group_inputs(number: int, pairs: Sequence[tuple[float | None, float | None]]) -> GroupInputs:
    def facts(values: list[float]) -> tuple[float | None, float | None]:
        return (float(np.mean(values)) if values else None), (float(np.std(values, ddof=1)) if len(values) > 1 else None)

    before, after = ([pair[side] for pair in pairs if pair[side] is not None] for side in (0, 1))
    return GroupInputs(number, len(pairs), *facts(before), *facts(after))  # type: ignore[arg-type]


def recipe_chips(base: Any, methods: Any) -> list[MethodChip]:
    return build_method_chips(build_stack(base, methods, "grpo"))


def tokens_json(replay: Replay, ids: Sequence[int]) -> list[dict[str, Any]]:
    """The tokens of members of the answer: text units, effective advantages both ways, and which tokens change their sign."""
    assert replay.result is not None
    answers = {answer["id"]: answer for answer in replay.result["members"]}
    chosen = [key for key in ids if key in answers][:MOST_IDS]
    rows = RolloutTokens.objects.filter(rollout__in=chosen, rollout__run=replay.run).select_related("rollout")
    return [one_json(tokens, answers[tokens.rollout_id], replay.run.special_tokens) for tokens in rows]


def one_json(tokens: RolloutTokens, member: dict[str, Any], special: dict[str, str]) -> dict[str, Any]:
    rollout = tokens.rollout
    try:
        arrays = arrays_of(tokens)
        before, after, mask = load_effective_advantages(rollout, tokens, member)
    except PackError as error:
        return {"id": rollout.pk, "error": f"The tokens of this rollout cannot be read: {error}"}
    flips = find_sign_flips(before, after) & mask
    units = build_token_units(rollout.completion, arrays, special, rollout.turns)
    listed = Counter[str]()
    for text, first, count, flags in units:
        if not flags & 1 and flips[first : first + count].any():
            listed[text] += 1
    end = min(len(before), SHOWN_TOKENS)
    units = [unit for unit in units if unit[1] + unit[2] <= end]
    return {
        "id": rollout.pk,
        "total": len(before),
        "shown": end,
        "units": units,
        "mask": mask[:end].astype(int).tolist(),
        "before": round_for_json(before[:end]),
        "after": round_for_json(after[:end]),
        "flips": flips[:end].astype(int).tolist(),
        "flipped": listed.most_common(MOST_LISTED),
        "flipped_kinds": len(listed),
    }
