"""Where the reward comes from, and whether it still means what the held-out measurement says."""

from __future__ import annotations

import math

import numpy as np

from lab.doctor.facts import Facts
from lab.doctor.trends import ENOUGH, around, newest
from lab.doctor.verdicts import Link, Rule, Verdict, absent, clear, early
from lab.lib.numbers import number
from lab.trajectories.pieces import named

DOMINANT = 0.9
FEW_ANSWERS = 32
HELD = "heldout/reward"
MEASUREMENTS = 4


def one_component(facts: Facts) -> Verdict:
    """Shares of the mean absolute weighted component over the newest stored rollouts."""
    answers = [answer for answer in facts.answers if answer.rewards]
    names = sorted({name for answer in answers for name in answer.rewards})
    if not answers:
        return absent("No training rollouts with reward components are stored.")
    if len(answers) < FEW_ANSWERS:
        return early(len(answers), FEW_ANSWERS, "stored training rollouts")
    weighted = {name: np.array([facts.weights.get(name, 1.0) * (answer.rewards.get(name) or 0.0) for answer in answers]) for name in names}
    active = {name: values for name, values in weighted.items() if facts.weights.get(name, 1.0)}
    first, last = min(answer.step for answer in answers), max(answer.step for answer in answers)
    over = f"over the newest {len(answers)} training rollouts (steps {first} to {last})"
    if len(active) < 2:
        return clear(f"Only {named(next(iter(active), 'no component'))} has a weight, so there is nothing to dominate.")
    size = {name: float(np.abs(values).mean()) for name, values in active.items()}
    total = sum(size.values())
    if not total:
        return clear(f"Every component is 0 {over}.")
    top = max(size, key=lambda name: size[name])
    share = size[top] / total
    if share < DOMINANT:
        return clear(f"The largest part of the reward, {named(top)}, is {number(100 * share)} % {over}.")
    spread = sum(float(values.var()) for values in active.values())
    rest = ", ".join(f"{named(name)} {number(100 * size[name] / total)} %" for name in sorted(size, key=lambda name: -size[name]) if name != top)
    seen = [f"{named(top)} makes up {number(100 * share)} % of the reward {over}; {rest}."]
    if spread:
        seen.append(f"Of the variance, which is what advantages are made of, it has {number(100 * float(active[top].var()) / spread)} %.")
    links = (
        Link(f"Where {named(top)} is highest", (f"step:ge:{first}",), f"-component.{top}"),
        Link("Where the reward is lowest", (f"step:ge:{first}",), "reward"),
        Link("Chart", chart="rewards/"),
    )
    advice = (
        "Lower its weight or raise the others', if they are meant to count.",
        "Read the rollouts where it is highest: do they earn it as intended?",
    )
    return Verdict("found", tuple(seen), f"One component makes up {number(100 * share)} % of the reward", "warn", links, advice)


def goodhart(facts: Facts) -> Verdict:
    """Held-out reward clearly below its best at the last two measurements while the training reward has gone on rising."""
    held, reward = facts.of(HELD), facts.of("reward")
    if len(held) < MEASUREMENTS:
        return early(len(held), MEASUREMENTS, HELD)
    if len(reward) < ENOUGH:
        return early(len(reward), ENOUGH, "reward")
    place = int(np.argmax(held.values))
    best, best_step, last = float(held.values[place]), int(held.steps[place]), float(held.values[-1])
    then, now = around(reward, best_step), newest(reward)
    course = f"Held-out reward: best {number(best)} at step {best_step}, {number(last)} at step {held.steps[-1]}"
    training = f"training reward around them: {number(then.mean)} and {number(now.mean)}"
    fell = place < len(held) - 2 and bool((held.values[-2:] < best - noise(facts, held.values)).all())
    rose = now.mean - then.mean > 2 * math.hypot(now.error, then.error) and now.mean > then.mean
    if not (fell and rose):
        return clear(f"{course}; {training}.")
    links = (
        Link(f"Held-out rollouts of step {held.steps[-1]}", ("phase:is:heldout", f"step:eq:{held.steps[-1]}"), "reward"),
        Link(f"Held-out rollouts of step {best_step}", ("phase:is:heldout", f"step:eq:{best_step}"), "reward"),
        Link("Best training rollouts now", (f"step:ge:{now.first}", "phase:is:train"), "-reward"),
        Link("Chart", chart="heldout"),
    )
    advice = (
        "Read the best-rewarded rollouts of the last steps: what do they do that the held-out measurement does not value?",
        f"Take the policy of the checkpoint nearest to step {best_step}, or stop earlier.",
        "A KL penalty (beta), more varied prompts or a stricter reward make it harder to gain reward without getting better.",
    )
    seen = (f"{course}.", f"Meanwhile the {training}.", "Both are evidence of fitting the reward rather than the task, not proof of it.")
    return Verdict("found", seen, "Held-out reward falls while the training reward rises", "bad", links, advice)


def noise(facts: Facts, values: np.typing.NDArray[np.float64]) -> float:
    """How far below its best a measurement may lie by chance: three standard errors of a difference of shares; a tenth where it is no share."""
    best = float(values.max())
    if facts.heldout_prompts and values.min() >= 0 and best <= 1:
        middle = min(max(best, 0.05), 0.95)
        return max(0.02, 3 * math.sqrt(2 * middle * (1 - middle) / facts.heldout_prompts))
    return max(0.1 * abs(best), 1e-6)


ONE_COMPONENT = Rule(
    "one-component", "One reward component", "each component times its weight, over the newest stored training rollouts", ("reward",), one_component
)
GOODHART = Rule(
    "goodhart", "Held-out against training reward", "held-out reward since its best, beside the training reward", (HELD, "reward"), goodhart
)
