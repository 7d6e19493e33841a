"""Neurons that respond to rare cases, and what to do with them (after CART, arXiv 2509.24713; our reading of the abstract).

effect_j = (mean_T z_j - mean_H z_j) / std_{T u H} z_j        circuit C = the k neurons with the largest |effect|
s(x) = mean_{j in C} sign(effect_j) (z_j(x) - mean z_j) / std z_j
r_safe = mean_m r_m - kappa std_m r_m
"""

import torch
from torch import Tensor

EPSILON = 1e-6  # of a neuron that says the same of all


def compute_neuron_effects(tail: Tensor, head: Tensor) -> Tensor:
    """(n, N), (m, N) activations in rare and in common cases -> (N,); 0 for a neuron that does not vary."""
    spread = torch.cat([tail, head]).std(0, correction=0)
    return torch.where(spread > EPSILON, (tail.mean(0) - head.mean(0)) / spread.clamp(min=EPSILON), torch.zeros_like(spread))


def choose_circuit(effects: Tensor, count: int) -> Tensor:
    """(N,) -> (k,) places of the neurons with the largest effect in either direction, the largest first."""
    return effects.abs().topk(min(count, len(effects))).indices


def score_tail(activations: Tensor, circuit: Tensor, effects: Tensor) -> Tensor:
    """(n, N) activations of all cases, (k,) places, (N,) effects -> (n,): the circuit's mean standardised activation, in its effects' direction."""
    own = activations[:, circuit]
    spread = own.std(0, correction=0).clamp(min=EPSILON)
    return ((own - own.mean(0)) / spread * effects[circuit].sign()).mean(1)


def rank_percentiles(scores: Tensor) -> Tensor:
    """(n,) -> (n,) in [0, 1]: the share of the others that are below, equal ones counting half; 0.5 for a single one."""
    if len(scores) < 2:
        return torch.full_like(scores, 0.5)
    below, equal = (scores[None] < scores[:, None]).sum(1), (scores[None] == scores[:, None]).sum(1) - 1
    return (below + equal / 2) / (len(scores) - 1)
