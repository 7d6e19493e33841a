"""CoSMo: a budget for the number of reasoning segments instead of tokens (arXiv 2602.03141).

R = -1 if the format is wrong, else r - kappa max(0, |n - n*| - delta), where r is the reward so far (1 for a correct answer), n the number of
segments in the reasoning and n* the problem's own number. Supervised data is split and merged: with too many segments, the first adjacent pair judged
to be redundant is merged; with too few, the first segment judged to skip a step is split. There is one edit per iteration, until n = n* or no edit is
accepted. It differs from GRPO in the reward, and from a length penalty in that segments may have any length.

The rule merges consecutive equations, 3+3=6 6+5=11 into 3+3+5=11, and splits an equation with several operations in the same way. Rows of supervised
data give their target in a column ``golden_segments``, as the authors' data does. The default delta of 1 is that of the training script; the reward
function alone defaults to 0.
"""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.texts.segments import find_working_steps, gold_steps, step_texts
from trainers.texts.spans import extract_answer, thought_span

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext

SUM = re.compile(r"([0-9]{1,6})((?:[+-][0-9]{1,6}){1,20})=([0-9]{1,6})")
Merge = Callable[[str, str], str | None]  # the merged text, None where the two do not belong together
Split = Callable[[str], list[str]]  # two parts or more, none where the segment is one thought


def apply_segment_budget(outcome: Tensor, counts: Tensor, targets: Tensor, valid: Tensor, tolerance: int, penalty: float) -> Tensor:
    """(B,), (B,), (B,), (B,) bool -> (B,): R above."""
    excess = ((counts - targets).abs() - tolerance).clamp(min=0)
    return torch.where(valid, outcome - penalty * excess, -torch.ones_like(outcome))


def split_merge(segments: Sequence[str], target: int, merge: Merge, split: Split, iterations: int = 5) -> tuple[list[str], int, str]:
    """Edited segments, iterations used, and "aligned", "local optimum" (no edit accepted) or "out of iterations"."""
    current = list(segments)
    for done in range(iterations):
        if len(current) == target:
            return current, done, "aligned"
        edited = merged_once(current, merge) if len(current) > target else split_once(current, split)
        if edited is None:
            return current, done + 1, "local optimum"
        current = edited
    return current, iterations, "aligned" if len(current) == target else "out of iterations"


def merged_once(segments: list[str], merge: Merge) -> list[str] | None:
    for place in range(len(segments) - 1):
        if (one := merge(segments[place], segments[place + 1])) is not None:
            return [*segments[:place], one, *segments[place + 2 :]]
    return None


def split_once(segments: list[str], split: Split) -> list[str] | None:
    for place, segment in enumerate(segments):
        if len(parts := split(segment)) > 1:
            return [*segments[:place], *parts[:2], *segments[place + 1 :]]
    return None


def merge_equations(left: str, right: str) -> str | None:
    """``3+3=6``, ``6+5=11`` -> ``3+3+5=11``."""
    first, second = SUM.fullmatch(left), SUM.fullmatch(right)
    if first is None or second is None or first[3] != second[1]:
        return None
    return f"{first[1]}{first[2]}{second[2]}={second[3]}"


def split_equation(segment: str) -> list[str]:
    """``3+3+5=11`` -> ``3+3=6``, ``6+5=11``; empty for an equation with one operation, or one that goes below 0."""
    match = SUM.fullmatch(segment)
    if match is None:
        return []
    first, *rest = re.findall(r"[+-][0-9]+", match[2])
    between = int(match[1]) + int(first)
    return [f"{match[1]}{first}={between}", f"{between}{''.join(rest)}={match[3]}"] if rest and between >= 0 else []


def refine_completion(text: str, target: int, iterations: int) -> str:
    """A completion whose reasoning is split and merged towards ``target`` segments; unchanged if it shows no reasoning."""
    thought = thought_span(text)
    spans = find_working_steps(text, *thought) if thought else []
    if not spans:
        return text
    made = split_merge([text[start:end] for start, end in spans], target, merge_equations, split_equation, iterations)[0]
    return f"{text[: spans[0][0]]}{' '.join(made)}{text[spans[-1][1] :]}"


