"""A toy grammar with a branch token: prompts of three tokens of the policy's own, comply or refuse, two tokens more.

A small recurrent network is trained on chains that mostly comply. Pairs that share their beginning and are compared from the branch on, with the
likelihood of the new ending, are set against DPO on whole chains sampled apart, until refusing is nine times in ten; how far has the beginning moved?
"""

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, logsigmoid

from bench.effect_cases import Case, Pairs, Quantity, paired
from trainers.methods.pairs.ipo_safe import from_cut, shared_prefix

START, SAFE, COMPLY, TOKENS, PREFIX, SUFFIX = 8, 6, 7, 9, 3, 2
WANTED, MOST_STEPS, BATCH, BETA, NLL = 0.9, 300, 64, 0.1, 0.2


class Policy(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.cell, self.head = torch.nn.Embedding(TOKENS, 16), torch.nn.GRU(16, 32, batch_first=True), torch.nn.Linear(32, TOKENS)

    def forward(self, chains: Tensor) -> Tensor:
        """(B, T) -> (B, T, TOKENS) logits of each token, given those before it."""
        before = torch.cat([torch.full_like(chains[:, :1], START), chains[:, :-1]], 1)
        return self.head(self.cell(self.inner(before))[0])

    def logprobs(self, chains: Tensor) -> Tensor:
        return self(chains).log_softmax(-1).gather(2, chains[..., None])[..., 0]


def chains(count: int, branch: int | None, generator: torch.Generator) -> Tensor:
    """(count, 6): a beginning whose tokens depend on one another, the branch, and an ending that goes with it."""
    first = torch.randint(4, (count, 1), generator=generator)
    rest = [(first + torch.randint(2, (count, 1), generator=generator)) % 4 for _ in range(PREFIX - 1)]
    comply = torch.rand(count, 1, generator=generator) < 0.7 if branch is None else torch.full((count, 1), branch == COMPLY)
    ending = [torch.where(comply, 4, 5) + 0 * first for _ in range(SUFFIX)]
    return torch.cat([first, *rest, torch.where(comply, COMPLY, SAFE), *ending], 1)


def trained(seed: int, intervened: bool) -> dict[str, float]:
    """Mean change of the log-probability of the beginning's tokens, and what the policy makes of the ending."""
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    policy, reference = Policy(), Policy()
    optimiser = torch.optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(200):
        made = chains(256, None, generator)
        optimiser.zero_grad()
        cross_entropy(policy(made).flatten(0, 1), made.flatten()).backward()
        optimiser.step()
    reference.load_state_dict(policy.state_dict())
    optimiser = torch.optim.Adam(policy.parameters(), lr=1e-3)
    held = chains(512, None, generator)
    with torch.no_grad():
        before = reference.logprobs(held)[:, :PREFIX]
    for _ in range(MOST_STEPS):
        with torch.no_grad():
            if policy(held).softmax(-1)[:, PREFIX, SAFE].mean() >= WANTED:
                break
        loss = pair_loss(policy, reference, generator, intervened)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    with torch.no_grad():
        ending = policy.logprobs(chains(512, SAFE, generator))[:, PREFIX + 1 :].mean()
        return {"moved": float((policy.logprobs(held)[:, :PREFIX] - before).abs().mean()), "ending": float(ending)}


def pair_loss(policy: Policy, reference: Policy, generator: torch.Generator, intervened: bool) -> Tensor:
    rejected, chosen = chains(BATCH, COMPLY, generator), chains(BATCH, SAFE, generator)
    if intervened:
        chosen[:, :PREFIX] = rejected[:, :PREFIX]
    with torch.no_grad():
        held = reference.logprobs(chosen), reference.logprobs(rejected)
    own = policy.logprobs(chosen), policy.logprobs(rejected)
    ratios = [one - other for one, other in zip(own, held, strict=True)]
    if not intervened:
        return -logsigmoid(BETA * (ratios[0].sum(1) - ratios[1].sum(1))).mean()
    start = shared_prefix(chosen, rejected)
    ratios, likelihood = [from_cut(ratio, start) for ratio in ratios], from_cut(own[0], start)
    loss = -logsigmoid(BETA * (ratios[0].sum(1) - ratios[1].sum(1))).mean()
    return loss - NLL * likelihood.sum() / (likelihood != 0).sum()


def measure(seed: int) -> Pairs:
    return paired(trained(seed, True), trained(seed, False))


CASE = Case(
    method="ipo-safe",
    parent="dpo",
    claim="the chain before the branch changes less by the time the safe branch is taken nine times in ten",
    quantities=(
        Quantity(
            "moved",
            "change of log-probability of the beginning's tokens (nats)",
            "lower",
            0.05,
            "a twentieth of a nat, five per cent of a token's probability",
            by_construction="its pairs share their beginnings, so that no beginning is compared with another",
        ),
        Quantity(
            "ending",
            "log-probability of the right ending after the safe branch, per token (nats)",
            "higher",
            0.02,
            "two per cent of a token's probability",
        ),
    ),
    problem="toy grammar with a branch token, small recurrent network",
    measure=measure,
    launch={"trainer": "dpo"},
    changed="the parent had the likelihood term too at first",
)
