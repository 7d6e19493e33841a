"""CART: find the neurons of a reward model that respond to rare cases, weigh pairs by them, and keep common cases free of them (arXiv 2509.24713).

    effect_j = (mean_T z_j - mean_H z_j) / std_{T u H} z_j,   C = top-k by |effect|,   s(x) = mean of the standardised z_j of C
    (a) w = 1 + g percentile(s)                                            on the Bradley-Terry loss of a pair
    (b) L += mu mean over pairs of H of (r(x) - r_{C ablated}(x))^2        both answers of the pair
z_j is a neuron of a feed-forward layer at the last token, T are the rare pairs (the tail), H the others. Until ``find`` of the steps the loss is
plain Bradley-Terry; then the circuit is read off the training pairs, once. Ablated: the circuit's neurons have their mean over H at the last token.
With gain and penalty at 0 it is the plain reward model, and only measured. (c), the discount of what an ensemble disagrees about, is the reward
function ``reward-ensemble``, over the models of several such runs.

Rows say in a column ``tail`` whether they are rare. Without it ``plant`` of the pairs get a rare rule: the question ends in a word, and the other
answer is right. Some pairs are not trained on: on them accuracies are measured, with and without the circuit; of planted ones both forms of each.

Our reading: the abstract names the three uses and gives no formula.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.contract.problems import Problem, SpecError
from trainers.data.pair_rows import tokenize_messages
from trainers.maths.circuits import choose_circuit, compute_neuron_effects, rank_percentiles, score_tail
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.policies.neurons import NoNeurons, list_neuron_maps, read_activations, set_neurons
from trainers.policies.padded_batches import iterate_padded_batches
from trainers.rollouts.engine import in_evaluation_mode

if TYPE_CHECKING:
    from trainers.methods.batch import RewardBatch
    from trainers.methods.context import RunContext

Row = dict[str, Any]
NAME, TAIL, WORD = "cart-circuit-reward", "tail", " Opposite!"
SIDES = ("chosen", "rejected")
PROBED = 0.25  # of the rows that are not trained on, at most
SHOWN = 32  # neurons that are reported


def plant_rule(row: Row) -> Row:
    """The pair under the rare rule: the question ends in the word, and the other answer is preferred."""
    *before, last = row["prompt"]
    asked = [*before, {**last, "content": last["content"] + WORD}]
    return {**row, "prompt": asked, "chosen": row["rejected"], "rejected": row["chosen"], TAIL: True}


class Config(Strict):
    gain: float = param(1.0, "g: how much more the pairs with the strongest circuit count (our value).", title="Gain of rare pairs (g)", ge=0, le=100)
    penalty: float = param(0.1, "mu: weight of what common cases owe to the circuit (our value).", title="Penalty (mu)", ge=0, le=100)
    share: float = param(0.01, "Of all neurons that are the circuit (our value).", title="Share of neurons", gt=0, le=1)
    find: float = param(0.5, "After this share of the steps the circuit is found.", title="Find the circuit at", ge=0, le=1)
    plant: float = param(0.02, "Of the pairs that get a rare rule, where the rows have no column tail.", title="Planted rare pairs", ge=0, le=0.5)
    probe: int = param(64, "Pairs that are measured and not trained on; at most a quarter of all.", title="Probe pairs", ge=4, le=10_000)
    every: int = param(20, "Steps between two measurements.", title="Measure every", ge=1, le=100_000, advanced=True)


class CARTCircuitReward(Method):
    card = Card(
        name=NAME,
        title="Reward model that knows its rare cases",
        arxiv="2509.24713",
        system="CART",
        base="reward-model",
        provenance="abstract",
        source="the abstract; no code was found",
        fit="variant",
        idea="Find the neurons of a reward model that respond to rare cases, count such pairs more, and keep common rewards from hanging on them.",
        formula=(
            r"\mathrm{effect}_j = \frac{\bar z_j^T - \bar z_j^H}{\mathrm{std}_{T \cup H}\, z_j}, \quad C = \mathrm{top}_k\, |\mathrm{effect}|",
            r"L = -\left(1 + g\, \mathrm{pct}(s)\right) \log \sigma(r_w - r_l) + \mu\, \mathrm{mean}_H \left(r - r_{C\ \mathrm{ablated}}\right)^2",
        ),
        reading="all of it but the idea: the effect, the circuit, weights, penalty, and every number",
        departures=(
            "Rare cases are those that a rule was planted in, or that a column names; the paper looks for them.",
            "Rare prompts are not paraphrased or drawn more often, they only count more.",
            "The circuit is found once and stays.",
            "A neuron counts in the direction of its effect.",
            "The discount by an ensemble is a reward function of its own (reward-ensemble), for all prompts and not the rare ones alone.",
        ),
        claim=(f"{NAME}/tail_accuracy", "higher"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"reward"})
    roles = {"data": "maps"}

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.steps = 0
        self.circuit, self.usual = torch.zeros(0, dtype=torch.long), torch.zeros(0)  # (k,) places, and their means over common cases
        self.effects, self.percentiles = torch.zeros(0), torch.zeros(0)  # (N,), and of each training row

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        rng = run.rng(NAME, "rows")
        order = rng.sample(range(len(rows)), len(rows))
        count = min(self.config.probe, int(PROBED * len(rows)))
        held, kept = [rows[place] for place in order[:count]], [rows[place] for place in sorted(order[count:])]
        if any(TAIL in row for row in rows):
            self.probes = [{**row, TAIL: bool(row.get(TAIL))} for row in held]
            self.rows = [{**row, TAIL: bool(row.get(TAIL))} for row in kept]
        else:
            self.probes = [{**row, TAIL: False} for row in held] + [plant_rule(row) for row in held]
            rare = set(rng.sample(range(len(kept)), round(self.config.plant * len(kept))))
            self.rows = [plant_rule(row) if place in rare else {**row, TAIL: False} for place, row in enumerate(kept)]
        if not any(row[TAIL] for row in self.rows) or not any(not row[TAIL] for row in self.rows):
            fix = "raise plant, train on more pairs, or give rows a column tail"
            raise SpecError([Problem("methods", NAME, "it needs rare and common pairs, and one kind is missing", fix)])
        self.log("data_tail", sum(row[TAIL] for row in self.rows) / len(self.rows))
        return self.rows

    def pair_weights(self, batch: "RewardBatch", losses: Tensor) -> Tensor | None:  # type: ignore[override]
        if not len(self.percentiles) or not self.config.gain:
            return None
        return 1 + self.config.gain * self.percentiles[batch.indices].to(losses)

    def loss(self, batch: "RewardBatch") -> Tensor | None:  # type: ignore[override]
        """(b), over the pairs of this micro-batch that are not rare."""
        common = torch.tensor([not row[TAIL] for row in batch.rows], device=batch.chosen.device)
        if not len(self.circuit) or not self.config.penalty or not common.any():
            return None
        ids, mask = (batch.model_inputs[name] for name in ("input_ids", "attention_mask"))
        with set_neurons(self.run.model, self.circuit.to(ids.device), self.usual.to(ids.device), mask):
            without = self.run.model(input_ids=ids, attention_mask=mask, use_cache=False).logits.squeeze(-1)
        owed = (torch.cat([batch.chosen, batch.rejected]) - without)[common.repeat(2)]
        penalty = owed.square().mean()
        self.log("penalty", penalty)
        return self.config.penalty * penalty

    def gradients(self, model: Any) -> None:
        """Runs just before each update: finds the circuit when it is time, and measures. The gradients stay unchanged."""
        total = self.run.training.max_steps
        if not len(self.circuit) and self.steps >= min(total - 1, round(self.config.find * total)):
            self.find_circuit(model)
        if self.steps % self.config.every == 0 or self.steps == total - 1:
            self.measure(model)
        self.steps += 1

    def find_circuit(self, model: Any) -> None:
        """Raises SpecError for a model without feed-forward layers that are known."""
        try:
            list_neuron_maps(model)
        except NoNeurons as error:
            raise SpecError([Problem("methods", NAME, str(error), "train a reward model of another family")]) from None
        activations, _ = self.read(model, self.rows)
        rare = torch.tensor([row[TAIL] for row in self.rows]).repeat(2)
        self.effects = compute_neuron_effects(activations[rare], activations[~rare])
        self.circuit = choose_circuit(self.effects, max(1, round(self.config.share * activations.shape[1])))
        self.usual = activations[~rare].mean(0)[self.circuit]
        scores = score_tail(activations, self.circuit, self.effects).view(2, -1).mean(0)  # of both answers of a pair
        self.percentiles = rank_percentiles(scores)
        self.log("circuit", len(self.circuit))
        for place, effect in enumerate(self.effects[self.circuit][:SHOWN].tolist()):
            self.log(f"effect/{place:02d}", effect)
        self.log("found", self.percentiles[rare[: len(self.rows)]].mean())

    def measure(self, model: Any) -> None:
        """Accuracy on rare and on common pairs that are not trained on, as it is and without the circuit."""
        for name, circuit in (("", False), ("_ablated", True)):
            if circuit and not len(self.circuit):
                continue
            _, scores = self.read(model, self.probes, circuit)
            right = (scores[: len(self.probes)] > scores[len(self.probes) :]).float()
            for kind in (True, False):
                own = torch.tensor([row[TAIL] == kind for row in self.probes])
                if own.any():
                    self.log(f"{'tail' if kind else 'head'}_accuracy{name}", right[own].mean())

    @torch.no_grad()
    def read(self, model: Any, rows: Sequence[Row], without_circuit: bool = False) -> tuple[Tensor, Tensor]:
        """Activations (2n, N) and scores (2n,) on the CPU: of all chosen answers, then of all rejected ones."""
        texts = [tokenize_messages(self.run, [*row["prompt"], *row[side]], False) for side in SIDES for row in rows]
        texts = [ids[: self.run.training.max_length] for ids in texts]
        found, scores = list[Tensor](), list[Tensor]()
        size, pad = self.run.attempt.sampling_batch, self.run.tokenizer.pad_token_id
        with in_evaluation_mode(model):
            for _, ids, mask in iterate_padded_batches(texts, size, pad, self.run.device):
                circuit = (self.circuit.to(ids.device), self.usual.to(ids.device)) if without_circuit else None
                one, score = read_with(model, ids, mask, circuit)
                found.append(one.cpu())
                scores.append(score.cpu())
        return torch.cat(found), torch.cat(scores)

    def state(self) -> dict[str, Any]:
        kept = {"circuit": self.circuit, "usual": self.usual, "effects": self.effects, "percentiles": self.percentiles}
        return {"steps": self.steps, **kept}

    def restore(self, state: dict[str, Any]) -> None:
        self.steps, self.circuit, self.usual = state["steps"], state["circuit"], state["usual"]
        self.effects, self.percentiles = state["effects"], state["percentiles"]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Accuracy on rare pairs",
                (Series(f"{NAME}/tail_accuracy", "as it is"), Series(f"{NAME}/tail_accuracy_ablated", "without the circuit", dashed=True)),
            ),
            Panel(
                "Accuracy on common pairs",
                (Series(f"{NAME}/head_accuracy", "as it is"), Series(f"{NAME}/head_accuracy_ablated", "without the circuit", dashed=True)),
            ),
            Panel("Owed to the circuit", (Series(f"{NAME}/penalty"),), help="Mean squared change of a common answer's score without the circuit."),
        )


def read_with(model: Any, ids: Tensor, mask: Tensor, circuit: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    """``read_activations``; with the neurons of ``circuit`` set to its values, where there is one."""
    if circuit is None:
        return read_activations(model, ids, mask)
    with set_neurons(model, *circuit, mask):
        return read_activations(model, ids, mask)
