"""GraphDancer: exploring a graph by function calls, with a curriculum of difficulties, then preference pairs of whole episodes (arXiv 2602.02518).

Stage 1 (trainer grpo): questions are in buckets by how many rounds of calls they need. A batch is drawn by a Gaussian that moves from the easiest to
the hardest bucket, mixed ever more with a bias to the easier ones (``trainers/maths/bucket_mixture.py``). Reward: a right answer in a valid episode
1, in another 0.8; a wrong answer in a valid episode 0.2, in another 0.1; 0 without an answer.

Stage 2 (trainer dpo): 8 episodes for each question are ranked by six keys, one after the other: right answer, gold answer seen in what the functions
said, valid form, within the turn limit, no failed call, few calls. The best is preferred to the worst, where they differ; rows come in the order of
the same curriculum, and log-ratios count the policy's tokens alone. Start it from the policy of stage 1.

Questions of all difficulties of the world ``graph`` are trained on, whichever one the run is measured on. It differs from GRPO in the curriculum and
in the reward, from DPO in the pairs and in their masks.
"""

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.data.pair_rows import to_answer_messages
from trainers.maths.bucket_mixture import compute_bucket_mixture, weigh_examples
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.policies.sampling import as_rows
from trainers.tasks.base import Example
from trainers.texts.spans import extract_answer
from trainers.worlds.base import World, replay_episode

if TYPE_CHECKING:
    import random

    from trainers.methods.batch import PairBatch, RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.history import History

INFORMATION, END_INFORMATION = "<information>", "</information>"
Keys = tuple[int, ...]


def grade_exploration(right: bool, valid: bool, answered: bool) -> float:
    """The reward of an episode."""
    if right:
        return 1.0 if valid else 0.8
    return 0.2 if valid else 0.1 * answered


def rank_episode(world: World, example: Example, text: str) -> Keys:
    """The six keys, each the better the larger: right, evidence, valid, -limit, -failed call, -rounds."""
    replay = replay_episode(world, example, text)
    calls = [turn.step for turn in replay.turns if "tool" in turn.step.facts]
    answer = extract_answer(text)
    seen = any(example.reference in step.text.removeprefix(INFORMATION).removesuffix(END_INFORMATION).split() for step in calls)
    valid = replay.state["answer"] is not None and not replay.state["errors"] and not replay.rest
    limit = replay.state["answer"] is None and len(replay.turns) >= world.max_turns
    failed = any(step.facts.get("error") for step in calls) or bool(replay.state["errors"])
    return (int(answer == example.reference), int(seen), int(valid), -int(limit), -int(failed), -len(calls))


def pick_extreme_pair(keys: Sequence[Keys]) -> tuple[int, int] | None:
    """Places of the best and the worst episode; None where all are equal."""
    if min(keys) == max(keys):
        return None
    return keys.index(max(keys)), keys.index(min(keys))


