"""ReST-RL, its training stage ReST-GRPO: trains on prompts with varying rewards and on prefixes of good completions (arXiv 2508.19576).

Before training, every prompt is sampled n times and kept only if the population standard deviation of its rewards is at least sigma0. If the best
completion has reward at least r0, ceil(rho L) of its L lines are drawn with replacement, P(k) = alpha^(k-1) / sum_j alpha^(j-1) (favouring early
ones), and each gives a new prompt: the question with lines 1..k already written. Then GRPO; a completion's reward is computed on prefix and
continuation together, plus 1e-3 if it closes its answer, minus 1e-6 for every character after the first closing tag.

Prompts that were not sampled are not trained on. The paper's learning rate of 1e-7 is for models ten thousand times as large. Completions are
generated outside of TRL's own loop, with the same model and cache; sampling before training is a one-time cost. If solutions have only two or three
lines, as in the easy word problems, a prefix leaves little room for failure: more groups have equal rewards with prefixes than without.
"""

import math
import random
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.thresholds import is_at_least
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.answers import END_ANSWER
from trainers.tasks.base import Example
from trainers.texts.spans import thought_span

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion

KEY = "begun"  # in Example.data: what the answer begins with, and which share of the lines that is


def has_varying_rewards(rewards: Tensor, least: float) -> Tensor:
    """(N, n) -> (N,) bool: whether the population standard deviation is at least ``least``."""
    return is_at_least(rewards.std(1, correction=0), least)


def place_odds(lines: int, alpha: float) -> list[float]:
    """P(k) of keeping the first k of ``lines`` lines, k = 1, 2, ..."""
    weights = [alpha**place for place in range(lines)]
    return [weight / sum(weights) for weight in weights]


def list_beginnings(text: str) -> list[str]:
    """The prefixes of a text that end at each of its lines, or at each step of its reasoning if it is a single line."""
    if "\n" in text.strip():
        pieces = text.strip().splitlines(keepends=True)
        return ["".join(pieces[: place + 1]) for place in range(len(pieces))]
    span = thought_span(text)
    if span is None:
        return []
    head, steps = text[: span[0]], text[slice(*span)].split(" ")
    return [head + " ".join(steps[: place + 1]) for place, step in enumerate(steps) if step]


def draw_beginnings(text: str, share: float, alpha: float, rng: random.Random) -> list[tuple[str, float]]:
    """ceil(share x lines) prefixes of a good completion, each with its share of the lines."""
    found = list_beginnings(text)
    if not found:
        return []
    count = math.ceil(share * len(found))
    places = rng.choices(range(len(found)), place_odds(len(found), alpha), k=count)
    return [(found[place], (place + 1) / len(found)) for place in places]


def count_trailing_characters(text: str) -> int:
    """Number of characters after the first closing tag of an answer; 0 without one."""
    return len(text.partition(END_ANSWER)[2])


def upper_confidence(value: float, visits: int, parent_visits: int, weight: float = 0.2, epsilon: float = 0.1) -> float:
    """UCT of a node of the search over a trained policy: V + C sqrt((1 + ln N_parent) / (epsilon + N))."""
    return value + weight * math.sqrt((1 + math.log(parent_visits)) / (epsilon + visits))


class Config(Strict):
    least_std: float = param(
        0.05, "Prompts with a smaller standard deviation of rewards are dropped; 0 keeps all.", title="Min standard deviation (sigma0)", ge=0, le=1000
    )
    good: float = param(0.9, "Completions with at least this reward provide prefixes.", title="Min reward (r0)", ge=-1000, le=1000)
    early: float = param(0.95, "Factor by which each further line is less likely to be kept.", title="Decay over lines (alpha)", gt=0, le=1)
    share: float = param(0.5, "Prefixes per line of a good completion; 0 adds none.", title="Prefixes (rho)", ge=0, le=10)
    samples: int = param(5, "Completions sampled for each prompt before training.", ge=2, le=256)
    temperature: float = param(0.7, "Sampling temperature of these completions.", gt=0, le=10)
    prompts: int = param(256, "Number of prompts to sample; the paper samples all.", ge=1, le=1_000_000)
    stop_bonus: float = param(0.001, "Bonus for a completion that closes its answer.", title="Closed answer", ge=0, le=10)
    trailing_penalty: float = param(1e-6, "Penalty for each character after the first closed answer.", title="Trailing text penalty", ge=0, le=1)


