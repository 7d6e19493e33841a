"""FaithRL: rewards that make guessing worthless, and advantages that shrink where a step and the outcome disagree (arXiv 2602.03507).

x0 and y0 are the initial policy's rates of correct and wrong answers. A correct answer earns y0, a wrong one -x0 and "I don't know" 0, so answering
at random as well as the initial policy does has expected reward 0. Each step is supported (1) or not (0); a step similar to the previous one is not
supported. A token's advantage becomes alpha A if A > 0 and its step is not supported, or if A <= 0 and its step is supported; otherwise it stays A.
Answer tokens follow the outcome, tags count as supported, and tokens outside any step count as not supported. It differs from GRPO in both; it
shrinks the advantage computed by the base or by the methods before it. THS = (x1 y0 - y1 x0) / y0 uses the current rates x1 and y1.

x0 and y0 are measured on ``probes`` prompts before the first update. This extra sampling happens once and makes the run's first step longer.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.judges import step_judge
from trainers.maths.reduce import masked_mean
from trainers.maths.similarity import compute_text_similarity
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.answers import ANSWER, END_ANSWER, END_THINK, THINK
from trainers.tasks.kb import END_SEARCH, SEARCH, UNKNOWN
from trainers.texts.segments import assign_tokens_to_spans, find_step_spans, step_texts
from trainers.texts.spans import Span, answer_span, extract_answer

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext

UNSUPPORTED, SUPPORTED, TAG, RESULT = range(4)  # what a token belongs to; outside everything else it is not supported
ABSTENTIONS = frozenset({"i don't know", "idk", "unknown", UNKNOWN})
TAGS = (THINK, END_THINK, ANSWER, END_ANSWER, SEARCH, END_SEARCH)


def compute_geometric_rewards(right: Tensor, abstained: Tensor, x0: float, y0: float) -> Tensor:
    """(B,) bool, (B,) bool -> (B,): y0, 0 or -x0."""
    wrong = ~right & ~abstained
    return right * y0 - wrong * x0


def truthful_helpfulness(x1: float, y1: float, x0: float, y0: float) -> float:
    """THS: how much more the policy knows than one that guesses at the initial policy's rates."""
    return (x1 * y0 - y1 * x0) / y0 if y0 else x1


def modulate_advantages(advantages: Tensor, supported: Tensor, result: Tensor, alpha: float) -> Tensor:
    """(B,) or (B, T), (B, T) bool, (B, T) bool -> (B, T): shrunk where outcome and step disagree; never on the answer's own tokens."""
    spread = advantages if advantages.dim() == 2 else advantages[:, None].expand(supported.shape)
    disagree = ((spread > 0) ^ supported) & ~result
    return torch.where(disagree, alpha * spread, spread)


def without_repeats(texts: list[str], verdicts: list[float], similarity: float) -> list[float]:
    """Marks a step as not supported if its similarity to the previous one is at least ``similarity``."""
    kept = list(verdicts)
    for place in range(1, len(texts)):
        if compute_text_similarity(texts[place - 1], texts[place]) >= similarity:
            kept[place] = 0.0
    return kept


def tag_spans(text: str) -> list[Span]:
    """The spans of all tags, in order."""
    found = []
    for tag in TAGS:
        start = text.find(tag)
        while start >= 0:
            found.append((start, start + len(tag)))
            start = text.find(tag, start + len(tag))
    return sorted(found)


def kinds_of(text: str, ends: Sequence[int], verdicts: Sequence[float]) -> list[int]:
    """For each token: its step's verdict, a tag, or the answer's own text."""
    answer = answer_span(text)
    inside, tags, result = (
        assign_tokens_to_spans(ends, find_step_spans(text)),
        assign_tokens_to_spans(ends, tag_spans(text)),
        assign_tokens_to_spans(ends, [answer] if answer else []),
    )
    made = list[int]()
    for place, tag, last in zip(inside, tags, result, strict=True):
        if last >= 0:
            made.append(RESULT)
        elif place >= 0:
            made.append(SUPPORTED if verdicts[place] > 0.5 else UNSUPPORTED)
        else:
            made.append(TAG if tag >= 0 else UNSUPPORTED)
    return made


class Config(Strict):
    alpha: float = param(0.75, "Factor on the advantage at a step that contradicts it; 1 is off.", title="Shrinkage (alpha)", ge=0, le=1)
    judge: Literal["rule", "repeats", "endpoint"] = param(
        "rule", "What decides whether a step is supported: the task's solution, only repetition, or a judge."
    )
    similarity: float = param(0.8, "Similarity from which a step counts as a repeat of the previous one.", advanced=True, gt=0, le=1)
    probes: int = param(128, "Prompts used to measure the initial policy's rates.", title="Probes", advanced=True, ge=8, le=100_000)


