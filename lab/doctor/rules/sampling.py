"""Whether the engine that samples and the policy that is trained agree on probabilities (TRL with vLLM and its importance correction)."""

from __future__ import annotations

from lab.doctor.facts import Facts
from lab.doctor.trends import newest
from lab.doctor.verdicts import Link, Rule, Verdict, clear, early
from lab.lib.numbers import number

DIFFERENCE = "sampling/sampling_logp_difference/mean"
LARGEST = "sampling/sampling_logp_difference/max"
RATIO = "sampling/importance_sampling_ratio/mean"
TOO_FAR = 0.1  # nats a token
OFF = 0.1  # of the ratio from 1
FEW_POINTS = 10


def mismatch(facts: Facts) -> Verdict:
    apart = facts.of(DIFFERENCE)
    if len(apart) < FEW_POINTS:
        return early(len(apart), FEW_POINTS, DIFFERENCE)
    now, ratio, largest = newest(apart), facts.of(RATIO), facts.of(LARGEST)
    seen = [f"Sampler and trainer differ by {number(now.mean)} nats a token on average over steps {now.first} to {now.last}."]
    level = newest(ratio).mean if len(ratio) else 1.0
    if len(ratio):
        seen.append(f"Mean importance ratio {number(level)}.")
    if len(largest):
        seen.append(f"Largest difference of one token: {number(float(largest.values[-now.count :].max()))} nats.")
    if now.mean < TOO_FAR and abs(level - 1) < OFF:
        return clear(" ".join(seen))
    links = (Link("Rollouts of these steps", (f"step:ge:{now.first}",)), Link("Chart", chart="sampling/"))
    advice = (
        "Compare the precision of both engines, and that the same weights, temperature and chat template reach the sampler.",
        "Keep the importance correction on and capped; without it the gradient belongs to another policy.",
    )
    return Verdict("found", tuple(seen), "The sampler and the trained policy disagree", "bad" if now.mean >= 3 * TOO_FAR else "warn", links, advice)


MISMATCH = Rule(
    "sampler-mismatch", "Sampler mismatch", "log-probabilities of the sampler against the trainer's", (DIFFERENCE,), mismatch, (RATIO, LARGEST)
)
