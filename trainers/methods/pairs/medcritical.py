"""MedCritical: a policy learns from its own corrections (arXiv 2509.23368).

y1 ~ pi(.|x); where it is wrong, y2 ~ pi(.|x, y1, "that is wrong") and, if that one is right, (x, chosen y2, rejected y1) is a pair of the
base's loss. Both sides are answers to x alone: what was said about the first answer is in no training row. Failed corrections give no pair.

Stage 1, on the sft trainer: a share of the demonstrations becomes corrections: the task's question, a wrong demonstration, the request to correct
it, and an answer. Stage 2, on the dpo trainer: the pairs above, from the policy that the run starts from, which is also the reference. This is our
reading of the abstract and of the authors' settings; the script that builds their pairs was not released. A quarter of the shown corrections are
ordinary demonstrations instead of gold answers, so that corrections fail as well. It differs from the base in what it trains on alone.
"""

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainers.attempt import ranks
from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.policies.sampling import as_rows
from trainers.tasks.base import Example
from trainers.texts.spans import extract_answer

if TYPE_CHECKING:
    from trainers.methods.context import RunContext

Row = dict[str, Any]

REQUEST = "That is wrong. Correct it."
GOOD = 0.75  # share of the shown corrections that are gold answers
TRIES = 20  # demonstrations drawn until one is wrong


def ask_for_correction(prompt: Sequence[Message], first: str) -> list[Message]:
    """The chat in which an answer is to be corrected."""
    return [*prompt, Message("assistant", first), Message("user", REQUEST)]


def pair_corrections(examples: Sequence[Example], firsts: Sequence[str], seconds: Sequence[str], right: Sequence[bool]) -> list[Row]:
    """A row for each right correction of a wrong answer: chosen the correction, rejected the first answer, the prompt without what came between."""
    return [
        {
            "prompt": as_rows(example.prompt),
            "chosen": as_rows([Message("assistant", second)]),
            "rejected": as_rows([Message("assistant", first)]),
        }
        for example, first, second, fine in zip(examples, firsts, seconds, right, strict=True)
        if fine
    ]


class Config(Strict):
    share: float = param(0.5, "SFT: share of the demonstrations that show a correction (our value).", title="Share of corrections", ge=0, le=1)
    samples: int = param(1, "DPO: first answers sampled for each prompt.", title="First answers", ge=1, le=64)
    temperature: float = param(0.7, "DPO: sampling temperature of answers and corrections.", title="Temperature", gt=0, le=10)


