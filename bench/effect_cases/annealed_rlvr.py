"""The paper's test bed, smaller: walks on a random graph, questions of start and goal; GRPO on the hops, with a burst of imitation or without."""

import random

import torch
from torch import Tensor

from bench.effect_cases import Case, Pairs, Quantity
from trainers.maths.advantages import z_score
from trainers.maths.reduce import masked_mean
from trainers.methods.tokens.annealed_rlvr import has_passed_minimum, heating_set, past_knee, smooth_value

NODES, DEGREE, QUESTIONS, GROUP, LONGEST = 400, 10, 64, 16, 40
STEPS, CHECK, BURST, BATCH, LEARNING_RATE = 500, 5, 30, 32, 0.1


class Walks:
    """The policy is a table (NODES, DEGREE) of logits over neighbours; a walk is right when it meets its goal within LONGEST hops."""

    def __init__(self, seed: int) -> None:
        self.generator = torch.Generator().manual_seed(seed)
        self.neighbours = torch.stack([torch.randperm(NODES, generator=self.generator)[:DEGREE] for _ in range(NODES)])
        self.starts, self.goals = (torch.randint(NODES, (QUESTIONS,), generator=self.generator) for _ in range(2))
        self.logits = torch.zeros(NODES, DEGREE, requires_grad=True)
        self.optimiser = torch.optim.Adam([self.logits], LEARNING_RATE)

    def walk(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Nodes, choices and mask (B, LONGEST) of GROUP walks a question, and whether each is right (B,)."""
        place, goal = self.starts.repeat_interleave(GROUP), self.goals.repeat_interleave(GROUP)
        chances, done = torch.softmax(self.logits.detach(), 1), place == goal
        nodes, choices, mask = [], [], []
        for _ in range(LONGEST):
            choice = torch.multinomial(chances[place], 1, generator=self.generator)[:, 0]
            nodes.append(place)
            choices.append(choice)
            mask.append(~done)
            place = torch.where(done, place, self.neighbours[place, choice])
            done = done | (place == goal)
        return torch.stack(nodes, 1), torch.stack(choices, 1), torch.stack(mask, 1).float(), done

    def ascend(self, nodes: Tensor, choices: Tensor, weights: Tensor, mask: Tensor) -> None:
        """A step along the gradient of the weighted log-probabilities, averaged over hops: as both losses of a real run are over tokens."""
        logprobs = torch.log_softmax(self.logits, 1)[nodes, choices]
        self.optimiser.zero_grad()
        (-masked_mean(weights * logprobs, mask)).backward()
        self.optimiser.step()


class Memory:
    """What the trigger and the heating set are made of."""

    def __init__(self) -> None:
        self.solved, self.samples = [0] * QUESTIONS, 0
        self.first: dict[int, tuple[Tensor, ...]] = {}  # right walk of each question
        self.length: float | None = None
        self.rate: float | None = None
        self.lengths, self.rates = list[float](), list[float]()

    def see(self, walks: tuple[Tensor, ...], right: Tensor) -> None:
        self.samples += GROUP
        for row in right.nonzero()[:, 0].tolist():
            self.solved[row // GROUP] += 1
            self.first.setdefault(row // GROUP, tuple(part[row] for part in walks))
        if right.any():
            self.length = smooth_value(self.length, float(walks[2][right].sum(1).mean()))
        self.rate = smooth_value(self.rate, float(right.float().mean()))

    def due(self) -> list[int]:
        """The heating set when the turning point has come, else nothing."""
        self.lengths.append(self.length or 0.0)
        self.rates.append(self.rate or 0.0)
        found = heating_set([count / self.samples for count in self.solved], self.solved, 0.1)
        return found if has_passed_minimum(self.lengths, 2) and past_knee(self.rates, 0.3) else []


def solve_rate(seed: int, burst: int) -> float:
    """Share of right walks over the last 20 steps; the ``burst`` steps of imitation count as steps of the run."""
    world, memory, rng, rates = Walks(seed), Memory(), random.Random(seed), list[float]()
    heated, began = list[int](), STEPS
    for step in range(1, STEPS + 1):
        *walks, right = world.walk()
        rates.append(float(right.float().mean()))
        memory.see(tuple(walks), right)
        if began < step <= began + burst:
            some = [memory.first[question] for question in rng.sample(heated, min(len(heated), BATCH))]
            nodes, choices, mask = (torch.stack(parts) for parts in zip(*some, strict=True))
            world.ascend(nodes, choices, torch.ones_like(mask), mask)
        else:
            world.ascend(walks[0], walks[1], z_score(right.float(), GROUP)[:, None], walks[2])
        if began == STEPS and step % CHECK == 0 and (heated := memory.due()):
            began = step
    return sum(rates[-20:]) / 20


def measure(seed: int) -> Pairs:
    return {"solve rate": (solve_rate(seed, BURST), solve_rate(seed, 0))}


CASE = Case(
    method="annealed-rlvr",
    parent="grpo",
    claim="a burst of imitation on rare successes at the turning point leaves a higher solve rate than none",
    quantities=(Quantity("solve rate", "solve rate over the last 20 of 500 steps", "higher", 0.02, "two more of a hundred walks"),),
    problem="walks on a random graph of 400 nodes of degree 10, 64 questions",
    measure=measure,
    seeds=3,
    launch={"base": "grpo"},
    changed="four times: length of the run, trigger, knee and size of the toy; the claim was never seen",
)
