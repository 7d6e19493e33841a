"""HiPO: one advantage for the choice to think or not, another for the answer within that mode (arXiv 2509.23967).

r = reward + 0.2 form. M_on and M_off are the means of r over the group's completions with and without thinking. Bias correction with b = omega M_on:
if 0 <= M_on - M_off <= b, M_off becomes M_off + b, so that thinking has to win by a clear margin. Tokens that choose the mode get (M_mode - mean) /
std + gamma (r - mean) / std over the group; all others get (r - M_mode) / std_mode within the mode, without the correction.

This is our interpretation of the abstract and of reviews that name both advantages, gamma and omega; neither value is confirmed. Standard deviations
are sample ones. If a mode has no members, its mean is the group's mean; if it has one member or equal rewards, its answer advantage is 0. Completions
contain no explicit statement of the mode: a completion thinks if its <think> part is not empty, and the choice is made by all tokens up to the first
one after <think>. In tasks without <think>, all completions are in the same mode and there are no choice tokens. The paper's cold start with both
modes is replaced by the lab's own, in which a third of the demonstrations show no reasoning.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.advantages import group_mean, group_std
from trainers.maths.strata import strata_of, z_score_within
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.texts.segments import assign_tokens_to_spans
from trainers.texts.spans import thought_span

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch

EPSILON = 1e-6  # added to standard deviations, and the rounding of a mean


def mode_means(rewards: Tensor, thinks: Tensor, group_size: int) -> tuple[Tensor, Tensor]:
    """(B,), (B,) bool -> (N,), (N,): mean reward with and without thinking; the group's mean for a mode without members."""
    groups, on = rewards.view(-1, group_size), thinks.view(-1, group_size)
    means = []
    for mode in (on, ~on):
        mean = (groups * mode).sum(1) / mode.sum(1).clamp(min=1)
        means.append(torch.where(mode.any(1), mean, groups.mean(1)))
    return means[0], means[1]


def correct_mode_bias(on: Tensor, off: Tensor, both: Tensor, omega: float) -> Tensor:
    """(N,), (N,), (N,) bool -> (N,): M_off after the bias correction, in groups that have both modes."""
    margin, gap = omega * on, on - off
    # a tie may be off by rounding, depending on the order of the rows
    return torch.where(both & (gap >= -EPSILON) & (gap <= margin), off + margin, off)


def choice_advantages(rewards: Tensor, thinks: Tensor, group_size: int, omega: float, gamma: float) -> Tensor:
    """(B,), (B,) bool -> (B,): for the tokens that choose the mode."""
    on, off = mode_means(rewards, thinks, group_size)
    members = thinks.view(-1, group_size)
    off = correct_mode_bias(on, off, members.any(1) & ~members.all(1), omega)
    own = torch.where(thinks, on.repeat_interleave(group_size), off.repeat_interleave(group_size))
    mean, deviation = group_mean(rewards, group_size), group_std(rewards, group_size)
    made = (own - mean + gamma * (rewards - mean)) / (deviation + EPSILON)
    return made.masked_fill(deviation == 0, 0.0)


def answer_advantages(rewards: Tensor, thinks: Tensor, group_size: int) -> Tensor:
    """(B,), (B,) bool -> (B,): for all other tokens, within the mode."""
    return z_score_within(rewards, strata_of(thinks, group_size), EPSILON)


def has_thinking(text: str) -> bool:
    span = thought_span(text)
    return span is not None and bool(text[slice(*span)].strip())


class Config(Strict):
    format_weight: float = param(0.2, "Added to the reward for a correct format, in tasks that check it.", ge=0, le=10)
    omega: float = param(
        0.01, "Margin by which thinking must win, as a share of the mean reward with thinking.", title="Bias correction (omega)", ge=0, le=1
    )
    gamma: float = param(0.3, "Weight of a completion's own reward in the advantage of its mode choice.", title="Own reward (gamma)", ge=0, le=10)


