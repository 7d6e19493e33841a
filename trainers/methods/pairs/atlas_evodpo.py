"""EvoDPO: iterated DPO whose reference moves only through a gate (ATLAS, arXiv 2602.02709).

Training is split into phases. In phase k, the loss is DPO's against ref_k. At its end, the candidates C are the phase's intermediate checkpoints and
the current policy; on a random gate subset G of the pairs

    S(pi) = mean score of pi's answers,   KL(pi) = mean over G of (1 / |y+|) sum_t KL(pi(. | y+_<t) || ref_k(. | y+_<t))    (whole vocabulary)
    pi* = argmax over C of S(pi) - beta_ref KL(pi)
    ref_{k+1} = pi*  if  S(pi*) - S(ref_k) >= eps_s  and  KL(pi*) <= delta_H,   else ref_k.

The score is the run's reward of a sampled answer, with the same random numbers for each candidate; for rows without a known answer it is whether y+
is more likely than y- per token.

It differs from DPO in the moving reference; with ``gate`` off, the reference moves after every phase. Training of the policy continues from its
current weights, whatever the gate decides. The gate runs just before a phase's first update, whose loss still uses the old reference. Steps take as
long as DPO's, except for the first of each phase, which samples and scores the gate subset once for every candidate and for the reference.
"""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.data import pair_rows
from trainers.maths.reduce import masked_row_mean
from trainers.maths.thresholds import is_above, is_at_least
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example

Row = dict[str, Any]
Weights = dict[str, Tensor]
SHOWN = 4  # candidates whose figures are drawn
AT_ONCE = 8  # answers whose whole distributions are held at a time


def token_divergence(policy: Tensor, reference: Tensor) -> Tensor:
    """(..., V) log-probabilities -> (...,) KL(policy || reference)."""
    return (policy.exp() * (policy - reference)).sum(-1)


def answer_divergence(divergence: Tensor, mask: Tensor) -> Tensor:
    """(B, T), (B, T) -> (B,): mean over each answer's tokens."""
    return masked_row_mean(divergence, mask)


def best_candidate(scores: list[float], divergences: list[float], weight: float) -> int:
    """The first candidate with the largest S - beta_ref KL."""
    worth = [score - weight * divergence for score, divergence in zip(scores, divergences, strict=True)]
    return worth.index(max(worth))


def may_promote_candidate(gain: float, divergence: float, least_gain: float, most_divergence: float) -> bool:
    return is_at_least(gain, least_gain) and not is_above(divergence, most_divergence)


class Config(Strict):
    phase_steps: int = param(20, "Steps per phase (our value).", title="Steps per phase", ge=1)
    candidates: int = param(2, "Checkpoints per phase that may become the reference, including the last one.", title="Candidates", ge=1, le=16)
    gate: bool = param(True, "Promote only through the gate; off: the policy becomes the reference at the end of every phase.", title="Gate")
    gate_size: int = param(32, "Number of pairs in the gate subset (our value).", title="Gate subset", ge=1, le=4096)
    divergence_weight: float = param(0.5, "Weight of the divergence when choosing among candidates (beta_ref, our value).", title="beta_ref", ge=0)
    least_gain: float = param(0.01, "Min score gain over the reference (eps_s, our value).", title="eps_s")
    most_divergence: float = param(0.05, "Max divergence from the reference (delta_H, our value).", title="delta_H", unit="nats per token", ge=0)
    temperature: float = param(1.0, "Sampling temperature of the scored answers.", advanced=True, gt=0, le=10)


