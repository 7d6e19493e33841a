"""A planted sub-sequence (PAV, arXiv 2410.08146, section 3.3): a table as policy, an outcome that is rarely 1, and provers of known strength.

A word has ``LENGTH`` letters of ``LETTERS``; it is right when the planted letters stand in it in their order, whatever is between them. The state is
how many of them stand there already, so that the value of every place is known exactly and no prover has to be sampled.
"""

import random

import torch
from torch import Tensor

from trainers.maths.advantages import z_score
from trainers.methods.worlds.pav import compute_prover_advantages

LETTERS, PLANTED, LENGTH = 15, 5, 10
START = 0.12  # probability of the next planted letter before training: 4 words of 1,000 are right
MEMBERS, GROUPS, RATE = 8, 4, 0.3
GOAL, MOST = 0.9, 400


def list_values(policy: Tensor) -> list[list[float]]:
    """(states, letters) logits -> the chance to be right with 0, 1, ... letters left, of each state. The planted letter of a state is letter 0."""
    hits = torch.softmax(policy, 1)[:, 0].tolist()
    found = [[0.0] * PLANTED + [1.0]]
    for _ in range(LENGTH):
        last = found[-1]
        found.append([hits[state] * last[state + 1] + (1 - hits[state]) * last[state] for state in range(PLANTED)] + [1.0])
    return found


def count_updates(seed: int, alpha: float, count: int) -> int:
    """Updates until 90 % of words are right; ``MOST`` where that never comes. ``alpha`` 0: the outcome alone; ``count``: the prover's K."""
    draws = random.Random(f"planted/{seed}")
    policy = torch.zeros(PLANTED + 1, LETTERS, dtype=torch.float64)
    policy[:, 0] = torch.tensor(START / (1 - START) * (LETTERS - 1)).log()
    for update in range(MOST):
        values = list_values(policy)
        if values[LENGTH][0] >= GOAL:
            return update
        policy = policy + RATE * estimate_gradient(policy, values, alpha, count, draws)
    return MOST


def estimate_gradient(policy: Tensor, values: list[list[float]], alpha: float, count: int, draws: random.Random) -> Tensor:
    """Mean over sampled words of sum_h (A + alpha A^mu_h) grad log pi(letter | state)."""
    chances = torch.softmax(policy, 1)
    rows = chances.tolist()
    made = torch.zeros_like(policy)
    for _ in range(GROUPS):
        words = [write_word(rows, draws) for _ in range(MEMBERS)]
        outcomes = torch.tensor([float(states[-1] == PLANTED) for states, _ in words], dtype=torch.float64)
        advantages = z_score(outcomes, MEMBERS).tolist()
        for (states, letters), outcome, advantage in zip(words, outcomes.tolist(), advantages, strict=True):
            before = [values[LENGTH - place][states[place]] for place in range(LENGTH)]
            gains = compute_prover_advantages(before, outcome, count)
            for state, letter, gain in zip(states, letters, gains, strict=False):
                made[state] -= (advantage + alpha * gain) * chances[state]
                made[state, letter] += advantage + alpha * gain
    return made / (GROUPS * MEMBERS)


def write_word(rows: list[list[float]], draws: random.Random) -> tuple[list[int], list[int]]:
    """The states before each letter and after the last, and the letters."""
    states, letters = [0], list[int]()
    for _ in range(LENGTH):
        letters.append(draws.choices(range(LETTERS), rows[states[-1]])[0])
        states.append(states[-1] + (letters[-1] == 0 and states[-1] < PLANTED))
    return states, letters
