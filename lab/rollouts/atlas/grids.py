"""The map of a run's tokens as data for a page: means over steps and positions, or over steps and kinds of token."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from lab.rollouts.atlas.atlas_query import QUANTITIES, AtlasQuery
from lab.rollouts.atlas.columns import Ranges, build_step_columns
from lab.rollouts.atlas.kinds import KINDS, ZONES, Ints
from lab.rollouts.atlas.sample import draw_rollout_sample
from lab.rollouts.atlas.tokens import Floats, SampleTokens, TokenGrid, average_grid_cells, position_edges, read_sample_tokens
from lab.training.runs.models import Run


def build_token_grid(run: Run, query: AtlasQuery) -> dict[str, Any]:
    """``columns`` [first step, last step], ``rows`` [label, first, last] (a kind of token has no first and last), ``values`` and ``counts``
    row by row with null in empty cells, ``used`` of ``total`` rollouts. Without rollouts or without the quantity ``columns`` is empty.
    """
    quantity = QUANTITIES[query.of]
    words = {"label": quantity.label, "unit": quantity.unit, "help": quantity.help, "by": query.by}
    ranges = build_step_columns(run, query.phase)
    if not ranges:
        return {**words, "columns": [], "rows": [], "values": [], "counts": [], "used": 0, "total": 0, "tokens": 0, "exact": True}
    sample = draw_rollout_sample(run, query.phase, ranges)
    tokens = read_sample_tokens(sample, quantity, run.special_tokens, with_kinds=query.by == "class")
    known = {"used": tokens.rollouts, "total": sample.total, "exact": sample.exact, "tokens": len(tokens.values)}
    if not len(tokens.values):
        return {**words, **known, "columns": [], "rows": [], "values": [], "counts": []}
    rows, cells = by_kind(tokens, ranges) if query.by == "class" else by_position(tokens, ranges, query.scale)
    return {**words, **known, "columns": ranges, "rows": rows, "values": round_grid_values(cells.mean), "counts": cells.count.tolist()}


Rows = list[tuple[str, int | None, int | None]]


def by_position(tokens: SampleTokens, ranges: Ranges, scale: str) -> tuple[Rows, TokenGrid]:
    longest = int(tokens.positions.max()) + 1
    edges = position_edges(longest, scale)
    row_of_token = np.repeat(np.arange(len(edges) - 1), np.diff(edges))[tokens.positions]
    rows: Rows = [(format_position_range(low, high - 1), low, high - 1) for low, high in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)]
    return rows, average_grid_cells(row_of_token, tokens.columns, tokens.values, (len(rows), len(ranges)))


def by_kind(tokens: SampleTokens, ranges: Ranges) -> tuple[Rows, TokenGrid]:
    """Kinds that occur, then thinking and answer where completions think: every token counts once above, and once below."""
    width = len(ranges)
    kinds = average_grid_cells(tokens.kinds.astype(np.int64), tokens.columns, tokens.values, (len(KINDS), width))
    inside = tokens.zones > 0
    zones = average_grid_cells(tokens.zones[inside].astype(np.int64) - 1, tokens.columns[inside], tokens.values[inside], (len(ZONES), width))
    mean: Floats = np.concatenate([kinds.mean, zones.mean])
    count: Ints = np.concatenate([kinds.count, zones.count])
    filled = [row for row in range(len(mean)) if count[row].any()]
    names = (*KINDS, *ZONES)
    return [(names[row], None, None) for row in filled], TokenGrid(mean[filled], count[filled])


def format_position_range(low: int, high: int) -> str:
    return str(low) if low == high else f"{low}–{high}"


def round_grid_values(values: Floats) -> list[list[float | None]]:
    return [[round(value, 5) if math.isfinite(value) else None for value in row] for row in values.tolist()]
