"""Tool-Light: preferences for lean episodes with tools, from branches where the policy is least sure (arXiv 2509.23285).

A step is what the policy writes between two answers of tools. H_i(n) is the mean entropy of the first n tokens of step i, n = 1 to 5 times
``stride``; H_i = max_n H_i(n), at n_i. Of each question there are ``samples`` episodes from the prompt, and a tree: one episode, and ``branches``
continuations of it from each of the ``steps`` steps with the largest H_i, after n_i of its tokens. A question is hard where less than half as many
are right as wrong.

aligned (stage 1):  tree: the right episode with the fewest calls, of equals the one with the lowest mean entropy, against a wrong one with more
                    calls; without a right one the world's own is chosen. Samples: the shortest right one against a longer wrong one.
evolved (stage 2):  easy questions as before; hard ones: the longest right episode against the shortest wrong one.

The pairs are trained on with the base's loss, and the world's words do not count. A run is one stage; the next starts from its policy, which is then
the reference, and the second stage is repeated. It differs from DPO in its pairs alone. Questions that the policy answers right without a tool are
left out first (``filter``). Which of several wrong episodes is taken, and what is hard in the first stage, is ours.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.attempt import ranks
from trainers.contract.hyperparameters import Strict, param
from trainers.data.episode_samples import write_replay
from trainers.data.pair_rows import examples_of, to_answer_messages
from trainers.data.pairs import NoPairs
from trainers.data.turn_masks import OWN, TurnMasks, list_own_spans
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.policies.sampling import as_rows
from trainers.tasks.base import Example, digest_example
from trainers.worlds.base import Replay, World, replay_episode
from trainers.worlds.replays import count_calls

if TYPE_CHECKING:
    import random

    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.rollouts.tree import Node

STRIDES = 5  # prefix lengths that are looked at
ANSWER = "<answer>"
EASY, HARD = "easy", "hard"
Row = dict[str, Any]


@dataclass(frozen=True)
class Trajectory:
    """An episode. ``entropy``: mean over the policy's tokens, nats; ``length``: tokens, the world's included."""

    replay: Replay
    is_right: bool
    calls: int
    entropy: float
    length: int


Pair = tuple[Trajectory, Trajectory]  # chosen, rejected


def find_entropy_peak(entropies: Sequence[float], stride: int) -> tuple[float, int]:
    """(H_i, n_i) of the entropies of a step's tokens; n_i is the first of equals, and 0 where the prefix would be the whole step."""
    means = [(sum(entropies[:count]) / len(entropies[:count]), count) for count in range(stride, stride * STRIDES + 1, stride) if entropies]
    if not means:
        return 0.0, 0
    peak, count = max(means, key=lambda one: one[0])
    return peak, count if count < len(entropies) else 0


def choose_branch_steps(peaks: Sequence[float], count: int) -> list[int]:
    """Places of the ``count`` largest, the largest first."""
    return sorted(range(len(peaks)), key=lambda place: -peaks[place])[:count]


def is_hard(found: Sequence[Trajectory]) -> bool:
    """Whether less than half as many are right as wrong."""
    right = sum(one.is_right for one in found)
    return right < (len(found) - right) / 2


def pair_fewest_calls(found: Sequence[Trajectory], fallback: Trajectory | None = None) -> Pair | None:
    """The leanest right one with the wrong one of most calls, if these are more; ``fallback``: in the place of a right one."""
    chosen = min((one for one in found if one.is_right), key=lambda one: (one.calls, one.entropy), default=fallback)
    rejected = max((one for one in found if not one.is_right), key=lambda one: one.calls, default=None)
    return (chosen, rejected) if chosen is not None and rejected is not None and rejected.calls > chosen.calls else None


