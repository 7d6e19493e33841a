"""Answers of six tokens with some wrong ones, of which a person marks most: preferred pairs alone, or with the marked tokens as weights.

The policy is linear: the features of a prompt give the logits of each token. The reference policy knows the right tokens in part.
"""

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from bench.effect_cases import Case, Pairs, Quantity
from trainers.methods.tokens.span_credit import compute_span_weights

PAIRS, TESTED, FEATURES, LENGTH, WORDS, STEPS, BETA = 100, 2000, 8, 6, 5, 200, 0.1
MARKED = 0.7  # share of the wrong tokens that the person marks


def token_logprobs(policy: Tensor, prompts: Tensor) -> Tensor:
    """Weights (LENGTH, WORDS, FEATURES) and features (B, FEATURES) -> (B, LENGTH, WORDS)."""
    return torch.log_softmax(torch.einsum("bf,twf->btw", prompts, policy), -1)


def labelled_pairs(reference: Tensor, truth: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Prompts (PAIRS, FEATURES), answers (2, PAIRS, LENGTH) with the one of fewer wrong tokens first, and which tokens are marked as bad."""
    prompts = torch.randn(PAIRS, FEATURES, generator=generator)
    chances = token_logprobs(reference, prompts).exp().flatten(0, 1)
    answers = torch.multinomial(chances, 2, replacement=True, generator=generator).T.reshape(2, PAIRS, LENGTH)
    wrong = answers != token_logprobs(truth, prompts).argmax(-1)
    swap = wrong[0].sum(1) > wrong[1].sum(1)
    answers, wrong = (torch.where(swap[None, :, None], one.flip(0), one) for one in (answers, wrong))
    return prompts, answers, wrong & (torch.rand(wrong.shape, generator=generator) < MARKED)


def trained(seed: int, with_spans: bool) -> dict[str, float]:
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(LENGTH, WORDS, FEATURES, generator=generator)
    reference = 0.7 * truth + 0.7 * torch.randn(truth.shape, generator=generator)
    prompts, answers, bad = labelled_pairs(reference, truth, generator)
    mask, bad = torch.ones(PAIRS, LENGTH), bad.float()
    weights = torch.ones(2, PAIRS, LENGTH)
    if with_spans:
        none = torch.zeros_like(mask)
        chosen, rejected = ((none, bad[0]), (bad[1], none))  # supporting and opposing spans
        weights = torch.stack([compute_span_weights(*side, mask, (2.0, 0.0), False) for side in (chosen, rejected)])
    policy = reference.clone().requires_grad_()
    optimiser = torch.optim.Adam([policy], lr=0.01)
    before = token_logprobs(reference, prompts)
    for _ in range(STEPS):
        ratios = (token_logprobs(policy, prompts) - before).expand(2, -1, -1, -1).gather(3, answers[..., None])[..., 0]
        scores = BETA * (weights * ratios).sum(2)
        loss = -logsigmoid(scores[0] - scores[1]).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    fresh = torch.randn(TESTED, FEATURES, generator=generator)
    right = token_logprobs(truth, fresh).argmax(-1, keepdim=True)
    chances = token_logprobs(policy.detach(), fresh).exp().gather(2, right)[..., 0]
    return {"right tokens": float(chances.mean()), "right answers": float(chances.prod(1).mean())}


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, True), trained(seed, False)
    return {name: (own[name], parent[name]) for name in own}


CASE = Case(
    method="span-credit",
    parent="dpo",
    claim="from as many pairs, with 70 % of the wrong tokens marked, more tokens of answers to new prompts are right",
    quantities=(
        Quantity("right tokens", "expected share of right tokens in answers to 2,000 new prompts", "higher", 0.01, "one more of a hundred tokens"),
        Quantity("right answers", "expected share of answers to them without a wrong token", "higher", 0.01, "one more of a hundred answers"),
    ),
    problem="100 pairs of six-token answers, linear policy, 200 steps",
    measure=measure,
    launch={"trainer": "dpo", "training__sampled_prompts": 128},
)
