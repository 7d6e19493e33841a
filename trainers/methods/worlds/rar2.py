"""RAR^2: a thought is the query, and preferences are over thoughts and over answers (arXiv 2509.22713).

z ~ pi(. | q) a thought, D(z) what it retrieves, a ~ pi(. | q, z, D) an answer
v(z) = share of right answers among n
thought pairs (z+, z-):  v(z+) - v(z-) >= delta
answer pairs (a+, a-):   for one (q, z, D), a right and a wrong answer
L = mean over both kinds of -log sigmoid(beta [log pi/pi_ref(y+ | c) - log pi/pi_ref(y- | c)]),  c = q for thoughts, (q, z, D) for answers

It differs from DPO in its pairs, which it makes from the policy's own episodes before training; the rows it is given say the questions alone.

This is our interpretation of the abstract. Here a thought is the first query of an episode of the world ``search``, and an answer is the rest of the
episode, which may search again. beta, delta and all counts are ours. The pairs of an episode's parts share their beginning, whose ratio is in both
sides and cancels; what the world writes later, and the end of a message that stops after a thought, are masked. The two ways of spending more at
test time are not implemented.
"""

from collections.abc import Sequence
from itertools import combinations
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.attempt import ranks
from trainers.contract.hyperparameters import Strict, param
from trainers.data.episode_samples import continue_episodes, write_pieces, write_replay
from trainers.data.pair_rows import examples_of, to_answer_messages
from trainers.data.turn_masks import OWN, TurnMasks, list_own_spans
from trainers.maths.thresholds import is_at_least
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.policies.sampling import as_rows
from trainers.tasks.base import Example, digest_example
from trainers.worlds.base import Replay
from trainers.worlds.replays import read_final_answer
from trainers.worlds.search import Search
from trainers.worlds.tool_use import write_call

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext

THOUGHT, ANSWER = "thought", "answer"
Row = dict[str, Any]


def pair_by_value(values: Sequence[float], delta: float) -> list[tuple[int, int]]:
    """(better, worse) of any two whose values differ by at least ``delta``."""
    pairs = combinations(sorted(range(len(values)), key=lambda place: -values[place]), 2)
    return [(better, worse) for better, worse in pairs if is_at_least(values[better] - values[worse], delta)]


def pair_right_and_wrong(is_right: Sequence[bool]) -> tuple[int, int] | None:
    """(the first right, the first wrong); None without either."""
    return (is_right.index(True), is_right.index(False)) if any(is_right) and not all(is_right) else None


def find_thoughts(episodes: Sequence[Replay]) -> list[Replay]:
    """Episodes that begin with a search, one for each first query."""
    found: dict[str, Replay] = {}
    for episode in episodes:
        if episode.turns and "tool" in episode.turns[0].step.facts:
            found.setdefault(episode.turns[0].text, episode)
    return list(found.values())


def compute_query_recall(world: Search, example: Example, query: str) -> float:
    """Share of the needed sentences that one search finds."""
    step = world.step(example, world.begin(example), "policy", query, world.draw_noise(example, 0))
    return len(step.facts.get("evidence", ())) / len(example.data["evidence"])


class Config(Strict):
    prompts: int = param(128, "Questions that pairs are made from (ours).", ge=1, le=1_000_000)
    thoughts: int = param(4, "Episodes whose first queries are the thoughts of a question (ours).", title="Thoughts", ge=1, le=256)
    answers: int = param(4, "Answers that a thought's value is the mean of (n, ours).", title="Answers (n)", ge=2, le=256)
    delta: float = param(0.5, "Least difference of the values of a pair of thoughts (ours).", title="Least difference (delta)", gt=0, le=1)
    temperature: float = param(1.0, "Sampling temperature of thoughts and answers.", advanced=True, gt=0, le=10)