def share_evenly(levels: Sequence[str], count: int) -> list[tuple[str, int]]:
    """``count`` questions over the levels, the first ones with one more where it does not divide."""
    return [(level, count // len(levels) + (place < count % len(levels))) for place, level in enumerate(levels)]


def mark_world_tokens(ends: Sequence[int], text: str) -> list[bool]:
    """Whether each token adds characters of what the world said. ``ends``: characters of ``text`` after each token."""
    spans, start = [], text.find(INFORMATION)
    while start >= 0:
        end = text.find(END_INFORMATION, start)
        spans.append((start, len(text) if end < 0 else end + len(END_INFORMATION)))
        start = text.find(INFORMATION, spans[-1][1])
    return [any(before < end and after > start for start, end in spans) for before, after in itertools.pairwise([0, *ends])]


def arrange_rows(rows: Sequence[dict[str, Any]], shares: Sequence[Sequence[float]], batch: int, rng: "random.Random") -> list[dict[str, Any]]:
    """``batch`` rows for each step, drawn from the buckets by that step's shares; a bucket is gone through before a row of it comes again."""
    buckets = {bucket: [row for row in rows if row["bucket"] == bucket] for bucket in sorted({row["bucket"] for row in rows})}
    order = {bucket: itertools.cycle(rng.sample(own, len(own))) for bucket, own in buckets.items()}
    found = []
    for step in shares:
        drawn = rng.choices(list(buckets), [step[bucket] + 1e-9 for bucket in buckets], k=batch)
        found += [next(order[bucket]) for bucket in drawn]
    return found


class Config(Strict):
    power: float = param(3.0, "Exponent of the way from the easiest bucket to the hardest.", title="Pace (b)", gt=0, le=20)
    width: float = param(0.75, "Standard deviation of the Gaussian over buckets.", title="Width (s)", gt=0, le=10)
    first: float = param(0.2, "Share of the bias at the first step.", title="Bias at first", ge=0, le=1)
    last: float = param(0.8, "Share of the bias at the last step.", title="Bias at last", ge=0, le=1)
    bias: list[float] = param([0.5, 0.5, 0.0], "Shares of the buckets that the mixture is biased to: easy, medium, hard.", title="Bias (q)")
    rollouts: int = param(8, "DPO: episodes sampled for each question.", title="Episodes per question", ge=2, le=64)


class GraphDancer(Method):
    card = Card(
        name="graphdancer",
        title="Curriculum for exploring graphs",
        arxiv="2602.02518",
        system="GraphDancer",
        base="grpo",
        provenance="code",
        source="github leopoldwhite/GraphDancer: crl_e2h.py, qa_em_format.py, scripts/dpo/build_preference_pairs.py and pair_yield.py",
        fit="needs-environment",
        idea="Draw questions from easy to hard with a bias to the easier ones, then prefer the best of eight episodes to the worst by six keys.",
        formula=(
            r"x_t = \left(\frac{t}{T-1}\right)^b (K - 1), \quad g_k \propto e^{-(x_t - k)^2 / 2 s^2}",
            r"p_k = (1 - \eta_t)\, g_k + \eta_t\, q_k",
            r"y^+ = \max_{lex}, \ y^- = \min_{lex} \ (\mathrm{right, evidence, valid, -limit, -failed, -rounds})",
        ),
        departures=(
            "GRPO takes the place of PPO with a critic.",
            "Turns may come without a thought: valid is an episode whose turns are one call each and whose last is an answer.",
            "A batch's questions are drawn one by one by the mixture, without a question twice, instead of by a multinomial over buckets.",
            "The six keys are those of the code's first version, which its main runs used; a later one ranks by error rate and repeats.",
        ),
        parallel=False,
    )
    Config = Config
    worlds = frozenset({"graph"})
    trains = frozenset({"grpo", "dpo"})
    requires = (Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),)
    roles = {"data": "makes", "rewards": "makes", "pair_ratios": "gates"}
    owns = frozenset({"curriculum"})
    ordered = True

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    @property
    def world(self) -> World:
        assert isinstance(self.run.task, World)
        return self.run.task

    def mix_buckets(self, step: int, total: int) -> list[float]:
        """Shares of the buckets at a step from 1."""
        config = self.config
        return compute_bucket_mixture(step - 1, total, config.bias, power=config.power, width=config.width, mix=(config.first, config.last))

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        """Questions of all difficulties, as many of each; for DPO, pairs of their episodes."""
        levels, training = list(run.task.difficulties), run.training
        if run.attempt.spec.training.trainer != "dpo":
            return [one for level, count in share_evenly(levels, len(rows)) for one in run.task.examples("train", count, run.seed, level)]
        parts = share_evenly(levels, training.sampled_prompts)
        examples = [one for level, count in parts for one in run.task.examples("pairs", count, run.seed, level)]
        asked = [example for example in examples for _ in range(self.config.rollouts)]
        texts = [made.text for made in run.sample(asked, key="graphdancer")]
        pairs = []
        for place, example in enumerate(examples):
            own = texts[place * self.config.rollouts : (place + 1) * self.config.rollouts]
            if (pair := pick_extreme_pair([rank_episode(self.world, example, text) for text in own])) is not None:
                chosen, rejected = (to_answer_messages(own[side]) for side in pair)
                pairs.append({"prompt": as_rows(example.prompt), "chosen": chosen, "rejected": rejected, "bucket": self.find_bucket(example)})
        self.log("data_pairs", len(pairs) / len(examples))
        steps, size = training.max_steps, training.per_device_train_batch_size * training.gradient_accumulation_steps
        shares = [self.mix_buckets(step, steps) for step in range(1, steps + 1)]
        return arrange_rows(pairs, shares, size, run.rng("graphdancer", "order")) if pairs else []

    def find_bucket(self, example: Example) -> int:
        """Rounds of calls the question needs, from the fewest; the last bucket has the rest."""
        return min(len(example.data["needed"]), len(self.config.bias)) - 1

    def curriculum(self, history: "History") -> Tensor | None:
        shares = self.mix_buckets(history.step, history.total_steps)
        for place, share in enumerate(shares):
            self.log(f"share_{place + 1}", share)
        return torch.tensor(weigh_examples([self.find_bucket(example) for example in self.run.examples], shares), dtype=torch.float64)

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        valid = (batch.rewards[:, batch.reward_names.index("format")] > 0.5).tolist()
        answers = [extract_answer(text) for text in batch.texts]
        rows = zip(answers, batch.examples, valid, strict=True)
        return torch.tensor([grade_exploration(answer == one.reference, form, answer is not None) for answer, one, form in rows]).to(rewards)

    def observe(self, batch: "RolloutBatch") -> None:
        buckets = torch.tensor([self.find_bucket(example) for example in batch.examples])
        for place in range(len(self.config.bias)):
            if (buckets == place).any():
                self.log(f"right_{place + 1}", batch.correct.cpu()[buckets == place].float().mean())

    def pair_ratios(self, batch: "PairBatch", chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
        sides = ((chosen, batch.chosen_ids, batch.chosen_mask), (rejected, batch.rejected_ids, batch.rejected_mask))
        kept = [ratios * self.keep_policy_tokens(ids, mask) for ratios, ids, mask in sides]
        return kept[0], kept[1]

    def keep_policy_tokens(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(B, T), (B, T) -> (B, T) float: 0 on tokens of what the world said."""
        kept = torch.ones_like(mask)
        for row, (own, there) in enumerate(zip(ids.tolist(), mask.bool(), strict=True)):
            places = there.nonzero()[:, 0].tolist()
            said = [own[place] for place in places]
            text = self.run.tokenizer.decode(said, skip_special_tokens=True)
            ends = list(itertools.accumulate(self.run.attempt.pieces.lengths(said, text)))
            kept[row, [place for place, out in zip(places, mark_world_tokens(ends, text), strict=True) if out]] = 0.0
        return kept

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name, words = cls.card.name, ("1 round", "2 rounds", "3 rounds")
        return (
            Panel("Mixture of difficulties", tuple(Series(f"{name}/share_{place}", word) for place, word in enumerate(words, 1)), "stack"),
            Panel("Right answers", tuple(Series(f"{name}/right_{place}", word) for place, word in enumerate(words, 1))),
        )
