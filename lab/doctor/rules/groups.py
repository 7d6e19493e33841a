"""Groups whose rewards are all the same: they teach nothing."""

from __future__ import annotations

from lab.doctor.facts import Facts
from lab.doctor.trends import newest
from lab.doctor.verdicts import Link, Rule, Severity, Verdict, clear, early
from lab.lib.numbers import number

SHARE = "frac_reward_zero_std"
NEAR_ALL = 0.9
FEW_POINTS = 10


def zero_variance(facts: Facts) -> Verdict:
    share = facts.of(SHARE)
    if len(share) < FEW_POINTS:
        return early(len(share), FEW_POINTS, SHARE)
    now = newest(share)
    seen = f"{number(100 * now.mean)} % of the groups had no spread in reward over steps {now.first} to {now.last}."
    if now.mean < NEAR_ALL:
        return clear(seen)
    evidence, advice = (
        [seen],
        ["Filter or re-weight prompts so that some members of a group succeed and some fail (dynamic sampling: base dapo, or a curriculum method)."],
    )
    reward = facts.of("reward")
    if len(reward):
        level = newest(reward)
        evidence.append(f"The mean reward there was {number(level.mean)}; the best of any step is {number(float(reward.values.max()))}.")
        if level.mean <= 1e-6:
            evidence.append("So nearly every group fails as a whole.")
            advice += ["Easier prompts, a cold start on demonstrations, or a reward that gives part of the credit."]
        elif level.mean >= 0.9 * float(reward.values.max()):
            evidence.append("That is close to the best it has reached: the groups seem to be solved rather than hopeless.")
            advice += ["Harder prompts; or stop here, as little is left to learn from these."]
    advice.append("More generations a group or a higher temperature give spread a chance.")
    links = (
        Link("Groups without spread, these steps", (f"step:ge:{now.first}", "zero_variance:is:yes")),
        Link("Groups that still differ", (f"step:ge:{now.first}", "zero_variance:is:no")),
        Link("Chart", chart=SHARE),
    )
    severity: Severity = "bad" if now.mean >= 0.97 else "warn"
    return Verdict("found", tuple(evidence), "Almost no group has any spread in reward", severity, links, tuple(advice))


ZERO_VARIANCE = Rule(
    "zero-variance", "Groups without spread", "the share of groups whose members all earn the same", (SHARE,), zero_variance, ("reward",)
)
