"""RLAnything: the policy learns from outcome and votes on its steps, the judge from agreeing with both, and tasks follow (arXiv 2602.02488).

O_j in {+1, -1} the outcome of trajectory j, s_jkl in {+1, -1} the l-th vote on its step k, 0 where it is no vote
u_jk = O_j + mean_l s_jkl                       A of all tokens of step k: z of u_jk over the trajectories of the task that have a step k
v_jkl = u_jk s_jkl, or -2 where s_jkl = 0       A of the vote's tokens: z of v_jkl over the votes on the step
a task solved by at least ``easy`` of its group is made harder, by at most ``hard`` easier; the new version is tried in the task's next group and kept
if 0 < acc and (harder: hard <= acc < acc before; easier: acc before < acc <= easy), else the old one comes back and the group is not trained on

Groups with a share of successes outside [1/8, 7/8] teach the policy nothing, those outside [hard, easy] teach the judge nothing. z has the deviation
of the population; a step that one trajectory alone has keeps its u, as in the code. It differs from GRPO in credit, in the judge's rows and in the
tasks.

Policy and judge are seats of the same weights (world ``rooms``, option ``judged``), the rewriter is a rule of the world. Where several trajectories
of a task ask the judge about the same place and move, it is asked once: the votes are theirs together, and u in v is their mean.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.maths.credit import pad_turns, spread_turns
from trainers.maths.thresholds import is_at_least
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.methods.living_tasks import EASIER, HARDER, LivingTask
from trainers.methods.room_steps import ask_about_turn, find_state_before
from trainers.tasks.base import Example
from trainers.worlds.room_moves import choose_move, count_way, draw_step, list_rewrites, parse_verdict, write_step_question
from trainers.worlds.rooms import JUDGE, Rooms

if TYPE_CHECKING:
    from trainers.methods.batch import RowBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.rollouts.tree import Episode, Node

NO_VOTE = -2.0  # v of an answer that is no vote
USEFUL = (1 / 8, 7 / 8)  # shares of successes of groups that the policy learns from
STEPS, ADVANTAGE = "steps", "advantage"  # notes: u of a completion's turns, and A of a vote
LONGEST = 16  # tokens of a vote


def standardise_steps(values: Sequence[Sequence[float]]) -> list[list[float]]:
    """u of the steps of a task's trajectories -> z of each over those that have a step with its number; one alone is kept as it is."""
    made = [list(own) for own in values]
    for step in range(max(map(len, values), default=0)):
        places = [row for row, own in enumerate(values) if step < len(own)]
        for row, value in zip(places, standardise_values([values[row][step] for row in places]), strict=True):
            made[row][step] = value if len(places) > 1 else values[row][step]
    return made


def standardise_values(values: Sequence[float]) -> list[float]:
    """z with the population's deviation; 0 where all are equal."""
    own = torch.tensor(values, dtype=torch.float64)
    if not len(own) or own.max() - own.min() < 1e-8:
        return [0.0] * len(own)
    found: list[float] = ((own - own.mean()) / own.std(correction=0)).tolist()
    return found


def reward_votes(votes: Sequence[int], signal: float) -> list[float]:
    """v of each vote."""
    return [signal * vote if vote else NO_VOTE for vote in votes]


class Config(Strict):
    votes: int = param(3, "Votes on each step (L).", title="Votes", ge=1, le=32)
    weight: float = param(
        1.0, "Weight of the votes beside the outcome; 0: the outcome alone pays every step.", title="Weight of the votes", ge=0, le=10
    )
    judge: bool = param(True, "Whether the judge is trained on its votes.", title="Judge learns")
    rewrite: bool = param(True, "Whether tasks are made harder and easier.", title="Tasks follow")
    easy: float = param(0.8, "Share of successes from which on a task is made harder.", title="Easy from", ge=0, le=1)
    hard: float = param(0.2, "Share of successes up to which it is made easier.", title="Hard up to", ge=0, le=1)
    temperature: float = param(0.8, "Sampling temperature of the judge.", title="Judge's temperature", gt=0, le=10)
    probe: int = param(32, "Planted moves, half of them the best ones, that the judge is asked about at each step; 0: none.", ge=0, le=1000)
    history: int = param(100, "Versions of a task that are remembered.", advanced=True, ge=1, le=100_000)


