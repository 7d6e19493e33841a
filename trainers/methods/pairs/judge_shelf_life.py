"""Judges of pairs, trained on answers of a weak generator, a strong one, or first the one and then the other (arXiv 2509.23542).

The training data is laid out for the whole run: ``share`` of the steps on pairs of the weak generator, the rest on the strong one's, each part
shuffled and gone through again where it is short. DPO prefers a judge's right verdict to its wrong one, SFT imitates right verdicts; both losses are
the base's. Where all pairs are of one generator the order alone differs, and no step is taken from the other one.

What it is for is measured in both orders of held-out pairs (consistent accuracy), and compared between judges by the five differences of
``trainers/contract/judge_shelf_life.py``. Rows of a dataset say in a column ``tier`` whose answers they are about (the dataset tool of this name
writes it); pairs of the world ``verdicts`` know it themselves.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.judge_shelf_life import STRONG, WEAK
from trainers.contract.problems import Problem, SpecError
from trainers.data.pair_rows import join_message_texts
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.policies.sampling import as_rows

if TYPE_CHECKING:
    import random

    from trainers.methods.context import RunContext
    from trainers.tasks.base import Split

Row = dict[str, Any]
NAME = "judge-shelf-life"
TIER = "tier"  # a column of a row, or what an example knows of itself


def count_weak_steps(steps: int, share: float, tiers: Mapping[str, Sequence[Row]]) -> int:
    """How many of the steps are on the weak generator's pairs: all or none where there are pairs of one generator alone."""
    if not tiers[STRONG]:
        return steps
    return round(share * steps) if tiers[WEAK] else 0


def repeat_shuffled(rows: Sequence[Row], count: int, rng: "random.Random") -> list[Row]:
    """``count`` rows: all of them in a random order, then again in another one. ``rows`` may be empty only where none is wanted."""
    made, part = list[Row](), list(rows)
    while len(made) < count:
        rng.shuffle(part)
        made += part[: count - len(made)]
    return made


class Config(Strict):
    share: float = param(0.5, "Of the steps that are on pairs of the weak generator, which come first (our value).", title="Weak first", ge=0, le=1)


class JudgeShelfLife(Method):
    card = Card(
        name=NAME,
        title="Judges for old and new generators",
        arxiv="2509.23542",
        system="judge shelf life",
        base="dpo",
        provenance="abstract",
        source="the abstract; settings from github iamjanvijay/judge-training-analysis",
        fit="variant",
        idea="Train a judge of pairs on answers of a weak generator, then on a strong one's, and measure it on both, in both orders.",
        formula=(
            r"\mathrm{FutureProof} = \mathrm{Acc}_{strong}(J_{weak}) - \mathrm{Acc}_{weak}(J_{weak})",
            r"\mathrm{RefreshAdvantage} = \mathrm{Acc}_{strong}(J_{new}) - \mathrm{Acc}_{strong}(J_{weak})",
            r"\mathrm{BackCompat} = \mathrm{Acc}_{weak}(J_{new}) - \mathrm{Acc}_{weak}(J_{weak})",
            r"\mathrm{CompatShift} = \mathrm{Acc}_{weak}(J_{new}) - \mathrm{Acc}_{strong}(J_{new})",
            r"\mathrm{QuestionGen} = \mathrm{Acc}_{unseen}(J) - \mathrm{Acc}_{seen}(J)",
        ),
        reading="the five differences are those of a secondary note on the paper; that both parts of continual training have as many steps is ours",
        departures=(
            "In the world, rules stand for weak and strong generators; the paper clusters language models by pass@1.",
            "A rule's working stands for the teacher's chain of thought; verdicts for DPO are the judge's own, not a teacher's.",
            "Both parts of continual training are one run with one learning rate schedule.",
        ),
        claim=("heldout/consistent_strong", "higher"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"dpo", "sft"})
    worlds = frozenset({"verdicts"})
    roles = {"data": "arranges"}
    ordered = True

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        tiers = self.sort_by_tier(rows, run)
        training, size = run.training, run.training.per_device_train_batch_size * run.training.gradient_accumulation_steps
        weak = count_weak_steps(training.max_steps, self.config.share, tiers)
        self.log("data_weak_steps", weak)
        made = list[Row]()
        for tier, steps in ((WEAK, weak), (STRONG, training.max_steps - weak)):
            made += repeat_shuffled(tiers[tier], steps * size, run.rng(NAME, tier))
            self.log(f"data_{tier}_rows", len(tiers[tier]))
        return made

    def sort_by_tier(self, rows: Sequence[Row], run: "RunContext") -> dict[str, list[Row]]:
        """Raises SpecError where nothing says whose answers a row is about."""
        known = {} if all(row.get(TIER) for row in rows) else find_prompt_tiers(run, len(rows))
        tiers: dict[str, list[Row]] = {WEAK: [], STRONG: []}
        for row in rows:
            tier = row.get(TIER) or known.get(join_message_texts(row["prompt"]))
            if tier not in tiers:
                fix = f"give each row a column tier, {WEAK} or {STRONG}, or train on the world's own pairs"
                raise SpecError([Problem("dataset", str(tier), "a row does not say which generator wrote its answers", fix)])
            tiers[tier].append(row)
        return tiers

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        tiers = (Series("heldout/consistent_weak", "of the weak generator"), Series("heldout/consistent_strong", "of the strong one"))
        questions = (Series("heldout/consistent_seen", "seen in training"), Series("heldout/consistent_unseen", "not seen", dashed=True))
        return (
            Panel("Consistent accuracy", tiers, help="Held-out pairs whose right answer was named in both orders."),
            Panel("Consistent accuracy by question", questions),
            Panel(
                "Position bias",
                (Series("heldout/biased", "pairs with the same place named twice"), Series("heldout/says_first", "verdicts for the first place")),
                help="A judge without a bias names the first place half of the time.",
            ),
        )


def find_prompt_tiers(run: "RunContext", count: int) -> dict[str, str]:
    """The text of each prompt that the run may have drawn from its world -> whose answers it is about."""
    spec = run.attempt.spec
    count = max(count, getattr(run.training, "sampled_prompts", 0), getattr(run.training, "demonstrations", 0))
    split: Split = "train" if spec.training.trainer == "sft" else "pairs"
    examples = run.task.examples(split, count, spec.seed, spec.task.difficulty)
    return {join_message_texts(as_rows(example.prompt)): example.data[TIER] for example in examples}
