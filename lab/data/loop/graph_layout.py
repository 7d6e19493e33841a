"""A small layered layout: nodes of a graph in columns, from what was there first to what was made of it, edges as smooth paths between them.

After Sugiyama, Tagawa and Toda (1981): longest-path layers, a place in every layer that an edge passes, crossings reduced by barycentres, then
heights near those of the neighbours. Deterministic; a cycle is broken at the edge that closes it.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

Key = Hashable
Pair = tuple[Key, Key]

WIDTH, HEIGHT = 176, 62  # of a node, pixels
GAP_X, GAP_Y = 40, 18
MARGIN = 12
SWEEPS = 6


@dataclass(frozen=True)
class Layout:
    """``at``: left upper corner of each node; ``paths``: each edge as an SVG path."""

    at: Mapping[Key, tuple[float, float]]
    paths: Mapping[Pair, str]
    width: float
    height: float


@dataclass
class GraphLayers:
    """Layers of nodes and of the places that long edges pass, which stand as their (edge, layer)."""

    layers: list[list[Key]]
    before: dict[Key, list[Key]] = field(default_factory=lambda: defaultdict(list))
    after: dict[Key, list[Key]] = field(default_factory=lambda: defaultdict(list))
    chains: dict[Pair, list[Key]] = field(default_factory=dict)


def compute_graph_layout(nodes: Sequence[Key], edges: Iterable[Pair]) -> Layout:
    pairs = remove_cycles(nodes, edges)
    columns = build_columns(nodes, pairs, layer_of(nodes, pairs))
    reduce_crossings(columns)
    heights = compute_heights(columns)
    level = {key: number for number, layer in enumerate(columns.layers) for key in layer}
    at = {key: (MARGIN + level[key] * (WIDTH + GAP_X), heights[key]) for key in level}
    paths = {pair: draw_edge_path([at[key] for key in chain], set(nodes), chain) for pair, chain in columns.chains.items()}
    own = {key: at[key] for key in nodes}
    width = 2 * MARGIN + max((x for x, _ in own.values()), default=0.0) + WIDTH - MARGIN
    height = MARGIN + max((y for _, y in at.values()), default=0.0) + HEIGHT
    return Layout(own, paths, width, height)


def remove_cycles(nodes: Sequence[Key], edges: Iterable[Pair]) -> list[Pair]:
    """The edges between known nodes, each once, without those that close a cycle."""
    known, kept = set(nodes), list[Pair]()
    after: dict[Key, set[Key]] = defaultdict(set)
    for source, target in dict.fromkeys(edges):
        if source in known and target in known and source != target and not is_reachable(after, target, source):
            after[source].add(target)
            kept.append((source, target))
    return kept


def is_reachable(after: Mapping[Key, set[Key]], start: Key, goal: Key) -> bool:
    seen, waiting = {start}, [start]
    while waiting:
        key = waiting.pop()
        if key == goal:
            return True
        for other in after.get(key, ()):
            if other not in seen:
                seen.add(other)
                waiting.append(other)
    return False


def layer_of(nodes: Sequence[Key], pairs: Sequence[Pair]) -> dict[Key, int]:
    """Longest path from a source; a source itself stands right before the first thing made of it."""
    before, after = defaultdict[Key, list[Key]](list), defaultdict[Key, list[Key]](list)
    for source, target in pairs:
        before[target].append(source)
        after[source].append(target)
    levels: dict[Key, int] = {}
    waiting = {key: len(before[key]) for key in nodes}
    ready = [key for key in nodes if not waiting[key]]
    while ready:
        key = ready.pop(0)
        levels[key] = max((levels[other] + 1 for other in before[key]), default=0)
        for other in after[key]:
            waiting[other] -= 1
            if not waiting[other]:
                ready.append(other)
    return {key: min((levels[target] for target in after[key]), default=level + 1) - 1 if not before[key] else level for key, level in levels.items()}


def build_columns(nodes: Sequence[Key], pairs: Sequence[Pair], levels: Mapping[Key, int]) -> GraphLayers:
    columns = GraphLayers([[] for _ in range(max(levels.values(), default=-1) + 1)])
    for key in nodes:
        columns.layers[levels[key]].append(key)
    for source, target in pairs:
        chain: list[Key] = [source]
        for level in range(levels[source] + 1, levels[target]):
            bend = ((source, target), level)
            columns.layers[level].append(bend)
            chain.append(bend)
        chain.append(target)
        columns.chains[source, target] = chain
        for left, right in itertools.pairwise(chain):
            columns.after[left].append(right)
            columns.before[right].append(left)
    return columns


def reduce_crossings(columns: GraphLayers) -> None:
    """Sorts each layer by the mean place of its neighbours, forth and back."""
    for sweep in range(SWEEPS):
        forth = sweep % 2 == 0
        layers = columns.layers if forth else columns.layers[::-1]
        neighbours = columns.before if forth else columns.after
        for fixed, layer in itertools.pairwise(layers):
            positions = {key: number for number, key in enumerate(fixed)}
            own = {key: float(number) for number, key in enumerate(layer)}
            own |= {key: fmean(positions[neighbour] for neighbour in neighbours[key]) for key in layer if neighbours[key]}
            layer.sort(key=lambda key, own=own: own[key])  # type: ignore[misc]  # stable: equal ones stay as they were


def compute_heights(columns: GraphLayers) -> dict[Key, float]:
    """Upper edge of every place: near the mean of its neighbours, in order, never nearer than the gap."""
    y = {key: MARGIN + number * (HEIGHT + GAP_Y) for layer in columns.layers for number, key in enumerate(layer)}
    heights: dict[Key, float] = {key: float(value) for key, value in y.items()}
    for sweep in range(SWEEPS):
        layers = columns.layers if sweep % 2 == 0 else columns.layers[::-1]
        for layer in layers:
            near = {key: [heights[neighbour] for neighbour in (*columns.before[key], *columns.after[key])] for key in layer}
            resolve_overlaps(layer, {key: fmean(values) if values else heights[key] for key, values in near.items()}, heights)
    top = min(heights.values(), default=0.0)
    return {key: value - top + MARGIN for key, value in heights.items()}


def resolve_overlaps(layer: Sequence[Key], targets: Mapping[Key, float], heights: dict[Key, float]) -> None:
    """Places as near to where they want to be as their order and the gap allow: blocks that collide stand around their mean."""
    step = HEIGHT + GAP_Y
    blocks: list[tuple[float, list[Key]]] = []  # (upper edge, keys)
    for key in layer:
        top, keys = targets[key], [key]
        while blocks and blocks[-1][0] + len(blocks[-1][1]) * step > top:
            above, others = blocks.pop()
            weight = len(others) + len(keys)
            top = (above * len(others) + (top - len(others) * step) * len(keys)) / weight
            keys = [*others, *keys]
        blocks.append((top, keys))
    for top, keys in blocks:
        for number, key in enumerate(keys):
            heights[key] = top + number * step


def draw_edge_path(points: Sequence[tuple[float, float]], nodes: set[Key], chain: Sequence[Key]) -> str:
    """From the right edge of the first node to the left edge of the last, level through the places in between."""
    middle = HEIGHT / 2
    x, y = points[0][0] + WIDTH, points[0][1] + middle
    drawn = f"M{x:.0f} {y:.1f}"
    for (left, top), key in zip(points[1:], chain[1:], strict=True):
        bend, level = GAP_X / 2, top + middle
        drawn += f"C{x + bend:.0f} {y:.1f} {left - bend:.0f} {level:.1f} {left:.0f} {level:.1f}"
        x, y = left, level
        if key not in nodes:
            x = left + WIDTH
            drawn += f"H{x:.0f}"
    return drawn
