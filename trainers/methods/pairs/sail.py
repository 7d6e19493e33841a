"""SAIL: instruction-following alignment where the conflict is: trains focal layers only, with tokens weighted by attention (arXiv 2509.23188).

Diagnose: score role adherence (CRAS, the mean of four rubric scores). Localise: for each layer, measure how much the attention of answer tokens to
the instruction changes when system and user conflict; the focal layers F are the k with the largest drift. Align: train only in F, with DPO in which
each token is weighted by how much F attends to the instruction there:

    a_t = mean over F of the attention mass on the instruction span,   w_t = |y| a_t / sum_u a_u,
    L = -log sigmoid(beta [sum_t w_t Delta_t(y+) - sum_t w_t Delta_t(y-)]),   Delta_t = log pi(y_t) - log pi_ref(y_t).

This is our interpretation of the abstract and a note on CRAS: the equations, beta and k are our choices. Attention is taken from the reference, at
the position that predicts the token, and averaged over heads; an answer that never attends to the span has weights of 1. The instruction span is the
system messages, or the whole prompt if there are none, as in the lab's tasks. Rows with a column ``plain`` (the prompt without the conflict) are used
for the diagnosis; without any, the focal layers are the middle ones. The rubric is the task's reward functions. Parameters outside of F stay
unchanged because their gradients are set to zero, including those of adapters; the paper puts adapters only into F. A step therefore computes as much
as plain DPO.

It differs from DPO in the weights (mean 1) and the layers. Attention is computed once for each row by a frozen copy with eager attention: two more
forward passes in the first epoch, none later.
"""

import re
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.data import pair_rows
from trainers.judges import rewards
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext

Row = dict[str, Any]
LAYER = re.compile(r"\.(?:layers|h|blocks)\.(\d+)\.")
SHOWN_LAYERS = 8  # of the drift and attention curves, evenly spaced


def token_weights(mass: Tensor) -> Tensor:
    """(T,) attention of an answer's tokens to the instruction -> (T,) weights with mean 1."""
    total = mass.sum()
    return mass / total * len(mass) if total > 1e-12 else torch.ones_like(mass)


def span_mass(attentions: Tensor, span: Tensor, start: int, end: int) -> Tensor:
    """(L, H, S, S) attention of one sequence, (S,) span -> (L, H, T): mass on the span at the positions that predict tokens start .. end - 1."""
    return (attentions[:, :, start - 1 : end - 1] * span).sum(-1)


def compute_attention_drift(conflict: Tensor, plain: Tensor) -> Tensor:
    """(L, H), (L, H) mean masses -> (L,)."""
    return (conflict - plain).abs().mean(1)


def focal_layers(count: int, wanted: int, drifts: Tensor | None) -> list[int]:
    """The ``wanted`` layers (0: a third) with the largest drift, or the middle ones."""
    wanted = min(count, wanted or max(1, round(count / 3)))
    if drifts is None:
        start = (count - wanted) // 2
        return list(range(start, start + wanted))
    return sorted(drifts.argsort(descending=True, stable=True)[:wanted].tolist())


def layer_of(name: str) -> int | None:
    """The layer a parameter belongs to; None for embeddings and heads."""
    found = LAYER.search(name)
    return int(found[1]) if found else None


class Config(Strict):
    layers: int = param(0, "Number of focal layers; 0: a third of all layers (our value).", title="Focal layers", ge=0)
    localise: bool = param(True, "Train only the focal layers.", title="Train focal layers only")
    weigh: bool = param(True, "Weight tokens by their attention to the instruction.", title="Token weights")
    diagnosed: int = param(32, "Rows used to find the focal layers, if rows have a plain prompt.", advanced=True, ge=1)


