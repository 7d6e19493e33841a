"""How completions end and how long they are."""

from __future__ import annotations

from collections.abc import Sequence

from lab.lib.numbers import format_number
from lab.rollouts.doctor.facts import RunFacts, TrainingAnswer
from lab.rollouts.doctor.trends import (
    ENOUGH,
    SURE,
    SeriesWindow,
    compute_newest_window,
    fit_trend_line,
    has_significant_difference,
    split_into_windows,
)
from lab.rollouts.doctor.verdicts import EvidenceLink, HealthRule, RuleVerdict, make_clear_verdict, make_early_verdict, suggest_alternatives

CUT = "completions/clipped_ratio"
LENGTH = "completions/mean_length"
NEAR_ALL = 0.9
FEW_POINTS = 10
DRIFT = 0.5  # of the length at the start
LOOP = 24  # characters that come again and again


def cut_off(facts: RunFacts) -> RuleVerdict:
    """Near 1, told apart: no completion ever ended by itself (template, EOS), or they used to and have outgrown the limit."""
    share = facts.of(CUT)
    if len(share) < FEW_POINTS:
        return make_early_verdict(len(share), FEW_POINTS, CUT)
    now = compute_newest_window(share)
    if now.low < NEAR_ALL:
        return make_clear_verdict(
            f"Share of completions cut off at the length limit: {format_number(now.mean)} over steps {now.first} to {now.last}."
        )
    advice: tuple[str, ...]
    ended = [window for window in split_into_windows(share) if window.high < NEAR_ALL and has_significant_difference(window, now)]
    seen = [f"{format_number(100 * now.mean)} % of completions were cut off at the length limit over steps {now.first} to {now.last}."]
    if facts.length_limit:
        seen.append(f"The limit is {facts.length_limit} tokens.")
    seen += told_by_answers(facts.answers)
    if ended:
        seen.append(
            f"Before that, completions did end, {describe_cut_window(ended[-1])}: the limit has become too short or the completions too long."
        )
        advice = (
            "Raise max_completion_length.",
            "Read the cut-off rollouts for repetition; a length penalty or a shorter demonstration helps there.",
        )
    else:
        seen.append("The share was never clearly lower: the policy may never emit the end-of-sequence token.")
        advice = (
            "Check that the chat template's end token is the EOS token of the tokenizer and generation config.",
            "For a base model, add a cold start (SFT) that teaches it to stop.",
            "If the rollouts are simply unfinished, raise max_completion_length.",
        )
    title = "Nearly all completions are now cut off" if ended else "Nearly all completions are cut off since the first step"
    links = (
        EvidenceLink("Cut-off rollouts of these steps", (f"step:ge:{now.first}", "finish:is:length"), "-length"),
        EvidenceLink("Completions that ended", ("finish:is:stop",)),
        EvidenceLink("Chart", chart="clipped_ratio"),
    )
    return RuleVerdict("found", tuple(seen), title, "bad", links, advice)


def describe_cut_window(window: SeriesWindow) -> str:
    return f"last over steps {window.first} to {window.last} ({format_number(100 * window.mean)} % were cut off)"


def told_by_answers(answers: Sequence[TrainingAnswer]) -> list[str]:
    """What the stored texts say about why they were cut: rewarded answers that go on, and loops."""
    cut = [answer for answer in answers if answer.finish == "length"]
    if not cut:
        return []
    sentences = []
    if rewarded := sum(bool(answer.reward and answer.reward > 0) for answer in cut):
        sentences.append(
            f"{rewarded} of the newest {len(cut)} cut-off rollouts still got a reward: the answer was present, only the end was missing."
        )
    if looping := sum(has_repeated_ending(answer.tail) for answer in cut):
        sentences.append(f"{looping} of the newest {len(cut)} end in a repetition loop.")
    return sentences


def has_repeated_ending(tail: str) -> bool:
    """Whether the last characters stand in the tail at least three times."""
    end = tail[-LOOP:]
    return len(end) == LOOP and (len(set(end)) == 1 or tail.count(end) >= 3)


def length_drift(facts: RunFacts) -> RuleVerdict:
    series = facts.of(LENGTH)
    if len(series) < ENOUGH:
        return make_early_verdict(len(series), ENOUGH, LENGTH)
    line = fit_trend_line(series)
    course = (
        f"Mean completion length: {format_number(line.start)} → {format_number(line.end)} tokens over steps {series.steps[0]} to {series.steps[-1]}"
    )
    if abs(line.t) < SURE or abs(line.relative) < DRIFT or abs(line.change) < 1:
        return make_clear_verdict(f"{course} (linear fit).")
    longer = line.change > 0
    seen = [f"{course} ({100 * line.relative:+.0f} %, linear fit).".replace("-", "−")]
    reward = facts.of("reward")
    gained = fit_trend_line(reward) if len(reward) >= ENOUGH else None
    if gained:
        reward_trend = "rose" if gained.t >= SURE else "fell" if gained.t <= -SURE else "has no clear trend"
        seen.append(f"Over the same steps the training reward {reward_trend} ({format_number(gained.start)} → {format_number(gained.end)}).")
    idle = gained is not None and gained.t < SURE
    links = (
        EvidenceLink(
            "Longest rollouts of the last steps" if longer else "Shortest rollouts of the last steps",
            (last_steps(facts),),
            "-length" if longer else "length",
        ),
        EvidenceLink("Chart", chart="mean_length"),
    )
    advice = (
        ("Read the longest rollouts: use a length penalty against padding and repetition, a higher limit for real work.",)
        if longer
        else ("Read the shortest rollouts: if the reasoning is gone, reward it or reduce the pressure for brevity.",)
    )
    fairer = suggest_alternatives("If reward is averaged per sequence, compare with a loss that does not favour a length", facts, "dr-grpo", "dapo")
    more = (*advice, *fairer)
    return RuleVerdict(
        "found", tuple(seen), f"Completions grow {'longer' if longer else 'shorter'}", "bad" if idle and longer else "warn", links, more
    )


def last_steps(facts: RunFacts) -> str:
    return f"step:ge:{compute_newest_window(facts.of(LENGTH)).first}"


CUT_OFF = HealthRule("cut-off", "Cut-off completions", "share of completions cut off at the length limit", (CUT,), cut_off)
LENGTH_DRIFT = HealthRule(
    "length-drift", "Length drift", "trend of the mean completion length and of the reward", (LENGTH,), length_drift, ("reward",)
)