class HiPO(Method):
    card = Card(
        name="hipo",
        title="Hybrid policy optimisation",
        arxiv="2509.23967",
        system="HiPO",
        base="grpo",
        provenance="abstract",
        source="abstract; secondary notes and open reviews",
        fit="core",
        idea="Judge the choice to think by comparing the two modes, and the answer by comparing completions within the same mode.",
        formula=(
            r"A^{J}_i = \frac{M_{m_i} - \mathrm{mean}(r)}{\mathrm{std}(r)} + \gamma\, \frac{r_i - \mathrm{mean}(r)}{\mathrm{std}(r)}",
            r"A^{A}_i = \frac{r_i - M_{m_i}}{\mathrm{std}_{m_i}}",
            r"M_{off} \leftarrow M_{off} + \omega M_{on} \quad \mathrm{if}\ 0 \le M_{on} - M_{off} \le \omega M_{on}",
        ),
        reading="the exact forms and values are our choices; the notes confirm two advantages, gamma and omega",
        departures=(
            "Completions do not state their mode: a completion thinks if its thinking part is not empty.",
            "The cold start with both modes is the lab's own.",
        ),
        claim=("completions/mean_length", "lower"),
    )
    Config = Config
    roles = {"rewards": "maps", "advantages": "makes"}
    owns = frozenset({"advantages"})

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        if "format" not in batch.reward_names:
            return rewards
        return rewards + self.config.format_weight * batch.rewards[:, batch.reward_names.index("format")].nan_to_num(0.0)

    def advantages(self, batch: "RolloutBatch", advantages: Tensor) -> Tensor:
        config, size = self.config, batch.group_size
        thinks = torch.tensor([has_thinking(text) for text in batch.texts], device=batch.shaped.device)
        choice = choice_advantages(batch.shaped, thinks, size, config.omega, config.gamma)
        answer = answer_advantages(batch.shaped, thinks, size)
        self.report(batch, thinks)
        marks = self.choosing(batch)
        return torch.where(marks, choice[:, None], answer[:, None]) * batch.mask

    def choosing(self, batch: "RolloutBatch") -> Tensor:
        """(B, T) bool: all tokens up to the first one after <think>, which decides between reasoning and </think>."""
        marks = torch.zeros_like(batch.mask, dtype=torch.bool)
        for row, (text, ends) in enumerate(zip(batch.texts, batch.ends, strict=True)):
            span = thought_span(text)
            if span is not None and span[0] < len(text):
                places = assign_tokens_to_spans(ends, [(span[0], span[0] + 1)])
                last = places.index(0) if 0 in places else -1
                marks[row, : last + 1] = True
        return marks

    def report(self, batch: "RolloutBatch", thinks: Tensor) -> None:
        on, off = mode_means(batch.shaped, thinks, batch.group_size)
        members = thinks.view(-1, batch.group_size)
        both = members.any(1) & ~members.all(1)
        self.log("think_rate", thinks.float().mean())
        solved = batch.correct.float().view(-1, batch.group_size).mean(1)
        for name, chosen in (("hard", solved < 0.5), ("easy", solved >= 0.5)):
            if chosen.any():
                self.log(f"think_rate_{name}", members[chosen].float().mean())
        if both.any():
            self.log("gap", (on - off)[both].mean())
            self.log("margin", (self.config.omega * on)[both].mean())
            self.log("corrected", (correct_mode_bias(on, off, both, self.config.omega) != off)[both].float().mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Thinking",
                (
                    Series(f"{name}/think_rate", "all"),
                    Series(f"{name}/think_rate_easy", "prompts solved at least half the time"),
                    Series(f"{name}/think_rate_hard", "prompts solved less often"),
                ),
                help="Share of completions with reasoning.",
            ),
            Panel(
                "Benefit of thinking",
                (
                    Series(f"{name}/gap", "mean reward with thinking minus without"),
                    Series(f"{name}/margin", "required margin"),
                    Series(f"{name}/corrected", "share of groups corrected", dashed=True),
                ),
            ),
        )
