"""CPL: step pairs from a tree search, whose required margin is the difference of their values (Step-APO, arXiv 2409.08642).

h = [log pi(w|s) - log pi_ref(w|s)] - [log pi(l|s) - log pi_ref(l|s)]
L = -log sigmoid(beta h - alpha (Q_w - Q_l))

Monte-Carlo tree search over the steps of an episode gives Q in [-1, 1]: the mean of what was backed up, +1 for a right end, -1 for a wrong one, and
the value head's estimate of every position it has expanded. Of the steps from one position every w with Q > 0 is preferred to every l with Q < 0.
Both have the same parent, so the difference of their Q is that of their advantages. It differs from DPO in its pairs and in the margin; with alpha =
0 it is DPO on the same pairs.

In the order of the paper: a run with the trainer sft imitates the shortest right path of each tree, one with dpo is Step-APO, and a second round is
the same from its policy. Each run fits its own value head first, to the outcomes of whole episodes, and again to Q.

PUCT = Q + c p sqrt(N_parent) / (1 + N), p the geometric mean of the probabilities of the step's tokens; ends are valued once.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.adapters.sft import tokenize_turns
from trainers.attempt import ranks
from trainers.contract.hyperparameters import Strict, param
from trainers.data.pair_rows import to_answer_messages
from trainers.data.search_samples import search_examples
from trainers.data.turn_masks import OWN, TurnMasks
from trainers.maths.value_histogram import ValueLoss
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.methods.value_search import ValueSearch
from trainers.policies.sampling import as_rows
from trainers.rollouts.search import sample_steps
from trainers.rollouts.search_strategies import Mcts
from trainers.rollouts.search_tree import write_step
from trainers.worlds.base import World

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.rollouts.search_tree import SearchTree
    from trainers.rollouts.tree import Node

Q_CHOSEN, Q_REJECTED = "q_chosen", "q_rejected"  # columns of a row
Row = dict[str, Any]


def pair_by_sign(values: Sequence[float]) -> list[tuple[int, int]]:
    """(preferred, other) of every value above 0 with every one below."""
    return [(i, j) for i, one in enumerate(values) if one > 0 for j, other in enumerate(values) if other < 0]


def measure_correlation(one: Tensor, other: Tensor) -> Tensor:
    """(B,), (B,) -> Pearson's correlation; 0 where one of them does not vary."""
    a, b = one - one.mean(), other - other.mean()
    return (a * b).sum() / (a.norm() * b.norm()).clamp(min=1e-12)


class Config(Strict):
    alpha: float = param(1.0, "Weight of the difference of values in the margin; 0 is DPO.", title="Margin (alpha)", ge=0, le=100)
    children: int = param(3, "Steps sampled from a position; equal ones are one step.", title="Children", ge=2, le=64)
    iterations: int = param(24, "Rounds of the search; the authors take 100 to 200.", title="Search rounds", ge=1, le=10_000)
    depth: int = param(6, "Steps of a path at most.", title="Depth", ge=1, le=1000)
    exploration: float = param(1.5, "Constant c of PUCT.", title="Exploration (c)", ge=0, le=100, advanced=True)
    temperature: float = param(0.7, "Sampling temperature of the search.", title="Temperature", gt=0, le=10)
    episodes: int = param(2, "Whole episodes of a prompt that the value head is first fitted to.", title="Episodes for the values", ge=1, le=64)
    head_steps: int = param(200, "Updates of the value head in each fitting (our value).", title="Value updates", ge=0, le=100_000, advanced=True)
    head_rate: float = param(0.01, "Learning rate of the value head (our value).", title="Value learning rate", gt=0, le=1, advanced=True)
    value_loss: ValueLoss = param(
        "mse", "mse: squared error. hl-gauss: classification into 51 bins of [-1, 1] (arXiv 2403.03950).", title="Value loss", advanced=True
    )


