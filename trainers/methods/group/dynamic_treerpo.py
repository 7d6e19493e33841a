"""Dynamic-TreeRPO: a group is a tree whose noise rises with depth, with a pull to its best leaf (arXiv 2509.23352). A text stand-in for images.

Every ``segment`` tokens each open branch splits into ``arity``, ``depth`` times; what follows split k is sampled at T_k = T (1 + beta k / depth).
    A_node = mean of A_leaf over the leaves below it                                     A_leaf: the base's advantage
    eps_i = eps_low + (eps_high - eps_low) sigmoid(eta A_i),  L_clip = -min(rho A, clip(rho, 1 - eps_i, 1 + eps_i) A)
    L = L_clip + lam (1 / N) sum over the N groups of (R_best - mean R) (mean negative log-likelihood of the best leaf's tokens)

The published tree branches over steps of a flow-matching model that makes images; its noise is that of the sampling steps, and its pull a squared
distance of velocities. In text the noise is the temperature and the pull is cross-entropy on the best leaf. Numbers of this method never stand beside
the paper's. As many leaves as independent rollouts have take fewer tokens to sample, because branches share what came before (``saved``).

Trees of arity^depth leaves fill a group, the last one cut short. Branches that end before they could split leave room for further rollouts from the
prompt. Losses are at the temperature of the base, so that tokens of deeper branches are sampled a little off it. It differs from GRPO in rollouts,
credit, clip and pull: with depth 0, lam 0 and both bounds at the base's epsilon it is GRPO.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.credit import average_nodes
from trainers.maths.reduce import masked_row_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.methods.group_rows import list_group_rows

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RowBatch
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.rollouts.tree import Node


def heat_depth(temperature: float, level: int, depth: int, rise: float) -> float:
    """T_k after ``level`` of ``depth`` splits."""
    return temperature * (1 + rise * level / depth) if depth else temperature


def count_splits(branches: int, room: int, arity: int) -> list[int]:
    """Into how many each of ``branches`` splits where ``room`` more may be made: the first ones get all they want."""
    made = list[int]()
    for _ in range(branches):
        more = min(arity - 1, room)
        made.append(1 + more)
        room -= more
    return made


def compute_clip_range(advantages: Tensor, low: float, high: float, slope: float) -> Tensor:
    """Any shape -> eps of the same shape: wider for what was better."""
    return low + (high - low) * torch.sigmoid(slope * advantages)


def clip_losses(log_ratios: Tensor, advantages: Tensor, epsilon: Tensor) -> Tensor:
    """(B, T), (B, T) or (B, 1), the same -> (B, T)."""
    ratios = log_ratios.exp()
    return -torch.min(ratios * advantages, torch.clamp(ratios, 1 - epsilon, 1 + epsilon) * advantages)


def weigh_best_leaves(rewards: Tensor, group_size: int) -> Tensor:
    """(B,) -> (B,): R_best - mean R for the first best member of each group, 0 for the others."""
    groups = rewards.view(-1, group_size)
    best = torch.nn.functional.one_hot(groups.argmax(1), group_size).to(rewards)
    gap = groups.amax(1, keepdim=True) - groups.mean(1, keepdim=True)
    return (best * gap.masked_fill(groups.amax(1, keepdim=True) == groups.amin(1, keepdim=True), 0.0)).flatten()


class Config(Strict):
    depth: int = param(2, "Splits on the way to a leaf; 0: independent rollouts.", title="Depth (d)", ge=0, le=8)
    arity: int = param(2, "Branches of a split.", title="Arity", ge=2, le=8)
    segment: int = param(8, "Tokens between two splits.", title="Segment", unit="tokens", ge=1, le=100_000)
    rise: float = param(0.5, "How much higher the temperature is after the last split.", title="Rise of the temperature (beta)", ge=0, le=10)
    credit: Literal["nodes", "leaves"] = param("nodes", "Shared tokens have the mean advantage of the leaves below, or each leaf its own.")
    low: float = param(0.1, "Clip range of the worst answers.", title="Narrowest clip (eps low)", gt=0, lt=1)
    high: float = param(0.3, "Clip range of the best answers.", title="Widest clip (eps high)", gt=0, lt=1)
    slope: float = param(1.0, "How fast the clip range widens with the advantage.", title="Slope (eta)", ge=0, le=100, advanced=True)
    pull: float = param(0.1, "Weight of the cross-entropy on the best leaf of a group.", title="Pull (lambda)", ge=0, le=100)


@dataclass
class Tree:
    """The open and finished branches of a group. ``room``: leaves that it may still get."""

    rows: range
    nodes: "list[Node]" = field(default_factory=list)

    @property
    def room(self) -> int:
        return len(self.rows) - len(self.nodes)


class DynamicTreeRPO(Method):
    card = Card(
        name="dynamic-treerpo",
        title="Tree with rising noise",
        arxiv="2509.23352",
        system="Dynamic-TreeRPO (LayerTuning-RL)",
        base="grpo",
        provenance="abstract",
        source="abstract; public reviews for the binary tree, noise that is linear in depth, bounds by reward and the best path as a target",
        fit="needs-modality",
        idea="Text stand-in. Sample a group as a tree with shared beginnings, hotter with depth, and pull the policy to the best leaf.",
        formula=(
            r"T_k = T\left(1 + \beta\, \frac{k}{d}\right), \quad A_{\mathrm{node}} = \mathrm{mean}_{\mathrm{leaves\ below}} A",
            r"\epsilon_i = \epsilon_{lo} + (\epsilon_{hi} - \epsilon_{lo})\, \sigma(\eta A_i)",
            r"L = L_{\mathrm{clip}} - \lambda\, \mathrm{mean}_{g}\, (R^*_g - \bar R_g)\, \frac{1}{|y^*_g|} \log \pi_\theta(y^*_g)",
        ),
        reading="all formulas, and every default but the arity of 2",
        departures=(
            "A text stand-in: the tree branches over tokens, not over denoising steps of an image.",
            "The noise is the sampling temperature; the pull is cross-entropy, not a squared distance of velocities.",
            "All tokens are trained on; the paper trains on the steps of the tree alone.",
            "A tree has 2 levels by default, in place of 4, as groups have 8 members here.",
        ),
        claim=("dynamic-treerpo/saved", "higher"),
        parallel=False,
    )
    Config = Config
    owns = frozenset({"rollout", "policy loss"})
    roles = {"row_advantages": "maps"}
    idle = {"row_advantages": ("credit", "leaves")}

    def rollout(self, session: "Session") -> "list[Completion]":
        config = self.config
        leaves = config.arity**config.depth
        trees = [Tree(rows) for rows in list_group_rows(len(session.examples), session.first_row, session.group_size).values()]
        for tree in trees:
            tree.nodes = [episode.root for episode in session.begin(tree.rows[: ceil(len(tree.rows) / leaves)])]
        for level in range(config.depth):
            self.play_trees(session, trees, level, pause=config.segment)
            for tree in trees:
                self.split_tree(session, tree, level + 1)
        self.play_trees(session, trees, config.depth)
        self.fill_up(session, trees)
        self.take_prompts(session, trees)
        ends = [node for tree in trees for node in tree.nodes]
        self.report(ends)
        return session.finish(ends, shared="every")

    def play_trees(self, session: "Session", trees: Sequence[Tree], level: int, pause: int = 0) -> None:
        """All open branches go on, at the temperature of their depth; with ``pause`` for a segment, or to the end of the turn in it."""
        heat = heat_depth(session.temperature, level, self.config.depth, self.config.rise)
        before = [node for tree in trees for node in tree.nodes]
        played = iter(session.play(before, turns=1 if pause else 0, temperature=heat, pause=pause))
        for tree in trees:
            tree.nodes = [next(played) for _ in tree.nodes]

    def split_tree(self, session: "Session", tree: Tree, level: int) -> None:
        """Each open branch splits as long as the group has room."""
        counts = iter(count_splits(sum(not node.finish for node in tree.nodes), tree.room, self.config.arity))
        made: list[Node] = []
        for node in tree.nodes:
            count = 1 if node.finish else next(counts)
            made += [node] if count == 1 else session.branch(node, count, f"split {level}")
        tree.nodes = made

    def fill_up(self, session: "Session", trees: Sequence[Tree]) -> None:
        """Further rollouts from the prompt where branches ended before they could split."""
        rows = [row for tree in trees for row in tree.rows[len(tree.nodes) :]]
        further = iter(session.play([episode.root for episode in session.begin(rows)]))
        for tree in trees:
            tree.nodes += [next(further) for _ in range(tree.room)]

    def take_prompts(self, session: "Session", trees: Sequence[Tree]) -> None:
        """A leaf answers the prompt that its tree began with, where other methods ask members of a group differently."""
        asked = list(session.prompts)
        for tree in trees:
            for row, node in zip(tree.rows, tree.nodes, strict=True):
                episode = node.episode
                session.prompts[row] = asked[episode.group * session.group_size + episode.member - session.first_row]

    def report(self, ends: "Sequence[Node]") -> None:
        """``tokens``: that were sampled for the batch; ``saved``: the share that independent rollouts of the same lengths would have taken more."""
        paths = [[node for node in end.episode.path(end) if node.by == "policy"] for end in ends]
        sampled = sum(len(node.ids) for node in {id(node): node for path in paths for node in path}.values())
        alone = sum(len(node.ids) for path in paths for node in path)
        self.log("tokens", sampled)
        self.log("saved", 1 - sampled / max(1, alone))
        self.log("trees", len({id(end.episode) for end in ends}) / len(ends))

    def row_advantages(self, batch: "RowBatch", advantages: Tensor) -> Tensor:
        return average_nodes(advantages, batch.nodes) if self.config.credit == "nodes" else advantages

    def policy_loss(self, batch: "LossBatch") -> Tensor:
        advantages = batch.token_advantages()
        epsilon = compute_clip_range(advantages, self.config.low, self.config.high, self.config.slope)
        return batch.base_mean(clip_losses(batch.logprobs - batch.old_logprobs, advantages, epsilon))

    def loss(self, batch: "LossBatch") -> Tensor | None:  # type: ignore[override]
        if not self.config.pull:
            return None
        rollout = batch.rollout
        weights = weigh_best_leaves(rollout.shaped, rollout.group_size)
        groups = len(weights) / rollout.group_size
        own = batch.of(weights).to(batch.logprobs)
        self.log("pull_weight", weights.sum() / groups)
        return self.config.pull * batch.slices * (own * masked_row_mean(-batch.logprobs, batch.mask)).sum() / groups

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Tokens saved by sharing", (Series(f"{name}/saved", "share"),), help="Against rollouts of the same lengths, each by itself."),
            Panel("Trees for a rollout", (Series(f"{name}/trees", "1: no branches"),)),
            Panel("Weight of the best leaf", (Series(f"{name}/pull_weight", "best reward above the mean"),)),
        )