class Config(Strict):
    tolerance: int = param(1, "Deviation from the target number of segments that costs nothing.", title="Tolerance (delta)", ge=0, le=1000)
    penalty: float = param(1.0, "Penalty per segment beyond the tolerance; 0 checks only the format.", title="Penalty (kappa)", ge=0, le=10)
    iterations: int = param(5, "Max edits per supervised completion.", title="Edits", advanced=True, ge=0, le=1000)


class CoSMo(Method):
    card = Card(
        name="cosmo",
        title="Split-merge and a segment budget",
        arxiv="2602.03141",
        system="CoSMo",
        base="grpo",
        provenance="code",
        source="github aintdoin/CoSMo: cosmo/split_merge.py, verl/workers/reward_manager/cosmo.py, main_rl.py",
        fit="core",
        idea="Give each problem a target number of reasoning steps instead of tokens, and penalise completions with too many or too few steps.",
        formula=(
            r"R = r - \kappa \max(0, |n - n^*| - \delta)",
            r"R = -1 \quad \mathrm{if\ the\ form\ is\ wrong}",
        ),
        departures=(
            "A segment is one equation of the reasoning, or one search.",
            "The target is the task's solution, else the shortest correct completion of the group; the authors' code gives -1 without a target.",
            "A rule decides merges and splits instead of a 72B model.",
            "The format is checked by the task's own format function.",
        ),
        claim=("completions/mean_length", "lower"),
    )
    Config = Config
    roles = {"data": "maps", "rewards": "maps"}
    trains = frozenset({"grpo", "sft"})

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        """Splits and merges supervised rows that name a target."""
        return [self.refine(row) if isinstance(row, dict) and "completion" in row else row for row in rows]

    def refine(self, row: dict[str, Any]) -> dict[str, Any]:
        target = row.get("golden_segments")
        if not isinstance(target, int) or isinstance(target, bool) or target < 1:
            return row
        *before, last = row["completion"]
        return row | {"completion": [*before, last | {"content": refine_completion(last["content"], target, self.config.iterations)}]}

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        found = [step_texts(text) for text in batch.texts]
        counts = torch.tensor([float(len(own)) for own in found], device=rewards.device)
        targets, valid = self.targets(batch, counts), self.formed(batch) & (counts > 0)
        right = batch.correct & valid
        self.log("segments", counts.mean())
        self.log("target", targets.mean())
        self.log("distance", (counts - targets).abs().mean())
        self.log("valid", valid.float().mean())
        self.log("inside", (((counts - targets).abs() <= self.config.tolerance) & valid).float().mean())
        self.log("right", right.float().mean())
        self.log("characters_per_segment", sum(len(step) for own in found for step in own) / max(1.0, float(counts.sum())))
        return apply_segment_budget(rewards, counts, targets, valid, self.config.tolerance, self.config.penalty)

    def formed(self, batch: "RolloutBatch") -> Tensor:
        """(B,) bool."""
        if "format" in batch.reward_names:
            return batch.rewards[:, batch.reward_names.index("format")].nan_to_num(0.0) > 0.5
        return torch.tensor([extract_answer(text) is not None for text in batch.texts], device=batch.rewards.device)

    def targets(self, batch: "RolloutBatch", counts: Tensor) -> Tensor:
        """(B,) n*."""
        right = batch.correct
        fewest = counts.masked_fill(~right, float("inf")).view(-1, batch.group_size).amin(1).repeat_interleave(batch.group_size)
        made = torch.where(fewest.isinf(), counts, fewest)
        for row, example in enumerate(batch.examples):
            known = gold_steps(self.run.task, example)
            if known is not None:
                made[row] = float(len(known))
        return made

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel("Segments", (Series(f"{name}/segments", "per completion"), Series(f"{name}/target", "target", dashed=True))),
            Panel(
                "Within the budget",
                (
                    Series(f"{name}/inside", "within the tolerance"),
                    Series(f"{name}/valid", "correct format"),
                    Series(f"{name}/right", "correct answer", dashed=True),
                ),
            ),
            Panel("Characters per segment", (Series(f"{name}/characters_per_segment"),), help="The budget does not limit the length of a segment."),
        )
