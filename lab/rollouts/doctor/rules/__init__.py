"""The doctor's rules, in the order they are shown. Each states what it saw; none promises to detect anything."""

from lab.rollouts.doctor.rules import completions, entropy, groups, optimisation, preferences, rewards, sampling
from lab.rollouts.doctor.verdicts import HealthRule

RULES: tuple[HealthRule, ...] = (
    optimisation.NOT_FINITE,
    completions.CUT_OFF,
    groups.ZERO_VARIANCE,
    optimisation.NO_GRADIENT,
    rewards.GOODHART,
    rewards.ONE_COMPONENT,
    entropy.COLLAPSE,
    completions.LENGTH_DRIFT,
    preferences.BOTH_FALL,
    sampling.MISMATCH,
)