class SAIL(Method):
    card = Card(
        name="sail",
        title="Focal layers and attention-weighted tokens",
        arxiv="2509.23188",
        system="SAIL (with CRAS)",
        base="dpo",
        provenance="abstract",
        source="abstract and a note on CRAS",
        fit="core",
        idea="Find the layers in which a conflict shifts attention away from the instruction, train only these, and weight tokens by that attention.",
        formula=(
            r"a_t = \frac{1}{|F|} \sum_{l \in F} A_l(t)",
            r"w_t = \frac{|y|\, a_t}{\sum_u a_u}",
            r"L = -\log \sigma\left(\beta \left[\sum_t w_t \Delta_t(y_w) - \sum_t w_t \Delta_t(y_l)\right]\right)",
        ),
        reading="the equations, the number of layers and beta are our choices; the posted text is a submission draft",
        departures=("Gradients outside of the focal layers are set to 0; the paper puts adapters only into those layers.",),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"data": "reads", "pair_ratios": "maps"}
    trains = frozenset({"dpo"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.focal: list[int] = []
        self.weights: dict[tuple[int, str], Tensor] = {}  # (row, side) -> (T,); the reference does not move
        self.scorer: Any = None

    def prepare(self, run: "RunContext") -> None:
        self.run = run
        self.layers = int(run.model.config.get_text_config().num_hidden_layers)
        self.focal = focal_layers(self.layers, self.config.layers, None)

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        if diagnosed := [row for row in rows if row.get("plain")][: self.config.diagnosed]:
            found = torch.stack([self.drift_of(row) for row in diagnosed]).mean(0)  # (L,)
            self.focal = focal_layers(self.layers, self.config.layers, found)
            self.log_layers("drift", found)
        for place in self.focal:
            self.log(f"focal/{place:02d}", 1.0)
        self.adherence(rows, run)
        return rows

    def drift_of(self, row: Row) -> Tensor:
        plain = {**row, "prompt": pair_rows.question_of(row["plain"])}
        return compute_attention_drift(*(self.masses([one], "chosen")[0].mean(-1) for one in (row, plain)))

    def adherence(self, rows: list[Row], run: "RunContext") -> None:
        """CRAS of both sides, with the task's reward functions as the rubric."""
        for row, example in zip(rows, pair_rows.examples_of(rows, run), strict=True):
            if example is None:
                continue
            for side in ("chosen", "rejected"):
                scores = [
                    score for score in rewards.score_all(run.task, pair_rows.join_message_texts(row[side]), example).values() if score is not None
                ]
                if scores:
                    self.log(f"adherence_{side}", sum(scores) / len(scores))

    @torch.no_grad()
    def masses(self, rows: list[Row], side: str) -> list[Tensor]:
        """(L, H, T) of every row: attention of its answer's tokens to the instruction, under the policy the run started from."""
        if self.scorer is None:
            self.scorer = self.run.frozen("")
            self.scorer.set_attn_implementation("eager")  # the other implementations do not give attention weights
        pairs = [pair_rows.token_ids(self.run, row, side) for row in rows]
        width, device = max(len(before) + len(after) for before, after in pairs), self.run.device
        ids = torch.tensor([[*before, *after, *[self.run.tokenizer.pad_token_id] * (width - len(before) - len(after))] for before, after in pairs])
        there = torch.tensor([[int(place < len(before) + len(after)) for place in range(width)] for before, after in pairs])
        found = self.scorer(input_ids=ids.to(device), attention_mask=there.to(device), output_attentions=True, use_cache=False).attentions
        attentions = torch.stack(found).float()  # (L, B, H, S, S)
        return [
            span_mass(attentions[:, place], self.span(row, len(before), width), len(before), len(before) + len(after))
            for place, (row, (before, after)) in enumerate(zip(rows, pairs, strict=True))
        ]

    def span(self, row: Row, prompt: int, width: int) -> Tensor:
        """(S,) 1 at the tokens of the system messages; of the whole prompt if there are none."""
        marks, messages, before = torch.zeros(width, device=self.run.device), row["prompt"], 0
        for place, message in enumerate(messages):
            if message["role"] == "system":
                after = len(pair_rows.tokenize_messages(self.run, messages[: place + 1], False))
                marks[before:after] = 1.0
            before = len(pair_rows.tokenize_messages(self.run, messages[: place + 1], False))
        if not marks.any():
            marks[:prompt] = 1.0
        return marks

    def weights_of(self, batch: "PairBatch", side: str, mask: Tensor) -> Tensor:
        """(B, T) weights of one side, 1 where masked."""
        new = [place for place, row in enumerate(batch.indices) if (row, side) not in self.weights]
        for place, mass in zip(new, self.masses([batch.rows[place] for place in new], side) if new else (), strict=True):
            self.weights[batch.indices[place], side] = token_weights(mass[self.focal].mean((0, 1))).cpu()
            if side == "chosen":
                self.log_layers("attention", mass.mean((1, 2)))
        weights = torch.ones_like(mask)
        for place, row in enumerate(batch.indices):
            inside = mask[place] > 0
            weights[place, inside] = self.weights[row, side][: int(inside.sum())].to(mask)
        return weights

    def pair_ratios(self, batch: "PairBatch", chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
        if not self.config.weigh:
            return chosen, rejected
        own, other = self.weights_of(batch, "chosen", batch.chosen_mask), self.weights_of(batch, "rejected", batch.rejected_mask)
        self.log_histogram("weights", own[batch.chosen_mask > 0], 0.0, 3.0)
        self.log("heaviest", (own * batch.chosen_mask).amax(1).mean())
        return chosen * own, rejected * other

    def gradients(self, model: Any) -> None:
        if not self.config.localise:
            return
        trained, total = 0, 0
        for name, parameter in model.named_parameters():
            if parameter.grad is None:
                continue
            total += parameter.numel()
            if layer_of(name) in self.focal:
                trained += parameter.numel()
            else:
                parameter.grad.zero_()
        self.log("trained_share", trained / max(total, 1))

    def log_layers(self, name: str, values: Tensor) -> None:
        for place in range(0, len(values), -(-len(values) // SHOWN_LAYERS)):
            self.log(f"{name}/{place:02d}", values[place])

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Role adherence of the pairs",
                (Series("sail/adherence_chosen", "chosen"), Series("sail/adherence_rejected", "rejected")),
                help="Mean of the task's reward functions over the data; logged once.",
            ),
            Panel("Token weights", (Series("sail/weights"),), "histogram", help="Weights of the chosen tokens; their mean is 1.", low=0.0, high=3.0),
            Panel(
                "Attention to the instruction",
                tuple(Series(f"sail/attention/{place:02d}", f"layer {place}") for place in range(2)),
                help="Share of the attention of chosen tokens, in the first layers; only for new rows.",
            ),
            Panel("Share of parameters trained", (Series("sail/trained_share"),)),
        )
