"""Cobalt: histories of several turns, played once, become the contexts of a bandit that writes one program (arXiv 2602.03806).

Before training the policy plays ``trajectories`` episodes of every task, and P_j is the share of all tests that program j passes. A task that all of
them solve at once is left out. Of the others each gives its own prompt and, from at most ``kept`` episodes, every history (x, a_0, o_0, .., o_{j-1}):
episodes with max P = 1 whose range d = max P - min P is above 0, chosen so that the variance of d is largest among the k largest with the smallest.
A step of training then samples one program a in each of these contexts, and no world answers it. With P of a and best = max_{i<j} P_i:
    base = 1 (P = 1), 0.2 (P >= 1/2), 0 (P > 0), -0.1 (P = 0);   no program: R = -1
    P < 1, best > 0:   P > best: base + 0.1 (P - best) / (1 - best);   else: -0.1 + 0.1 (P - best) / best
R is z-scored in the group by the base. In a share ``perturbed`` of the tasks the results of the two tests that are shown are swapped, so that
feedback misleads and the hidden tests, which pay, do not: the policy learns not to follow the tests that it sees.

It differs from GRPO in contexts and reward; the world's words and the history are no part of the loss. Only tasks told in words are perturbed, since
where the swapped tests are all that is said nobody could know better.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.attempt import ranks
from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.tasks.base import Example
from trainers.worlds.base import Replay, replay_episode
from trainers.worlds.programs import SHOWN, Programs, read_stored_program

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node

HISTORY, BEST = "history", "best"  # keys of a context's data: turns that came before, and the best P among them
NO_PROGRAM = -1.0


def grade_program(rate: float | None, best: float) -> float:
    """R of a program that passes the share ``rate`` of the tests, after one that passed ``best``; None: no program."""
    if rate is None:
        return NO_PROGRAM
    if rate == 1:
        return 1.0
    base = 0.2 if rate >= 0.5 else 0.0 if rate > 0 else -0.1
    if best <= 0:
        return base
    return base + 0.1 * (rate - best) / (1 - best) if rate > best else -0.1 + 0.1 * (rate - best) / best


def choose_trajectories(rates: Sequence[Sequence[float]], kept: int) -> list[int]:
    """Places of at most ``kept`` episodes that reach P = 1 and whose rates differ; the range of their rates varies as much as it can."""
    ranges = {place: max(own) - min(own) for place, own in enumerate(rates) if own and max(own) == 1 and min(own) < 1}
    order = sorted(ranges, key=ranges.__getitem__)
    if len(order) <= kept:
        return order
    choices = [[*order[: kept - largest], *order[len(order) - largest :]] for largest in range(kept + 1)]
    return max(choices, key=lambda chosen: compute_variance([ranges[place] for place in chosen]))


def compute_variance(values: Sequence[float]) -> float:
    mean = sum(values) / len(values)
    return sum((value - mean) ** 2 for value in values) / len(values)


def list_rates(replay: Replay) -> list[float]:
    """P of each program of an episode; a turn that was none ends it and has none."""
    return [turn.step.facts["rate"] for turn in replay.turns if "rate" in turn.step.facts]


def cut_histories(turns: Sequence[str], rates: Sequence[float]) -> list[tuple[list[str], float]]:
    """(history, best P in it) of each turn but the first; none after two solved turns in a row, as nothing is left to do there."""
    made = []
    for count in range(1, len(rates)):
        if count > 1 and rates[count - 1] == rates[count - 2] == 1:
            break
        made.append((list(turns[:count]), max(rates[:count])))
    return made


class Config(Strict):
    trajectories: int = param(16, "Episodes of each task before training (n).", title="Trajectories (n)", ge=1, le=256)
    kept: int = param(4, "Most episodes of a task that are cut into histories (m).", title="Kept trajectories (m)", ge=1, le=256)
    tasks: int = param(128, "Tasks that episodes are played of; the others are left out (ours).", title="Tasks", ge=1, le=1_000_000)
    perturbed: float = param(0.25, "Share of the tasks told in words whose shown tests are swapped (ours).", title="Perturbed", ge=0, le=1)
    temperature: float = param(1.0, "Sampling temperature of the episodes before training.", advanced=True, gt=0, le=10)


class Cobalt(Method):
    card = Card(
        name="cobalt",
        title="One program after histories played once",
        arxiv="2602.03806",
        system="Cobalt",
        base="grpo",
        provenance="code",
        source="github OSU-NLP-Group/cobalt: preproc/process_multi_turn_taco.py, preproc/run_perturbation.py, verl/code_reward_func_think.py",
        fit="core",
        idea="Play episodes of several turns once, cut them into histories, and train single programs in these contexts, some of them misleading.",
        formula=(
            r"c_j = (x, a_0, o_0, .., o_{j-1}), \quad b = \max_{i<j} P_i, \quad a \sim \pi(\cdot | c_j)",
            r"R = \begin{cases} 1 & P = 1 \\ \mathrm{base}(P) + 0.1 \frac{P - b}{1 - b} & b < P < 1 \\"
            r" -0.1 + 0.1 \frac{P - b}{b} & P \le b,\ b > 0 \end{cases}",
        ),
        departures=(
            "Rewards for the length of thoughts, answers and explanations, for words of reflection and against repetition are left out.",
            "Contexts of perturbed tasks are chosen as the others are; only tasks told in words are perturbed.",
            "The KL term is the run's beta with its own estimator; the authors take the squared log-ratio with a weight of 1e-4.",
            "The policy that plays the histories is the one that the run starts from; a first stage of single turns is a run before.",
        ),
        claim=("heldout/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "makes", "rewards": "makes"}
    owns = frozenset({"rollout"})
    worlds = frozenset({"programs"})
    requires = (
        Requirement("task.options.write", "differs from", "documentation", "histories are of programs and their tests"),
        Requirement("task.options.write", "differs from", "both", "histories are of programs and their tests"),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
    )

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    @property
    def world(self) -> Programs:
        assert isinstance(self.run.task, Programs)
        return self.run.task

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        self.run = run
        made: list[Example] = ranks.done_by_first(lambda: self.make_contexts(rows, run))
        return made

    def make_contexts(self, rows: list[Example], run: "RunContext") -> list[Example]:
        count, rng = self.config.trajectories, run.rng("cobalt", "perturbed")
        examples = [self.perturb(example) if rng.random() < self.config.perturbed else example for example in rows[: self.config.tasks]]
        session = run.session(examples, "cobalt/trajectories", group_size=count, temperature=self.config.temperature)
        leaves = session.play([episode.root for episode in session.begin()])
        replays = [replay_episode(self.world, leaf.episode.example, session.text_of(leaf)) for leaf in leaves]
        made = list[Example]()
        for place, example in enumerate(examples):
            made += self.cut_contexts(example, replays[place * count : (place + 1) * count])
        self.log("contexts", len(made))
        self.log("generated", sum(len(node.ids) for leaf in leaves for node in leaf.episode.nodes if node.by == "policy"))
        self.log("with_history", sum(bool(example.data[HISTORY]) for example in made) / max(1, len(made)))
        run.rng("cobalt", "order").shuffle(made)
        return made or [add_history(example, [], 0.0) for example in examples]

    def cut_contexts(self, example: Example, replays: Sequence[Replay]) -> list[Example]:
        """The contexts of one task: none where every episode solves it at once."""
        rates = [list_rates(replay) for replay in replays]
        if all(own[:1] == [1.0] for own in rates):
            return []
        found = [add_history(example, [], 0.0)]
        for place in choose_trajectories(rates, self.config.kept):
            turns = [turn.text for turn in replays[place].turns]
            found += [add_history(example, history, best) for history, best in cut_histories(turns, rates[place])]
        return found

    def perturb(self, example: Example) -> Example:
        """The same task with each other's results in the two tests that are shown; as it is where that changes nothing, or tests are all it says."""
        first, second = example.data["shown"]
        told = self.world.write_prompt(read_stored_program(example), example.data["shown"], True)
        if example.prompt[-1].content != told or first[1] == second[1] or is_misleading(example):
            return example
        shown = [[first[0], second[1]], [second[0], first[1]]]
        return replace(example, data={**example.data, "shown": shown})

    def rollout(self, session: "Session") -> "list[Completion]":
        """One program in each context, whose history is given."""
        begun: list[Node] = []
        for episode in session.begin():
            node = episode.root
            for turn in episode.example.data.get(HISTORY, ()):
                node = session.force(node, turn)
            begun.append(node)
        leaves = [end_at_program(leaf) for leaf in session.play(begun, turns=1)]
        self.log("policy_tokens", sum(len(node.ids) for leaf in leaves for node in leaf.episode.turns(leaf)[-1] if node.by == "policy"))
        made = session.finish(leaves)
        for one, leaf in zip(made, leaves, strict=True):
            one.scores = dict(session.outcome(leaf))
        return made

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        made, followed = list[float](), list[float]()
        for example, text in zip(batch.examples, batch.texts, strict=True):
            replay, best = replay_episode(self.world, example, text), example.data.get(BEST, 0.0)
            turn = replay.turns[-1].step.facts if len(replay.turns) > len(example.data.get(HISTORY, ())) else {}
            made.append(grade_program(turn.get("rate"), best))
            if is_misleading(example) and "rate" in turn:
                followed.append(float(turn["passed"] == SHOWN))
        if followed:
            self.log("follows_swapped", sum(followed) / len(followed))
        histories = torch.tensor([bool(example.data.get(HISTORY)) for example in batch.examples])
        for name, own in (("first", ~histories), ("later", histories)):
            if own.any():
                self.log(f"right/{name}", batch.correct.cpu()[own].float().mean())
        return rewards.new_tensor(made)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Right programs", (Series(f"{name}/right/first", "without a history"), Series(f"{name}/right/later", "after one"))),
            Panel("Programs that pass swapped tests", (Series(f"{name}/follows_swapped", "share"),), help="In contexts with misleading feedback."),
            Panel("Tokens written in a step", (Series(f"{name}/policy_tokens"),), unit="tokens"),
        )


def add_history(example: Example, history: list[str], best: float) -> Example:
    return replace(example, prompt=[Message(one.role, one.content) for one in example.prompt], data={**example.data, HISTORY: history, BEST: best})


def is_misleading(example: Example) -> bool:
    """Whether a test that is shown has another result than the program gives."""
    return bool(example.data["shown"] != example.data["cases"][:SHOWN])


def end_at_program(leaf: "Node") -> "Node":
    """The program's own node: what the world answers to it is no part of the context any more."""
    if leaf.by != "world":
        return leaf
    above = leaf.episode.parent(leaf)
    assert above is not None
    leaf.episode.give_up(leaf, "abandoned", "one program is asked for", above)
    return above
