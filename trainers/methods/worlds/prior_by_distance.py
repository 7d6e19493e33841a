"""Prior by distance: a tree search trusts the policy less where a puzzle is far from those it was trained on. Our own, after ABC-RL.

d(x) = min_{u in training prompts} 1 - cos(h(x), h(u))     h: the policy's last state at the end of a prompt, centred on their mean
alpha(x) = sigmoid((theta - d(x) / d_0) / T)               d_0: mean distance of a training prompt to the nearest other one
a = argmax_a  Q(s, a) + c P(s, a)^alpha sqrt(N(s)) / (1 + N(s, a))       the value of a position is the outcome of one episode from there

The search of a problem ends at the first right episode. Nothing is trained. With ``blend`` "prior" alpha is 1, the plain search; with "none" it is 0
and all steps are alike, and the distances are measured all the same. Near: alpha at least .5.

ABC-RL (arXiv 2401.12205) is not about language models: it searches for sequences of transformations that make a circuit small. What is taken from it
is the prior to the power of a sigmoid of the distance to the nearest training circuit. Step time: one forward pass over the training prompts once.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.policies.hidden_states import read_hidden_states
from trainers.rollouts.search import sample_steps
from trainers.rollouts.search_strategies import Mcts

if TYPE_CHECKING:
    from trainers.contract.events import Message
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.search_tree import SearchTree
    from trainers.rollouts.tree import Node

SMALLEST = 1e-6  # of d_0: all training prompts may look the same to a policy


def compute_nearest_distances(states: Tensor, known: Tensor) -> Tensor:
    """(N, D), (M, D) of norm 1 -> (N,): 1 - cosine with the nearest of M."""
    return (1 - states @ known.T).amin(1)


def compute_spread(known: Tensor) -> float:
    """(M, D) of norm 1 -> mean distance of each to the nearest other one; 1 where there is no other."""
    if len(known) < 2:
        return 1.0
    apart = 1 - known @ known.T
    return max(SMALLEST, float(apart.fill_diagonal_(float("inf")).amin(1).mean()))


def compute_trust(distances: Tensor, spread: float, threshold: float, temperature: float) -> Tensor:
    """(N,) -> (N,) in [0, 1]: alpha."""
    return torch.sigmoid((threshold - distances / spread) / temperature)


class Config(Strict):
    blend: Literal["distance", "prior", "none"] = param("distance", "What the prior's exponent follows: the distance, or always 1, or always 0.")
    threshold: float = param(
        1.0, "Distance at which the exponent is .5, in mean distances of training prompts (our value).", title="Threshold (theta)", ge=0, le=1000
    )
    temperature: float = param(0.25, "How gently the exponent falls with distance (our value).", title="Temperature (T)", gt=0, le=1000)
    nodes: int = param(24, "Positions of a problem that are expanded at most (our value).", title="Expansions", ge=1, le=10_000)
    children: int = param(4, "Steps sampled from a position; equal ones are one step.", title="Children", ge=1, le=64)
    exploration: float = param(1.38, "Constant c of PUCT; the authors' value.", title="Exploration (c)", ge=0, le=100)


class PriorByDistance(Method):
    card = Card(
        name="prior-by-distance",
        title="Search with a prior that fades with distance",
        arxiv="",
        system="our own",
        base="procedure",
        provenance="code",
        source="our own, after the retrieval-guided prior of ABC-RL (arXiv 2401.12205; github NYU-MLDA/ABC-RL: ABC-RL_ICLR/src/mcts.py)",
        fit="variant",
        idea="Search a puzzle with the policy as prior, and flatten the prior where the puzzle is far from the training prompts.",
        formula=(
            r"\alpha(x) = \sigma\left((\theta - d(x) / d_0) / T\right), \quad d(x) = \min_u 1 - \cos(h(x), h(u))",
            r"a = \arg\max_a Q(s, a) + c\, P(s, a)^{\alpha} \frac{\sqrt{N(s)}}{1 + N(s, a)}",
        ),
        reading="the policy's state at the end of a prompt for the embedding of a circuit, and distances in units of the training prompts' own",
        departures=(
            "ABC-RL searches transformations of circuits; nothing but the exponent of the prior is used.",
            "The prior is the share of the sampled turns that say a step; the authors have a probability for each of few actions.",
            "A position is valued by one sampled episode; the authors take one that begins with the policy's best action.",
            "Threshold and temperature are ours, in other units than the authors'.",
        ),
        claim=("prior-by-distance/expanded", "lower"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"procedure"})
    owns = frozenset({"rollout"})
    worlds = frozenset({"placement", "rewrites"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.known: Tensor | None = None  # (M, D) of norm 1: the training prompts
        self.middle = torch.zeros(0)  # (D,)
        self.spread = 1.0

    def read_states(self, prompts: "Sequence[Sequence[Message]]") -> Tensor:
        """(N, D): the policy's last state at the end of each prompt."""
        ids = self.run.prompt_ids(prompts)
        return read_hidden_states(self.run, ids, [[len(row) - 1] for row in ids])

    def measure_trust(self, prompts: "Sequence[Sequence[Message]]") -> Tensor:
        """(N,): alpha by distance."""
        if self.known is None:
            states = self.read_states([example.prompt for example in self.run.examples])
            self.middle = states.mean(0)
            self.known = torch.nn.functional.normalize(states - self.middle, dim=1)
            self.spread = compute_spread(self.known)
        states = torch.nn.functional.normalize(self.read_states(prompts) - self.middle, dim=1)
        distances = compute_nearest_distances(states, self.known)
        self.log("distance", distances.mean() / self.spread)
        return compute_trust(distances, self.spread, self.config.threshold, self.config.temperature)

    def rollout(self, session: "Session") -> "list[Completion]":
        trust = self.measure_trust(session.prompts)
        roots = [episode.root for episode in session.begin()]
        fixed = {"prior": 1.0, "none": 0.0}.get(self.config.blend)
        exponents = {id(root.episode): float(alpha) if fixed is None else fixed for root, alpha in zip(roots, trust, strict=True)}

        def expand(nodes: "Sequence[Node]") -> "list[list[Node]]":
            made = sample_steps(session.engine, nodes, self.config.children)
            for step in (step for steps in made for step in steps):
                step.notes["prior"] = step.notes.get("prior", 1.0) ** exponents[id(step.episode)]
            return made

        how = Mcts(self.config.nodes, self.config.nodes, self.run.task.max_turns, self.config.exploration, once=True)
        trees = session.search(roots, how, expand, lambda nodes: session.success(nodes, 1), session.is_right)
        leaves = session.play([tree.best for tree in trees])
        self.report(session, trees, leaves, trust)
        return session.finish(leaves)

    def report(self, session: "Session", trees: "Sequence[SearchTree]", leaves: "Sequence[Node]", trust: Tensor) -> None:
        near = (trust >= 0.5).tolist()
        right = [session.is_right(leaf) for leaf in leaves]
        self.log("exponent", trust.mean())
        self.log("expanded", sum(tree.expanded for tree in trees) / len(trees))
        for name, chosen in (("near", near), ("far", [not one for one in near])):
            if any(chosen):
                self.log(f"expanded_{name}", sum(tree.expanded for tree, one in zip(trees, chosen, strict=True) if one) / sum(chosen))
                self.log(f"right_{name}", sum(one for one, is_in in zip(right, chosen, strict=True) if is_in) / sum(chosen))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Positions expanded for a problem",
                (Series(f"heldout/{name}/expanded_near", "near, held out"), Series(f"heldout/{name}/expanded_far", "far, held out")),
            ),
            Panel("Right answers", (Series(f"heldout/{name}/right_near", "near, held out"), Series(f"heldout/{name}/right_far", "far, held out"))),
            Panel("Exponent by distance", (Series(f"{name}/exponent", "in a round"), Series(f"heldout/{name}/exponent", "held out", dashed=True))),
        )
