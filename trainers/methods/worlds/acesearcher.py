"""AceSearcher: one policy plans and solves, and learns both from the final answers alone (arXiv 2509.24193).

s(y) = EM + ACC + F1 of a final answer, 0 to 3; S(d) = mean of s over the answers sampled after the plan d
plans:          (argmax S, argmin S) where S(d+) - S(d-) >= 1.33 and S(d-) <= 1; d+ with less than 7 sub-questions and #k where it refers to one
solutions:      after one plan, each of the two best with the one of the two worst whose answers to sub-questions agree most with its own, where
                max s - min s > 1.33, min s <= 1.2 and 0.666 of these answers agree
sub-questions:  the first answer in which the best and the worst solution differ, where they share no word
L = L_DPO + alpha NLL(chosen) / |chosen|

It differs from DPO in its pairs, which it makes from the policy's own episodes before training (the rows it is given say the questions alone), and in
the term alpha; no sub-question has a label. In the authors' code planner and solver are two prompts of one policy, with floor(15 / sub-questions)
documents for each. Here they are turns of one episode of the world ``planned_search``, which looks the sub-questions up; the supervised stage is its
cold start. A run is one of the paper's two rounds: the second one is a run that starts from the policy of the first. Of each pair only what follows
the beginning that both sides share counts, without the world's words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.attempt import ranks
from trainers.contract.hyperparameters import Strict, param
from trainers.data.episode_samples import continue_episodes, write_pieces, write_replay
from trainers.data.pair_rows import examples_of, to_answer_messages
from trainers.data.turn_masks import OWN, TurnMasks, list_own_spans
from trainers.maths.reduce import masked_row_mean
from trainers.maths.thresholds import is_above, is_at_least
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.policies.sampling import as_rows
from trainers.tasks.base import Example, digest_example
from trainers.texts.token_overlap import compute_f1, split_answer_words
from trainers.worlds.base import Replay
from trainers.worlds.planned_search import SUB, is_single_step
from trainers.worlds.replays import read_final_answer

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext

PLAN, SOLUTION, SUBQUESTION = "plan", "solution", "subquestion"
KINDS = (PLAN, SOLUTION, SUBQUESTION)
PLAN_GAP, PLAN_LOW = 1.33, 1.0  # least difference of two plans; most that the worse one may have
SOLUTION_GAP, SOLUTION_LOW, AGREEING = 1.33, 1.2, 0.666
MOST_SUBQUESTIONS = 6
ENDS = 2  # best and worst solutions that are paired
Row = dict[str, Any]


@dataclass(frozen=True)
class Planned:
    """A plan and the solutions sampled after it, with their scores."""

    example: Example
    solutions: Sequence[Replay]
    scores: Sequence[float]

    @property
    def plan(self) -> list[str]:
        found: list[str] = self.solutions[0].turns[0].step.state["plan"]
        return found

    @property
    def score(self) -> float:
        return sum(self.scores) / len(self.scores)


def score_final_answer(answer: str | None, gold: str) -> float:
    """EM + ACC + F1, 0 to 3; ACC is whether the right answer stands in the answer."""
    said, right = (split_answer_words(text, articles=False) for text in (answer or "", gold))
    return float(said == right) + float(f" {' '.join(right)} " in f" {' '.join(said)} ") + compute_f1(said, right)


def choose_plans(scores: Sequence[float], valid: Sequence[bool]) -> tuple[int, int] | None:
    """(best, worst); None where they are too near, the worst is too good, or the best may not be learnt."""
    if not scores:
        return None
    best, worst = max(range(len(scores)), key=scores.__getitem__), min(range(len(scores)), key=scores.__getitem__)
    apart = is_at_least(scores[best] - scores[worst], PLAN_GAP) and not is_above(scores[worst], PLAN_LOW)
    return (best, worst) if apart and valid[best] else None


def is_valid_plan(plan: Sequence[str]) -> bool:
    return 0 < len(plan) <= MOST_SUBQUESTIONS and all("#" in question for question in plan if "subquestion" in question.lower())


def compute_agreement(own: Sequence[str], other: Sequence[str]) -> float:
    """Share of the answers to sub-questions that are the same; 1 where there are none."""
    count = max(len(own), len(other))
    return sum(one == another for one, another in zip(own, other, strict=False)) / count if count else 1.0


def choose_solutions(scores: Sequence[float], answers: Sequence[Sequence[str]]) -> list[tuple[int, int]]:
    """(better, worse) of one plan's solutions; ``answers``: to the sub-questions of each."""
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    if not order or not is_above(scores[order[0]] - scores[order[-1]], SOLUTION_GAP) or is_above(scores[order[-1]], SOLUTION_LOW):
        return []
    made = []
    for better in order[:ENDS]:
        apart = [place for place in reversed(order[-ENDS:]) if is_above(scores[better] - scores[place], SOLUTION_GAP)]
        low = [place for place in apart if not is_above(scores[place], SOLUTION_LOW)]
        worse = max(low, key=lambda place: compute_agreement(answers[better], answers[place]), default=None)
        if worse is not None and is_at_least(compute_agreement(answers[better], answers[worse]), AGREEING):
            made.append((better, worse))
    return made


