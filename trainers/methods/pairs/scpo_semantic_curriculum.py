"""SCPO: semantic curriculum preference optimisation with a two-way objective (arXiv 2509.24491).

There are two contexts I and I' (images in the paper) and two answers: y_w is true for I, y_l for I'. With s(I, y) = beta log pi(y|x, I) / pi_ref(y|x,
I),

    L_text = -log sigmoid(s(I, y_w) - s(I, y_l)) - log sigmoid(s(I', y_l) - s(I', y_w))      the answers swap order with the context
    L_vis  = -log sigmoid(s(I, y_w) - s(I', y_w)) - log sigmoid(s(I', y_l) - s(I, y_l))      each answer prefers its own context
    L = (L_text + L_vis) / 4.

Pairs are sorted from coarse to fine differences and split into stages; at the start of each stage, the reference becomes the policy. This is our
interpretation of the abstract: the symmetric loss, the schedule, three stages and beta are our choices.

The lab's contexts are texts: a story, and the same story with one change. If rows have a ``contrast`` prompt, it is used. Otherwise, for word
problems, the second story is in turn another one (object), one with a different start number (attribute), or one with a different last change
(relation); both answers are then the gold ones, and the policy's sampled answers are not used. Other tasks have only the first kind. Difficulty is
the similarity of the two answers. Rows without a contrast are trained on as in DPO, and so are all rows with ``two_way`` off. It differs from DPO in
three more margins per pair, which take two more forward passes of policy and reference: about twice its time. The reference moves just before the
first update of a stage, so that update is still measured against the old one. Rows are arranged by stage for the whole run and not shuffled.
"""

import itertools
import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.attempt.stages import stage_of, stage_starts
from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.data import pair_rows
from trainers.maths.similarity import compute_text_similarity
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.policies.sampling import as_rows
from trainers.tasks.base import Example

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext

Row = dict[str, Any]
NUMBER = re.compile(r"\d+")
LEVELS = ("object", "attribute", "relation")


def four_margins(own_right: Tensor, own_wrong: Tensor, other_right: Tensor, other_wrong: Tensor) -> Tensor:
    """(B,) scores s(I, y_w), s(I, y_l), s(I', y_l), s(I', y_w) -> (4, B) margins: two of L_text, two of L_vis."""
    return torch.stack([own_right - own_wrong, other_right - other_wrong, own_right - other_wrong, other_right - own_wrong])


