"""IPO (intervened preference optimisation): cut a chain of thought where it goes wrong, continue it safely, and prefer the new suffix (arXiv
2509.24393).

An unsafe chain z is cut at h, the start of its first compliance cue; a trigger sentence and a regenerated suffix follow, z' = z_{<h} + trigger +
suffix. The loss compares only the suffixes, because the chain before h is the same in both:

    L = -log sigmoid(beta [sum_{t>=h} log pi/pi_ref(z'_t) - sum_{t>=h} log pi/pi_ref(z_t)]) + 0.2 NLL(z'_{t>=h}),

where the NLL is per token of each suffix. Additional pairs on benign prompts prefer a normal answer to a refusal. The cue is the first step whose
continuation safety ratio (share of continuations from there that end safely) falls below 0.1. This is our interpretation of the abstract and a
reading note; the original text was not read. beta is our choice.

On the lab's tasks, unsafe means wrong: steps are the equations of the thought, and a chain is safe if the task's accuracy counts it as correct. The
cue is found by a rule (the first step that differs from the gold solution) or by continuations. The suffix is the gold solution's, or it is written
by the policy, checked, and sampled again if it is still wrong (the paper cuts the new chain again). Rows without a known solution, or with a correct
rejected side, stay unchanged. In every pair, the loss starts at the first token in which the two sides differ: in a pair made here, this is the
trigger. In a sum over tokens the shared prefix cancels anyway; the cut matters for means, for the NLL and for other methods that read these tokens.
Continuations are sampled before training; steps take as long as DPO's. Extra step time: the likelihood term, and the inserted trigger sentence makes
chains longer.
"""

import re
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.attempt.evaluate import own_randomness
from trainers.contract.hyperparameters import Strict, param
from trainers.data import pair_rows
from trainers.maths.reduce import masked_mean, masked_row_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.policies.sampling import Sampler, Sampling
from trainers.tasks.base import Example

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch
    from trainers.methods.context import RunContext

Row = dict[str, Any]
STEP = re.compile(r"<[^<>]*>|[^\s<>]+")  # a tag, or a run of characters between spaces


def compliance_cue(ratios: list[float], eta: float) -> int | None:
    """First step whose safety ratio is below eta."""
    return next((place for place, ratio in enumerate(ratios) if ratio < eta), None)


def safety_trigger(ratios: list[float], mu: float, patience: int) -> int | None:
    """First step from which the ratio stays above mu for ``patience`` steps, or until the end of the chain."""
    starts = (place for place, ratio in enumerate(ratios) if ratio > mu and (not place or ratios[place - 1] <= mu))
    return next((place for place in starts if all(ratio > mu for ratio in ratios[place : place + patience])), None)


def find_tagged_step_spans(text: str) -> list[tuple[int, int]]:
    """Character spans [start, end) of every step and tag."""
    return [match.span() for match in STEP.finditer(text)]


def first_difference(text: str, gold: str) -> int:
    """Index of the character at which the first step starts that differs from the gold solution."""
    for (start, end), (gold_start, gold_end) in zip(find_tagged_step_spans(text), find_tagged_step_spans(gold), strict=False):
        if text[start:end] != gold[gold_start:gold_end] or start != gold_start:
            return min(start, gold_start)
    return min(len(text), len(gold))


def shared_prefix(chosen: Tensor, rejected: Tensor) -> Tensor:
    """(B, T), (B, T') token ids -> (B,): number of leading positions that the two sides have in common, including the prompt."""
    width = min(chosen.shape[1], rejected.shape[1])
    return (chosen[:, :width] == rejected[:, :width]).long().cumprod(1).sum(1)


def from_cut(values: Tensor, start: Tensor) -> Tensor:
    """(B, T), (B,) -> (B, T): 0 before each row's start index."""
    return values * (torch.arange(values.shape[1], device=values.device) >= start[:, None])