class ReSTRL(Method):
    card = Card(
        name="rest-rl",
        title="ReST-GRPO: varied prompts and prefixes",
        arxiv="2508.19576",
        system="ReST-RL",
        base="grpo",
        provenance="code",
        source="github THUDM/ReST-RL: experiment/process_gen_data.py, utils/sample_utils.py, algorithms/MCTS/mcts.py, models/grpo_utils.py",
        fit="core",
        idea=(
            "Train only on prompts that are sometimes solved and sometimes not, and let the policy continue from the first lines of good completions."
        ),
        formula=(
            r"\mathrm{std}_j\, r(x, y_j) \ge \sigma_0",
            r"P(k) = \frac{\alpha^{k-1}}{\sum_{j=1}^{L} \alpha^{j-1}}",
        ),
        departures=(
            "Prefix lines are forced tokens of the completion (context without loss); the authors' code puts them in the prompt.",
            "If a completion is a single line, lines are the steps of its thinking part.",
            "256 prompts are sampled before training, not all.",
            "The value model and decoding by tree search are not implemented.",
        ),
        claim=("frac_reward_zero_std", "lower"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "maps", "rewards": "maps"}
    owns = frozenset({"rollout"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.deviations = torch.empty(0)  # (prompts sampled,) before filtering
        self.places: list[float] = []  # share of the lines that each prompt begins with
        self.share_kept = 1.0

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        config, rng = self.config, run.rng(self.card.name)
        some: list[Example] = rows if len(rows) <= config.prompts else rng.sample(rows, config.prompts)
        asked = [example for example in some for _ in range(config.samples)]
        made = run.sample(asked, config.temperature, key=self.card.name)
        rewards = torch.tensor([run.score(example, done.text) for example, done in zip(asked, made, strict=True)]).view(-1, config.samples)
        kept = has_varying_rewards(rewards, config.least_std).tolist()
        found: list[Example] = []
        for place, example in enumerate(some):
            if not kept[place]:
                continue
            found.append(example)
            best = int(rewards[place].argmax())
            if is_at_least(float(rewards[place, best]), config.good):
                text = made[place * config.samples + best].text
                for begun, share in draw_beginnings(text, config.share, config.early, rng):
                    found.append(replace(example, data={**example.data, KEY: begun}))
                    self.places.append(share)
        self.deviations, self.share_kept = rewards.std(1, correction=0), sum(kept) / len(kept)
        rng.shuffle(found)
        return found

    def rollout(self, session: "Session") -> "list[Completion]":
        begun = [example.data.get(KEY, "") for example in session.examples]
        prefixes = [self.run.completion_ids(text, end=False) if text else [] for text in begun]
        made = session.complete(prefixes=prefixes)
        for completion, text in zip(made, begun, strict=True):
            completion.notes["begun"] = bool(text)
        return made

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        config = self.config
        after = torch.tensor([count_trailing_characters(text) for text in batch.texts], dtype=rewards.dtype, device=rewards.device)
        ended = torch.tensor([END_ANSWER in text for text in batch.texts], dtype=rewards.dtype, device=rewards.device)
        self.report(batch, rewards)
        return rewards + config.stop_bonus * ended - config.trailing_penalty * after

    def report(self, batch: "RolloutBatch", rewards: Tensor) -> None:
        begun = torch.tensor([KEY in example.data for example in batch.examples], device=rewards.device)
        groups = batch.grouped(rewards)
        self.log("flat_groups", (groups.amax(1) == groups.amin(1)).float().mean())
        self.log("begun", begun.float().mean())
        for name, chosen in (("reward_begun", begun), ("reward_whole", ~begun)):
            if chosen.any():
                self.log(name, rewards[chosen].mean())
        if batch.step == 1:
            self.log("prompts_kept", self.share_kept)
            self.log_histogram("deviation_before", self.deviations, 0.0, 1.0)
            self.log_histogram("lines_begun", torch.tensor(self.places), 0.0, 1.0)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Zero-variance groups",
                (Series(f"{name}/flat_groups", "equal rewards"), Series(f"{name}/begun", "prompts with a prefix", dashed=True)),
            ),
            Panel("Reward", (Series(f"{name}/reward_whole", "without a prefix"), Series(f"{name}/reward_begun", "with a prefix"))),
            Panel(
                "Standard deviation of rewards before filtering",
                (Series(f"{name}/deviation_before"),),
                "histogram",
                help="Over all sampled prompts, logged at step 1.",
            ),
            Panel("Prefix length", (Series(f"{name}/lines_begun"),), "histogram", help="Share of the good completion's lines in the prefix."),
        )
