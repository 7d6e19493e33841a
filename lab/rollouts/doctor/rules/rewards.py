"""Where the reward comes from, and whether it still means what the held-out measurement says."""

from __future__ import annotations

import numpy as np

from lab.lib.numbers import format_number
from lab.rollouts.doctor.facts import RunFacts
from lab.rollouts.doctor.heldout import HELD, noise_of
from lab.rollouts.doctor.trends import ENOUGH, INTERVAL, compute_newest_window, compute_window_around, has_significant_difference
from lab.rollouts.doctor.verdicts import EvidenceLink, HealthRule, RuleVerdict, make_absent_verdict, make_clear_verdict, make_early_verdict
from lab.rollouts.trajectories.text_pieces import escape_invisible_text

DOMINANT = 0.9
FEW_ANSWERS = 32
BLOCKS = 8  # of the newest rollouts
MEASUREMENTS = 4


def one_component(facts: RunFacts) -> RuleVerdict:
    """Shares of the mean absolute weighted component over the newest stored rollouts."""
    answers = [answer for answer in facts.answers if answer.rewards]
    names = sorted({name for answer in answers for name in answer.rewards})
    if not answers:
        return make_absent_verdict("No training rollouts with reward components are stored.")
    if len(answers) < FEW_ANSWERS:
        return make_early_verdict(len(answers), FEW_ANSWERS, "stored training rollouts")
    weighted = {name: np.array([facts.weights.get(name, 1.0) * (answer.rewards.get(name) or 0.0) for answer in answers]) for name in names}
    active = {name: values for name, values in weighted.items() if facts.weights.get(name, 1.0)}
    first, last = min(answer.step for answer in answers), max(answer.step for answer in answers)
    over = f"over the newest {len(answers)} training rollouts (steps {first} to {last})"
    if len(active) < 2:
        return make_clear_verdict(f"Only {escape_invisible_text(next(iter(active), 'no component'))} has a weight, so no component can dominate.")
    size = {name: float(np.abs(values).mean()) for name, values in active.items()}
    total = sum(size.values())
    if not total:
        return make_clear_verdict(f"Every component is 0 {over}.")
    top = max(size, key=lambda name: size[name])
    share, sure = size[top] / total, least_share(active, top)
    if sure < DOMINANT:
        return make_clear_verdict(f"The largest part of the reward, {escape_invisible_text(top)}, is {format_number(100 * share)} % {over}.")
    spread = sum(float(values.var()) for values in active.values())
    rest = ", ".join(
        f"{escape_invisible_text(name)} {format_number(100 * size[name] / total)} %"
        for name in sorted(size, key=lambda name: -size[name])
        if name != top
    )
    seen = [f"{escape_invisible_text(top)} makes up {format_number(100 * share)} % of the reward {over}; {rest}."]
    if spread:
        seen.append(f"Its share of the variance, which determines the advantages, is {format_number(100 * float(active[top].var()) / spread)} %.")
    links = (
        EvidenceLink(f"Where {escape_invisible_text(top)} is highest", (f"step:ge:{first}",), f"-component.{top}"),
        EvidenceLink("Where the reward is lowest", (f"step:ge:{first}",), "reward"),
        EvidenceLink("Chart", chart="rewards/"),
    )
    advice = (
        "Lower its weight or raise the other weights, if they should matter.",
        "Read the rollouts where it is highest: is it earned as intended?",
    )
    return RuleVerdict("found", tuple(seen), f"One component makes up {format_number(100 * share)} % of the reward", "warn", links, advice)


def least_share(active: dict[str, np.typing.NDArray[np.float64]], top: str) -> float:
    """The lower end of the interval of a component's share, over blocks of rollouts: those of a group are alike, so one alone says little."""
    sizes = {name: np.array([float(np.abs(block).mean()) for block in np.array_split(values, BLOCKS)]) for name, values in active.items()}
    totals = np.sum(list(sizes.values()), axis=0)
    shares = sizes[top][totals > 0] / totals[totals > 0]
    return float(shares.mean() - INTERVAL * shares.std(ddof=1) / np.sqrt(len(shares))) if len(shares) > 1 else 0.0


def judge_reward_overfitting(facts: RunFacts) -> RuleVerdict:
    """Held-out reward clearly below its best at the last two measurements while the training reward has gone on rising."""
    held, reward = facts.of(HELD), facts.of("reward")
    if len(held) < MEASUREMENTS:
        return make_early_verdict(len(held), MEASUREMENTS, HELD)
    if len(reward) < ENOUGH:
        return make_early_verdict(len(reward), ENOUGH, "reward")
    best_index = int(np.argmax(held.values))
    best, best_step, last = float(held.values[best_index]), int(held.steps[best_index]), float(held.values[-1])
    then, now = compute_window_around(reward, best_step), compute_newest_window(reward)
    course = f"Held-out reward: best {format_number(best)} at step {best_step}, {format_number(last)} at step {held.steps[-1]}"
    training = f"training reward around them: {format_number(then.mean)} and {format_number(now.mean)}"
    fell = best_index < len(held) - 2 and bool((held.values[-2:] < best - noise_of(facts)).all())
    rose = now.mean > then.mean and has_significant_difference(now, then)
    if not (fell and rose):
        return make_clear_verdict(f"{course}; {training}.")
    links = (
        EvidenceLink(f"Held-out rollouts of step {held.steps[-1]}", ("phase:is:heldout", f"step:eq:{held.steps[-1]}"), "reward"),
        EvidenceLink(f"Held-out rollouts of step {best_step}", ("phase:is:heldout", f"step:eq:{best_step}"), "reward"),
        EvidenceLink("Best training rollouts now", (f"step:ge:{now.first}", "phase:is:train"), "-reward"),
        EvidenceLink("Chart", chart="heldout"),
    )
    advice = (
        "Read the best-rewarded rollouts of the last steps: what do they do that the held-out evaluation does not reward?",
        f"Use the checkpoint nearest to step {best_step}, or stop earlier.",
        "A KL penalty (beta), more diverse prompts or a stricter reward make reward hacking harder.",
    )
    seen = (f"{course}.", f"Meanwhile the {training}.", "Both are evidence of reward hacking, not proof of it.")
    return RuleVerdict("found", seen, "Held-out reward falls while the training reward rises", "bad", links, advice)


ONE_COMPONENT = HealthRule(
    "one-component",
    "Dominant reward component",
    "each component times its weight, over the newest stored training rollouts",
    ("reward",),
    one_component,
)
GOODHART = HealthRule(
    "goodhart",
    "Held-out vs. training reward",
    "held-out reward since its best value, and the training reward",
    (HELD, "reward"),
    judge_reward_overfitting,
)
