"""RMT: reinforcement mid-training, which thinks before predicting the next token of plain text (arXiv 2509.24375).

An item is a text up to a chosen position; the policy thinks for l tokens and predicts the next token y. The prompt states a thinking budget B_t =
max(B_min, floor(B_0 gamma^(t/T))). r = (1 - w) 1[y = token] + w r_len(l), where r_len rises to 1 at the budget and falls to 0 at twice the budget.
Positions are divided into three tiers by the starting policy's entropy there; the probabilities of the tiers shift from easy to hard between 30 and
70 % of the run. L = L_GRPO + lambda L_NTP, where L_NTP is the ordinary next-token loss on all positions of the same texts that were not chosen.

This is our interpretation of the abstract and a second-hand note that quotes the formulas. We did not find w, r_max and the tiers' probabilities
(here w = 0.2, r_max = 1), and an exponent that one note has on t/T is 1 here. The corpus is a substitute, the solutions of the task's questions: the
question and the start of its solution are the prefix, and the answer tag holds the predicted token. Only tokens with visible text that are not part
of a tag are chosen. The paper's budget of 800 tokens is 24 here, close to the length of the tiny policy's thoughts. The task's own reward is not
used. Step time: the next-token loss takes one more forward and backward pass over the texts of the batch, each used once.
"""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.maths.distributions import next_token_logprobs
from trainers.maths.reduce import masked_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.base import Example
from trainers.texts.spans import extract_answer, thought_span

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.history import History

KEY = "rmt"  # in Example.data: [number of the text, tier]
TIERS = ("easy", "medium", "hard")
EARLY, LATE = (0.6, 0.3, 0.1), (0.1, 0.3, 0.6)  # probabilities of the tiers


def compute_thinking_budget(progress: float, first: int, last: int, decay: float) -> int:
    """B_t in tokens; ``progress``: t / T."""
    return max(last, math.floor(first * decay**progress))


def length_reward(lengths: Tensor, budgets: Tensor) -> Tensor:
    """(B,), (B,) -> (B,): 1 at the budget; 0 without a thought and from twice the budget on."""
    return torch.where(lengths <= budgets, lengths / budgets, (2 * budgets - lengths) / budgets).clamp(min=0.0)


def mix_prediction_rewards(hits: Tensor, lengths: Tensor, budgets: Tensor, weight: float) -> Tensor:
    """(B,) each -> (B,): r."""
    return (1 - weight) * hits + weight * length_reward(lengths, budgets)


def tier_odds(progress: float, start: float, end: float) -> list[float]:
    """Probabilities of easy, medium and hard: constant before ``start`` and after ``end``, linear in between."""
    along = min(1.0, max(0.0, (progress - start) / (end - start))) if end > start else float(progress >= end)
    return [(1 - along) * early + along * late for early, late in zip(EARLY, LATE, strict=True)]


def tiers_of(entropies: Tensor) -> Tensor:
    """(P,) -> (P,) tier 0, 1 or 2, by thirds."""
    cuts = torch.quantile(entropies, torch.tensor([1 / 3, 2 / 3], dtype=entropies.dtype))
    return torch.bucketize(entropies, cuts)


def kept_loss(logprobs: Tensor, mask: Tensor, chosen: Sequence[Sequence[int]], count: float | None = None) -> Tensor:
    """(D, T) log-probabilities of texts -> scalar: mean negative log-likelihood of the positions that are not ``chosen``, or its sum over the mask's
    weights divided by ``count``.
    """
    kept = mask.clone()
    for row, places in enumerate(chosen):
        kept[row, list(places)] = 0.0
    return -masked_mean(logprobs, kept, count)


