"""A chart of lines as SVG, for a file that has no scripts: axes with round numbers, a line a run with its number at its end."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from html import escape

from django.utils.safestring import SafeString

from lab.lib.numbers import format_number

WIDTH, HEIGHT = 760, 280
LEFT, RIGHT, TOP, BOTTOM = 58, 44, 10, 40
LABEL = 12  # pixels of a label at the end of a line
TICKS = 5
ROOM = 0.06  # of the height, above and below the lines
COLUMNS = WIDTH - LEFT - RIGHT  # a line keeps the first, lowest, highest and last point of each pixel

Stretch = list[tuple[float, float]]


@dataclass(frozen=True)
class DrawnLine:
    """``color`` 1 to 8 and ``dash`` are classes of the style sheet; ``raw``: what lies faint behind a smoothed line."""

    label: str
    color: int
    dash: str
    stretches: list[Stretch]
    raw: list[Stretch] = field(default_factory=list)


@dataclass(frozen=True)
class Scale:
    """From values to pixels; ``log``: by their logarithm to base 10."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def place(self, value: float) -> float:
        at = math.log10(value) if self.log else value
        return self.start + (at - self.low) / (self.high - self.low) * (self.end - self.start)

    def list_ticks(self) -> list[float]:
        if not self.log:
            return list_round_numbers(self.low, self.high)
        powers = [10.0**power for power in range(math.ceil(self.low), math.floor(self.high) + 1)]
        return powers[:: math.ceil(len(powers) / 8)] if len(powers) > 1 else [10**at for at in list_round_numbers(self.low, self.high)]


def write_tick(value: float) -> str:
    """A round number without zeros at its end; long ones shortened as everywhere."""
    return escape(format_number(value) if abs(value) >= 10_000 else f"{value:.6g}".replace("-", "−"))


def list_round_numbers(low: float, high: float) -> list[float]:
    """About TICKS numbers of 1, 2 or 5 times a power of ten apart, from low to high."""
    rough = (high - low) / TICKS
    size = 10.0 ** math.floor(math.log10(rough))
    step = next((size * factor for factor in (1, 2, 5) if size * factor >= rough), size * 10)
    return [round(number * step, 12) for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def draw_line_chart(lines: Sequence[DrawnLine], title: str, x_words: str, log: bool = False) -> SafeString:
    """The SVG element; one that says so where there is no point to draw."""
    points = [point for line in lines for stretch in (*line.stretches, *line.raw) for point in stretch if not log or point[1] > 0]
    head = f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title)}">'
    if not points:
        return SafeString(f'{head}<text class="words" x="{WIDTH / 2}" y="{HEIGHT / 2}" text-anchor="middle">no points yet</text></svg>')
    x = Scale(*find_ends((at for at, _ in points), 0.0), LEFT, WIDTH - RIGHT)
    y = Scale(*find_ends((math.log10(value) if log else value for _, value in points), ROOM), HEIGHT - BOTTOM, TOP, log)
    parts = [head, *draw_axes(x, y, x_words)]
    for line in lines:
        style = f"series-{line.color}"
        parts += [f'<polyline class="raw {style}" points="{write_points(stretch, x, y)}"/>' for stretch in line.raw]
    for line in lines:
        for stretch in line.stretches:
            if len(stretch) == 1:
                at = write_points(stretch, x, y).split(",")
                if len(at) == 2:
                    parts.append(f'<circle class="series-{line.color}" cx="{at[0]}" cy="{at[1]}" r="2.5"/>')
            else:
                parts.append(f'<polyline class="series-{line.color} {escape(line.dash)}" points="{write_points(stretch, x, y)}"/>')
    parts += draw_end_labels(lines, x, y)
    return SafeString("".join([*parts, "</svg>"]))


def find_ends(values: Iterable[float], room: float) -> tuple[float, float]:
    """Lowest and highest with room around them, apart from each other."""
    low, high = math.inf, -math.inf
    for value in values:
        low, high = min(low, value), max(high, value)
    margin = (high - low) * room if high > low else abs(high) * 0.1 or 1.0
    return low - margin, high + margin


def draw_axes(x: Scale, y: Scale, x_words: str) -> list[str]:
    parts = []
    for tick in y.list_ticks():
        at = f"{y.place(tick):.1f}"
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at}" y2="{at}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 6}" y="{at}" dy="4" text-anchor="end">{write_tick(tick)}</text>')
    for tick in x.list_ticks():
        at = f"{x.place(tick):.1f}"
        parts.append(f'<text class="tick" x="{at}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{write_tick(tick)}</text>')
    bottom = HEIGHT - BOTTOM
    parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    parts.append(f'<text class="tick" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_words)}</text>')
    return parts


def write_points(stretch: Stretch, x: Scale, y: Scale) -> str:
    """At most four points a pixel, so that the file stays small and no spike is lost; what a logarithmic axis cannot show is left out."""
    placed = [(x.place(at), y.place(value)) for at, value in stretch if not y.log or value > 0]
    kept: list[tuple[float, float]] = []
    column: Stretch = []

    def close_column() -> None:
        if len(column) > 4:
            middle = sorted({column.index(min(column, key=lambda one: one[1])), column.index(max(column, key=lambda one: one[1]))})
            kept.extend(dict.fromkeys([column[0], *(column[index] for index in middle), column[-1]]))
        else:
            kept.extend(column)
        column.clear()

    for point in placed:
        if column and int(point[0]) != int(column[0][0]):
            close_column()
        column.append(point)
    close_column()
    return " ".join(f"{at:.1f},{value:.1f}" for at, value in kept)


def draw_end_labels(lines: Sequence[DrawnLine], x: Scale, y: Scale) -> list[str]:
    """The label of each line at its end, moved apart where they would cover each other."""
    ends = []
    for line in lines:
        last = next((point for stretch in reversed(line.stretches) for point in reversed(stretch) if not y.log or point[1] > 0), None)
        if last:
            ends.append((y.place(last[1]), x.place(last[0]), line))
    ends.sort(key=lambda end: end[0])
    apart = min(LABEL, (HEIGHT - TOP - BOTTOM) / max(1, len(ends)))
    places: list[float] = []
    for wants, _, _ in ends:
        places.append(max(wants, places[-1] + apart if places else -math.inf))
    ceiling = float(HEIGHT - BOTTOM)
    for index in range(len(places) - 1, -1, -1):
        places[index] = min(places[index], ceiling)
        ceiling = places[index] - apart
    return [
        f'<text class="end series-{line.color}" x="{at + 5:.1f}" y="{place:.1f}" dy="4">{escape(line.label)}</text>'
        for (_, at, line), place in zip(ends, places, strict=True)
    ]
