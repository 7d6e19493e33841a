"""SAGE: self-hinting (arXiv 2602.03143). If the whole group of a prompt fails, the prompt is sampled again with a hint, which gets stronger each time
until some completion is correct or the strongest hint has been used. The kept completions were sampled with the hint in the prompt and are trained on
with it there. The reward is unchanged, and evaluation uses no hints. Advantages and loss are the base's.

There are two variants. sage: level 0 (no hint) first, then levels 1 to L in the same step, for the groups without a correct completion. light: a
prompt starts at the level it has reached; after each group, its level goes up by one if the accuracy is at most ``low`` and down by one if it is
above ``high``. Gate: with success rate p, a group of G has a learning signal with probability u(p) = 1 - (1 - p)^G - p^G.

The rule reveals the first l / L of the gold answer's reasoning, and never goes beyond the part before the answer appears. With ``writer`` = policy,
the policy writes the hint; the rule is the fallback if its text is empty or contains the answer. It differs from the base in the groups it trains on.
Step time: up to L more rollouts of the failed groups (the authors report 2.3 times GRPO's step time, and 1.2 times for light).
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.maths.thresholds import is_above
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.base import Example, digest_example
from trainers.texts.spans import thought_span

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion
    from trainers.tasks.base import Task

PIECE = re.compile(r"=?[^\s=]+")  # "3+3=6 6+5=11" -> "3+3" "=6" "6+5" "=11"
STRONGEST = 9  # level that a panel shows
REQUEST = "{question} The solution is {solution}. Give hint {level} of {levels} without the answer."


def compute_gate_probability(success: float, group_size: int) -> float:
    """Probability that a group of independent completions has both correct and wrong ones."""
    return float(1 - (1 - success) ** group_size - success**group_size)


def hint_of(working: str, answer: str, level: int, levels: int) -> str:
    """The first ``level`` / ``levels`` of the reasoning, up to where it first shows the answer; "" if there is nothing to reveal."""
    pieces = [(match.start(), match.end()) for match in PIECE.finditer(working)]
    sums = "=" in working  # what stands left of an equals sign tells nothing new
    shown = [i for i, (start, end) in enumerate(pieces) if (working[start] == "=" or not sums) and has_answer_word(working[start:end], answer)]
    before = pieces[: shown[0]] if shown else pieces[:-1]
    count = -(-level * len(before) // levels)  # rounded up
    return working[: before[count - 1][1]].strip() if count else ""


def has_answer_word(text: str, answer: str) -> bool:
    """Whether ``answer`` occurs in the text as a separate word or number."""
    return bool(answer) and re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text) is not None


def next_level(level: int, accuracy: float, low: float, high: float, levels: int) -> int:
    return min(level + 1, levels) if not is_above(accuracy, low) else max(level - 1, 0) if is_above(accuracy, high) else level


def with_hint(prompt: Sequence[Message], hint: str) -> list[Message]:
    return [*prompt[:-1], Message(prompt[-1].role, f"{prompt[-1].content} Hint: {hint}")] if hint else list(prompt)


class Config(Strict):
    variant: Literal["sage", "light"] = param("sage", "sage: resample failed groups at once. light: raise or lower a prompt's level once per visit.")
    levels: int = param(3, "Number of hint levels.", title="Levels (L)", ge=1, le=STRONGEST)
    writer: Literal["rule", "policy"] = param("rule", "Who writes hints: a rule based on the gold reasoning, or the policy.", title="Hints from")
    low: float = param(
        0.1, "light: a prompt with at most this accuracy gets a stronger hint next time.", title="Stronger hint at", ge=0, le=1, advanced=True
    )
    high: float = param(
        0.35, "light: a prompt above this accuracy gets a weaker hint next time.", title="Weaker hint above", ge=0, le=1, advanced=True
    )


class SAGE(Method):
    card = Card(
        name="sage",
        title="Self-hinting",
        arxiv="2602.03143",
        system="SAGE, SAGE-light",
        base="grpo",
        provenance="paper",
        source="github BaohaoLiao/SAGE: paper/SAGE.pdf sections 2 to 5, recipe/hint",
        fit="core",
        idea="If every completion of a prompt is wrong, there is no learning signal; sample it again with a hint that is only as strong as needed.",
        formula=(
            r"l^* = \min\left\{l \in \{0, \dots, L\} : \sum_i R_i^{(l)} > 0\right\}, \quad y_i \sim \pi(\cdot | x, h_{l^*})",
            r"u(p) = 1 - (1 - p)^G - p^G",
        ),
        departures=(
            "By default, a rule takes hints from the gold answer's reasoning; a setting lets the policy write them.",
            "Tasks without reasoning in their gold answer get no hint.",
            "In the light variant, the level can fall again, as in the authors' code; in the paper's text it only rises.",
        ),
        claim=("frac_reward_zero_std", "lower"),
    )
    Config = Config
    owns = frozenset({"rollout", "prompt"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.reached: dict[str, int] = {}  # light: level of every prompt seen, by the digest of its example

    def rollout(self, session: "Session") -> "list[Completion]":
        size, light = session.group_size, self.config.variant == "light"
        groups = range(0, len(session.examples), size)
        made: dict[int, Completion] = {}
        self.roll(session, made, {row: self.reached.get(make_example_key(session.examples[row]), 0) if light else 0 for row in groups})
        for level in range(1, self.config.levels + 1) if not light else ():
            right = session.right(session.examples, [made[row] for row in range(len(made))])
            self.roll(session, made, {row: level for row in groups if not any(right[row : row + size])})
        return [made[row] for row in range(len(made))]

    def roll(self, session: "Session", made: "dict[int, Completion]", levels: dict[int, int]) -> None:
        """Samples the groups that start at the rows of ``levels``, each with a hint of its level; a sampled group without an available hint stays."""
        hints = self.hints(session, levels)
        again = [row for row in levels if hints[row] or row not in made]
        rows = [row + member for row in again for member in range(session.group_size)]
        if not rows:
            return
        asked = {row: hints[row - row % session.group_size] for row in rows}
        prompts = [with_hint(made[row].notes["plain"] if row in made else session.prompts[row], hint) for row, hint in asked.items()]
        for row, prompt, one in zip(rows, prompts, session.complete(prompts, [session.examples[row] for row in rows]), strict=True):
            plain = made[row].notes["plain"] if row in made else session.prompts[row]
            one.notes.update(level=levels[row - row % session.group_size] if asked[row] else 0, hint=asked[row], plain=plain)
            made[row], session.prompts[row] = one, prompt

    def hints(self, session: "Session", levels: dict[int, int]) -> dict[int, str]:
        """The hint for each group that gets one; "" for level 0."""
        task, most = session.run.task, self.config.levels
        ruled = {row: hint_of(working_of(task, session.examples[row]), session.examples[row].reference, level, most) for row, level in levels.items()}
        ruled = {row: hint if levels[row] else "" for row, hint in ruled.items()}
        asked = [row for row, hint in ruled.items() if hint] if self.config.writer == "policy" else []
        if asked:
            written = session.complete([self.request(session, row, levels[row]) for row in asked], [session.examples[row] for row in asked])
            for row, one in zip(asked, written, strict=True):
                text = " ".join(one.text.split())
                ruled[row] = ruled[row] if not text or has_answer_word(text, session.examples[row].reference) else text
        return ruled

    def request(self, session: "Session", row: int, level: int) -> list[Message]:
        example = session.examples[row]
        question, solution = example.prompt[-1].content, working_of(session.run.task, example)
        return [Message("user", REQUEST.format(question=question, solution=solution, level=level, levels=self.config.levels))]

    def observe(self, batch: "RolloutBatch") -> None:
        levels = [note.get("level", 0) for note in batch.notes]
        right = batch.correct.float().cpu()
        share = batch.grouped(right).mean(1)
        self.log("gate_open", ((share > 0) & (share < 1)).float().mean())
        for level in range(self.config.levels + 1):
            self.log(f"level/{level}", sum(found == level for found in levels) / len(levels))
        for name, rows in (("plain", [i for i, found in enumerate(levels) if not found]), ("hinted", [i for i, found in enumerate(levels) if found])):
            if rows:
                self.log(f"accuracy_{name}", right[rows].mean())
        if self.config.variant == "light":
            config = self.config
            for group, accuracy in enumerate(share.tolist()):
                name = make_example_key(batch.examples[group * batch.group_size])
                self.reached[name] = next_level(self.reached.get(name, 0), accuracy, config.low, config.high, config.levels)

    def state(self) -> dict[str, Any]:
        return {"reached": dict(self.reached)}

    def restore(self, state: dict[str, Any]) -> None:
        self.reached = dict(state["reached"])

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Hints needed",
                tuple(Series(f"sage/level/{level}", f"level {level}" if level else "no hint") for level in range(4)),
                "stack",
                help="Share of completions by the level of their hint.",
            ),
            Panel(
                "Accuracy with and without a hint",
                (
                    Series("sage/accuracy_plain", "no hint"),
                    Series("sage/accuracy_hinted", "hinted"),
                    Series("sage/gate_open", "groups with mixed rewards"),
                ),
            ),
        )


def make_example_key(example: Example) -> str:
    return digest_example(example).hex()


def working_of(task: "Task", example: Example) -> str:
    """The reasoning of the gold answer; "" without a gold answer or without reasoning in it."""
    try:
        text = task.gold(example)
    except LookupError:
        return ""
    span = thought_span(text)
    return "" if span is None else text[slice(*span)]
