"""SeaPO: strategic error amplification (arXiv 2509.24781). The rejected answer of every pair is the chosen one with one typical error inserted, so
that it is certainly worse, and in a known way; the preference loss itself is the base's.

For each pair, an error is drawn uniformly from three (mix), or it is always the same. The chosen answer stays, and the original rejected answer is
dropped. On chains of equations: logic = one result is wrong, fact = one number differs from the question, instruction = one step is left out; each
error is carried through to the answer. The paper inserts errors with a language model; here, this is done by a rule or by the worker's judge
endpoint. It differs from the base only in the rejected answers.
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
    """The error of a row: always the same, or one drawn from all."""
    fixed: dict[str, Error] = {error: error for error in ERRORS}
    return fixed[setting] if setting in fixed else rng.choice(ERRORS)


def inject_error(text: str, error: Error, mix: bool, rng: "random.Random") -> tuple[str, Error] | None:
    """The text with the error, or (in a mix) with another one if it has no place for that error; None if it has a place for none."""
    others = [other for other in ERRORS if other != error] if mix else []
    rng.shuffle(others)
    for kind in (error, *others):
        made = corrupt_answer(text, kind, rng)
        if made is not None and made.strip() and made != text:
            return made, kind
    return None


class Config(Strict):
    error: Literal["mix", "logic", "fact", "instruction"] = param("mix", "Error inserted into rejected answers; mix draws one for each pair.")
    injector: Literal["rule", "endpoint"] = param("rule", "Who inserts the error: a rule, or the worker's judge endpoint.", title="Inserted by")


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
        idea="Make sure that the rejected answer is worse: insert a known error into the chosen answer.",
        formula=(
            r"e \sim \mathrm{Uniform}(E), \quad y^- = \mathrm{Inject}(x, y^+, e)",
            r"L = -\log \sigma\left(\beta \left[\log\frac{\pi(y^+|x)}{\pi_{ref}(y^+|x)} - \log\frac{\pi(y^-|x)}{\pi_{ref}(y^-|x)}\right]\right)",
        ),
        departures=(
            "Two of the three errors and the rule that inserts them are our choices.",
            "The error is drawn once for each row; the paper draws again in every epoch.",
            "A row without a place for any error is dropped.",
            "The loss is DPO's; the authors train with KTO on the two halves.",
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
        """The base's loss; logs margin and accuracy by error."""
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
                help="How much the policy prefers the chosen answer over the same answer with each kind of error.",
            ),
            Panel("Accuracy by error", tuple(Series(f"seapo/accuracy/{error}", error) for error in ERRORS)),
        )
