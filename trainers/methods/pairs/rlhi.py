"""RLHI: reinforcement from human interaction (arXiv 2509.25137). Builds preference pairs from conversations, with the user's persona in the prompt.

(a) User-guided rewrites: when a user's follow-up complains about an answer, the answer is rewritten as the user wants; the rewrite is preferred over
it. (b) User-based rewards: several answers are sampled with the persona in the prompt and scored by a reward model that knows the persona; the best
is preferred over the worst. A follow-up that is not about the answer gives no pair, and neither does a score gap below a threshold. The loss is the
base's, on the prompt with the persona. This is our interpretation of the abstract and the introduction: the DPO form and both numbers are our
choices. Rows with a column ``followup`` are such conversations: rejected is the answer that the follow-up is about, chosen is the rewrite, and
``persona`` describes the user. Other rows get a simulated user with a style rule: short (no reasoning), steps (one line for each change of the story)
or last (one line only). The simulated user complains in words when the answer breaks the rule. Complaints are distinguished from thanks by their
words. The rewriter and the reward model are rules too: the rewrite keeps the answer's result if the style has no reasoning, and otherwise states the
story's steps; the score is the mean of how well the style is followed and whether the result equals that of the pair's chosen side. It differs from
the base only in its pairs: for simulated users, the original rejected answer is not used. Extra step time: the persona is added to the prompt, and
rewritten answers are longer.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.answers import write_answer
from trainers.tasks.base import Example
from trainers.texts import stories
from trainers.texts.chains import chain_of
from trainers.texts.spans import extract_answer

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext

COMPLAINT = re.compile(r"\b(too|wrong|not|instead|should|show|just|only|missing|shorter|longer|again|fix|don't|didn't|isn't)\b", re.IGNORECASE)
THANKS = "Thanks!"


@dataclass(frozen=True)
class User:
    persona: str
    complaint: str
    lines: int | None  # of working that the user wants; None: one for each change of the story

    def wanted(self, question: str) -> int | None:
        """Number of reasoning lines wanted for this question; None if the style does not say."""
        if self.lines is not None:
            return self.lines
        story = stories.parse_story(question)
        return None if story is None else len(story.changes)

    def style(self, question: str, answer: str) -> float:
        """How well an answer follows the style: 1 / (1 + number of extra or missing lines); 0 for one that cannot be parsed."""
        wanted, found = self.wanted(question), chain_of(answer)
        if found is None:
            return 0.0
        return 1.0 if wanted is None else 1 / (1 + abs(len(found[0]) - wanted))

    def reply(self, question: str, answer: str) -> str:
        return self.complaint if self.style(question, answer) < 1 else THANKS

    def rewrite(self, question: str, answer: str) -> str | None:
        """The answer as the user wants it; None if the rule cannot rewrite it."""
        story, result = stories.parse_story(question), extract_answer(answer)
        if self.lines == 0:
            return None if result is None else write_answer([], result)
        if story is None or not story.equations:
            return None
        lines = story.equations if self.lines is None else story.equations[-self.lines :]
        return write_answer(lines, lines[-1].partition("=")[2])


USERS = {
    "short": User("The user likes short answers.", "Too long, just the answer.", 0),
    "steps": User("The user likes all steps.", "You should show every step.", None),
    "last": User("The user likes one step.", "Just show the last step.", 1),
}


def is_complaint(followup: str) -> bool:
    """Whether a follow-up is a complaint about, or a correction of, the answer before it."""
    return COMPLAINT.search(followup) is not None


def best_and_worst(scores: Sequence[float], gap: float) -> tuple[int, int] | None:
    """Indices of the highest and the lowest score, the first of each; None if they differ by less than ``gap``."""
    best, worst = max(range(len(scores)), key=scores.__getitem__), min(range(len(scores)), key=scores.__getitem__)
    return (best, worst) if best != worst and scores[best] - scores[worst] >= gap else None


class Config(Strict):
    source: Literal["both", "rewrite", "reward"] = param(
        "both", "Build pairs from complaints (rewrite), from a reward that knows the user (reward), or from both."
    )
    samples: int = param(8, "Answers scored for each user-based reward pair (our value).", title="Answers (n)", ge=2, le=256)
    gap: float = param(0.2, "Min difference between their scores (our value).", title="Min gap", gt=0, le=1)
    persona: bool = param(True, "Put the persona into the prompt.", title="Persona in the prompt")
    temperature: float = param(1.0, "Sampling temperature of the answers.", title="Temperature", gt=0, le=10, advanced=True)


class RLHI(Method):
    card = Card(
        name="rlhi",
        title="Learning from user conversations",
        arxiv="2509.25137",
        system="RLHI",
        base="dpo",
        provenance="abstract",
        source="abstract and introduction of arXiv 2509.25137",
        fit="core",
        idea="A user's reaction to a poor answer tells how to improve it; the user's persona tells which of several answers is better.",
        formula=(
            r"y^+ = \mathrm{Rewrite}(x, y, f, p_u), \quad y^- = y",
            r"y^+, y^- = \mathrm{arg}\max_i,\ \mathrm{arg}\min_i\ RM(y_i | x, p_u)",
            r"L = -\log \sigma\left(\beta \left[\log\frac{\pi(y^+|x, p_u)}{\pi_{ref}(y^+|x, p_u)}"
            r" - \log\frac{\pi(y^-|x, p_u)}{\pi_{ref}(y^-|x, p_u)}\right]\right)",
        ),
        reading="the DPO form, n and the gap; users, rewriter and reward model are rules unless the rows are conversations",
        departures=("Users, rewriter and reward model are rules unless the rows are conversations.",),
        claim=("rewards/accuracies", "higher"),
    )
    Config = Config
    roles = {"data": "makes", "pair_loss": "reads"}
    trains = frozenset({"dpo"})

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        talks = [row for row in rows if row.get("followup") is not None]
        made = [self.asked(row, str(row.get("persona") or ""), "", "rewrite") for row in talks if is_complaint(str(row["followup"]))]
        others = [row for row in rows if row.get("followup") is None]
        users = [run.rng("rlhi", place).choice(list(USERS)) for place in range(len(others))]
        if self.config.source != "reward":
            made += self.rewrites(others, users)
        if self.config.source != "rewrite":
            made += self.ranked(others, users, run)
        self.log("pairs_per_row", len(made) / len(rows))
        for source, count in Counter(row["source"] for row in made).items():
            self.log(f"share/{source}", count / len(made))
        return made

    def asked(self, row: dict[str, Any], persona: str, user: str, source: str, chosen: str = "", rejected: str = "") -> dict[str, Any]:
        """The row as a preference pair: persona before the prompt, and new answers if given."""
        prompt = [*([{"role": "system", "content": persona}] if persona and self.config.persona else []), *row["prompt"]]
        sides = {name: [{"role": "assistant", "content": text}] for name, text in (("chosen", chosen), ("rejected", rejected)) if text}
        return {**row, **sides, "prompt": prompt, "user": user, "source": source}

    def rewrites(self, rows: list[Any], users: list[str]) -> list[dict[str, Any]]:
        made, complaints = [], 0
        for row, name in zip(rows, users, strict=True):
            question, answer, user = row["prompt"][-1]["content"], row["chosen"][-1]["content"], USERS[name]
            if not is_complaint(user.reply(question, answer)):
                continue
            complaints += 1
            better = user.rewrite(question, answer)
            if better is not None and better != answer:
                made.append(self.asked(row, user.persona, name, "rewrite", better, answer))
        self.log("complaints", complaints / max(1, len(rows)))
        return made

    def ranked(self, rows: list[Any], users: list[str], run: "RunContext") -> list[dict[str, Any]]:
        if run.task.max_turns > 1 or not rows:
            return []  # answers in a world cannot be sampled from the prompt alone
        count = self.config.samples
        prompts = [self.asked(row, USERS[name].persona, name, "reward")["prompt"] for row, name in zip(rows, users, strict=True)]
        examples = [Example([Message(**message) for message in prompt], "") for prompt in prompts for _ in range(count)]
        texts = [one.text for one in run.sample(examples, self.config.temperature, "rlhi")]
        made = []
        for place, (row, name) in enumerate(zip(rows, users, strict=True)):
            own = texts[place * count : (place + 1) * count]
            scores = [score_for_user(USERS[name], row["prompt"][-1]["content"], text, row["chosen"][-1]["content"]) for text in own]
            found = best_and_worst(scores, self.config.gap)
            if found and own[found[0]] and own[found[1]]:
                made.append(self.asked(row, USERS[name].persona, name, "reward", own[found[0]], own[found[1]]))
        return made

    def pair_loss(self, batch: "PairBatch", score: Tensor, base: Any) -> Tensor:
        """The base's loss; logs margins by source and by user."""
        for column, names in (("source", ("rewrite", "reward")), ("user", tuple(USERS))):
            values = batch.column(column, "")
            for name in names:
                own = torch.tensor([value == name for value in values], device=score.device)
                if own.any():
                    self.log(f"margin/{name}", score.detach()[own].mean())
        losses: Tensor = base(score)
        return losses

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel("Margin by source", (Series("rlhi/margin/rewrite", "rewrites"), Series("rlhi/margin/reward", "user-based rewards"))),
            Panel(
                "Margin by user", tuple(Series(f"rlhi/margin/{name}", name) for name in USERS), help="The same policy, prompted by different users."
            ),
        )


def score_for_user(user: User, question: str, answer: str, chosen: str) -> float:
    """Score of the reward model that knows the user: mean of the style score and whether the result equals the chosen side's; in [0, 1]."""
    result = extract_answer(answer)
    return (user.style(question, answer) + float(result is not None and result == extract_answer(chosen))) / 2