def find_first_difference(own: Sequence[str], other: Sequence[str]) -> int | None:
    """The first sub-question that both answer otherwise, where the answers share no word; None where there is none, or they share one."""
    for place, (one, another) in enumerate(zip(own, other, strict=False)):
        if one != another:
            return None if compute_f1(split_answer_words(one), split_answer_words(another)) else place
    return None


def list_answer_turns(replay: Replay) -> list[int]:
    """Numbers of the turns that answer a sub-question."""
    return [number for number, turn in enumerate(replay.turns) if turn.step.facts.get("tool") == SUB and "error" not in turn.step.facts]


class Config(Strict):
    prompts: int = param(96, "Questions that pairs are made from (ours).", ge=1, le=1_000_000)
    plans: int = param(4, "Episodes whose first turns are the plans of a question (ours).", title="Plans", ge=1, le=256)
    solutions: int = param(4, "Solutions sampled after each plan (ours).", title="Solutions", ge=2, le=256)
    alpha: float = param(0.2, "Weight of the chosen side's likelihood; the authors' value for 1.5B.", title="Likelihood (alpha)", ge=0, le=100)
    temperature: float = param(0.7, "Sampling temperature of plans and solutions.", title="Temperature", gt=0, le=10)


class AceSearcher(Method):
    card = Card(
        name="acesearcher",
        title="Plans and solutions from final answers",
        arxiv="2509.24193",
        system="AceSearcher",
        base="dpo",
        provenance="code",
        source="github ritaranx/AceSearcher: rollout/create_train_data.py, create_dpo_pairs.py, configs",
        fit="needs-environment",
        idea="One policy splits questions and solves them; how often final answers are right says which plans and which solutions to prefer.",
        formula=(
            r"s(y) = EM + ACC + F_1, \qquad S(d) = \mathrm{mean}_j\, s(y_j | d)",
            r"(d^+, d^-):\ S(d^+) - S(d^-) \ge 1.33,\ S(d^-) \le 1",
            r"L = L_{DPO} + \alpha\, \frac{-\log \pi(y^+|c)}{|y^+|}",
        ),
        departures=(
            "Planner and solver are turns of one episode of the world planned_search, in place of two prompts.",
            "Every sub-question has the same number of sentences; nucleus sampling is left out.",
            "A run is one round; the supervised stage is the world's cold start.",
        ),
    )
    Config = Config
    roles = {"data": "makes", "pair_ratios": "maps", "pair_loss": "reads"}
    trains = frozenset({"dpo"})
    excludes = {"ipo": "it divides by all tokens of a side, those of the world included"}
    worlds = frozenset({"planned_search"})

    def prepare(self, run: "RunContext") -> None:
        self.masks = TurnMasks(run.tokenizer)

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        return ranks.done_by_first(lambda: self.make_pairs(rows, run))

    def make_pairs(self, rows: list[Row], run: "RunContext") -> list[Row]:
        found = self.sample_plans(rows, run)
        made = self.pair_plans(found)
        for one in found:
            answers = [solution.state["subs"] for solution in one.solutions]
            for better, worse in choose_solutions(one.scores, answers):
                made.append(make_row(one.example, SOLUTION, one.solutions[better], one.solutions[worse], 1))
            made += self.pair_subquestions(one, answers)
        self.log("plans", len(found) / max(1, len({digest_example(one.example) for one in found})))
        if found:
            self.log("single_step", sum(all(map(is_single_step, one.plan)) for one in found) / len(found))
            self.log("plan_score", sum(one.score for one in found) / len(found))
        return made

    def sample_plans(self, rows: list[Row], run: "RunContext") -> list[Planned]:
        """The plans of every question, those of one question one after the other."""
        config = self.config
        known = {digest_example(example): example for example in examples_of(rows, run) if example is not None}
        examples = list(known.values())[: config.prompts]
        asked = [example for example in examples for _ in range(config.plans)]
        begun = dict[tuple[bytes, str], tuple[Example, Replay]]()
        for example, episode in zip(asked, continue_episodes(run, asked, [()] * len(asked), config.temperature, "plans"), strict=True):
            if episode.turns and episode.turns[0].step.state["plan"]:
                begun.setdefault((digest_example(example), episode.turns[0].text), (example, episode))
        plans = list(begun.values())
        asked = [example for example, _ in plans for _ in range(config.solutions)]
        pieces = [write_pieces(episode, 1) for _, episode in plans for _ in range(config.solutions)]
        solved = continue_episodes(run, asked, pieces, config.temperature, "solutions")
        scores = [score_final_answer(read_final_answer(one), example.reference) for example, one in zip(asked, solved, strict=True)]
        groups = [slice(place, place + config.solutions) for place in range(0, len(solved), config.solutions)]
        return [Planned(example, solved[group], scores[group]) for (example, _), group in zip(plans, groups, strict=True)]

    def pair_plans(self, found: Sequence[Planned]) -> list[Row]:
        by_question = dict[bytes, list[Planned]]()
        for one in found:
            by_question.setdefault(digest_example(one.example), []).append(one)
        made = []
        for plans in by_question.values():
            chosen = choose_plans([one.score for one in plans], [is_valid_plan(one.plan) for one in plans])
            if chosen is not None:
                best, worst = (plans[place].solutions[0] for place in chosen)
                made.append(make_row(plans[0].example, PLAN, best, worst, 0))
        return made

    def pair_subquestions(self, one: Planned, answers: Sequence[Sequence[str]]) -> list[Row]:
        best, worst = (choose(range(len(one.scores)), key=one.scores.__getitem__) for choose in (max, min))
        if not is_above(one.scores[best] - one.scores[worst], SOLUTION_GAP):
            return []
        place = find_first_difference(answers[best], answers[worst])
        if place is None:
            return []
        better, worse = one.solutions[best], one.solutions[worst]
        turn = list_answer_turns(better)[place]
        is_asked_alike = list_answer_turns(worse)[place] == turn and write_pieces(better, turn) == write_pieces(worse, turn)
        return [make_row(one.example, SUBQUESTION, better, worse, turn)] if is_asked_alike else []

    def pair_ratios(self, batch: "PairBatch", chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
        own = self.masks.mask_side(batch.rows, "chosen", batch.chosen_ids, batch.chosen_mask)
        other = self.masks.mask_side(batch.rows, "rejected", batch.rejected_ids, batch.rejected_mask)
        return chosen * own, rejected * other

    def loss(self, batch: Any) -> Tensor | None:
        """alpha x the mean negative log-likelihood of a token of the chosen side."""
        if not self.config.alpha:
            return None
        own = self.masks.mask_side(batch.rows, "chosen", batch.chosen_ids, batch.chosen_mask)
        return -self.config.alpha * masked_row_mean(batch.chosen_logprobs, own).mean()

    def pair_loss(self, batch: "PairBatch", score: Tensor, base: Any) -> Tensor:
        """The base's loss; logs margins and shares by the kind of pair."""
        for kind in KINDS:
            own = torch.tensor([row.get("kind") == kind for row in batch.rows], device=score.device)
            self.log(f"share/{kind}", own.float().mean())
            if own.any():
                self.log(f"margin/{kind}", score.detach()[own].mean())
        losses: Tensor = base(score)
        return losses

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        words = dict(zip(KINDS, ("plans", "solutions", "answers to sub-questions"), strict=True))
        return (
            Panel("Margin by kind", tuple(Series(f"{name}/margin/{kind}", words[kind]) for kind in KINDS)),
            Panel("Kinds of pairs", tuple(Series(f"{name}/share/{kind}", words[kind]) for kind in KINDS), "stack"),
            Panel(
                "Plans before training",
                (Series(f"{name}/single_step", "plans of single steps"), Series(f"{name}/plan_score", "score of a plan, of 3", dashed=True)),
                help="Of the sampled plans; logged at step 1.",
            ),
        )


def make_row(example: Example, kind: str, better: Replay, worse: Replay, turn: int) -> Row:
    """A pair of episodes that are the same before ``turn``: of that turn alone, or for solutions of it and all that follows."""
    made: Row = {"prompt": as_rows(example.prompt), "kind": kind, OWN: {}}
    for side, replay in (("chosen", better), ("rejected", worse)):
        spans, text = list_own_spans(replay, turn), write_replay(replay)
        text = text if kind == SOLUTION else text[: spans[0][1]]
        made[side] = to_answer_messages(text)
        made[OWN][text] = spans if kind == SOLUTION else spans[:1]
    return made