class RLAnything(Method):
    card = Card(
        name="rlanything",
        title="Policy, judge and tasks learn together",
        arxiv="2602.02488",
        system="RLAnything",
        base="dapo",
        provenance="code",
        source="github Gen-Verse/Open-AgentRL: reward/alfworld_rl_reward.py, configs, sample/alfworld_rl_rollout.py",
        fit="core",
        idea="Pay steps by outcome and a judge's votes, train the judge to agree with both, and rewrite tasks that are too easy or too hard.",
        formula=(
            r"u_{jk} = O_j + \frac{1}{L} \sum_l s_{jkl}, \quad A_{jk} = z_j(u_{jk})",
            r"v_{jkl} = u_{jk} s_{jkl}, \quad A_{jkl} = z_l(v_{jkl})",
            r"0.2 \le \mathrm{acc}' < \mathrm{acc}\ (\mathrm{harder}), \quad \mathrm{acc} < \mathrm{acc}' \le 0.8\ (\mathrm{easier})",
        ),
        departures=(
            "Policy and judge have the same weights; in the code they are two models.",
            "The rewriter is a rule that changes a row of rooms by one room; the code asks a third model.",
            "The judge is told the place and the move. Equal questions of a task are asked once, and their outcomes averaged.",
        ),
        claim=("rlanything/judge_bad", "higher"),
        parallel=False,
    )
    Config = Config
    owns = frozenset({"rollout", "prompt"})
    roles = {"data": "maps", "row_advantages": "makes"}
    worlds = frozenset({"rooms"})
    several_rows = True
    requires = (
        Requirement("task.options.judged", "equals", True, "the policy has to have seen how a move is judged"),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.tasks: list[LivingTask] = []

    @property
    def world(self) -> Rooms:
        assert isinstance(self.run.task, Rooms)
        return self.run.task

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        self.tasks = [LivingTask(list(example.prompt), example.reference, dict(example.data)) for example in rows]
        return self.tasks

    def rollout(self, session: "Session") -> "list[Episode]":
        size, episodes = session.group_size, list[Any]()
        for row in range(len(session.examples)):
            version = session.examples[row].version  # type: ignore[attr-defined]
            session.prompts[row] = list(version.prompt)
            group, member = divmod(session.first_row + row, size)
            episodes.append(session.begin_at(version, session.prompts[row], group=group, member=member))
        leaves = session.play([episode.root for episode in episodes])
        if self.config.probe:
            self.probe_judge(session)
        for start in range(0, len(leaves), size):
            self.teach_group(session, session.examples[start], leaves[start : start + size])  # type: ignore[arg-type]
        self.report_tasks()
        return [leaf.episode for leaf in leaves]

    def teach_group(self, session: "Session", task: LivingTask, leaves: "Sequence[Node]") -> None:
        """Votes, u and what is left out, of the trajectories of one task; then its next version."""
        outcomes = [1.0 if session.is_right(leaf) else -1.0 for leaf in leaves]
        share = outcomes.count(1.0) / len(outcomes)
        kept = self.advance_task(task, leaves[0].episode.example, share, session)
        useful = kept and USEFUL[0] <= share <= USEFUL[1]
        self.log("silent_groups", float(not useful))
        if not useful:
            why = "all or none of its group succeeded" if kept else "the new version of its task was not kept"
            for leaf in leaves:
                leaf.episode.notes["filtered"] = f"{why} (rlanything)"
            return
        votes = self.ask_votes(session, leaves) if self.config.weight or self.config.judge else {}
        means = [
            [
                sum(said) / len(said) if (said := [vote for _, vote in votes.get(ask_about_turn(turn[-1]), ())]) else 0.0
                for turn in leaf.episode.turns(leaf)
            ]
            for leaf in leaves
        ]
        signals = [[outcome + self.config.weight * mean for mean in own] for outcome, own in zip(outcomes, means, strict=True)]
        for leaf, own in zip(leaves, standardise_steps(signals), strict=True):
            leaf.episode.notes[STEPS] = own
        learns = self.config.judge and is_at_least(share, self.config.hard) and is_at_least(self.config.easy, share)
        self.reward_judge(leaves, signals, votes, learns)

    def ask_votes(self, session: "Session", leaves: "Sequence[Node]") -> "dict[str, list[tuple[Node, int]]]":
        """The question about a step -> the judge's answers to it, each with its vote."""
        turns = [turn[-1] for leaf in leaves for turn in leaf.episode.turns(leaf)]
        first = {question: turn for turn in reversed(turns) if (question := ask_about_turn(turn))}
        if not first:
            return {}
        asked = [[Message("user", question)] for question in first]
        answers = session.ask(JUDGE, list(first.values()), asked, self.config.votes, max_tokens=LONGEST, temperature=self.config.temperature)
        return {question: [(one, read_vote(one.text)) for one in own] for question, own in zip(first, answers, strict=True)}

    def reward_judge(
        self, leaves: "Sequence[Node]", signals: Sequence[Sequence[float]], votes: "dict[str, list[tuple[Node, int]]]", learns: bool
    ) -> None:
        """A of the votes, on their nodes; those without one are not trained on. Logs how often votes agree with the rule."""
        by_question: dict[str, list[float]] = {}
        agree: list[bool] = []
        for leaf, own in zip(leaves, signals, strict=True):
            for turn, signal in zip(leaf.episode.turns(leaf), own, strict=True):
                if question := ask_about_turn(turn[-1]):
                    by_question.setdefault(question, []).append(signal)
                    is_best = turn[-1].facts["query"] == choose_move(leaf.episode.example.data, find_state_before(turn[-1]))
                    agree += [(vote > 0) == is_best for _, vote in votes.get(question, ())]
        if agree:
            self.log("votes_as_the_rule", sum(agree) / len(agree))
        for question, answers in votes.items():
            signal = sum(by_question[question]) / len(by_question[question])
            values = standardise_values(reward_votes([vote for _, vote in answers], signal)) if learns else [0.0] * len(answers)
            for (node, _), value in zip(answers, values, strict=True):
                node.notes[ADVANTAGE] = value
                if not value:
                    node.trained, node.fate = False, "abandoned"

    def advance_task(self, task: LivingTask, played: Example, share: float, session: "Session") -> bool:
        """After its group: keeps or drops the version that was on trial, and orders another. Returns whether what was played is kept."""
        config, kept = self.config, True
        if played is task.trial:
            kept = task.judge_trial(share, config.hard, config.easy, config.history)
            self.log("accepted", float(kept))
        elif played.data != task.data:  # another group of the batch has played it too, and it was dropped then
            return False
        goal = HARDER if is_at_least(share, config.easy) else EASIER if is_at_least(config.hard, share) else None
        if config.rewrite and kept and goal is not None and task.trial is None:
            task.order_version(goal, share, [self.world.lay_out(data) for data in list_rewrites(task.data, goal == HARDER)], session.rng)
        return kept

    def probe_judge(self, session: "Session") -> None:
        """The judge's accuracy on planted moves, good and bad ones, of rooms that are not trained on."""
        rng = self.run.rng("rlanything", "probe")
        spec = self.run.attempt.spec
        examples = self.world.examples("pairs", self.config.probe, spec.seed, spec.task.difficulty)
        planted = [(example.data, *draw_step(example.data, rng)) for example in examples]
        nodes = [session.begin_at(example).root for example in examples]
        asked = [[Message("user", write_step_question(*step))] for step in planted]
        answers = session.ask(JUDGE, nodes, asked, max_tokens=LONGEST, temperature=self.config.temperature)
        right: dict[bool, list[bool]] = {True: [], False: []}
        for (data, state, move), (answer,) in zip(planted, answers, strict=True):
            good = move == choose_move(data, state)
            right[good].append(parse_verdict(answer.text) is good)
        for good, said in right.items():
            if said:
                self.log("judge_good" if good else "judge_bad", sum(said) / len(said))

    def report_tasks(self) -> None:
        lengths = [count_way(task.data) for task in self.tasks]
        self.log("moves", sum(lengths) / max(1, len(lengths)))
        self.log("on_trial", sum(task.trial is not None for task in self.tasks) / max(1, len(lengths)))

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        turns, count = batch.turns(), len(batch.rollout.ids)
        steps = [batch.rollout.notes[row].get(STEPS, []) for row in range(count)]
        made = torch.zeros_like(advantages)
        made[:count] = spread_turns(pad_turns(steps, max(1, int(turns[:count].max()) + 1)).to(advantages), turns[:count])
        for place in range(count, len(turns)):
            row = batch.rows[place]
            assert row is not None
            made[place] = row.leaf.notes.get(ADVANTAGE, 0.0) * batch.mask[place]
        return made

    def state(self) -> dict[str, Any]:
        return {"tasks": [(task.data, task.goal, task.before, task.trial.data if task.trial else None, task.history) for task in self.tasks]}

    def restore(self, state: dict[str, Any]) -> None:
        for task, (data, goal, before, trial, history) in zip(self.tasks, state["tasks"], strict=True):
            task.prompt, task.data = self.world.lay_out(data).prompt, data
            task.goal, task.before, task.history = goal, before, history
            task.trial = None if trial is None else self.world.lay_out(trial)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Judge's accuracy",
                (
                    Series(f"{name}/judge_bad", "planted bad moves"),
                    Series(f"{name}/judge_good", "planted good moves"),
                    Series(f"{name}/votes_as_the_rule", "votes in training", dashed=True),
                ),
            ),
            Panel("Groups and versions", (Series(f"{name}/silent_groups", "left out"), Series(f"{name}/accepted", "new versions kept", dashed=True))),
            Panel("Shortest way of the tasks", (Series(f"{name}/moves", "mean"),), unit="moves"),
        )


def read_vote(text: str) -> int:
    return {True: 1, False: -1, None: 0}[parse_verdict(text)]