def pair_shortest(found: Sequence[Trajectory]) -> Pair | None:
    """The shortest right one with the longest wrong one, if that is longer."""
    chosen = min((one for one in found if one.is_right), key=lambda one: one.length, default=None)
    rejected = max((one for one in found if not one.is_right), key=lambda one: one.length, default=None)
    return (chosen, rejected) if chosen is not None and rejected is not None and rejected.length > chosen.length else None


def pair_longest(found: Sequence[Trajectory]) -> Pair | None:
    """The longest right one with the shortest wrong one."""
    chosen = max((one for one in found if one.is_right), key=lambda one: one.length, default=None)
    rejected = min((one for one in found if not one.is_right), key=lambda one: one.length, default=None)
    return (chosen, rejected) if chosen is not None and rejected is not None else None


def limit_easy(rows: Sequence[Row], share: float, rng: "random.Random") -> list[Row]:
    """Rows of which at most ``share`` are of easy questions, wherever there are hard ones; which of the easy ones stay is drawn."""
    hard, easy = ([row for row in rows if row["kind"] == kind] for kind in (HARD, EASY))
    if share >= 1 or not hard:
        return list(rows)
    kept = rng.sample(range(len(easy)), min(len(easy), int(share / (1 - share) * len(hard) + 1e-9)))
    return [*hard, *(easy[place] for place in sorted(kept))]


class Config(Strict):
    stage: Literal["aligned", "evolved"] = param("aligned", "Rule for hard questions: fewest calls, or the longest right episode.", title="Stage")
    prompts: int = param(96, "Questions that pairs are made from; the authors take 4000.", ge=1, le=1_000_000)
    samples: int = param(10, "Episodes of a question from its prompt.", title="Samples", ge=0, le=256)
    steps: int = param(3, "Steps of the tree's first episode that branches leave.", title="Branch steps", ge=0, le=64)
    branches: int = param(3, "Continuations from each of them.", title="Branches", ge=1, le=64)
    stride: int = param(10, "Entropies are averaged over the first 1 to 5 times as many tokens of a step.", title="Stride", ge=1, le=1000)
    guide: Literal["entropy", "random"] = param("entropy", "Which steps and places branches leave.", title="Branch points", advanced=True)
    filter: bool = param(True, "Leave out questions that are answered right, greedily, without a tool.", title="Only where tools are needed")
    easy: float = param(1 / 3, "Stage 1: largest share of pairs of easy questions; 1 keeps all.", title="Easy share", ge=0, le=1)
    temperature: float = param(1.0, "Sampling temperature.", advanced=True, gt=0, le=10)


