"""Answers to Countdown puzzles as search traces with a chosen number of dead ends.

After "How Much Backtracking is Enough?" (arXiv 2505.24273): supervised training on traces with exactly b ways back, then reinforcement, for several b
and for right and for wrong traces. The traces come from a solver, so that nothing but b and the contents differs between two sets.
"""

from __future__ import annotations

import random

from trainers.contract.dataset_tools.answers import remove_columns
from trainers.contract.dataset_tools.base import DatasetTool, MadeRow, Row, RowDropped, RowForm, ToolCard
from trainers.contract.dataset_tools.countdown_puzzles import CountdownPuzzle, read_puzzle, write_expression
from trainers.contract.dataset_tools.questions import find_user_question
from trainers.contract.dataset_tools.steps import END_THINK, THINK
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.search_traces import Back, Contents, Move, NoTraceError, Trace, draw_trace

NO_PUZZLE = "prompts without a Countdown puzzle of two to four numbers"
MOST_DEAD_ENDS = 20


class Config(Strict):
    dead_ends: int = param(1, "Wrong branches of each trace, each followed by a way back.", title="Dead ends", ge=0, le=MOST_DEAD_ENDS)
    contents: Contents = param(
        "right",
        "right: the trace ends in a solution. wrong: it ends in one more dead end, whose expression is the answer. shuffled: what a right trace says "
        "is in a random order before the right answer.",
    )
    longest: int = param(3, "A dead end has 1 to this many wrong steps, as far as there are numbers left.", title="Longest dead end", ge=1, le=3)
    per_prompt: int = param(1, "Different traces of each puzzle; some may have fewer.", title="Traces per prompt", ge=1, le=16)


class SearchTraces(DatasetTool):
    card = ToolCard(
        name="how-much-backtrack",
        title="Search traces with dead ends",
        summary="Answers Countdown puzzles with search traces: a chosen number of dead ends, each with a way back, before the solution. Train SFT on "
        "them, then GRPO, once for each number.",
        arxiv="2505.24273",
        system="backtrack-controlled SFT then RL",
        departures=(
            "Two numbers that are left are combined at a time, without fractions or negative results; the authors keep one running result.",
            "A dead end leaves the solution at a step from which the target is out of reach, and may be shorter than the solution.",
            "Puzzles of more than four numbers are dropped, and those with too few dead ends; the authors keep the latter without any.",
            "Wrong traces end in a dead end, and shuffled ones have their steps in a random order; the authors' are sampled from a model.",
        ),
    )
    suffix = "search traces"
    forms = {"prompt": "completion", "completion": "completion"}
    Config = Config

    def make_rows(self, row: Row, form: RowForm, rng: random.Random) -> list[MadeRow]:
        puzzle = read_puzzle(find_user_question(row.get("prompt"))[1])
        if puzzle is None:
            raise RowDropped(NO_PUZZLE)
        found = dict[str, str]()  # completion → what it is
        for _ in range(2 * self.config.per_prompt):
            try:
                trace = draw_trace(puzzle, self.config.dead_ends, self.config.contents, self.config.longest, rng)
            except NoTraceError as reason:
                if not found:
                    raise RowDropped(str(reason)) from None
                continue
            found.setdefault(write_countdown_trace(puzzle, trace), self.describe_trace(trace))
            if len(found) == self.config.per_prompt:
                break
        rest = remove_columns(row, "completion", "reference", "data")
        return [MadeRow({**rest, "completion": text}, note) for text, note in found.items()]

    def describe_trace(self, trace: Trace) -> str:
        ends = f"{trace.backs} dead end{'' if trace.backs == 1 else 's'}"
        return ends if self.config.contents == "right" else f"{ends}, {self.config.contents}"


def write_countdown_trace(puzzle: CountdownPuzzle, trace: Trace) -> str:
    """A line for each step and each way back, then the answer."""
    lines = [write_visit(puzzle, visit) for visit in trace.visits]
    return "\n".join([THINK, *lines, END_THINK, f"<answer>{write_expression(trace.answer[-1].state)}</answer>"])


def write_visit(puzzle: CountdownPuzzle, visit: Move | Back) -> str:
    left = ", ".join(str(value) for value, _ in visit.state)
    if isinstance(visit, Back):
        return f"This is a dead end: back to step {visit.step}. Left: {left}."
    return f"Step {len(puzzle.numbers) - len(visit.state)}: {visit.text}. Left: {left}."
