"""Shared-out reward: what a completion earned is shared out over its steps by weight. Our own method, after an idea of ReviBranch (arXiv 2508.17452).

r_k = R w_k / sum_j w_j                              for the steps k = 1 ... K of a completion, so that sum_k r_k = R
s_k = (1 - even) w_k / sum_j w_j + even / K          even: a part that is shared out evenly, so that no step is left without any
A_t = A K c_k / sum_j c_j,  c_k = sum_{j >= k} gamma^(j-k) s_j      for every token t of step k;  A: the base's advantage

ReviBranch is not about language models: it learns which variable a solver of integer programs branches on, and shares out the reward of a solved
program over the branchings. Only that idea is here. In a group the reward is known relative to the others' alone, so the advantage is what is shared
out; a step counts like an action, however long it is. A token in no step (tags, the answer) keeps the advantage, and equal weights without later
steps (gamma 0) are the base. It differs from GRPO in these factors.

Steps are the policy's turns in an episode of several; else those of its working (``trainers/texts/segments.py``). Weights: ``entropy``: the mean
entropy of the step's tokens; ``length``: its tokens; ``gain``: how much nearer the step has come to a right end, or, in a wrong completion, how much
further from it. In a world that is the change in the number of turns that its oracle still needs; elsewhere the change in the policy's probability of
the reference answer, written right after the step, which takes a forward pass over each step's beginning. Both know the answer: in training alone.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.credit import pad_turns, spread_turns, sum_returns
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.answers import ANSWER, END_THINK, THINK
from trainers.texts.segments import assign_tokens_to_spans, find_step_spans
from trainers.worlds.base import POLICY, World, replay_episode

if TYPE_CHECKING:
    from trainers.methods.batch import LossBatch, RolloutBatch
    from trainers.methods.context import RunContext
    from trainers.tasks.base import Example
    from trainers.worlds.base import State

CHUNK = 64  # beginnings in one forward pass


def find_token_steps(mask: Sequence[float], ends: Sequence[int], text: str) -> list[int]:
    """The step that each of T tokens belongs to, from 0; -1 for none. ``mask``: 1 = written by the policy; ``ends``: characters after each token.

    Where the world has spoken in between, a step is what the policy wrote without a break.
    """
    runs, run = list[int](), -1
    for place, own in enumerate(mask):
        run += bool(own) and (place == 0 or not mask[place - 1])
        runs.append(run if own else -1)
    if run > 0:
        return runs
    steps = assign_tokens_to_spans(ends, find_step_spans(text))
    steps += [-1] * (len(runs) - len(steps))
    return [step if own else -1 for step, own in zip(steps, mask, strict=False)]


def share_out(weights: Tensor, there: Tensor, even: float, gamma: float) -> Tensor:
    """(B, K) weights >= 0 of steps, (B, K) 1 = there -> (B, K) factors of mean 1 over a completion's steps; 1 where there is none."""
    counts = there.sum(1, keepdim=True).clamp(min=1)
    weights = weights * there
    total = weights.sum(1, keepdim=True)
    shares = torch.where(total > 0, weights / torch.where(total > 0, total, torch.ones_like(total)), there / counts)
    credit = sum_returns((1 - even) * shares + even * there / counts, there, gamma)
    whole = credit.sum(1, keepdim=True)
    factors = counts * credit / torch.where(whole > 0, whole, torch.ones_like(whole))
    return torch.where(there > 0, factors, torch.ones_like(factors))


def weigh_gains(gains: Sequence[float], is_right: bool) -> list[float]:
    """Of a right completion the steps that came nearer count, of a wrong one those that went astray."""
    return [max(0.0, gain if is_right else -gain) for gain in gains]


def measure_turns_saved(left: Sequence[int | None]) -> list[float]:
    """Turns that an oracle still needs before the first turn and after each (None: no way leads out) -> how many each turn has saved."""
    return [0.0 if before is None else float(-max(1, before) if after is None else before - after) for before, after in pairwise(left)]


def count_turns_left(world: World, example: "Example", state: "State") -> int | None:
    """Turns from ``state`` to the full reward, 0 where the episode is right; None where there is no way."""
    if (world.outcome(example, state)[POLICY][next(iter(world.rewards))] or 0.0) > 0.5:
        return 0
    try:
        return len(world.way(example, state))
    except LookupError:
        return None


class Config(Strict):
    weights: Literal["entropy", "gain", "length", "equal"] = param("entropy", "What a step's share follows; equal and gamma 0: the base.")
    even: float = param(0.2, "Part of the reward that all steps share alike; 1: the base, as long as gamma is 0.", title="Even part", ge=0, le=1)
    gamma: float = param(0.0, "How much of the next step's credit a step has too; 0: its own alone.", title="Later steps (gamma)", ge=0, le=1)


