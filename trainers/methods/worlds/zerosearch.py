"""ZeroSearch: a search engine that is played, and worse with every step of training (arXiv 2505.04588).

p(i) = p_s + (b^(i/m) - 1) / (b - 1) (p_e - p_s)    i steps done of m, b = 4 (b = 1: a straight line); p_e from step m on

Each search finds sentences beside the point with probability p(i), so that the policy first learns the protocol and then to cope with noise. The
reward is the word-level F1 of the answer, 0 for an episode in broken form; then GRPO, with what the world writes masked out of the loss. It differs
from GRPO on the same world in the rising noise and in the F1; with p_s = p_e it is GRPO at constant noise, for answers of one word exactly.

The paper has a second language model write useful or noisy documents. Here the world ``search`` does so by rule: a search with noise finds sentences
drawn from those that the answer does not need. A world draws its noise from an example's own rate, so every training prompt stands in the data at
``levels`` rates from p_s to p_e, and each batch is drawn from the two around p(i), in the shares that have p(i) as their mean. Members of a group
meet the same noise. Held-out episodes meet the rate of the world's option ``junk`` throughout.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.texts.token_overlap import compute_f1, split_answer_words
from trainers.worlds.replays import read_final_answer, replay_texts
from trainers.worlds.search import JUNK

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.history import History


def compute_noise_rate(done: int, total: int, first: float, last: float, base: float) -> float:
    """p(i) after ``done`` of ``total`` steps."""
    if done >= total:
        return last
    share = done / total
    return first + (share if base == 1 else (base**share - 1) / (base - 1)) * (last - first)


def list_levels(first: float, last: float, count: int) -> list[float]:
    """``count`` rates at equal distances; a single one where both ends are the same."""
    return [first] if first == last else [first + place / (count - 1) * (last - first) for place in range(count)]


def weigh_levels(rate: float, levels: list[float]) -> list[float]:
    """Weights of the levels: of the two around ``rate``, with ``rate`` as their mean. ``levels`` rise or fall."""
    if len(levels) == 1:
        return [1.0]
    place = (rate - levels[0]) / (levels[-1] - levels[0]) * (len(levels) - 1)
    return [max(0.0, 1.0 - abs(place - number)) for number in range(len(levels))]


class Config(Strict):
    first: float = param(0.0, "Probability of a noisy search at the first step.", title="First noise rate (p_s)", ge=0, le=1)
    last: float = param(0.5, "Probability of a noisy search at the end of training.", title="Last noise rate (p_e)", ge=0, le=1)
    base: float = param(4.0, "How late the noise rises: 1 is a straight line, more is later.", title="Base (b)", ge=1, le=1000)
    levels: int = param(9, "Rates at which every prompt stands in the training data.", advanced=True, ge=2, le=101)


class ZeroSearch(Method):
    card = Card(
        name="zerosearch",
        title="Search results that get worse",
        arxiv="2505.04588",
        system="ZeroSearch",
        base="grpo",
        provenance="code",
        source="github Alibaba-NLP/ZeroSearch: llm_agent/generation.py, verl/utils/reward_score/qa_em.py, train_grpo.sh",
        fit="core",
        idea="Play the search engine, and let it return more and more noise as training goes on: first the protocol is learnt, then robustness.",
        formula=(
            r"p_i = p_s + \frac{b^{i/m} - 1}{b - 1}\,(p_e - p_s)",
            r"R = F_1(\text{answer}, \text{gold})",
        ),
        departures=(
            "The rule of the world search plays the engine, in place of a language model that was fine-tuned to.",
            "Members of a group meet the same noise; the authors draw it for every search.",
            "A batch is drawn from prompts at the two rates around p(i).",
        ),
    )
    Config = Config
    roles = {"data": "maps", "rewards": "makes"}
    owns = frozenset({"curriculum"})
    worlds = frozenset({"search"})
    requires = (Requirement("task.options.junk", "at least", 0.05, "held-out searches have no noise: what it trains for is not seen", hard=False),)

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.levels = list_levels(self.config.first, self.config.last, self.config.levels)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        """Every example at every level, the levels of an example one after the other."""
        return [replace(example, data={**example.data, JUNK: level}) for example in rows for level in self.levels]

    def curriculum(self, history: "History") -> Tensor:
        config = self.config
        rate = compute_noise_rate(history.step - 1, history.total_steps, config.first, config.last, config.base)
        self.log("rate", rate)
        return torch.tensor(weigh_levels(rate, self.levels)).repeat(history.size // len(self.levels))

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        replays = replay_texts(self.run.task, batch.examples, batch.texts)
        found = []
        for replay, example in zip(replays, batch.examples, strict=True):
            answer = read_final_answer(replay) or ""
            found.append(compute_f1(split_answer_words(answer, articles=False), split_answer_words(example.reference, articles=False)))
        noisy = torch.tensor([any(turn.step.facts.get("junk") for turn in replay.turns) for replay in replays], device=rewards.device)
        self.report(batch, noisy)
        return torch.tensor(found, dtype=rewards.dtype, device=rewards.device)

    def report(self, batch: "RolloutBatch", noisy: Tensor) -> None:
        """``noisy`` (B,) bool: episodes that met noise."""
        self.log("noisy", noisy.float().mean())
        for name, chosen in (("accuracy_noisy", noisy), ("accuracy_clean", ~noisy)):
            if chosen.any():
                self.log(name, batch.correct[chosen].float().mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Noise of the search engine",
                (Series(f"{name}/rate", "rate of noisy searches"), Series(f"{name}/noisy", "episodes that met noise", dashed=True)),
            ),
            Panel(
                "Accuracy with and without noise",
                (Series(f"{name}/accuracy_clean", "episodes without noise"), Series(f"{name}/accuracy_noisy", "episodes that met noise")),
            ),
        )
