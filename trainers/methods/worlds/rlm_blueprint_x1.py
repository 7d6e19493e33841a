"""x1: rollouts from a tree search, each step paid by how much it raises the value head's estimate (Reasoning Language Models, arXiv 2501.11223).

Phase 1: a value head over the policy's hidden states is fitted to the outcomes of whole episodes, +1 or -1.
Phase 2, in every batch: one Monte-Carlo tree search for each prompt, with values from the head; the members of its group are ends of the tree, and
    A(n) = V(child) - V(parent)      for every token of the step from parent to child; V of an end is its outcome
takes the place of the base's advantage. Then the head is fitted to the backed-up values of the positions that were searched. A step that several
members share is trained on once, so that a base that averages over tokens (dapo) suits it better than one that averages over members. It differs
from GRPO in rollouts and advantages; with ``refit`` off the head stays as phase 1 left it.

Our reading: the paper trains policy and value model in phases and leaves the losses open; it names this advantage. Its supervised phase 1 of the
policy is the cold start here. Node fields of the authors' framework (visits, value, mean, prior) are the notes of the tree.
"""

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.credit import pad_turns, spread_turns
from trainers.maths.value_histogram import ValueLoss
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.methods.value_search import ValueSearch, list_open_positions, score_end
from trainers.rollouts.search_strategies import Mcts
from trainers.rollouts.search_tree import keep_paths

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch, RowBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.search_tree import SearchTree
    from trainers.rollouts.tree import Node

STEPS = "step_advantages"  # in the notes of a completion: A of each of its turns


def compute_step_advantages(values: Sequence[float], outcome: float) -> list[float]:
    """V before each of T steps, and the outcome of the episode -> V(child) - V(parent) of the T steps."""
    return [after - before for before, after in pairwise([*values, outcome])]


class Config(Strict):
    children: int = param(3, "Steps sampled from a position; equal ones are one step.", title="Children", ge=2, le=64)
    iterations: int = param(12, "Rounds of the search of a prompt (our value).", title="Search rounds", ge=1, le=10_000)
    exploration: float = param(1.25, "Constant c of PUCT; the authors' c1.", title="Exploration (c)", ge=0, le=100)
    episodes: int = param(4, "Phase 1: whole episodes of a prompt that the head is fitted to.", title="Episodes for the values", ge=1, le=64)
    prompts: int = param(64, "Phase 1: prompts whose episodes it is fitted to.", title="Prompts for the values", ge=1, le=10_000)
    first_steps: int = param(300, "Phase 1: updates of the head (our value).", title="Value updates at first", ge=0, le=100_000, advanced=True)
    head_steps: int = param(20, "Phase 2: updates of the head in each batch (our value).", title="Value updates", ge=0, le=10_000, advanced=True)
    head_rate: float = param(0.003, "Learning rate of the head (our value).", title="Value learning rate", gt=0, le=1, advanced=True)
    value_loss: ValueLoss = param(
        "mse", "mse: squared error. hl-gauss: classification into 51 bins of [-1, 1] (arXiv 2403.03950).", title="Value loss", advanced=True
    )
    refit: bool = param(True, "Phase 2: fit the head to the backed-up values of each batch's trees.", title="Refit the values")


