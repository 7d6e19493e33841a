"""ROVER's tree: words of 3 letters from {A, B, C, D}, rewarded are ACD, BDC, CAB and DBA. Does the policy keep all four?

In the end, after 300 steps, both keep one alone; so the spread is taken at the moment when a policy has learned, at 90 % success.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from bench.effect_cases import Case, Pairs, Quantity
from trainers.maths.advantages import centre_by_group, z_score
from trainers.methods.group.rover import bellman_errors, next_term, vocabulary_mean

LETTERS, LENGTH, REWARDED = 4, 3, ((0, 2, 3), (1, 3, 2), (2, 0, 1), (3, 1, 0))
GROUP, STEPS, PASSES, LEARNING_RATE, CLIP, ENOUGH = 16, 300, 4, 0.05, 0.2, 0.9
STARTS = torch.tensor([0, 1, 5])  # first state of each depth: 1 + 4 + 16 prefixes

Loss = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def states(words: Tensor) -> Tensor:
    """(G, 3) -> (G, 3): the prefix that each letter follows."""
    first = torch.zeros(len(words), dtype=torch.long)
    return STARTS + torch.stack([first, words[:, 0], words[:, 0] * LETTERS + words[:, 1]], 1)


def sample(logits: Tensor, generator: torch.Generator) -> Tensor:
    words = torch.zeros(GROUP, LENGTH, dtype=torch.long)
    for place in range(LENGTH):
        here = torch.softmax(logits[states(words)[:, place]], -1)
        words[:, place] = torch.multinomial(here, 1, generator=generator)[:, 0]
    return words


def with_rover(logits: Tensor, old: Tensor, words: Tensor, rewards: Tensor) -> Tensor:
    """``logits`` and ``old`` (G, 3, 4) at the states of the words."""
    log_ratio = (torch.log_softmax(logits, -1) - torch.log_softmax(old, -1)).gather(2, words[..., None])[..., 0]
    following = next_term(vocabulary_mean(logits), vocabulary_mean(old), torch.ones(GROUP, LENGTH), 1.0)
    return bellman_errors(log_ratio, centre_by_group(rewards, GROUP)[:, None], following, 1.0).mean()


def with_grpo(logits: Tensor, old: Tensor, words: Tensor, rewards: Tensor) -> Tensor:
    log_ratio = (torch.log_softmax(logits, -1) - torch.log_softmax(old, -1)).gather(2, words[..., None])[..., 0]
    ratio, advantage = log_ratio.exp(), z_score(rewards, GROUP)[:, None]
    return -torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage).mean()


def spread(seed: int, loss: Loss) -> float:
    """Over how many of the rewarded words the policy is spread (exp of the entropy) when 90 % of its words are rewarded; in the end if never."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(21, LETTERS, requires_grad=True)
    optimizer = torch.optim.Adam([logits], LEARNING_RATE)
    for _ in range(STEPS):
        words = sample(logits.detach(), generator)
        rewards = torch.tensor([float(tuple(word) in REWARDED) for word in words.tolist()])
        old, where = logits.detach()[states(words)].clone(), states(words)
        for _ in range(PASSES):
            optimizer.zero_grad()
            loss(logits[where], old, words, rewards).backward()
            optimizer.step()
        if float((found := probabilities(logits)).sum()) >= ENOUGH:
            break
    shares = found / found.sum()
    return float(torch.special.entr(shares).sum().exp())


def probabilities(logits: Tensor) -> Tensor:
    """(4,) of the rewarded words."""
    words = torch.tensor(REWARDED)
    return torch.log_softmax(logits.detach(), -1)[states(words)].gather(2, words[..., None])[..., 0].sum(1).exp()


def measure(seed: int) -> Pairs:
    return {"words": (spread(seed, with_rover), spread(seed, with_grpo))}


CASE = Case(
    method="rover",
    parent="grpo",
    claim="the policy keeps more of the four rewarded words while it learns",
    quantities=(Quantity("words", "effective number of rewarded words at 90 % success", "higher", 0.25, "a quarter of a word of four"),),
    problem="tree of 64 three-letter words, groups of 16, 4 passes",
    measure=measure,
    launch={"base": "grpo"},
    changed="the first measure, after 300 steps, was 1.0 on both sides",
)