class Config(Strict):
    first_budget: int = param(24, "Thinking budget at the start; the paper uses 800.", title="Initial budget (B0)", unit="tokens", ge=1, le=1_000_000)
    last_budget: int = param(1, "Lower limit of the budget.", title="Min budget", unit="tokens", ge=1, le=1_000_000)
    decay: float = param(0.2, "Share of the initial budget that remains at the end of the run.", title="Decay (gamma)", gt=0, le=1)
    length_weight: float = param(
        0.2, "Weight of the thought-length reward; 1 - w is the weight of the prediction.", title="Length weight (w)", ge=0, le=1
    )
    start: float = param(0.3, "Fraction of the run at which the tier probabilities start to shift (t1).", ge=0, le=1)
    end: float = param(0.7, "Fraction of the run at which the shift ends (t2).", ge=0, le=1)
    next_token: float = param(0.1, "Weight of the next-token loss on all other positions.", title="Next-token weight (lambda)", ge=0, le=100)
    texts: int = param(256, "Number of texts in the corpus.", ge=1, le=1_000_000)


class RMT(Method):
    card = Card(
        name="rmt",
        title="Reinforcement mid-training",
        arxiv="2509.24375",
        system="RMT",
        base="grpo",
        provenance="abstract",
        source="abstract and a second-hand note that quotes the formulas",
        fit="core",
        idea=(
            "Think before predicting a chosen next token of plain text, with a shrinking thinking budget; all other tokens keep their ordinary loss."
        ),
        formula=(
            r"B_t = \max\left(B_{\min}, \lfloor B_0 \gamma^{t/T} \rfloor\right)",
            r"r = (1 - w)\,1[y = \tau] + w\,r_{\mathrm{len}}(l)",
            r"L = L_{\mathrm{GRPO}} + \lambda L_{\mathrm{NTP}}",
        ),
        reading="formulas from a second-hand note; w, the tiers' probabilities and the corpus (solutions of the task) are our choices",
        departures=(
            "The corpus consists of the solutions of the task's questions.",
            "The initial budget is 24 tokens; the paper uses 800.",
        ),
        claim=("rmt/next_token_loss", "lower"),
    )
    Config = Config
    roles = {"data": "makes", "rewards": "makes"}
    owns = frozenset({"curriculum", "prompt"})
    excludes = {
        "critique-coder": "both replace the training prompts: rmt with positions in texts, critique-coder with questions about a solution",
        "rest-rl": "rmt replaces the training prompts with positions in texts, so the filtering and the prefixes of rest-rl would be lost",
    }

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.texts: list[tuple[list[int], list[int], list[int]]] = []  # prompt ids, ids, chosen positions
        self.items: list[Example] = []

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        """One item of each tier from each text, if the text has one."""
        found = [(example, ids) for example in rows[: self.config.texts] if (ids := solution_ids(run, example))]
        self.texts = [(run.prompt_ids([example.prompt])[0], ids, []) for example, ids in found]
        places = [(text, place) for text, (_, ids, _) in enumerate(self.texts) for place in range(1, len(ids)) if is_visible_token(run, ids[place])]
        if not places:
            message = f"its texts are solutions, and {len(found)} of {len(rows)} examples say how they are solved"
            raise SpecError([Problem("methods", self.card.name, message, "train on a task of the lab, or give the examples its data")])
        known = torch.cat([self.entropies(text) for text in range(len(self.texts))])
        starts = [0, *torch.tensor([len(ids) for _, ids, _ in self.texts]).cumsum(0).tolist()]
        tiers = tiers_of(torch.stack([known[starts[text] + place] for text, place in places])).tolist()
        rng = run.rng(self.card.name)
        order = rng.sample(range(len(places)), len(places))
        seen = set[tuple[int, int]]()
        for number in order:
            (text, place), tier = places[number], tiers[number]
            if (text, tier) not in seen:
                seen.add((text, tier))
                self.texts[text][2].append(place)
                self.items.append(self.item(found[text][0], text, place, tier))
        return self.items

    def item(self, example: Example, text: int, place: int, tier: int) -> Example:
        ids = self.texts[text][1]
        begun, token = self.run.tokenizer.decode(ids[:place]), self.run.tokenizer.decode([ids[place]])
        question = Message("user", f"{example.prompt[-1].content}\n{begun}\nNext?")
        return Example([*example.prompt[:-1], question], token.strip(), {KEY: [text, tier]})

    @torch.no_grad()
    def entropies(self, text: int) -> Tensor:
        """(T,) entropies of the starting policy along a text."""
        prompt, ids, _ = self.texts[text]
        every = next_token_logprobs(self.run.model, [prompt], torch.tensor([ids], device=self.run.device), self.run.tokenizer.pad_token_id)[0]
        return -(every.exp() * every).sum(-1).cpu()

    def budget_at(self, step: int, total: int) -> int:
        return compute_thinking_budget((step - 1) / total, self.config.first_budget, self.config.last_budget, self.config.decay)

    def prompts(self, example: Example, members: int, step: int) -> list[list[Message]]:
        last = example.prompt[-1]
        room = self.budget_at(step, self.run.training.max_steps)
        return [[*example.prompt[:-1], Message(last.role, f"{last.content} {room} tokens")]] * members

    def curriculum(self, history: "History") -> Tensor:
        tiers = torch.tensor([item.data[KEY][1] for item in self.items])
        odds = torch.tensor(tier_odds((history.step - 1) / history.total_steps, self.config.start, self.config.end))
        for name, value in zip(TIERS, odds.tolist(), strict=True):
            self.log(f"tier_{name}", value)
        return (odds / torch.bincount(tiers, minlength=3).clamp(min=1))[tiers]

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        room = float(self.budget_at(batch.step, batch.total_steps))
        lengths = torch.stack([thought_length(batch, row) for row in range(len(batch.texts))]).to(rewards)
        right = [extract_answer(text) == example.reference for text, example in zip(batch.texts, batch.examples, strict=True)]
        hits = torch.tensor(right, dtype=rewards.dtype, device=rewards.device)
        self.log("budget", room)
        self.log("thought", lengths.mean())
        self.log("predicted", hits.mean())
        tiers = torch.tensor([example.data[KEY][1] for example in batch.examples], device=rewards.device)
        for number, name in enumerate(TIERS):
            if (tiers == number).any():
                self.log(f"predicted_{name}", hits[tiers == number].mean())
        return mix_prediction_rewards(hits, lengths, torch.full_like(lengths, room), self.config.length_weight)

    def loss(self, batch: "LossBatch") -> Tensor | None:  # type: ignore[override]
        asked: list[int] = [example.data[KEY][0] for example in batch.rollout.examples]
        kept = sum(len(ids) - len(chosen) for _, ids, chosen in (self.texts[number] for number in set(asked)))
        weights = batch.weights_of(asked)
        texts = [self.texts[number] for number in weights]
        with torch.set_grad_enabled(self.config.next_token > 0):
            logprobs, mask = self.run.logprobs([prompt for prompt, _, _ in texts], [ids for _, ids, _ in texts])
            weighted = mask * mask.new_tensor(list(weights.values()))[:, None]
            term = kept_loss(logprobs, weighted, [chosen for _, _, chosen in texts], kept)
        self.log("next_token_loss", term)
        return self.config.next_token * term if self.config.next_token > 0 else None

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Thinking budget", (Series(f"{name}/thought", "thought length"), Series(f"{name}/budget", "budget", dashed=True)), unit="tokens"),
            Panel("Tiers drawn", tuple(Series(f"{name}/tier_{tier}", tier) for tier in TIERS), "stack"),
            Panel(
                "Next-token prediction accuracy", (Series(f"{name}/predicted", "all"), *(Series(f"{name}/predicted_{tier}", tier) for tier in TIERS))
            ),
            Panel("Next-token loss at the other positions", (Series(f"{name}/next_token_loss"),), unit="nats"),
        )


def solution_ids(run: "RunContext", example: Example) -> list[int]:
    """The task's solution, without an end token; empty for an example without one."""
    try:
        return run.completion_ids(run.task.gold(example), end=False)
    except LookupError:
        return []


def is_visible_token(run: "RunContext", token: int) -> bool:
    """Whether a token can be a prediction target: visible text, and not part of a tag."""
    text: str = run.tokenizer.decode([token]).strip()
    return bool(text) and not set("<>\ufffd") & set(text)


def thought_length(batch: "RolloutBatch", row: int) -> Tensor:
    """() number of the policy's tokens inside <think>."""
    span = thought_span(batch.texts[row])
    return batch.mask.new_zeros(()) if span is None else (batch.span(row, *span) * batch.mask[row]).sum()
