"""The tokens behind a cell of the map, in context: those with the highest value first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from lab.rollouts.atlas.atlas_query import QUANTITIES, AtlasQuery
from lab.rollouts.atlas.kinds import KINDS, ZONES
from lab.rollouts.atlas.sample import draw_rollout_sample
from lab.rollouts.atlas.tokens import SampleTokens, read_sample_tokens
from lab.rollouts.trajectories.models import Rollout, RolloutTokens
from lab.rollouts.trajectories.text_pieces import Piece, iterate_text_pieces
from lab.training.runs.models import Run
from trainers.contract.arrays import unpack_array

MOST = 60  # places listed
LOOKED_AT = 240  # tokens these are found among: the same text of several rollouts is listed once
READ = 800  # rollouts that are looked at
AROUND = 48  # code points of text on either side
GLYPHS = str.maketrans({"\n": "↵", "\t": "→", " ": "␣", "\r": "␍"})


@dataclass(frozen=True)
class ExtremeToken:
    """One token with the text around it."""

    rollout: Rollout
    position: int
    value: float
    before: list[Piece]
    token: list[Piece]
    after: list[Piece]
    alike: int = 0  # further tokens with the same text around them and about the same value

    @property
    def key(self) -> tuple[object, ...]:
        return (round(self.value, 3), *("".join(piece.text for piece in pieces) for pieces in (self.before, self.token, self.after)))


@dataclass(frozen=True)
class ExtremeTokens:
    """``matching`` tokens of ``used`` rollouts, out of ``total`` rollouts of these steps; ``mean`` over them, None without any."""

    tokens: list[ExtremeToken]
    matching: int
    mean: float | None
    used: int
    total: int


def find_extreme_tokens(run: Run, query: AtlasQuery) -> ExtremeTokens:
    """The tokens of ``asked.steps`` that lie at ``asked.positions`` and are of ``asked.kind``."""
    assert query.steps is not None
    sample = draw_rollout_sample(run, query.phase, [query.steps], READ)
    tokens = read_sample_tokens(sample, QUANTITIES[query.of], run.special_tokens, with_kinds=bool(query.kind))
    inside = np.flatnonzero(mask_cell_tokens(tokens, query))
    values = tokens.values[inside]
    # Ties in the order of the run, so that the list is the same every time.
    best = inside[np.lexsort((tokens.positions[inside], tokens.ids[inside], -values))][:LOOKED_AT]
    places = [(int(tokens.ids[at]), int(tokens.positions[at]), float(tokens.values[at])) for at in best]
    mean = float(values.mean()) if len(values) else None
    return ExtremeTokens(merge_identical_tokens(in_context(run, places))[:MOST], len(inside), mean, tokens.rollouts, sample.total)


def merge_identical_tokens(extremes: list[ExtremeToken]) -> list[ExtremeToken]:
    """Each text once, with how many more there were."""
    counts = Counter(extreme.key for extreme in extremes)
    first = {extreme.key: extreme for extreme in reversed(extremes)}
    return [replace(extreme, alike=counts[extreme.key] - 1) for extreme in extremes if first[extreme.key] is extreme]


def mask_cell_tokens(tokens: SampleTokens, query: AtlasQuery) -> np.typing.NDArray[np.bool_]:
    """Which of the tokens (T,) belong to the cell."""
    kept = np.ones(len(tokens.values), dtype=bool)
    if query.positions is not None:
        kept &= (tokens.positions >= query.positions[0]) & (tokens.positions <= query.positions[1])
    if query.kind in ZONES:
        kept &= tokens.zones == ZONES.index(query.kind) + 1
    elif query.kind:
        kept &= tokens.kinds == (KINDS.index(query.kind) if query.kind in KINDS else -1)
    return kept


def in_context(run: Run, places: list[tuple[int, int, float]]) -> list[ExtremeToken]:
    """The text around tokens given as (rollout, position, value), in the same order."""
    packed = (
        RolloutTokens.objects.filter(rollout__run=run)
        .select_related("rollout")
        .only("ids", "lengths", "rollout")
        .in_bulk({pk for pk, _, _ in places})
    )
    extremes = []
    for pk, position, value in places:
        rollout, ids = packed[pk].rollout, unpack_array(bytes(packed[pk].ids))
        ends = np.cumsum(unpack_array(bytes(packed[pk].lengths)).astype(np.int64))
        end = int(ends[position])
        start = int(ends[position - 1]) if position else 0
        text = rollout.completion[start:end] if end > start else run.special_tokens.get(str(int(ids[position])), "…")
        before, after = rollout.completion[max(0, start - AROUND) : start], rollout.completion[end : end + AROUND]
        extremes.append(ExtremeToken(rollout, position, value, split_visible_pieces(before), split_visible_pieces(text), split_visible_pieces(after)))
    return extremes


def split_visible_pieces(text: str) -> list[Piece]:
    """On one line: white space as glyphs, invisible characters by name."""
    return [Piece(piece.kind, piece.text.translate(GLYPHS) if piece.kind == "plain" else piece.text) for piece in iterate_text_pieces(text)]
