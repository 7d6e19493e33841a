"""TRT: solve again with a list of answers that were wrong, and add to it what the next answer replaces (arXiv 2602.03094).

For each problem a list N of wrong answers with an error report, and the answer so far a_r. Round r:
    generate  y^k ~ pi(. | x, N), k = 1..K
    select    a_r: the answer so far where it passes the check, else the most frequent of the K that pass it, else the most frequent of all K
    reflect   if r >= 2, a_r != a_{r-1} and there is an error report e on a_{r-1}: add (a_{r-1}, e) to N, at most ``kept`` reports an answer
The output is a_T. A problem whose answer passes the check is done: nothing more is written for it. No weight changes, no reference is looked at.

An answer is the sequence of moves of an episode in the world ``rewrites``, and the list ends the prompt: "Not +3 +3, -1 *2.". The paper
has the model itself check and report; here both are a rule that makes the moves and compares the number with the goal, which stands in the prompt.
``select`` at "vote" is the comparison: the most frequent answer of all rounds, without check and list.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.worlds.rewrites import list_wrong_ways

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node
    from trainers.tasks.base import Example

WRONG = "wrong answers"  # list of the store
Report = tuple[str, str]  # a wrong answer, and why


def add_report(reports: Sequence[Report], report: Report, kept: int) -> list[Report]:
    """The list, newest first, with one more; of an answer the ``kept`` newest reports stay."""
    made, counts = list[Report](), Counter[str]()
    for one in (report, *reports):
        counts[one[0]] += 1
        if counts[one[0]] <= kept:
            made.append(one)
    return made


def pick_most_frequent(answers: Sequence[str]) -> int:
    """The place of the most frequent answer; of equally frequent ones, the first."""
    return answers.index(Counter(answers).most_common(1)[0][0])


@dataclass
class Problem:
    """Of one row. ``leaves``: of all rounds; ``chosen``: the answer so far."""

    example: "Example"
    reports: list[Report]
    leaves: "list[Node]" = field(default_factory=list)
    chosen: "Node | None" = None
    done: bool = False


def read_moves(leaf: "Node") -> str:
    """The answer of an episode: its moves, up to a turn that is none."""
    turns = [turn[-1].facts for turn in leaf.episode.turns(leaf)]
    return " ".join(facts["query"] for facts in turns if facts.get("tool"))


def report_error(leaf: "Node") -> str:
    """What is wrong with an answer, by making its moves; empty where it reaches the goal of the prompt."""
    return "" if leaf.state["reached"] else f"ends at {leaf.state['number']}"


class Config(Strict):
    rounds: int = param(4, "Rounds for each problem (T).", title="Rounds a problem", ge=1, le=64)
    samples: int = param(1, "Answers in a round (K).", title="Answers a round", ge=1, le=64)
    kept: int = param(2, "Error reports kept of one wrong answer; 0: no list.", title="Reports per answer", ge=0, le=10)
    select: Literal["check", "vote"] = param(
        "check", "vote: the most frequent answer of all rounds, unchecked and without a list.", title="Selection"
    )
    listed: int = param(4, "Wrong answers named in the prompt, the newest ones.", title="Answers listed", advanced=True, ge=1, le=10)


class TRT(Method):
    card = Card(
        name="trt",
        title="Test-time recursive thinking",
        arxiv="2602.03094",
        system="TRT",
        base="procedure",
        provenance="paper",
        source="arXiv 2602.03094; the published code (EvanZhuang/test_time_recursive_thinking) was not read",
        fit="core",
        idea="Solve a problem in rounds; each knows which answers were wrong before, and the list grows when an answer is given up.",
        formula=(
            r"y^k \sim \pi(\cdot \mid x, N), \qquad a_r = \mathrm{select}(a_{r-1}, y^1, \dots, y^K)",
            r"N \leftarrow N \cup \{(a_{r-1}, e)\} \text{ if } a_r \ne a_{r-1} \text{ and } e \text{ is given}",
        ),
        departures=(
            "The check of an answer and the report on its error are a rule that makes the moves; the paper has the model write both.",
            "Strategies of the rollouts and the summary of the last solution are left out: the prompt holds the list of wrong answers alone.",
        ),
        claim=("procedure/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"procedure"})
    owns = frozenset({"rollout"})
    worlds = frozenset({"rewrites"})
    requires = (Requirement("task.options.lists", "equals", True, "the policy has to know lists of wrong ways"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        problems = [Problem(example, self.recall_reports(example)) for example in session.examples]
        for number in range(1, self.config.rounds + 1):
            self.play_round(session, [problem for problem in problems if not problem.done])
            self.log(f"accuracy_{number}", sum(session.is_right(self.take(problem)) for problem in problems) / len(problems))
        leaves = [self.take(problem) for problem in problems]
        for row, (problem, leaf) in enumerate(zip(problems, leaves, strict=True)):
            leaf.facts = {**leaf.facts, "answers": [read_moves(one) for one in problem.leaves], "not": [list(one) for one in problem.reports]}
            session.prompts[row] = list(leaf.episode.example.prompt)
        if session.learns:
            self.keep_reports(problems)
        return session.finish(leaves)

    def play_round(self, session: "Session", problems: Sequence[Problem]) -> None:
        """One round of the problems that are not done, all episodes in one batch."""
        episodes = [session.begin_at(self.word(problem), group=place) for place, problem in enumerate(problems) for _ in range(self.config.samples)]
        leaves = session.play([episode.root for episode in episodes])
        flips = [0, 0]
        for place, problem in enumerate(problems):
            new, before = leaves[place * self.config.samples : (place + 1) * self.config.samples], problem.chosen
            problem.leaves += new
            self.select_answer(problem, new)
            if before is not None:
                was, now = session.is_right(before), session.is_right(self.take(problem))
                flips = [flips[0] + (was and not now), flips[1] + (now and not was)]
        if problems and problems[0].chosen is not None:
            self.log("right_to_wrong", flips[0] / len(problems))
            self.log("wrong_to_right", flips[1] / len(problems))

    def word(self, problem: Problem) -> "Example":
        wrong = list(dict.fromkeys(answer for answer, _ in problem.reports if answer))
        return list_wrong_ways(problem.example, wrong[: self.config.listed])

    def select_answer(self, problem: Problem, new: "Sequence[Node]") -> None:
        before = problem.chosen
        if self.config.select == "vote":
            answers = [read_moves(leaf) for leaf in problem.leaves]
            problem.chosen = problem.leaves[pick_most_frequent(answers)]
            return
        passing = [leaf for leaf in new if not report_error(leaf)]
        candidates = passing or list(new)
        problem.chosen = candidates[pick_most_frequent([read_moves(leaf) for leaf in candidates])]
        problem.done = bool(passing)
        if before is not None and read_moves(before) != read_moves(problem.chosen) and (error := report_error(before)) and self.config.kept:
            problem.reports = add_report(problem.reports, (read_moves(before), error), self.config.kept)

    def take(self, problem: Problem) -> "Node":
        assert problem.chosen is not None  # after the first round
        return problem.chosen

    def recall_reports(self, example: "Example") -> list[Report]:
        """Those of an earlier round of the run on the same problem."""
        if not self.config.kept or self.config.select == "vote":
            return []
        asked = example.prompt[-1].content
        return [(item["answer"], item["why"]) for item in self.run.store.items(WRONG)[::-1] if item["problem"] == asked]

    def keep_reports(self, problems: Sequence[Problem]) -> None:
        """Oldest first, so that the store drops those."""
        known = {(item["problem"], item["answer"], item["why"]) for item in self.run.store.items(WRONG)}
        for problem in problems:
            asked = problem.example.prompt[-1].content
            for answer, why in problem.reports[::-1]:
                if (asked, answer, why) not in known:
                    known.add((asked, answer, why))
                    self.run.store.add(WRONG, {"problem": asked, "answer": answer, "why": why})

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        rounds = tuple(Series(f"{name}/accuracy_{number}", f"after round {number}") for number in range(1, 9))
        return (
            Panel("Right answers by round of a problem", rounds),
            Panel("Flips between rounds", (Series(f"{name}/wrong_to_right", "wrong to right"), Series(f"{name}/right_to_wrong", "right to wrong"))),
        )