class MedCritical(Method):
    card = Card(
        name="medcritical",
        title="Self-collaborative correction",
        arxiv="2509.23368",
        system="MedCritical",
        base="dpo",
        provenance="abstract",
        source="abstract; settings and judge script of github destinybird/SP-Huatuo, whose pair-building script was not released",
        fit="variant",
        idea="The policy corrects its own wrong answers and learns to give the corrected answer at the first attempt.",
        formula=(
            r"y_1 \sim \pi(\cdot | x), \quad y_2 \sim \pi(\cdot | x, y_1, c), \quad (y^+, y^-) = (y_2, y_1)\ \mathrm{if}\ V(y_1) = 0,\ V(y_2) = 1",
            r"L = -\log \sigma\left(\beta \left[\log\frac{\pi(y^+|x)}{\pi_{ref}(y^+|x)} - \log\frac{\pi(y^-|x)}{\pi_{ref}(y^-|x)}\right]\right)",
        ),
        reading="how pairs are built, the request and the share of corrections in stage 1",
        departures=(
            "Stage 1 shows corrections of the task's own demonstrations; the authors' shows long answers of a larger model.",
            "The task's accuracy function judges answers; the authors ask a model of 32B parameters.",
            "A correction is asked for without the reference answer.",
            "Beta and the learning rate are the run's; the authors use 0.3, 1e-5 and rank 8 adapters.",
        ),
        claim=("heldout/accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "makes"}
    trains = frozenset({"sft", "dpo"})
    excludes = {"prefcleanbench": "its pairs are verified answers of the policy, and no given labels are left to clean"}
    cautions = {
        "span-credit": "both sides of a pair are written anew, and spans that people marked are gone",
        "dpo-pop": "every pair is a right answer against a wrong one, so hardly any is stronger than another",
    }

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        if run.attempt.spec.training.trainer == "sft":
            return self.show_corrections(rows, run)
        made: list[Row] = ranks.done_by_first(lambda: self.correct_answers(self.list_examples(rows, run), run))
        return made

    def show_corrections(self, rows: list[Row], run: "RunContext") -> list[Row]:
        """Stage 1: the rows, a share of them about correcting a wrong answer to the same question. Those of a dataset stay as they are."""
        spec = run.attempt.spec
        if spec.dataset or not self.config.share:
            return rows
        if run.task.max_turns > 1:
            message = "its demonstrations go over several turns, and corrections of those cannot be shown"
            raise SpecError([Problem("task.name", run.task.name, message, "choose a task of one turn")])
        examples = run.task.draw_demonstrations(len(rows), spec.seed, spec.task.difficulty)
        rng, made = run.rng("medcritical", "stage 1"), list(rows)
        for place in sorted(rng.sample(range(len(rows)), round(self.config.share * len(rows)))):
            if (first := draw_wrong_answer(run, examples[place], rng)) is None:
                continue
            second = run.task.gold(examples[place]) if rng.random() < GOOD else run.task.demonstration(examples[place], rng)
            made[place] = {
                "prompt": as_rows(ask_for_correction(examples[place].prompt, first)),
                "completion": as_rows([Message("assistant", second)]),
            }
        return made

    def list_examples(self, rows: list[Row], run: "RunContext") -> list[Example]:
        """The prompts of the rows: the task's own examples, or those of a dataset with the result of the chosen answer as the reference."""
        spec = run.attempt.spec
        known = run.task.examples("pairs", run.training.sampled_prompts, spec.seed, spec.task.difficulty) if not spec.dataset else []
        own = {example.prompt[-1].content: example for example in known}
        return [own.get(row["prompt"][-1]["content"]) or read_row(row) for row in rows]

    def correct_answers(self, examples: Sequence[Example], run: "RunContext") -> list[Row]:
        """Stage 2: first answers, corrections of the wrong ones, and a pair for each that succeeded."""
        asked = [example for example in examples for _ in range(self.config.samples)]
        firsts = [one.text for one in run.sample(asked, self.config.temperature, "medcritical/first")]
        wrong = [(example, text) for example, text in zip(asked, firsts, strict=True) if text and not run.right(example, text)]
        again = [Example(ask_for_correction(example.prompt, text), example.reference, example.data) for example, text in wrong]
        seconds = [one.text for one in run.sample(again, self.config.temperature, "medcritical/second")] if again else []
        right = [run.right(example, text) for example, text in zip(again, seconds, strict=True)]
        self.log("first_wrong", len(wrong) / len(asked))
        if wrong:
            self.log("corrected", sum(right) / len(right))
            self.log("repeated", sum(first == second for (_, first), second in zip(wrong, seconds, strict=True)) / len(wrong))
        self.log("pairs", float(sum(right)))
        return pair_corrections([example for example, _ in wrong], [text for _, text in wrong], seconds, right)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Corrections",
                (
                    Series("medcritical/first_wrong", "first answers wrong"),
                    Series("medcritical/corrected", "corrections that are right"),
                    Series("medcritical/repeated", "corrections that repeat the answer", dashed=True),
                ),
                help="Measured once, before training. Corrections that are wrong give no pair.",
            ),
        )


def draw_wrong_answer(run: "RunContext", example: Example, rng: random.Random) -> str | None:
    """A wrong demonstration; None where the task's demonstrations of this example are all right."""
    for _ in range(TRIES):
        text = run.task.demonstration(example, rng)
        if not run.right(example, text):
            return text
    return None


def read_row(row: Row) -> Example:
    """A pair of a dataset as an example whose reference is the result of its chosen answer."""
    prompt = [Message(message["role"], message["content"]) for message in row["prompt"]]
    return Example(prompt, extract_answer(row["chosen"][-1]["content"]) or "", row.get("data") or {})