class RAR2(Method):
    card = Card(
        name="rar2",
        title="Preferences over thoughts and answers",
        arxiv="2509.22713",
        system="RAR^2",
        base="dpo",
        provenance="abstract",
        source="abstract; a note on the mixed set of thought pairs and answer pairs",
        fit="needs-environment",
        idea="Let a thought be the query, value it by how often answers after it are right, and prefer better thoughts as well as better answers.",
        formula=(
            r"v(z) = \frac{1}{n} \sum_{i=1}^{n} [a_i \text{ right}], \quad a_i \sim \pi(\cdot | q, z, D(z))",
            r"v(z^+) - v(z^-) \ge \delta",
            r"L = -\log \sigma\left(\beta \left[\log\frac{\pi(y^+|c)}{\pi_{ref}(y^+|c)} - \log\frac{\pi(y^-|c)}{\pi_{ref}(y^-|c)}\right]\right)",
        ),
        reading="beta, delta and the counts are our choices; that the set mixes both kinds of pairs is second-hand",
        departures=(
            "A thought is the first query of an episode in the world search; the answer after it may search again.",
            "The two ways of spending more at test time are not implemented.",
        ),
    )
    Config = Config
    roles = {"data": "makes", "pair_ratios": "maps", "pair_loss": "reads"}
    trains = frozenset({"dpo"})
    excludes = {"ipo": "it divides by all tokens of a side, those of the world included"}
    worlds = frozenset({"search"})

    def prepare(self, run: "RunContext") -> None:
        self.masks = TurnMasks(run.tokenizer)

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        return ranks.done_by_first(lambda: self.make_pairs(rows, run))

    def make_pairs(self, rows: list[Row], run: "RunContext") -> list[Row]:
        known = {digest_example(example): example for example in examples_of(rows, run) if example is not None}
        examples = list(known.values())[: self.config.prompts]
        asked = [example for example in examples for _ in range(self.config.thoughts)]
        episodes = continue_episodes(run, asked, [()] * len(asked), self.config.temperature, "thoughts")
        thoughts = [
            (example, thought)
            for place, example in enumerate(examples)
            for thought in find_thoughts(episodes[place * self.config.thoughts : (place + 1) * self.config.thoughts])
        ]
        asked = [example for example, _ in thoughts for _ in range(self.config.answers)]
        begun = [write_pieces(thought, 1) for _, thought in thoughts for _ in range(self.config.answers)]
        answers = continue_episodes(run, asked, begun, self.config.temperature, "answers")
        groups = [answers[place : place + self.config.answers] for place in range(0, len(answers), self.config.answers)]
        right = [[read_final_answer(one) == example.reference for one in group] for (example, _), group in zip(thoughts, groups, strict=True)]
        made = self.pair_thoughts(thoughts, right)
        for (example, _), group, is_right in zip(thoughts, groups, right, strict=True):
            if (found := pair_right_and_wrong(is_right)) is not None:
                made.append(make_row(example, ANSWER, *(group[place] for place in found)))
        self.report_recall(run, thoughts)
        return made

    def pair_thoughts(self, thoughts: Sequence[tuple[Example, Replay]], right: Sequence[Sequence[bool]]) -> list[Row]:
        by_question: dict[bytes, list[int]] = {}
        for place, (example, _) in enumerate(thoughts):
            by_question.setdefault(digest_example(example), []).append(place)
        made = []
        for places in by_question.values():
            values = [sum(right[place]) / len(right[place]) for place in places]
            for better, worse in pair_by_value(values, self.config.delta):
                (example, good), (_, bad) = thoughts[places[better]], thoughts[places[worse]]
                made.append(make_row(example, THOUGHT, good, bad))
        return made

    def report_recall(self, run: "RunContext", thoughts: Sequence[tuple[Example, Replay]]) -> None:
        """Of the thoughts as queries, and of the questions themselves."""
        world = run.task
        assert isinstance(world, Search)
        if not thoughts:
            return
        own = [compute_query_recall(world, example, thought.turns[0].text) for example, thought in thoughts]
        raw = [compute_query_recall(world, example, write_call("search", example.prompt[-1].content)) for example, _ in thoughts]
        self.log("recall_thought", sum(own) / len(own))
        self.log("recall_question", sum(raw) / len(raw))

    def pair_ratios(self, batch: "PairBatch", chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
        own = self.masks.mask_side(batch.rows, "chosen", batch.chosen_ids, batch.chosen_mask)
        other = self.masks.mask_side(batch.rows, "rejected", batch.rejected_ids, batch.rejected_mask)
        return chosen * own, rejected * other

    def pair_loss(self, batch: "PairBatch", score: Tensor, base: Any) -> Tensor:
        """The base's loss; logs margins and shares by the kind of pair."""
        for kind in (THOUGHT, ANSWER):
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
            Panel("Margin by kind", (Series(f"{name}/margin/thought", "thought pairs"), Series(f"{name}/margin/answer", "answer pairs"))),
            Panel("Kinds of pairs", (Series(f"{name}/share/thought", "thoughts"), Series(f"{name}/share/answer", "answers")), "stack"),
            Panel(
                "Recall of one search before training",
                (Series(f"{name}/recall_thought", "thoughts as queries"), Series(f"{name}/recall_question", "questions as queries")),
                help="Share of the needed sentences; logged at step 1.",
            ),
        )


def make_row(example: Example, kind: str, chosen: Replay, rejected: Replay) -> Row:
    """A pair of first turns, or of what follows the same first turn."""
    made: Row = {"prompt": as_rows(example.prompt), "kind": kind, OWN: {}}
    for side, replay in (("chosen", chosen), ("rejected", rejected)):
        is_thought, spans = kind == THOUGHT, list_own_spans(replay)
        text = replay.turns[0].text if is_thought else write_replay(replay)
        made[side] = to_answer_messages(text)
        made[OWN][text] = spans[:1] if is_thought else list_own_spans(replay, 1)
    return made
