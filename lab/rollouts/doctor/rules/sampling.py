"""Whether the engine that samples and the policy that is trained agree on probabilities (TRL with vLLM and its importance correction)."""

from __future__ import annotations

from lab.lib.numbers import format_number
from lab.rollouts.doctor.facts import RunFacts
from lab.rollouts.doctor.trends import compute_newest_window
from lab.rollouts.doctor.verdicts import EvidenceLink, HealthRule, RuleVerdict, make_clear_verdict, make_early_verdict

DIFFERENCE = "sampling/sampling_logp_difference/mean"
LARGEST = "sampling/sampling_logp_difference/max"
RATIO = "sampling/importance_sampling_ratio/mean"
TOO_FAR = 0.1  # nats a token
OFF = 0.1  # of the ratio from 1
FEW_POINTS = 10


def judge_sampler_mismatch(facts: RunFacts) -> RuleVerdict:
    apart = facts.of(DIFFERENCE)
    if len(apart) < FEW_POINTS:
        return make_early_verdict(len(apart), FEW_POINTS, DIFFERENCE)
    now, ratio, largest = compute_newest_window(apart), facts.of(RATIO), facts.of(LARGEST)
    seen = [f"Sampler and trainer differ by {format_number(now.mean)} nats per token on average over steps {now.first} to {now.last}."]
    level = compute_newest_window(ratio) if len(ratio) else None
    if level:
        seen.append(f"Mean importance ratio {format_number(level.mean)}.")
    if len(largest):
        seen.append(f"Largest difference for a single token: {format_number(float(largest.values[-now.count :].max()))} nats.")
    if now.low < TOO_FAR and (level is None or (level.low < 1 + OFF and level.high > 1 - OFF)):
        return make_clear_verdict(" ".join(seen))
    links = (EvidenceLink("Rollouts of these steps", (f"step:ge:{now.first}",)), EvidenceLink("Chart", chart="sampling/"))
    advice = (
        "Check that the sampler uses the same precision, weights, temperature and chat template as the trainer.",
        "Keep importance-sampling correction on and capped; without it the gradient is off-policy.",
    )
    return RuleVerdict(
        "found", tuple(seen), "Sampler and trainer log-probabilities differ", "bad" if now.low >= 3 * TOO_FAR else "warn", links, advice
    )


MISMATCH = HealthRule(
    "sampler-mismatch",
    "Sampler mismatch",
    "log-probabilities of the sampler vs. the trainer",
    (DIFFERENCE,),
    judge_sampler_mismatch,
    (RATIO, LARGEST),
)