class SharedOutReward(Method):
    card = Card(
        name="shared-out-reward",
        title="Reward shared out over steps",
        arxiv="",
        system="our own",
        base="grpo",
        provenance="abstract",
        source="our own, after the redistributed reward of ReviBranch (arXiv 2508.17452), of which we know the abstract",
        fit="variant",
        idea="Share what a completion earned out over its steps: by their entropy, their length, or how much nearer they came to the answer.",
        formula=(
            r"r_k = R\, \frac{w_k}{\sum_j w_j}, \quad \sum_k r_k = R",
            r"A_t = A\, \frac{K c_k}{\sum_j c_j}, \quad c_k = \sum_{j \ge k} \gamma^{j-k} s_j",
        ),
        reading="all but the first formula: what a step and its weight are in a text, and that the advantage is what is shared out",
        departures=(
            "ReviBranch is a branching policy for integer programs; nothing but its way to share out a reward is used.",
            "The advantage is shared out in place of the reward, which a group knows only by comparison.",
        ),
        parallel=False,
    )
    Config = Config

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def token_weights(self, batch: "LossBatch") -> Tensor | None:
        rollout, numbers = batch.rollout, batch.rows.tolist()
        masks = rollout.mask[batch.rows.to(rollout.mask.device)].tolist()
        found = [find_token_steps(mask, rollout.ends[row], rollout.texts[row]) for mask, row in zip(masks, numbers, strict=True)]
        steps = torch.tensor(found, device=batch.mask.device)  # (B, T)
        width = max(1, int(steps.max()) + 1)
        there = torch.zeros(len(steps), width + 1, device=steps.device).scatter_(1, steps + 1, 1.0)[:, 1:]
        factors = share_out(self.weigh_steps(batch, steps, width), there, self.config.even, self.config.gamma)
        self.report(factors, there)
        return torch.where(steps >= 0, spread_turns(factors, steps), torch.ones_like(batch.mask)).to(batch.mask.dtype)

    def weigh_steps(self, batch: "LossBatch", steps: Tensor, width: int) -> Tensor:
        """(B, K) of the (B, T) steps."""
        if self.config.weights == "gain":
            return self.weigh_by_gain(batch, steps, width)
        lengths = add_up_steps(torch.ones_like(batch.mask), steps, width)
        if self.config.weights == "entropy":
            return add_up_steps(batch.entropies.detach().float(), steps, width) / lengths.clamp(min=1)
        return lengths if self.config.weights == "length" else torch.ones_like(lengths)

    def weigh_by_gain(self, batch: "LossBatch", steps: Tensor, width: int) -> Tensor:
        rollout, right, made = batch.rollout, batch.rollout.correct.tolist(), list[list[float]]()
        for row, own in zip(batch.rows.tolist(), steps.tolist(), strict=True):
            gains = self.measure_gains(rollout, row, own)
            made.append(weigh_gains(gains, right[row]))
            if gains:
                self.log("gain_right" if right[row] else "gain_wrong", sum(gains) / len(gains))
        return pad_turns(made, width)[:, :width].to(steps.device)

    def measure_gains(self, rollout: "RolloutBatch", row: int, steps: Sequence[int]) -> list[float]:
        world, example, text = self.run.task, rollout.examples[row], rollout.texts[row]
        if isinstance(world, World):
            states = [world.begin(example), *(turn.step.state for turn in replay_episode(world, example, text).turns)]
            return measure_turns_saved([count_turns_left(world, example, state) for state in states])
        cuts = find_step_ends(steps)
        if not cuts or not example.reference:
            return []
        ids = rollout.ids[row].tolist()
        return [after - before for before, after in pairwise(self.measure_beliefs(rollout.prompt_ids[row], [ids[:cut] for cut in cuts], example))]

    @torch.no_grad()
    def measure_beliefs(self, prompt: Sequence[int], begun: Sequence[Sequence[int]], example: "Example") -> list[float]:
        """The policy's probability of the reference answer, the geometric mean of its tokens', after each of some beginnings of a completion."""
        gold = self.run.completion_ids(example.reference, end=False)
        heads = [self.run.completion_ids(write_head(self.run.tokenizer.decode(list(some))), end=False) for some in begun]
        contexts = [[*prompt, *some, *head] for some, head in zip(begun, heads, strict=True)]
        found = list[float]()
        for start in range(0, len(contexts), CHUNK):
            some = contexts[start : start + CHUNK]
            logprobs, _ = self.run.logprobs(some, [gold] * len(some))
            found += [math.exp(value) for value in logprobs.mean(1).tolist()]
        return found

    def report(self, factors: Tensor, there: Tensor) -> None:
        counts = there.sum(1)
        self.log("steps", counts.mean())
        several = counts > 1
        if several.any():
            self.log("largest_share", ((factors * there).amax(1) / counts.clamp(min=1))[several].mean())
            self.log("even_share", (1 / counts[several]).mean())

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Largest share of a step",
                (Series(f"{name}/largest_share", "of its completion"), Series(f"{name}/even_share", "if all were alike", dashed=True)),
            ),
            Panel("Steps of a completion", (Series(f"{name}/steps", "mean"),)),
            Panel(
                "Mean gain of a step",
                (Series(f"{name}/gain_right", "right completions"), Series(f"{name}/gain_wrong", "wrong ones", dashed=True)),
                help="With the weights gain alone: turns saved in a world, else the change in the probability of the reference answer.",
            ),
        )


def add_up_steps(values: Tensor, steps: Tensor, width: int) -> Tensor:
    """(B, T) values of tokens -> (B, K) sums over the tokens of each step."""
    return torch.zeros(len(values), width + 1, dtype=values.dtype, device=values.device).scatter_add_(1, steps + 1, values)[:, 1:]


def find_step_ends(steps: Sequence[int]) -> list[int]:
    """How many tokens there are before the first step and after each; none without steps."""
    places = [place for place, step in enumerate(steps) if step >= 0]
    lasts = {steps[place]: place + 1 for place in places}
    return [places[0], *(lasts[step] for step in sorted(lasts))] if places else []


def write_head(begun: str) -> str:
    """What stands between the beginning of a completion and its answer."""
    return f"{END_THINK}{ANSWER}" if THINK in begun and END_THINK not in begun else ANSWER
