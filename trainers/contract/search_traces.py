"""Linearised search traces: a search with dead ends and ways back, written as one sequence of steps.

The solution of a problem is a path of moves from its start. A dead end leaves that path after j moves, goes on for a move or more from which the goal
is out of reach, and is followed by "back to step j". How many dead ends a trace has is what is varied in arXiv 2505.24273; ASTRO (arXiv 2507.00417)
linearises a search tree in the same way.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

Contents = Literal["right", "wrong", "shuffled"]
TRIES = 30  # ways astray drawn for each dead end that is wanted
WHOLE = 1_000  # moves: to where no move is left

Step = TypeVar("Step")


@dataclass(frozen=True)
class Move:
    """``text``: how a trace writes it. ``state``: where it leads; hashable."""

    text: str
    state: Any


@dataclass(frozen=True)
class Back:
    """Back to where ``step`` moves were made, and the state there."""

    step: int
    state: Any


@dataclass(frozen=True)
class Trace:
    """``answer``: the moves that the trace ends with, which its answer says."""

    visits: list[Move | Back]
    answer: list[Move]

    @property
    def backs(self) -> int:
        return sum(isinstance(visit, Back) for visit in self.visits)


class SearchProblem(Protocol):
    """A problem with a limited number of moves."""

    @property
    def start(self) -> Any: ...

    def list_moves(self, state: Any) -> list[Move]:
        """Empty where no move is left."""

    def is_goal(self, state: Any) -> bool: ...

    def can_reach_goal(self, state: Any) -> bool:
        """Whether the goal can be reached from there, or is reached."""


class NoTraceError(Exception):
    """A problem without such a trace. The message says why: a clause that goes into a table of counts."""


def linearise_paths(paths: Sequence[Sequence[Step]]) -> list[Step | int]:
    """Paths of steps from one root -> steps in the order they are visited; a number j: back to where j steps were taken.

    A path that begins with all of the one before it goes on without going back.
    """
    made, before = list[Step | int](), list[Step]()
    for path in paths:
        common = next((place for place, (one, other) in enumerate(zip(before, path, strict=False)) if one != other), min(len(before), len(path)))
        made += [common] if common < len(before) else []
        made += path[common:]
        before = list(path)
    return made


def draw_trace(problem: SearchProblem, dead_ends: int, contents: Contents, longest: int, rng: random.Random) -> Trace:
    """A trace with exactly so many dead ends of 1 to ``longest`` wrong moves each. Raises NoTraceError.

    ``contents``: ``wrong`` ends in one more dead end in place of the solution, and answers with it; ``shuffled`` has all that is said in the trace in
    a random order, and the right answer.
    """
    solution = draw_solution(problem, rng)
    ends = draw_dead_ends(problem, solution, dead_ends, longest, rng)
    last = solution if contents != "wrong" else draw_wrong_end(problem, solution, ends, rng)
    visits = add_states(problem, linearise_paths([*ends, last]))
    if contents == "shuffled":
        rng.shuffle(visits)
    return Trace(visits, last)


def draw_solution(problem: SearchProblem, rng: random.Random) -> list[Move]:
    state, path = problem.start, list[Move]()
    while not problem.is_goal(state):
        hopeful = [move for move in problem.list_moves(state) if problem.can_reach_goal(move.state)]
        if not hopeful:
            raise NoTraceError("problems without a solution")
        path.append(rng.choice(hopeful))
        state = path[-1].state
    return path


def draw_dead_ends(problem: SearchProblem, solution: Sequence[Move], count: int, longest: int, rng: random.Random) -> list[list[Move]]:
    """Paths from the start that leave the solution, in an order in which a depth-first search could come upon them.

    None begins with another one, so that a trace goes back after each of them. Raises NoTraceError where chance finds fewer than ``count``.
    """
    found = list[tuple[int, list[Move]]]()
    for _ in range(TRIES * count):
        if len(found) == count:
            break
        leaves_at = rng.randrange(len(solution)) if solution else 0
        path = go_astray(problem, solution, leaves_at, longest, rng)
        if path and not any(are_nested_paths(path, other) for _, other in found):
            found.append((leaves_at, path))
    if len(found) < count:
        raise NoTraceError("problems with too few dead ends")
    texts = list(dict.fromkeys(move.text for _, path in found for move in path))
    rng.shuffle(texts)
    rank = {text: place for place, text in enumerate(texts)}  # those that begin alike stand together
    return [path for _, path in sorted(found, key=lambda one: (one[0], [rank[move.text] for move in one[1]]))]


def draw_wrong_end(problem: SearchProblem, solution: Sequence[Move], others: Sequence[Sequence[Move]], rng: random.Random) -> list[Move]:
    """A dead end that goes on until no move is left, to be visited after ``others``."""
    for _ in range(TRIES):
        path = go_astray(problem, solution, rng.randrange(len(solution)) if solution else 0, WHOLE, rng)
        if path and not any(are_nested_paths(path, other) for other in others):
            return path
    raise NoTraceError("problems with too few dead ends")


def go_astray(problem: SearchProblem, solution: Sequence[Move], leaves_at: int, longest: int, rng: random.Random) -> list[Move]:
    """The first ``leaves_at`` moves of the solution and up to ``longest`` after which the goal is out of reach; empty where there is no such move."""
    path = list(solution[:leaves_at])
    state = path[-1].state if path else problem.start
    rejected = [move for move in problem.list_moves(state) if not problem.can_reach_goal(move.state)]
    if not rejected:
        return []
    path.append(rng.choice(rejected))
    for _ in range(rng.randint(1, longest) - 1 if longest < WHOLE else WHOLE):
        moves = problem.list_moves(path[-1].state)
        if not moves:
            break
        path.append(rng.choice(moves))
    return path


def are_nested_paths(path: Sequence[Move], other: Sequence[Move]) -> bool:
    """Whether one of them begins with the other."""
    length = min(len(path), len(other))
    return list(path[:length]) == list(other[:length])


def add_states(problem: SearchProblem, steps: Sequence[Move | int]) -> list[Move | Back]:
    """Steps as ``linearise_paths`` made them, each way back with the state that it leads to."""
    visits, states = list[Move | Back](), [problem.start]
    for step in steps:
        if isinstance(step, int):
            states = states[: step + 1]
            visits.append(Back(step, states[-1]))
        else:
            states.append(step.state)
            visits.append(step)
    return visits