class EvoDPO(Method):
    card = Card(
        name="atlas-evodpo",
        title="Gated reference",
        arxiv="2602.02709",
        system="ATLAS with EvoDPO",
        base="dpo",
        provenance="paper",
        source="arXiv HTML v2, sections 2.1 to 3; the appendix with hyperparameters was not read",
        fit="core",
        idea="Let the reference follow the policy in phases, but only to a checkpoint that scores better and has not moved too far.",
        formula=(
            r"\pi^{*} = \mathrm{argmax}_{\pi \in C_k}\; S(\pi) - \beta_{ref}\, \widehat{KL}(\pi)",
            r"S(\pi^{*}) - S(\pi_{ref,k}) \ge \epsilon_s",
            r"\widehat{KL}(\pi^{*}) \le \delta_H",
        ),
        departures=(
            "Thresholds and the phase length are our choices: the appendix was not read.",
            "Pairs come from the task's prompts instead of islands.",
            "The supporter models that tune a run during training are not implemented.",
        ),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"data": "reads"}
    trains = frozenset({"dpo"})
    owns = frozenset({"reference"})

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.rows: list[Row] = []
        self.examples: list[Example | None] = []
        self.snapshots: list[Weights] = []  # of this phase
        self.promotions = 0
        self.scratch: Any = None  # a model that takes a snapshot's weights

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        self.rows, self.examples = rows, pair_rows.examples_of(rows, run)
        return rows

    def reference(self, step: int, policy: Any, reference: Any) -> bool:
        done, length = step - 1, self.config.phase_steps
        self.log("phase", float(done // length))
        moved = False
        if done and done % length == 0:
            moved = self.end_phase(step, policy, reference)
        elif done % length % max(1, length // self.config.candidates) == 0 and done % length and len(self.snapshots) < self.config.candidates - 1:
            self.snapshots.append(weights_of(policy))
        self.log("promotions", float(self.promotions))
        return moved

    def end_phase(self, step: int, policy: Any, reference: Any) -> bool:
        """Promotes a candidate, or keeps the reference."""
        candidates, self.snapshots = [*self.snapshots, weights_of(policy)], []
        if not self.config.gate:
            chosen = len(candidates) - 1
        elif (found := self.through_gate(step, candidates, reference)) is None:
            return False
        else:
            chosen = found
        reference.load_state_dict(candidates[chosen])
        self.promotions += 1
        return True

    def through_gate(self, step: int, candidates: list[Weights], reference: Any) -> int | None:
        """The candidate to promote; None keeps the reference."""
        gate = self.run.rng("atlas-evodpo", "gate", step).sample(range(len(self.rows)), min(self.config.gate_size, len(self.rows)))
        before = self.score(gate, reference, step)
        scores, divergences = list[float](), list[float]()
        for weights in candidates:
            model = self.loaded(weights)
            scores.append(self.score(gate, model, step))
            divergences.append(self.divergence(gate, model, reference))
        chosen = best_candidate(scores, divergences, self.config.divergence_weight)
        gain, divergence = scores[chosen] - before, divergences[chosen]
        taken = may_promote_candidate(gain, divergence, self.config.least_gain, self.config.most_divergence)
        self.log("score_reference", before)
        self.log("gain", gain)
        self.log("divergence", divergence)
        self.log("too_little_gain", float(not is_at_least(gain, self.config.least_gain)))
        self.log("too_far", float(is_above(divergence, self.config.most_divergence)))
        for place, figures in enumerate(zip(scores[-SHOWN:], divergences[-SHOWN:], strict=True)):
            self.log(f"candidate_score/{place:02d}", figures[0])
            self.log(f"candidate_divergence/{place:02d}", figures[1])
        return chosen if taken else None

    def loaded(self, weights: Weights) -> Any:
        if self.scratch is None:
            self.scratch = self.run.frozen("")
        self.scratch.load_state_dict(weights)
        return self.scratch

    def score(self, gate: list[int], model: Any, step: int) -> float:
        """S on the gate subset."""
        known = [example for place in gate if (example := self.examples[place]) is not None]
        if known:
            made = self.run.sample(known, self.config.temperature, ("atlas-evodpo", step), model)
            return sum(self.run.score(example, completion.text) for example, completion in zip(known, made, strict=True)) / len(known)
        rows = [self.rows[place] for place in gate]
        chosen, rejected = (pair_rows.frozen_scores(self.run, rows, side, model, mean=True) for side in ("chosen", "rejected"))
        return sum(one > other for one, other in zip(chosen, rejected, strict=True)) / len(rows)

    @torch.no_grad()
    def divergence(self, gate: list[int], model: Any, reference: Any) -> float:
        """KL from the reference on the chosen answers of the gate subset."""
        found: list[Tensor] = []
        for start in range(0, len(gate), AT_ONCE):
            pairs = [pair_rows.token_ids(self.run, self.rows[place], "chosen") for place in gate[start : start + AT_ONCE]]
            own, mask = compute_sequence_logprobs(self.run, pairs, model)
            found.append(answer_divergence(token_divergence(own, compute_sequence_logprobs(self.run, pairs, reference)[0]), mask))
        return float(torch.cat(found).mean())

    def state(self) -> dict[str, Any]:
        return {"snapshots": list(self.snapshots), "promotions": self.promotions}

    def restore(self, state: dict[str, Any]) -> None:
        self.snapshots, self.promotions = list(state["snapshots"]), state["promotions"]

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        scores = tuple(Series(f"{name}/candidate_score/{place:02d}", f"candidate {place + 1}") for place in range(2))
        return (
            Panel(
                "Reference promotions",
                (Series(f"{name}/promotions", "promotions"), Series(f"{name}/phase", "phase", dashed=True)),
                help="Without a promotion, the reference stays the same for the next phase.",
            ),
            Panel(
                "Score at the gate", (Series(f"{name}/score_reference", "reference", dashed=True), *scores), help="On the gate subset of the phase."
            ),
            Panel("Divergence at the gate", (Series(f"{name}/divergence", "chosen candidate"),), unit="nats per token"),
            Panel(
                "Why candidates were rejected",
                (Series(f"{name}/too_little_gain", "gain too small"), Series(f"{name}/too_far", "divergence too large")),
            ),
        )


def weights_of(model: Any) -> Weights:
    return {name: value.detach().clone() for name, value in model.state_dict().items()}


def compute_sequence_logprobs(run: "RunContext", pairs: list[tuple[list[int], list[int]]], model: Any) -> tuple[Tensor, Tensor]:
    """Log-probabilities (B, S - 1, V) of whole sequences of prompt and answer, padded on the right, and the answers' mask (B, S - 1)."""
    width, pad = max(len(before) + len(after) for before, after in pairs), run.tokenizer.pad_token_id
    ids = [[*before, *after, *[pad] * (width - len(before) - len(after))] for before, after in pairs]
    there = [[int(place < len(before) + len(after)) for place in range(width)] for before, after in pairs]
    mask = [[float(len(before) - 1 <= place < len(before) + len(after) - 1) for place in range(width - 1)] for before, after in pairs]
    inputs = {"input_ids": torch.tensor(ids, device=run.device), "attention_mask": torch.tensor(there, device=run.device)}
    logits = model(**inputs, use_cache=False).logits
    return torch.log_softmax(logits[:, :-1].float(), -1), torch.tensor(mask, device=run.device)
