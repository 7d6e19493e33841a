"""How well a small graph of causes explains linear relations between variables, and how far it is from having no cycle."""

import itertools
import math
from collections.abc import Iterable
from functools import lru_cache

Arrow = tuple[int, int]  # from, to
Weights = tuple[tuple[int, int, float], ...]  # arrows with their weights, in the order of the variables that they lead to
Matrix = tuple[tuple[float, ...], ...]
SAMPLES = 100  # as if correlations came from so many
PENALTY = math.log(SAMPLES) / SAMPLES  # of an arrow


def compute_correlations(count: int, weights: Weights) -> dict[Arrow, float]:
    """Of each two variables that are weighted sums of their parents and of noise of variance 1."""
    rows = [[float(i == j) for j in range(count)] for i in range(count)]  # what of each noise is in each variable
    for i, j, weight in weights:  # a variable is complete before it is a parent
        rows[j] = [own + weight * other for own, other in zip(rows[j], rows[i], strict=True)]
    cov = [[sum(a * b for a, b in zip(one, other, strict=True)) for other in rows] for one in rows]
    return {(i, j): cov[i][j] / math.sqrt(cov[i][i] * cov[j][j]) for i, j in itertools.combinations(range(count), 2)}


def score_graph(matrix: Matrix, arrows: Iterable[Arrow]) -> float:
    """The Bayesian information criterion for a sample, up to a constant, of linear relations with the correlations of ``matrix``: less is better.

    A graph with cycles is scored variable by variable.
    """
    found = list(arrows)
    return sum(score_variable(matrix, node, frozenset(i for i, j in found if j == node)) for node in range(len(matrix)))


@lru_cache(maxsize=8192)
def score_variable(matrix: Matrix, node: int, parents: frozenset[int]) -> float:
    """Log of the variance that its parents leave, and the penalty of their arrows."""
    left = [list(row) for row in matrix]
    for i in sorted(parents):  # what a parent explains is taken out of all variables
        pivot = list(left[i])
        left = [
            [own - row[i] / pivot[i] * other for own, other in zip(row, pivot, strict=True)] if row[i] and j != i else row
            for j, row in enumerate(left)
        ]
    return math.log(max(1e-9, left[node][node])) + PENALTY * len(parents)


def measure_cycles(arrows: Iterable[Arrow], count: int) -> float:
    """h = tr(exp(A)) - d of the graph's matrix A: 0 exactly where there is no cycle (NOTEARS, arXiv 1803.01422)."""
    found, power, total = list(arrows), [[float(i == j) for j in range(count)] for i in range(count)], 0.0
    for length in range(1, 20):
        power = [[sum(row[k] for k, other in found if other == j) / length for j in range(count)] for row in power]
        total += sum(power[i][i] for i in range(count))
    return total


@lru_cache(maxsize=8)
def list_acyclic_graphs(count: int) -> tuple[tuple[Arrow, ...], ...]:
    """All of them: 25 of 3 variables, 543 of 4."""
    choices = itertools.product(*([(), ((i, j),), ((j, i),)] for i, j in itertools.combinations(range(count), 2)))
    graphs = (tuple(sorted(itertools.chain(*chosen))) for chosen in choices)
    return tuple(sorted(graph for graph in graphs if not measure_cycles(graph, count)))


@lru_cache(maxsize=1024)
def find_best_graph(matrix: Matrix) -> tuple[Arrow, ...]:
    """Of all graphs without a cycle that of the best score, of equals the first in their order."""
    return min(list_acyclic_graphs(len(matrix)), key=lambda graph: round(score_graph(matrix, graph), 9))