class FaithRL(Method):
    card = Card(
        name="faithrl",
        title="Step-level faithfulness",
        arxiv="2602.03507",
        system="FaithRL",
        base="grpo",
        provenance="code",
        source="github aintdoin/FaithRL: main.sh, verl/trainer/ppo/ray_trainer.py, verl/workers/fsdp_workers.py",
        fit="core",
        idea=(
            "Give guessing at the initial policy's success rate zero expected reward, and shrink the advantage at steps that contradict the outcome."
        ),
        formula=(
            r"r = y_0 \quad \mathrm{right}, \qquad -x_0 \quad \mathrm{wrong}, \qquad 0 \quad \mathrm{abstained}",
            r"A_{it} = \alpha A_i \quad \mathrm{if}\ (A_i > 0) \ne (v_t = 1), \qquad A_i \quad \mathrm{else}",
            r"\mathrm{THS} = \frac{x_1 y_0 - y_1 x_0}{y_0}",
        ),
        departures=(
            "A step is one equation of the reasoning, or one search; by default, it is checked against the task's own solution.",
            "Rewards depend on the outcome alone; the authors' code leaves length-penalised scores unchanged.",
            "With y0 = 0 the THS is x1; a group of one has no advantage.",
        ),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"rewards": "makes", "advantages": "maps"}

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.initial: tuple[float, float] | None = None  # x0, y0

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        if self.config.judge == "endpoint":
            step_judge.require_judge(run.judge, self.card.name)

    def measure(self) -> tuple[float, float]:
        """x0, y0 of the current policy."""
        rng = self.run.rng(self.card.name, "probes")
        examples = rng.choices(self.run.examples, k=self.config.probes)
        texts = [made.text for made in self.run.sample(examples, key=self.card.name)]
        right = [self.run.right(example, text) for example, text in zip(examples, texts, strict=True)]
        silent = [not well and is_abstention(text) for well, text in zip(right, texts, strict=True)]
        return sum(right) / len(right), 1 - (sum(right) + sum(silent)) / len(right)

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        if self.initial is None:
            self.initial = self.measure()
        right = batch.correct
        silent = ~right & torch.tensor([is_abstention(text) for text in batch.texts], device=right.device)
        x1, y1 = float(right.float().mean()), float((~right & ~silent).float().mean())
        for name, value in {"right": x1, "wrong": y1, "abstained": 1 - x1 - y1, "ths": truthful_helpfulness(x1, y1, *self.initial)}.items():
            self.log(name, value)
        return compute_geometric_rewards(right, silent, *self.initial).to(rewards.dtype)

    def verdicts(self, batch: "RolloutBatch") -> list[list[float]]:
        found = [step_texts(text) for text in batch.texts]
        if self.config.judge == "endpoint":
            said = step_judge.ask_step_verdicts(step_judge.require_judge(self.run.judge, self.card.name), batch.examples, found)
        elif self.config.judge == "rule":
            said = [step_judge.score_steps_by_rule(self.run.task, example, own) for example, own in zip(batch.examples, found, strict=True)]
        else:
            said = [[1.0] * len(own) for own in found]
        return [without_repeats(own, verdicts, self.config.similarity) for own, verdicts in zip(found, said, strict=True)]

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        verdicts = self.verdicts(batch)
        kinds = torch.full(batch.mask.shape, UNSUPPORTED)
        for row, own in enumerate(verdicts):
            found = kinds_of(batch.texts[row], batch.ends[row], own)
            kinds[row, : len(found)] = torch.tensor(found)
        kinds = kinds.to(batch.mask.device)
        self.report(batch, verdicts, advantages, kinds)
        return modulate_advantages(advantages, (kinds == SUPPORTED) | (kinds == TAG), kinds == RESULT, self.config.alpha) * batch.mask

    def report(self, batch: "RolloutBatch", verdicts: list[list[float]], advantages: Tensor, kinds: Tensor) -> None:
        every = [verdict for own in verdicts for verdict in own]
        if every:
            self.log("supported", sum(every) / len(every))
        spread = advantages if advantages.dim() == 2 else advantages[:, None].expand(batch.mask.shape)
        for sign, chosen in (("positive", spread > 0), ("negative", spread < 0)):
            for name, kind in (("supported", SUPPORTED), ("unsupported", UNSUPPORTED)):
                self.log(f"{sign}_{name}", masked_mean((chosen & (kinds == kind)).float(), batch.mask))

    def state(self) -> dict[str, Any]:
        return {"initial": list(self.initial) if self.initial else None}

    def restore(self, state: dict[str, Any]) -> None:
        self.initial = (state["initial"][0], state["initial"][1]) if state["initial"] else None

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        quarters = [(sign, kind) for sign in ("positive", "negative") for kind in ("supported", "unsupported")]
        return (
            Panel("Answers", tuple(Series(f"{name}/{kind}", kind) for kind in ("right", "wrong", "abstained")), "stack"),
            Panel("Truthful helpfulness", (Series(f"{name}/ths", "THS"), Series(f"{name}/supported", "steps supported", dashed=True))),
            Panel(
                "Steps and outcomes",
                tuple(Series(f"{name}/{sign}_{kind}", f"{sign}, {kind}") for sign, kind in quarters),
                help="Share of tokens. The advantage shrinks on positive/unsupported and negative/supported tokens.",
            ),
        )


def is_abstention(text: str) -> bool:
    return (extract_answer(text) or "").lower().strip(" .!") in ABSTENTIONS