class CPLStepAPO(Method):
    card = Card(
        name="cpl-step-apo",
        title="Step pairs with margins from a search",
        arxiv="2409.08642",
        system="CPL",
        base="dpo",
        provenance="code",
        source="github keesh0410/CPL-Reasoning: mcts_plan/mcts, gen_data/gen_policy_model_round1_apo_data.py, train/dpo/trainer.py, my_scripts",
        fit="core",
        idea="Search over steps, prefer those that lead to right ends, and ask for a margin as large as the difference of their values.",
        formula=(
            r"L = -\log \sigma\left(\beta h - \alpha\,(Q_w - Q_l)\right), \quad Q_w > 0 > Q_l",
            r"h = \log\frac{\pi(w|s)}{\pi_{ref}(w|s)} - \log\frac{\pi(l|s)}{\pi_{ref}(l|s)}",
        ),
        departures=(
            "Moves of an episode take the place of plan steps; there are no solutions apart from them, whose values the code scales by 0.3.",
            "The value head is fitted on the frozen policy; the authors train a model of its own.",
            "The root has as many children as other positions, not 5, and a step's probability is that at the search's temperature.",
        ),
    )
    Config = Config
    trains = frozenset({"dpo", "sft"})
    worlds = frozenset({"rewrites"})
    requires = (Requirement("dataset", "equals", None, "it searches the world's own problems"),)
    roles = {"data": "makes", "pair_ratios": "maps", "pair_loss": "reads"}
    idle = {"pair_margins": ("alpha", 0.0)}
    excludes = {"ipo": "it pulls a mean over all tokens of a side, those before the step included, to a fixed target"}

    def prepare(self, run: "RunContext") -> None:
        self.masks = TurnMasks(run.tokenizer)

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        return ranks.done_by_first(lambda: self.make_rows(len(rows), run))

    def make_rows(self, count: int, run: "RunContext") -> list[Row]:
        spec, world, config = run.attempt.spec, run.task, self.config
        assert isinstance(world, World)
        pairs_of = spec.training.trainer == "dpo"
        if pairs_of:
            count = getattr(spec.training, "sampled_prompts", count)
        examples = world.examples("pairs" if pairs_of else "train", count, spec.seed, spec.task.difficulty)
        values = ValueSearch(run, config.head_steps, config.head_rate, config.value_loss)
        self.log("data_value_error", values.fit_episodes(examples, config.episodes, "cpl-step-apo"))

        def search(session: "Session", roots: "list[Node]") -> "list[SearchTree]":
            how = Mcts(config.iterations, config.iterations, config.depth, config.exploration, once=True)
            grow = partial(sample_steps, session.engine, count=config.children, prior="likelihood")
            return session.search(roots, how, grow, partial(values.estimate, session))

        trees = search_examples(run, examples, "cpl-step-apo", search, temperature=config.temperature)
        self.log("data_q_error", values.fit_trees(trees, "cpl-step-apo"))
        made = [row for tree in trees for row in (list_pairs(tree) if pairs_of else list_plans(tree, run))]
        self.log("data_solved", sum(any(is_right_end(node) for node in tree.positions) for tree in trees) / max(1, len(trees)))
        self.log("data_rows", len(made))
        return made

    def pair_ratios(self, batch: "PairBatch", chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
        own = self.masks.mask_side(batch.rows, "chosen", batch.chosen_ids, batch.chosen_mask)
        other = self.masks.mask_side(batch.rows, "rejected", batch.rejected_ids, batch.rejected_mask)
        return chosen * own, rejected * other

    def pair_margins(self, batch: "PairBatch") -> Tensor | None:
        """(B,) alpha (Q_w - Q_l)."""
        return self.config.alpha * read_gaps(batch)

    def pair_loss(self, batch: "PairBatch", score: Tensor, base: Any) -> Tensor:
        """The base's loss; logs how the implicit gaps follow those of the values."""
        gaps = read_gaps(batch)
        implicit = score.detach() + self.config.alpha * gaps
        self.log("value_gap", gaps.mean())
        self.log("implicit_gap", implicit.mean())
        self.log("correlation", measure_correlation(implicit, gaps))
        losses: Tensor = base(score)
        return losses

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Gaps of a pair", (Series(f"{name}/implicit_gap", "beta h"), Series(f"{name}/value_gap", "Q of the steps", dashed=True))),
            Panel("Correlation of both gaps", (Series(f"{name}/correlation", "within a batch"),)),
            Panel(
                "Error of the value head",
                (Series(f"{name}/data_value_error", "on outcomes"), Series(f"{name}/data_q_error", "on Q")),
                help="Mean squared; logged at step 1.",
            ),
        )


def read_gaps(batch: "PairBatch") -> Tensor:
    """(B,) Q_w - Q_l."""
    gaps = [row[Q_CHOSEN] - row[Q_REJECTED] for row in batch.rows]
    return torch.tensor(gaps, dtype=torch.float32, device=batch.chosen_logprobs.device)


def is_right_end(node: "Node") -> bool:
    return bool(node.finish) and bool(node.state["reached"])


def list_pairs(tree: "SearchTree") -> list[Row]:
    """A row for each pair of steps from one position, among those that were visited."""
    made = list[Row]()
    for above, steps in tree.steps.items():
        visited = [step for step in steps if "mean" in step.notes]
        for better, worse in pair_by_sign([step.notes["mean"] for step in visited]):
            made.append(make_step_pair(above, visited[better], visited[worse]))
    return made


def make_step_pair(above: "Node", chosen: "Node", rejected: "Node") -> Row:
    """Two steps after what was seen at ``above``; only the steps count."""
    episode = above.episode
    before = "".join(node.text for node in episode.context(above)[1:])
    row: Row = {"prompt": as_rows(episode.example.prompt), OWN: {}, Q_CHOSEN: chosen.notes["mean"], Q_REJECTED: rejected.notes["mean"]}
    for side, position in (("chosen", chosen), ("rejected", rejected)):
        step = write_step(above, position)
        row[side] = to_answer_messages(before + step)
        row[OWN][before + step] = [(len(before), len(before) + len(step))]
    return row


def list_plans(tree: "SearchTree", run: "RunContext") -> list[Row]:
    """The shortest path of a tree that ends right, as a supervised row; none where there is no such path."""
    right = [node for node in tree.positions if is_right_end(node)]
    if not right:
        return []
    path, world, example = tree.path(min(right, key=tree.depth)), run.task, tree.root.episode.example
    assert isinstance(world, World)
    turns = [write_step(tree.above[position], position) for position in path[1:]]
    return [tokenize_turns(example.prompt, world.tell_turns(example, turns), run.tokenizer)]
