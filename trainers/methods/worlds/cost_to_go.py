"""Cost to go: best-first search by the moves made and a learned estimate of those still to come. Our own, after a quantum compiler's search.

f(s) = g(s) + w h(s)      g: turns since the start of the problem, h: turns still to come; the open position of lowest f is expanded next
h(s) = M (1 - V(s)) / 2   V: value head over the policy's states, fitted at every position of sampled episodes to
                          1 - 2 c / M, c = turns to the end of a right episode and M where it ended wrong;  M: most turns of an episode

The search of a problem ends at the first right episode. The head is fitted once, to episodes of training prompts; the policy is never trained. With
w = 0 the search is breadth first, and no head is fitted.

The quantum compiler (arXiv 2204.06904) is not about language models: it writes a gate as a sequence of elementary ones, by an A* search whose cost a
Q-network has learned by reinforcement. Only the form of the search is here. The head estimates what the policy would take, which is no lower bound,
so that the ways found need not be the shortest.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.methods.value_search import ValueSearch
from trainers.rollouts.search_strategies import BestFirst

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node


def scale_cost(cost: float, most: int) -> float:
    """Turns still to come, of at most ``most`` -> [-1, 1], fewer is higher."""
    return 1 - 2 * min(cost, most) / most


def read_cost(value: float, most: int) -> float:
    """The other way round."""
    return most * (1 - value) / 2


def count_turns(node: "Node") -> int:
    """Turns on the way from the start of the episode to a position."""
    return len(node.episode.turns(node))


def measure_cost(session: "Session", node: "Node", leaf: "Node") -> float:
    """What a position on the way to a leaf is fitted to."""
    most = session.run.task.max_turns
    return scale_cost(count_turns(leaf) - count_turns(node) if session.is_right(leaf) else most, most)


class Config(Strict):
    weight: float = param(
        1.0, "Weight of the turns still to come (our value); 0: breadth first, nothing is fitted.", title="Weight (w)", ge=0, le=1000
    )
    nodes: int = param(24, "Positions of a problem that are expanded at most (our value).", title="Expansions", ge=1, le=10_000)
    children: int = param(4, "Steps sampled from a position; equal ones are one step.", title="Children", ge=1, le=64)
    prompts: int = param(128, "Training prompts whose episodes the head is fitted to (our value).", title="Prompts of the head", ge=1, le=10_000)
    episodes: int = param(4, "Episodes of each of them.", title="Episodes of a prompt", ge=1, le=64)
    steps: int = param(300, "Updates of the head (our value).", title="Updates of the head", ge=0, le=100_000, advanced=True)
    rate: float = param(0.003, "Learning rate of the head (our value).", title="Learning rate of the head", gt=0, le=1, advanced=True)


class CostToGo(Method):
    card = Card(
        name="cost-to-go",
        title="Best-first search with a learned cost",
        arxiv="",
        system="our own",
        base="procedure",
        provenance="abstract",
        source="our own, after the learned A* search of a quantum compiler (arXiv 2204.06904), of which we know the abstract",
        fit="variant",
        idea="Expand the position whose moves so far and estimated moves to come are fewest, with a value head fitted to the policy's own episodes.",
        formula=(
            r"f(s) = g(s) + w\, h(s), \quad h(s) = \tfrac{M}{2} \left(1 - V(s)\right)",
            r"V(s) \to 1 - 2 c / M, \quad c = \text{turns to a right end}, \; M \text{ for a wrong one}",
        ),
        reading="that the learned cost is a value head over the policy's states, and what it is fitted to",
        departures=(
            "The paper searches sequences of gates; nothing but best-first search with a learned cost is used.",
            "The cost is fitted to episodes of the frozen policy; the paper learns it by reinforcement.",
            "Steps are sampled from the policy; the paper tries every gate.",
        ),
        claim=("cost-to-go/expanded", "lower"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"procedure"})
    owns = frozenset({"rollout"})
    worlds = frozenset({"placement", "rewrites"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.values = ValueSearch(run, self.config.steps, self.config.rate)
        self.is_fitted = not self.config.weight

    def rollout(self, session: "Session") -> "list[Completion]":
        if not self.is_fitted:
            self.fit_head(session)
        how = BestFirst(self.config.nodes, self.run.task.max_turns)
        roots = [episode.root for episode in session.begin()]
        trees = session.search(roots, how, self.config.children, self.rank_positions, session.is_right)
        leaves = session.play([tree.best for tree in trees])
        right = [session.is_right(leaf) for leaf in leaves]
        self.log("expanded", sum(tree.expanded for tree in trees) / len(trees))
        self.log("right", sum(right) / len(right))
        if any(right):
            self.log("turns", sum(count_turns(leaf) for leaf, one in zip(leaves, right, strict=True) if one) / sum(right))
        return session.finish(leaves)

    def fit_head(self, session: "Session") -> None:
        """On training prompts, whichever are asked about here."""
        examples = self.run.examples[: self.config.prompts]
        error = self.values.fit_episodes(examples, self.config.episodes, self.card.name, session.max_tokens, measure_cost)
        self.log("error", error)
        self.is_fitted = True

    def rank_positions(self, nodes: "Sequence[Node]") -> list[float]:
        """-f of each; of an episode that is over, that of one that takes all its turns."""
        most, weight = self.run.task.max_turns, self.config.weight
        going = [node for node in nodes if not node.finish]
        estimates = iter(self.values.estimate_open(going) if weight else [1.0] * len(going))
        return [-(count_turns(node) + weight * (most if node.finish else read_cost(next(estimates), most))) for node in nodes]

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
                "Positions expanded for a problem",
                (Series(f"{name}/expanded", "in a round"), Series(f"heldout/{name}/expanded", "held out", dashed=True)),
            ),
            Panel("Right answers", (Series(f"{name}/right", "in a round"), Series(f"heldout/{name}/right", "held out", dashed=True))),
            Panel("Turns of a right answer", (Series(f"{name}/turns", "in a round"), Series(f"heldout/{name}/turns", "held out", dashed=True))),
        )