class Config(Strict):
    detect: Literal["rule", "continuations"] = param("rule", "How the first unsafe step is found.", title="Cue")
    continuations: int = param(32, "Continuations sampled from every step to find it.", title="Continuations", advanced=True, ge=1, le=256)
    eta: float = param(0.1, "A step is a compliance cue if its continuations are safe less often than this.", title="eta", advanced=True, ge=0, le=1)
    mu: float = param(
        0.9,
        "A step is a safety trigger if the continuations after it are safe more often than this (shown in charts, not trained on).",
        advanced=True,
        ge=0,
        le=1,
    )
    patience: int = param(15, "Number of steps for which this must hold (K).", advanced=True, ge=1)
    regenerate: Literal["gold", "policy"] = param("gold", "Source of the safe suffix.", title="Suffix")
    tries: int = param(3, "Attempts to sample a correct suffix from the policy before the gold one is used.", advanced=True, ge=1, le=16)
    trigger: str = param("Careful: ", "Text inserted at the cut. The paper has six sentences.", title="Trigger", max_length=200)
    benign: float = param(
        0.5, "Additional pairs that prefer a normal answer to a refusal, as a share of all pairs; the paper has about as many.", ge=0, le=4
    )
    refusal: str = param("I cannot help with that.", "Text of the refusal in these pairs.", advanced=True, min_length=1, max_length=200)
    nll: float = param(0.2, "Weight of the negative log-likelihood of the chosen suffix.", title="NLL weight", ge=0)


