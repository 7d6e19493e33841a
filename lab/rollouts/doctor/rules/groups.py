"""Groups whose rewards are all the same: they teach nothing."""

from __future__ import annotations

from lab.lib.numbers import format_number
from lab.rollouts.doctor.facts import RunFacts
from lab.rollouts.doctor.trends import compute_newest_window, split_into_windows
from lab.rollouts.doctor.verdicts import EvidenceLink, HealthRule, RuleVerdict, Severity, make_clear_verdict, make_early_verdict, suggest_alternatives

SHARE = "frac_reward_zero_std"
NEAR_ALL = 0.9
FEW_POINTS = 10
MIXED_GROUPS = ("rest-rl", "clpo", "sage")  # methods that filter, rewrite or hint at prompts by how their group did


def zero_variance(facts: RunFacts) -> RuleVerdict:
    share = facts.of(SHARE)
    if len(share) < FEW_POINTS:
        return make_early_verdict(len(share), FEW_POINTS, SHARE)
    now = compute_newest_window(share)
    seen = f"{format_number(100 * now.mean)} % of the groups had zero reward variance over steps {now.first} to {now.last}."
    if now.low < NEAR_ALL:
        return make_clear_verdict(seen)
    evidence = [seen]
    advice = [*suggest_alternatives("Choose or rewrite prompts so that some members of a group succeed and some fail", facts, *MIXED_GROUPS)]
    reward = facts.of("reward")
    if len(reward):
        level, best = compute_newest_window(reward), max(window.mean for window in split_into_windows(reward))
        evidence.append(f"The mean reward there was {format_number(level.mean)}; the best over as many steps was {format_number(best)}.")
        if level.mean <= 1e-6:
            evidence.append("So in nearly every group all members fail.")
            advice += ["Use easier prompts, a cold start on demonstrations, or a reward with partial credit."]
        elif level.mean >= 0.9 * best:
            evidence.append("That is close to its best value: the groups seem solved rather than too hard.")
            advice += ["Use harder prompts, or stop here: little is left to learn from these."]
    advice.append("More generations per group or a higher temperature can increase variance.")
    links = (
        EvidenceLink("Zero-variance groups of these steps", (f"step:ge:{now.first}", "zero_variance:is:yes")),
        EvidenceLink("Groups with variance", (f"step:ge:{now.first}", "zero_variance:is:no")),
        EvidenceLink("Chart", chart=SHARE),
    )
    severity: Severity = "bad" if now.low >= 0.97 else "warn"
    return RuleVerdict("found", tuple(evidence), "Almost all groups have zero reward variance", severity, links, tuple(advice))


ZERO_VARIANCE = HealthRule(
    "zero-variance", "Zero-variance groups", "share of groups whose members all get the same reward", (SHARE,), zero_variance, ("reward",)
)
