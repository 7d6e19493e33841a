"""SeaPO: strategic error amplification (arXiv 2509.24781). The rejected answer of every pair is the chosen one with one typical error written into
it, so that it is worse for sure and worse in a known way; the preference loss itself is the base's.

For each pair an error is drawn uniformly from three (mix), or it is always the same. The chosen answer stays, what was rejected before is dropped. On
chains of equations: logic = one result is wrong, fact = one number is not the question's, instruction = one step is left out; each is carried on to
the answer. The injector is a language model in the paper; here it is a rule, or the endpoint that the worker is set up with. Differs from the base in
the rejected answers alone.
"""

from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.texts.chains import ERRORS, Error, corrupt_answer

if TYPE_CHECKING:
    import random

    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext

ASKED = {
    "logic": "one step of the reasoning does not follow",
    "fact": "one fact or number is not the one of the question",
    "instruction": "one thing the question asks for is not done",
}
REQUEST = "Question: {question}\nAnswer: {answer}\nRewrite the answer so that {error}, in the same form. Write the rewritten answer only."


def drawn_error(setting: str, rng: "random.Random") -> Error:
    """The error of a row: always the same, or one of all."""
    fixed: dict[str, Error] = {error: error for error in ERRORS}
    return fixed[setting] if setting in fixed else rng.choice(ERRORS)


def inject_error(text: str, error: Error, mix: bool, rng: "random.Random") -> tuple[str, Error] | None:
    """The text with the error, or (in a mix) with another one where it has no place for that; None where it has for none."""
    others = [other for other in ERRORS if other != error] if mix else []
    rng.shuffle(others)
    for kind in (error, *others):
        made = corrupt_answer(text, kind, rng)
        if made is not None and made.strip() and made != text:
            return made, kind
    return None


class Config(Strict):
    error: Literal["mix", "logic", "fact", "instruction"] = param("mix", "The error written into rejected answers; mix draws one for each pair.")
    injector: Literal["rule", "endpoint"] = param("rule", "Who writes the error: a rule, or the worker's judge endpoint.", title="Written by")


class SeaPO(Method):
    card = Card(
        name="seapo",
        title="Strategic error amplification",
        arxiv="2509.24781",
        system="SeaPO",
        base="dpo",
        provenance="code",
        source="README of the SeaPO repository; its loss is stock preference training",
        fit="core",
        idea="Make sure that the rejected answer is the worse one: take the chosen answer and put a known error into it.",
        formula=(
            r"e \sim \mathrm{Uniform}(E), \quad y^- = \mathrm{Inject}(x, y^+, e)",
            r"L = -\log \sigma\left(\beta \left[\log\frac{\pi(y^+|x)}{\pi_{ref}(y^+|x)} - \log\frac{\pi(y^-|x)}{\pi_{ref}(y^-|x)}\right]\right)",
        ),
        departures=(
            "Two of the three errors and the rule that writes them are ours.",
            "The error is drawn once for each row; the paper draws again every epoch.",
            "A row without a place for any error is dropped.",
            "The loss is DPO's, where the authors train with KTO on the two halves.",
        ),
        claim=("rewards/accuracies", "higher"),
    )
    Config = Config
    roles = {"data": "makes", "pair_loss": "reads"}
    trains = frozenset({"dpo"})

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        kinds = [drawn_error(self.config.error, run.rng("seapo", place)) for place in range(len(rows))]
        written = self.by_endpoint(rows, kinds, run) if self.config.injector == "endpoint" else self.by_rule(rows, kinds, run)
        kept = [
            {**row, "rejected": [*row["chosen"][:-1], {**row["chosen"][-1], "content": made[0]}], "error": made[1]}
            for row, made in zip(rows, written, strict=True)
            if made is not None
        ]
        self.log("dropped", 1 - len(kept) / len(rows))
        for error, count in Counter(row["error"] for row in kept).items():
            self.log(f"share/{error}", count / len(kept))
        return kept

    def by_rule(self, rows: list[Any], kinds: list[Error], run: "RunContext") -> list[tuple[str, Error] | None]:
        mix = self.config.error == "mix"
        texts = [row["chosen"][-1]["content"] for row in rows]
        return [inject_error(text, kind, mix, run.rng("seapo", place, kind)) for place, (text, kind) in enumerate(zip(texts, kinds, strict=True))]

    def by_endpoint(self, rows: list[Any], kinds: list[Error], run: "RunContext") -> list[tuple[str, Error] | None]:
        if run.judge is None:
            fix = "set LAB_JUDGE_URL on the worker, or choose rule"
            raise SpecError([Problem("methods.seapo.config.injector", "endpoint", "this worker has no judge endpoint", fix)])
        texts = [row["chosen"][-1]["content"] for row in rows]
        questions = [row["prompt"][-1]["content"] for row in rows]
        requests = [REQUEST.format(question=q, answer=text, error=ASKED[kind]) for q, text, kind in zip(questions, texts, kinds, strict=True)]
        answers = [answer.strip() for answer in run.judge.ask(requests)]
        return [(made, kind) if made and made != text.strip() else None for made, text, kind in zip(answers, texts, kinds, strict=True)]

    def pair_loss(self, batch: "PairBatch", score: Tensor, base: Any) -> Tensor:
        """The base's loss; margin and accuracy by error are what the method is about."""
        kinds = batch.column("error")
        for error in ERRORS:
            own = torch.tensor([kind == error for kind in kinds], device=score.device)
            if own.any():
                self.log(f"margin/{error}", score.detach()[own].mean())
                self.log(f"accuracy/{error}", (score.detach()[own] > 0).float().mean())
        losses: Tensor = base(score)
        return losses

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Margin by error",
                tuple(Series(f"seapo/margin/{error}", error) for error in ERRORS),
                help="How far the chosen answer stands above the same answer with an error of each kind.",
            ),
            Panel("Accuracy by error", tuple(Series(f"seapo/accuracy/{error}", error) for error in ERRORS)),
        )