def cut_into_stages(rows: list[Row], stages: int) -> list[list[Row]]:
    """The rows by increasing similarity, in parts of nearly equal size; fewer parts if there are fewer rows."""
    ordered, count = sorted(rows, key=lambda row: row["similarity"]), min(stages, len(rows))
    bounds = [place * len(rows) // count for place in range(count + 1)]
    return [ordered[start:end] for start, end in itertools.pairwise(bounds)]


def retell_problem(example: Example, level: str) -> Example:
    """A word problem whose start number is one larger (attribute), or whose last change is one more gained or one less lost (relation)."""
    start, changes = int(example.data["start"]), [int(change) for change in example.data["changes"]]
    if level == "relation" and changes[-1] != -1:  # nothing lost is no change: such a story starts with one more instead
        place, value = -1, abs(changes[-1] + 1)
        changes[-1] += 1
    else:
        place, value = 0, start + 1
        start += 1
    text = "\n".join(message.content for message in example.prompt)
    found = list(NUMBER.finditer(text))[place]
    edited = f"{text[: found.start()]}{value}{text[found.end() :]}"
    return Example([Message("user", edited)], str(start + sum(changes)), {"start": start, "changes": changes})


def compute_swap_share(right: Tensor, wrong: Tensor, other_right: Tensor, other_wrong: Tensor) -> Tensor:
    """(B,) log-probabilities of the true and the false answer in both contexts -> scalar: share of pairs whose order swaps with the context."""
    return ((right > wrong) & (other_right > other_wrong)).float().mean()


class Config(Strict):
    stages: int = param(3, "Number of stages of the run, from coarse to fine differences (our value).", title="Stages", ge=1, le=20)
    refresh: bool = param(True, "At the start of each stage, the reference becomes the policy.", title="Move the reference")
    two_way: bool = param(True, "Use all four margins; off: only the pair in its own context, as in DPO.", title="Two-way loss")


class SCPO(Method):
    card = Card(
        name="scpo-semantic-curriculum",
        title="Semantic curriculum preference optimisation",
        arxiv="2509.24491",
        system="SCPO",
        base="dpo",
        provenance="abstract",
        source="abstract",
        fit="needs-modality",
        idea=(
            "Give each pair a second context in which the other answer is true, and train the preference to swap with it; coarse "
            "differences come first."
        ),
        formula=(
            r"s(I, y) = \beta \log \frac{\pi(y|x, I)}{\pi_{ref}(y|x, I)}",
            r"L_{text} = -\log \sigma\left(s(I, y_w) - s(I, y_l)\right) - \log \sigma\left(s(I', y_l) - s(I', y_w)\right)",
            r"L_{vis} = -\log \sigma\left(s(I, y_w) - s(I', y_w)\right) - \log \sigma\left(s(I', y_l) - s(I, y_l)\right)",
            r"L = \frac{L_{text} + L_{vis}}{4}",
        ),
        reading="the symmetric loss and the schedule are our interpretation of the abstract; texts replace images",
        departures=(
            "Texts replace images.",
            "If the task makes the second context, gold answers replace sampled ones.",
        ),
        claim=("scpo-semantic-curriculum/flips", "higher"),
        parallel=False,
    )
    Config = Config
    roles = {"data": "makes", "pair_loss": "makes"}
    trains = frozenset({"dpo"})
    owns = frozenset({"pair loss", "reference"})
    excludes = {
        "ipo": "ipo margins are means with a fixed target, not log-odds",
        "ipo-safe": (
            "scpo arranges rows in stages and rewrites both answers: corrected chains would be lost, and additional pairs would break the stages"
        ),
    }
    cautions = {"prefcleanbench": "both answers of a known example are rewritten, so swapping its sides has no effect"}
    ordered = True

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.starts = stage_starts(run.training.max_steps, self.config.stages)

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        made = self.with_contrast(rows)
        if not any(row["contrast"] for row in made):
            fix = "give rows a contrast prompt or a reference, or let the task sample the pairs"
            raise SpecError([Problem("methods", "scpo-semantic-curriculum", "no pair has a second context", fix)])
        made = [
            {**row, "similarity": compute_text_similarity(pair_rows.join_message_texts(row["chosen"]), pair_rows.join_message_texts(row["rejected"]))}
            for row in made
        ]
        parts, ends = cut_into_stages(made, len(self.starts)), [*self.starts[1:], run.training.max_steps + 1]
        batch = run.training.per_device_train_batch_size * run.training.gradient_accumulation_steps
        laid_out = list[Row]()
        for stage, (start, end) in enumerate(zip(self.starts, ends, strict=True)):
            part, rng = list(parts[min(stage, len(parts) - 1)]), run.rng("scpo-semantic-curriculum", stage)
            for place in range((end - start) * batch):
                if place % len(part) == 0:
                    rng.shuffle(part)
                laid_out.append({**part[place % len(part)], "stage": stage})
        return laid_out

    def with_contrast(self, rows: list[Row]) -> list[Row]:
        if any(row.get("contrast") for row in rows):
            return [{**row, "contrast": pair_rows.question_of(row.get("contrast"))} for row in rows]
        examples = pair_rows.examples_of(rows, self.run)
        known, made = [example for example in examples if example is not None], list[Row]()
        for place, (row, example) in enumerate(zip(rows, examples, strict=True)):
            other, level = self.other(example, known, LEVELS[place % len(LEVELS)])
            right, wrong = pair_rows.gold_of(self.run, example), pair_rows.gold_of(self.run, other)
            if other is None or right is None or wrong is None or right == wrong:
                made.append({**row, "contrast": None})
                continue
            sides = {"chosen": pair_rows.to_answer_messages(right), "rejected": pair_rows.to_answer_messages(wrong)}
            made.append({**row, **sides, "contrast": as_rows(other.prompt), "level": level})
        return made

    @staticmethod
    def other(example: Example | None, known: list[Example], level: str) -> tuple[Example | None, str]:
        """The second context of an example, and how it differs."""
        if example is None:
            return None, ""
        if level != "object" and example.data.get("changes"):
            return retell_problem(example, level), level
        return known[(known.index(example) + 1) % len(known)], "object"

    def pair_loss(self, batch: "PairBatch", score: Tensor, base: Any) -> Tensor:
        places = [place for place, contrast in enumerate(batch.column("contrast")) if contrast]
        losses: Tensor = base(score)
        if not places:
            return losses
        margins = self.margins(batch, places)
        self.report(batch, margins)
        if not self.config.two_way:
            return losses
        both = torch.stack([base(margin) for margin in margins]).mean(0)
        return losses.index_copy(0, torch.tensor(places, device=losses.device), both)

    def margins(self, batch: "PairBatch", places: list[int]) -> Tensor:
        """(4, K) margins of the K rows with a contrast; the first from existing forward passes, the others from passes in the other context."""
        rows = [batch.rows[place] for place in places]
        own = [(values * mask).sum(1)[places] for values, mask in with_masks(batch, batch.chosen_logprobs, batch.rejected_logprobs)]
        held = [(values * mask).sum(1)[places] for values, mask in with_masks(batch, batch.chosen_reference, batch.rejected_reference)]
        with torch.set_grad_enabled(self.config.two_way and torch.is_grad_enabled()):
            other = [pair_rows.sum_side_logprobs(self.run, rows, side, None, "contrast") for side in ("rejected", "chosen")]
        with torch.no_grad():
            other_held = [pair_rows.sum_side_logprobs(self.run, rows, side, self.run.reference, "contrast") for side in ("rejected", "chosen")]
        self.log("flips", compute_swap_share(*own, *other))
        return batch.beta * four_margins(own[0] - held[0], own[1] - held[1], other[0] - other_held[0], other[1] - other_held[1])

    def report(self, batch: "PairBatch", margins: Tensor) -> None:
        for name, margin in zip(("answers", "answers_contrast", "contexts", "contexts_contrast"), margins.detach(), strict=True):
            self.log(f"margin_{name}", margin.mean())
        self.log("stage", float(stage_of(batch.step, self.starts)))
        self.log("similarity", sum(batch.column("similarity", 0.0)) / len(batch.rows))
        levels = batch.column("level", "")
        for level in LEVELS:
            if (which := torch.tensor([name == level for name in levels], device=batch.score.device)).any():
                self.log(f"accuracy_{level}", (batch.score[which] > 0).float().mean())

    def reference(self, step: int, policy: Any, reference: Any) -> bool:
        if not self.config.refresh or step not in self.starts[1:]:
            return False
        reference.load_state_dict(policy.state_dict())
        return True

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        margins = {"answers": "answers", "answers_contrast": "answers, other context", "contexts": "contexts", "contexts_contrast": "other contexts"}
        return (
            Panel(
                "The four margins",
                tuple(Series(f"{name}/margin_{key}", label) for key, label in margins.items()),
                "phases",
                phase=f"{name}/stage",
                phase_names=("stage 1", "stage 2", "stage 3"),
                help="Implicit rewards; they restart at 0 when the reference moves.",
            ),
            Panel("Pairs whose order swaps with the context", (Series(f"{name}/flips"),), help="Based on the policy's log-probabilities."),
            Panel("Accuracy by difference", tuple(Series(f"{name}/accuracy_{level}", level) for level in LEVELS)),
        )


def with_masks(batch: "PairBatch", chosen: Tensor, rejected: Tensor) -> list[tuple[Tensor, Tensor]]:
    """(values, mask) of chosen and of rejected, (B, T) each."""
    return [(chosen, batch.chosen_mask), (rejected, batch.rejected_mask)]
