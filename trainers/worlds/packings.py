"""Buffers that live for a time and take rows of a memory: which rows are free, and where all can be put."""

import random

Buffer = tuple[int, int, int]  # first and last time, rows
TRIES = 100


def draw_packing(rng: random.Random, rows: int, count: int, times: int) -> tuple[Buffer, ...]:
    """Buffers that were drawn with a place for each, in the order they come; the places are forgotten."""
    while True:
        packed = list[tuple[Buffer, int]]()
        for _ in range(TRIES):
            first, size = rng.randint(1, times), rng.randint(1, rows - 1)
            one, row = (first, min(times, first + rng.randint(0, 2)), size), rng.randint(0, rows - size)
            if not any(do_overlap(one, row, *other) for other in packed):
                packed.append((one, row))
            if len(packed) == count:
                return tuple(sorted(one for one, _ in packed))


def do_overlap(one: Buffer, row: int, other: Buffer, other_row: int) -> bool:
    return one[0] <= other[1] and other[0] <= one[1] and row < other_row + other[2] and other_row < row + one[2]


def list_free_rows(rows: int, buffers: tuple[Buffer, ...], placed: tuple[int, ...]) -> list[int]:
    """Rows from which on the next buffer fits beside those that live at the same time."""
    if len(placed) >= len(buffers):
        return []
    one, before = buffers[len(placed)], list(zip(buffers, placed, strict=False))
    return [row for row in range(rows - one[2] + 1) if not any(do_overlap(one, row, *other) for other in before)]


def place_lowest(rows: int, buffers: tuple[Buffer, ...]) -> tuple[int, ...]:
    """The lowest free row for each buffer, as far as that goes."""
    placed: tuple[int, ...] = ()
    while free := list_free_rows(rows, buffers, placed):
        placed = (*placed, free[0])
    return placed


def find_way(rows: int, buffers: tuple[Buffer, ...], placed: tuple[int, ...]) -> tuple[int, ...] | None:
    """The rows of all buffers, each as low as can be, beginning with those placed; None where there are none."""
    if len(placed) == len(buffers):
        return placed
    ways = (find_way(rows, buffers, (*placed, row)) for row in list_free_rows(rows, buffers, placed))
    return next((way for way in ways if way is not None), None)