class RLMBlueprintX1(Method):
    card = Card(
        name="rlm-blueprint-x1",
        title="Step advantages from a searched value",
        arxiv="2501.11223",
        system="x1",
        base="grpo",
        provenance="code",
        source="github spcl/x1: README, x1/strategy/mcts.py; the paper's abstract",
        fit="variant",
        idea="Search a tree for each prompt, pay every step by the change of a learned value, and fit that value to what the search backed up.",
        formula=(
            r"A(n) = V(\mathrm{child}) - V(\mathrm{parent}), \quad V(\mathrm{end}) = \pm 1",
            r"L_V = \left(V(s) - q(s)\right)^2",
        ),
        reading="the advantage as the policy gradient's weight, the regression to backed-up values, phase by phase within one run",
        departures=(
            "PUCT with visits of the position and means of what was backed up; the code discounts by 0.96 for each step and scales values to [0, 1].",
            "The value head shares the policy's hidden states and leaves them as they are; the authors train a model of its own.",
        ),
        parallel=False,
    )
    Config = Config
    owns = frozenset({"rollout"})
    roles = {"row_advantages": "makes"}
    worlds = frozenset({"rewrites"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.values = ValueSearch(run, self.config.head_steps, self.config.head_rate, self.config.value_loss)
        self.is_fitted = False

    def rollout(self, session: "Session") -> "list[Completion]":
        if not self.is_fitted:
            self.fit_first(session)
        size, config = session.group_size, self.config
        roots = [episode.root for episode in session.begin(range(0, len(session.examples), size))]
        how = Mcts(config.iterations, config.iterations, self.run.task.max_turns, config.exploration, once=True)
        trees = session.search(roots, how, config.children, partial(self.values.estimate, session), keep="all")
        leaves = self.choose_members(session, trees, size)
        notes = self.pay_steps(session, leaves)
        if config.refit:
            self.log("fit_error", self.values.fit_trees(trees, f"x1/{session.step}"))
        self.log("expanded", sum(tree.expanded for tree in trees) / len(trees))
        return session.finish(leaves, shared="once", notes=notes)

    def fit_first(self, session: "Session") -> None:
        """Phase 1."""
        config = self.config
        spec = self.run.attempt.spec
        examples = self.run.task.examples("train", config.prompts, spec.seed, spec.task.difficulty)
        values = ValueSearch(self.run, config.first_steps, config.head_rate, config.value_loss)
        self.log("first_error", values.fit_episodes(examples, config.episodes, "x1", session.max_tokens))
        self.values.head.load_state_dict(values.head.state_dict())
        self.is_fitted = True

    def choose_members(self, session: "Session", trees: "Sequence[SearchTree]", size: int) -> "list[Node]":
        """``size`` ends of each tree in the order they were found, so that none is chosen by its value; where there are too few, the open positions
        that were visited most are played on to their ends, and the root where those are too few."""
        chosen: list[list[Node]] = []
        begun: list[list[Node]] = []
        for tree in trees:
            ends = [node for node in tree.positions if node.finish][:size]
            rest = sorted((node for node in tree.positions if not node.finish and not tree.steps.get(node)), key=tree.rank_open, reverse=True)
            chosen.append(ends)
            begun.append([*rest, *[tree.root] * size][: size - len(ends)])
        played = iter(session.play([node for nodes in begun for node in nodes]))
        members = [[*ends, *(next(played) for _ in nodes)] for ends, nodes in zip(chosen, begun, strict=True)]
        for tree, own in zip(trees, members, strict=True):
            keep_paths(tree, own)
        return [leaf for own in members for leaf in own]

    def pay_steps(self, session: "Session", leaves: "Sequence[Node]") -> dict[int, dict[str, Any]]:
        """A of the steps of each leaf, by its place."""
        paths = [list_open_positions(leaf) for leaf in leaves]
        values = iter(self.values.estimate(session, [node for path in paths for node in path]))
        notes, errors = dict[int, dict[str, Any]](), list[float]()
        for number, (leaf, path) in enumerate(zip(leaves, paths, strict=True)):
            own, outcome = [next(values) for _ in path], score_end(session, leaf)
            notes[number] = {STEPS: compute_step_advantages(own, outcome)}
            errors += [(value - outcome) ** 2 for value in own]
        self.log("value_error", sum(errors) / max(1, len(errors)))
        return notes

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        turns = batch.turns()
        steps = [batch.rollout.notes[member].get(STEPS, []) for member in batch.members.tolist()]
        return spread_turns(pad_turns(steps, int(turns.max()) + 1).to(advantages), turns)

    def observe(self, batch: "RolloutBatch") -> None:
        self.log("right_ends", batch.correct.float().mean())

    def state(self) -> dict[str, Any]:
        return {"head": dict(self.values.head.state_dict()), "is_fitted": self.is_fitted}

    def restore(self, state: dict[str, Any]) -> None:
        self.values.head.load_state_dict(state["head"])
        self.is_fitted = bool(state["is_fitted"])

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Error of the values",
                (Series(f"{name}/value_error", "of the outcomes on the way"), Series(f"{name}/fit_error", "of backed-up values", dashed=True)),
                help="Mean squared; values and outcomes are between -1 and 1.",
            ),
            Panel("Right ends", (Series(f"{name}/right_ends", "share of the members"),)),
            Panel("Positions expanded for a prompt", (Series(f"{name}/expanded", "mean"),)),
        )