class IPOSafe(Method):
    card = Card(
        name="ipo-safe",
        title="Intervened preference optimisation",
        arxiv="2509.24393",
        system="IPO (corrective intervention)",
        base="dpo",
        provenance="abstract",
        source="abstract and a reading note that quotes the formulas",
        fit="core",
        idea="Cut a chain of thought where it turns wrong, write a correction from there, and prefer the corrected suffix to the original one.",
        formula=(
            r"\tilde z = z_{<h} + \mathrm{trigger} + \mathrm{suffix}",
            r"m = \sum_{t \ge h} \log \frac{\pi(\tilde z_t)}{\pi_{ref}(\tilde z_t)} - \sum_{t \ge h} \log \frac{\pi(z_t)}{\pi_{ref}(z_t)}",
            r"L = -\log \sigma(\beta m) - \frac{\alpha}{|\tilde z_{\ge h}|} \sum_{t \ge h} \log \pi(\tilde z_t)",
        ),
        reading="the original text was not read; on verifiable tasks, safe is interpreted as correct; beta is our choice",
        departures=(
            "Unsafe means wrong on the lab's tasks; by default, the gold solution continues a cut chain.",
            "A suffix that is still wrong is sampled again; the paper cuts the new chain again.",
        ),
        claim=("ipo-safe/prefix_drift", "lower"),
    )
    Config = Config
    roles = {"data": "maps", "pair_ratios": "gates"}
    trains = frozenset({"dpo"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Row], run: "RunContext") -> list[Row]:
        examples = pair_rows.examples_of(rows, run)
        made = [self.intervened(row, example, place) if example else row for place, (row, example) in enumerate(zip(rows, examples, strict=True))]
        self.log("intervened", sum("cut" in row for row in made) / len(made))
        rng = run.rng("ipo-safe", "benign")
        refusals = [rows[rng.randrange(len(rows))] for _ in range(round(self.config.benign * len(rows)))]
        return made + [{**row, "rejected": pair_rows.to_answer_messages(self.config.refusal), "benign": True} for row in refusals]

    def intervened(self, row: Row, example: Example, place: int) -> Row:
        """Pairs an unsafe chain with its cut and corrected version; returns the row unchanged if its rejected side is safe or has no cue."""
        text, gold = pair_rows.join_message_texts(row["rejected"]), pair_rows.gold_of(self.run, example)
        if gold is None or self.run.right(example, text):
            return row
        cut = first_difference(text, gold) if self.config.detect == "rule" else self.cue(example, text, place)
        if cut is None:
            return row
        return {
            **row,
            "chosen": pair_rows.to_answer_messages(self.corrected(example, text[:cut], gold, place)),
            "rejected": pair_rows.to_answer_messages(text),
            "cut": cut,
        }

    def cue(self, example: Example, text: str, place: int) -> int | None:
        """Index of the character at which the first step starts after which the policy's continuations are rarely correct."""
        steps = find_tagged_step_spans(text)
        prefixes = [text[:end] for _, end in steps for _ in range(self.config.continuations)]
        safe = [self.run.right(example, made) for made in self.continued(example, prefixes, ("ratio", place))]
        ratios = torch.tensor(safe, dtype=torch.float32).view(len(steps), -1).mean(1).tolist() if steps else []
        for number, ratio in enumerate(ratios):
            self.log(f"safety_ratio/{min(number, 9):02d}", ratio)
        found = compliance_cue(ratios, self.config.eta)
        self.log("safety_triggers", float(safety_trigger(ratios, self.config.mu, self.config.patience) is not None))
        return None if found is None else steps[found][0]

    def corrected(self, example: Example, prefix: str, gold: str, place: int) -> str:
        """The safe chain. A gold suffix continues from the part of the prefix that agrees with the gold solution."""
        for attempt in range(self.config.tries if self.config.regenerate == "policy" else 0):
            (text,) = self.continued(example, [prefix + self.config.trigger], ("suffix", place, attempt))
            if self.run.right(example, text):
                return text
            self.log("suffixes_still_wrong", attempt + 1.0)
        kept = first_difference(prefix, gold)
        return prefix[:kept] + self.config.trigger + gold[kept:]

    def continued(self, example: Example, prefixes: list[str], key: object) -> list[str]:
        """Each prefix, followed by the policy's continuation."""
        run, room = self.run, self.run.training.max_completion_length
        sampler = Sampler(run.model, run.tokenizer, run.task, Sampling(1.0, room, len(prefixes), statistics=False))
        ids, made = [run.completion_ids(prefix, end=False) for prefix in prefixes], []
        with own_randomness(run.rng("ipo-safe", key).randrange(2**31), run.device):
            for start in range(0, len(ids), run.attempt.sampling_batch):
                some = ids[start : start + run.attempt.sampling_batch]
                made += sampler.complete_batch([example] * len(some), run.prompt_ids([example.prompt] * len(some)), some)
        return [completion.text for completion in made]

    def pair_ratios(self, batch: "PairBatch", chosen: Tensor, rejected: Tensor) -> tuple[Tensor, Tensor]:
        start = shared_prefix(batch.chosen_ids, batch.rejected_ids)
        cut = from_cut(chosen, start), from_cut(rejected, start)
        before = batch.chosen_mask - from_cut(batch.chosen_mask, start)
        self.log("prefix_drift", masked_mean(chosen.detach().abs(), before))
        self.log("prefix_share", before.sum() / batch.chosen_mask.sum().clamp(min=1.0))
        self.log("suffix_chosen", cut[0].detach().sum(1).mean())
        self.log("suffix_rejected", cut[1].detach().sum(1).mean())
        return cut

    def loss(self, batch: "PairBatch") -> Tensor | None:  # type: ignore[override]
        if not self.config.nll:
            return None
        mask = from_cut(batch.chosen_mask, shared_prefix(batch.chosen_ids, batch.rejected_ids))
        return -self.config.nll * masked_row_mean(batch.chosen_logprobs, mask).mean()

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Suffixes after the cut",
                (Series("ipo-safe/suffix_chosen", "corrected"), Series("ipo-safe/suffix_rejected", "original")),
                unit="nats",
                help="Log-ratio to the reference, summed from the cut on.",
            ),
            Panel(
                "The chain before the cut",
                (Series("ipo-safe/prefix_drift", "change in log-probability"), Series("ipo-safe/prefix_share", "share of the chain", dashed=True)),
                help="How far the policy has moved on the shared prefix (nats per token), and the prefix's share of the corrected chain.",
            ),
        )