class ToolLight(Method):
    card = Card(
        name="tool-light",
        title="Lean tool use from entropy-guided branches",
        arxiv="2509.23285",
        system="Tool-Light",
        base="dpo",
        provenance="code",
        source="github asilverlight/Tool-Light: entropy_guided_sample, step1_dpo.yaml, step2_dpo.yaml; a note on the paper for the rules of pairs",
        fit="needs-environment",
        idea="Branch episodes where the policy is least sure, and prefer right ones with few calls to wrong ones with many, and in a second stage"
        " what hard questions need.",
        formula=(
            r"H_i = \max_n \frac{1}{n} \sum_{j \le n} H(\pi(\cdot | s_{i,j})), \quad n \in \{10, 20, 30, 40, 50\}",
            r"y_w = \arg\min_{y\ \mathrm{right}} (\mathrm{calls}(y), \bar H(y)), \quad \mathrm{calls}(y_l) > \mathrm{calls}(y_w)",
            r"L = -\log \sigma\left(\beta \left[\log\frac{\pi(y_w|x)}{\pi_{ref}(y_w|x)} - \log\frac{\pi(y_l|x)}{\pi_{ref}(y_l|x)}\right]\right)",
        ),
        reading="which of several wrong episodes is rejected, and what is hard in the first stage",
        departures=(
            "A step that is no longer than the prefix is written anew from its beginning; the code goes on after its end.",
            "Entropies are exact, over the whole vocabulary; the code takes the fifty likeliest tokens.",
            "An episode is right where its answer is the reference; the authors ask for an F1 of 1.",
            "Without a right episode the world's own way takes the place of the supervised one.",
        ),
        claim=("heldout/called", "higher"),
    )
    Config = Config
    roles = {"data": "makes", "pair_ratios": "maps", "pair_loss": "reads"}
    trains = frozenset({"dpo"})
    excludes = {"ipo": "it divides by all tokens of a side, those of the world included"}
    worlds = frozenset({"graph", "search", "sums", "tables"})

    def prepare(self, run: "RunContext") -> None:
        self.masks = TurnMasks(run.tokenizer)

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        return ranks.done_by_first(lambda: self.make_pairs(rows, run))

    def make_pairs(self, rows: list[Row], run: "RunContext") -> list[Row]:
        """Raises NoPairs."""
        config = self.config
        known = {digest_example(example): example for example in examples_of(rows, run) if example is not None}
        examples = self.keep_unanswered(list(known.values())[: config.prompts], run)
        vanilla = self.sample_episodes(examples, run)
        trees = self.grow_trees(examples, run)
        made: list[Row] = []
        for example, own, tree in zip(examples, vanilla, trees, strict=True):
            hard = is_hard([*own, *tree])
            self.log("hard", float(hard))
            for pair in self.pair_question(own, tree, hard, run.task, example):
                made.append(write_pair_row(example, HARD if hard else EASY, pair))
                for side, one in zip(("chosen", "rejected"), pair, strict=True):
                    self.log(f"calls/{side}", one.calls)
        if config.stage == "aligned":
            made = limit_easy(made, config.easy, run.rng("tool-light", "easy"))
        if not made:
            raise NoPairs(f"none of {len(examples)} questions gave a pair: sample more episodes, or take more questions")
        self.log("pairs", len(made))
        return made

    def keep_unanswered(self, examples: list[Example], run: "RunContext") -> list[Example]:
        """Those that are not answered right at once."""
        if not self.config.filter or not examples:
            return examples
        session = run.session(examples, "tool-light/filter")
        begun = [session.force(episode.root, ANSWER) for episode in session.begin()]
        right = [session.is_right(leaf) for leaf in session.play(begun, temperature=0.0)]
        self.log("needless", sum(right) / len(right))
        return [example for example, fine in zip(examples, right, strict=True) if not fine]

    def sample_episodes(self, examples: list[Example], run: "RunContext") -> list[list[Trajectory]]:
        count = self.config.samples
        if not count or not examples:
            return [[] for _ in examples]
        session = run.session(examples, "tool-light/samples", group_size=count, temperature=self.config.temperature)
        found = [read_trajectory(session, leaf) for leaf in session.play([episode.root for episode in session.begin()])]
        return [found[start : start + count] for start in range(0, len(found), count)]

    def grow_trees(self, examples: list[Example], run: "RunContext") -> list[list[Trajectory]]:
        """Of each question one episode, and what branches off it."""
        if not self.config.steps or not examples:
            return [[] for _ in examples]
        session = run.session(examples, "tool-light/trees", temperature=self.config.temperature)
        trunks = session.play([episode.root for episode in session.begin()])
        found = [[read_trajectory(session, leaf)] for leaf in trunks]
        open_ = [(place, node) for place, leaf in enumerate(trunks) for node in self.branch_trunk(session, leaf)]
        texts = [set[str]() for _ in examples]
        for (place, _), leaf in zip(open_, session.play([node for _, node in open_]), strict=True):
            found[place].append(read_trajectory(session, leaf))
            texts[place].add(session.text_of(leaf))
        if open_:
            self.log("different", sum(map(len, texts)) / len(open_))
        return found

    def branch_trunk(self, session: "Session", leaf: "Node") -> "list[Node]":
        """Open nodes beside the steps of the first episode."""
        config = self.config
        turns = [turn for turn in leaf.episode.turns(leaf) if turn[0].ids]
        peaks = [find_entropy_peak(turn[0].entropies, config.stride) for turn in turns]
        if config.guide == "random":
            peaks = [(session.rng.random(), session.rng.randrange(len(turn[0].ids))) for turn in turns]
        made: list[Node] = []
        for place in choose_branch_steps([peak for peak, _ in peaks], config.steps):
            node, (peak, token) = turns[place][0], peaks[place]
            above = node if token else node.episode.parent(node)
            assert above is not None  # a turn has a prompt above it
            made += session.branch(above, config.branches, f"entropy {peak:.2f}" if config.guide == "entropy" else "at random", token=token)
        return made

    def pair_question(self, own: list[Trajectory], tree: list[Trajectory], hard: bool, world: Any, example: Example) -> list[Pair]:
        if self.config.stage == "evolved" and hard:
            found = [pair_longest(own), pair_longest(tree)]
        else:
            found = [pair_shortest(own), pair_fewest_calls(tree, read_gold(world, example) if tree else None)]
        return [pair for pair in found if pair is not None]

    def pair_ratios(self, batch: "PairBatch", chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
        own = self.masks.mask_side(batch.rows, "chosen", batch.chosen_ids, batch.chosen_mask)
        other = self.masks.mask_side(batch.rows, "rejected", batch.rejected_ids, batch.rejected_mask)
        return chosen * own, rejected * other

    def pair_loss(self, batch: "PairBatch", score: Tensor, base: Any) -> Tensor:
        """The base's loss; logs margins and shares of easy and hard questions."""
        for kind in (EASY, HARD):
            own = torch.tensor([row.get("kind") == kind for row in batch.rows], device=score.device)
            self.log(f"share/{kind}", own.float().mean())
            if own.any():
                self.log(f"margin/{kind}", score.detach()[own].mean())
        losses: Tensor = base(score)
        return losses

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Calls of a pair's sides",
                (Series(f"{name}/calls/chosen", "chosen"), Series(f"{name}/calls/rejected", "rejected")),
                help="Logged at step 1.",
            ),
            Panel(
                "Questions and branches",
                (
                    Series(f"{name}/needless", "answered without a tool"),
                    Series(f"{name}/hard", "hard"),
                    Series(f"{name}/different", "different leaves, of branches", dashed=True),
                ),
                help="Logged at step 1.",
            ),
            Panel("Margin by difficulty", (Series(f"{name}/margin/easy", "easy"), Series(f"{name}/margin/hard", "hard"))),
            Panel("Pairs by difficulty", (Series(f"{name}/share/easy", "easy"), Series(f"{name}/share/hard", "hard")), "stack"),
        )


def read_trajectory(session: "Session", leaf: "Node") -> Trajectory:
    """The episode that ends at ``leaf``."""
    world, episode = session.run.task, leaf.episode
    assert isinstance(world, World)
    replay = replay_episode(world, episode.example, session.text_of(leaf))
    entropies = [value for turn in episode.turns(leaf) for node in turn if node.by == "policy" for value in node.entropies]
    mean = sum(entropies) / max(1, len(entropies))
    return Trajectory(replay, session.is_right(leaf), count_calls(replay), mean, len(episode.context_ids(leaf)[1]))


def read_gold(world: World, example: Example) -> Trajectory:
    """The world's own episode; its entropy and length are compared with nothing."""
    replay = replay_episode(world, example, world.gold(example))
    return Trajectory(replay, True, count_calls(replay), 0.0, 0)


def write_pair_row(example: Example, kind: str, pair: Pair) -> Row:
    made: Row = {"prompt": as_rows(example.prompt), "kind": kind, OWN: {}}
    for side, one in zip(("chosen", "rejected"), pair, strict=True):
        text = write_replay(one.replay)
        made[side] = to_answer_messages(text)
        made[OWN][text] = list_own_spans(one.replay)
    return made
