"""MaskSearch: retrieval-augmented mask prediction, in stages of more masks (arXiv 2505.20285).

The task is a paragraph with k masked spans, to be filled in with a search engine.

R = w_a (mean token recall over the spans) + w_f [right form]
stage j draws items with k <= j; the next one begins when the share of episodes with k = j whose spans are all right is above a threshold

Then the reinforcement of the base. It differs from its base on the same items in the stages and in the credit for single spans; with ``staged`` off,
all numbers of masks are drawn from the beginning.

Masking up to four salient spans was read in the authors' code, stages and reward in the abstract: weights, threshold and window are ours. The items
of a stage are made from the world's own examples by showing the masked words beyond the first k, so each stands in the data once for every k. The
world ``paragraphs`` masks words of its sentences, in place of entities that a model marks in an encyclopedia; its spans are single words, each
filled in by a turn of its own.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.thresholds import is_above
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.worlds.paragraphs import SENTENCES, count_masks, score_spans, unmask_example
from trainers.worlds.replays import read_final_answer, replay_texts

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.methods.history import History


def weigh_by_stage(masks: list[int], stage: int) -> Tensor:
    """(number of examples,): 1 for those with at most ``stage`` masks."""
    return (torch.tensor(masks) <= stage).float()


def mix_rewards(spans: float, form: float, answer_weight: float, form_weight: float) -> float:
    return answer_weight * spans + form_weight * form


class Config(Strict):
    staged: bool = param(True, "Begin with one mask and go on to more; off: all numbers of masks from the beginning.", title="Stages")
    threshold: float = param(0.6, "Share of right episodes with the stage's most masks above which the next stage begins (ours).", ge=0, le=1)
    window: int = param(64, "Newest episodes with the stage's most masks that the share is of (ours).", ge=1, le=100_000, advanced=True)
    answer_weight: float = param(0.9, "Weight of the spans that are right (ours).", title="Weight of the spans (w_a)", ge=0, le=100)
    form_weight: float = param(0.1, "Weight of the right form (ours).", title="Weight of the form (w_f)", ge=0, le=100)


class MaskSearch(Method):
    card = Card(
        name="masksearch",
        title="Masked paragraphs in stages",
        arxiv="2505.20285",
        system="MaskSearch (RAMP)",
        base="dapo",
        provenance="abstract",
        source="abstract; github Alibaba-NLP/MaskSearch: src/RAMP/gen_qa.py for the masking",
        fit="needs-environment",
        idea="Let the policy fill in masked words of a paragraph by searching, and mask more of them as it succeeds.",
        formula=(
            r"R = w_a\, \frac{1}{k} \sum_{i=1}^{k} \mathrm{recall}_i + w_f\, [\text{right form}]",
            r"\text{stage } j:\ k \le j, \qquad j \leftarrow j + 1 \text{ when } P(\text{all right} \mid k = j) > \tau",
        ),
        reading="weights, threshold and window are our choices; the abstract names answer and format rewards and easy-to-hard stages",
        departures=(
            "Paragraphs and spans are those of the world paragraphs, in place of an encyclopedia and entities that a model marks.",
            "Only the reinforcement is here, not the supervised variant with self-evolved traces.",
            "Items with fewer masks are made from the same paragraphs by showing some of the masked words.",
        ),
    )
    Config = Config
    roles = {"data": "maps", "rewards": "makes"}
    owns = frozenset({"curriculum"})
    worlds = frozenset({"paragraphs"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.stage = 1 if self.config.staged else SENTENCES
        self.recent: list[bool] = []  # whether the newest episodes with the stage's most masks were right, oldest first

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        """Every example with each number of masks up to its own, fewest first."""
        return [unmask_example(example, masks) for example in rows for masks in range(1, count_masks(example) + 1)]

    def curriculum(self, history: "History") -> Tensor:
        self.log("stage", float(self.stage))
        return weigh_by_stage([count_masks(example) for example in self.run.examples], self.stage)

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        made = []
        for replay, example in zip(replay_texts(self.run.task, batch.examples, batch.texts), batch.examples, strict=True):
            answer = read_final_answer(replay)
            spans = score_spans(answer or "", example.reference)
            made.append(mix_rewards(spans, float(answer is not None), self.config.answer_weight, self.config.form_weight))
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    def observe(self, batch: "RolloutBatch") -> None:
        right = dict[int, list[bool]]()
        for example, is_right in zip(batch.examples, batch.correct.tolist(), strict=True):
            right.setdefault(count_masks(example), []).append(is_right)
        for masks, found in right.items():
            self.log(f"accuracy/{masks}", sum(found) / len(found))
        self.recent = [*self.recent, *right.get(self.stage, [])][-self.config.window :]
        whole = len(self.recent) == self.config.window
        if whole and self.stage < SENTENCES and is_above(sum(self.recent) / len(self.recent), self.config.threshold):
            self.stage, self.recent = self.stage + 1, []

    def state(self) -> dict[str, Any]:
        return {"stage": self.stage, "recent": list(self.recent)}

    def restore(self, state: dict[str, Any]) -> None:
        self.stage, self.recent = state["stage"], list(state["recent"])

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        accuracies = tuple(Series(f"{name}/accuracy/{masks}", f"{masks} mask{'s' * (masks > 1)}") for masks in range(1, SENTENCES + 1))
        return (
            Panel("Accuracy by masks", accuracies, help="Share of episodes with all words right."),
            Panel("Stage", (Series(f"{name}/stage", "most masks"),)),
        )
