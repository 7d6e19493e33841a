"""Reading the stored arrays of many rollouts into flat columns, and averaging them over a grid."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from lab.rollouts.atlas.atlas_query import TokenQuantity
from lab.rollouts.atlas.kinds import Ints, kinds_of, zones_of
from lab.rollouts.atlas.sample import RolloutSample
from lab.rollouts.trajectories.models import RolloutTokens
from trainers.contract.arrays import PackError, unpack_array

CHUNK = 500  # rollouts read at once
ROWS = 48  # position bins

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SampleTokens:
    """The policy's tokens that were measured, of all rollouts of a sample one after the other, all (T,). ``positions`` count every token
    of the completion from 0; ``kinds`` and ``zones`` are empty unless asked for. ``rollouts`` is how many had the array.
    """

    values: Floats
    positions: Ints
    columns: Ints
    ids: Ints
    kinds: npt.NDArray[np.int8]
    zones: npt.NDArray[np.int8]
    rollouts: int


def read_sample_tokens(sample: RolloutSample, quantity: TokenQuantity, special: dict[str, str], with_kinds: bool = False) -> SampleTokens:
    """Damaged arrays, and rollouts without the quantity, are left out."""
    column_of = dict(zip(sample.ids.tolist(), sample.columns.tolist(), strict=True))
    parts = [part for chunk in split_id_chunks(sample.ids) for part in read_chunk(chunk, column_of, quantity, special, with_kinds)]
    values, positions, columns, ids, kinds, zones = (
        np.concatenate([part[index] for part in parts]) if parts else np.empty(0, dtype=kind)
        for index, kind in enumerate((np.float64, np.int64, np.int64, np.int64, np.int8, np.int8))
    )
    return SampleTokens(values, positions, columns, ids, kinds, zones, int(np.count_nonzero(np.diff(ids)) + 1) if len(ids) else 0)


def split_id_chunks(ids: Ints) -> Iterator[list[int]]:
    for start in range(0, len(ids), CHUNK):
        yield ids[start : start + CHUNK].tolist()


def read_chunk(ids: list[int], column_of: dict[int, int], quantity: TokenQuantity, special: dict[str, str], with_kinds: bool) -> Iterator[list[Any]]:
    """One list of columns for the measured tokens of these rollouts; nothing when there are none."""
    names = ["rollout_id", quantity.array, "mask", *(("lengths", "ids", "rollout__completion") if with_kinds else ())]
    of_specials = np.array([int(name) for name in special], dtype=np.int64)
    read_rows: list[tuple[int, Floats, npt.NDArray[np.bool_]]] = []
    texts, lengths, specials = [], [], []
    for pk, packed, mask, *text in RolloutTokens.across_teams.filter(pk__in=ids).order_by("pk").values_list(*names):
        try:
            values = unpack_array(bytes(packed)).astype(np.float64) * quantity.sign
            inside = unpack_array(bytes(mask)) > 0 if mask else np.ones(len(values), dtype=bool)
            parts = [unpack_array(bytes(packed)).astype(np.int64) for packed in text[:2]]
        except PackError:
            continue
        if not len(values) or any(len(part) != len(values) for part in (inside, *parts)):
            continue
        read_rows.append((pk, values, inside))
        if with_kinds:
            lengths.append(parts[0])
            specials.append(np.isin(parts[1], of_specials))
            texts.append(text[2])
    if not read_rows:
        return
    counts = [len(values) for _, values, _ in read_rows]
    values = np.concatenate([values for _, values, _ in read_rows])
    kept = np.concatenate([inside for _, _, inside in read_rows]) & np.isfinite(values)
    pks = np.repeat([pk for pk, _, _ in read_rows], counts)
    positions = np.concatenate([np.arange(count) for count in counts])
    columns = np.repeat([column_of[pk] for pk, _, _ in read_rows], counts)
    kinds, zones = (kinds_of(texts, lengths, specials), zones_of(texts, lengths)) if with_kinds else (np.zeros(len(values), np.int8),) * 2
    yield [array[kept] for array in (values, positions, columns, pks, kinds, zones)]


@dataclass(frozen=True)
class TokenGrid:
    """``mean`` (R, C), NaN in empty cells, and how many tokens it is over, ``count`` (R, C)."""

    mean: Floats
    count: Ints


def average_grid_cells(rows: Ints, columns: Ints, values: Floats, shape: tuple[int, int]) -> TokenGrid:
    """The mean of ``values`` (T,) in each cell; ``rows`` and ``columns`` (T,) say where each belongs."""
    flat = rows * shape[1] + columns
    size = shape[0] * shape[1]
    count = np.bincount(flat, minlength=size)
    total = np.bincount(flat, weights=values, minlength=size)
    with np.errstate(invalid="ignore"):
        mean = np.where(count > 0, total / count, np.nan)
    return TokenGrid(mean.reshape(shape), count.reshape(shape))


def position_edges(longest: int, scale: str) -> Ints:
    """Edges (R + 1,) of position bins that cover 0 … ``longest`` - 1: of equal width, or growing with the position."""
    if scale == "log":
        return np.unique(np.geomspace(1, longest + 1, ROWS + 1).round().astype(np.int64) - 1)
    return np.unique(np.linspace(0, longest, min(ROWS, longest) + 1).round().astype(np.int64))
