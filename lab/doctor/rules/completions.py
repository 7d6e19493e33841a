"""How completions end and how long they are."""

from __future__ import annotations

from collections.abc import Sequence

from lab.doctor.facts import Answer, Facts
from lab.doctor.trends import ENOUGH, SURE, newest, trend
from lab.doctor.verdicts import Link, Rule, Verdict, clear, early
from lab.lib.numbers import number

CUT = "completions/clipped_ratio"
LENGTH = "completions/mean_length"
NEAR_ALL = 0.9
FEW_POINTS = 10
DRIFT = 0.5  # of the length at the start
LOOP = 24  # characters that come again and again


def cut_off(facts: Facts) -> Verdict:
    """Near 1, told apart: no completion ever ended by itself (template, EOS), or they used to and have outgrown the limit."""
    share = facts.of(CUT)
    if len(share) < FEW_POINTS:
        return early(len(share), FEW_POINTS, CUT)
    now = newest(share)
    if now.mean < NEAR_ALL:
        return clear(f"Share of completions cut off at the length limit: {number(now.mean)} over steps {now.first} to {now.last}.")
    advice: tuple[str, ...]
    ever = bool((share.values < NEAR_ALL).any())
    seen = [f"{number(100 * now.mean)} % of completions were cut off at the length limit over steps {now.first} to {now.last}."]
    if facts.length_limit:
        seen.append(f"The limit is {facts.length_limit} tokens.")
    seen += told_by_answers(facts.answers)
    if ever:
        before = int(share.steps[share.values < NEAR_ALL][-1])
        seen.append(f"Before that they did end by themselves, last at step {before}: the limit has become too short or the completions too long.")
        advice = (
            "Raise max_completion_length.",
            "Read the cut-off rollouts for repetition; a length penalty or a shorter demonstration helps there.",
        )
    else:
        seen.append("No step of this run had completions that ended by themselves: the end-of-sequence token may never be written.")
        advice = (
            "Check that the chat template's end token is the one the tokenizer and generation config call EOS.",
            "For a base model, add a cold start (SFT) that teaches the ending.",
            "If the rollouts are simply unfinished, raise max_completion_length.",
        )
    title = "Completions used to end, now nearly all are cut off" if ever else "Nearly every completion is cut off, from the first step on"
    links = (
        Link("Cut-off rollouts of these steps", (f"step:ge:{now.first}", "finish:is:length"), "-length"),
        Link("Those that did end", ("finish:is:stop",)),
        Link("Chart", chart="clipped_ratio"),
    )
    return Verdict("found", tuple(seen), title, "bad", links, advice)


def told_by_answers(answers: Sequence[Answer]) -> list[str]:
    """What the stored texts say about why they were cut: rewarded answers that go on, and loops."""
    cut = [answer for answer in answers if answer.finish == "length"]
    if not cut:
        return []
    found = []
    if rewarded := sum(bool(answer.reward and answer.reward > 0) for answer in cut):
        found.append(
            f"{rewarded} of the newest {len(cut)} cut-off rollouts earned a reward all the same: the answer was there, only the end was missing."
        )
    if looping := sum(loops(answer.tail) for answer in cut):
        found.append(f"{looping} of the newest {len(cut)} end in a passage that repeats itself.")
    return found


def loops(tail: str) -> bool:
    """Whether the last characters stand in the tail at least three times."""
    end = tail[-LOOP:]
    return len(end) == LOOP and (len(set(end)) == 1 or tail.count(end) >= 3)


def length_drift(facts: Facts) -> Verdict:
    series = facts.of(LENGTH)
    if len(series) < ENOUGH:
        return early(len(series), ENOUGH, LENGTH)
    line = trend(series)
    course = f"Mean completion length: {number(line.start)} → {number(line.end)} tokens over steps {series.steps[0]} to {series.steps[-1]}"
    if abs(line.t) < SURE or abs(line.relative) < DRIFT or abs(line.change) < 1:
        return clear(f"{course}, fitted by a line.")
    longer = line.change > 0
    seen = [f"{course} ({100 * line.relative:+.0f} %), fitted by a line.".replace("-", "−")]
    reward = facts.of("reward")
    gained = trend(reward) if len(reward) >= ENOUGH else None
    if gained:
        worth = "rose" if gained.t >= SURE else "fell" if gained.t <= -SURE else "has no clear trend"
        seen.append(f"Over the same steps the training reward {worth} ({number(gained.start)} → {number(gained.end)}).")
    idle = gained is not None and gained.t < SURE
    links = (
        Link(
            "Longest rollouts of the last steps" if longer else "Shortest rollouts of the last steps",
            (last_steps(facts),),
            "-length" if longer else "length",
        ),
        Link("Chart", chart="mean_length"),
    )
    advice = (
        ("Read the longest rollouts: padding and repetition call for a length penalty, real work for a higher limit.",)
        if longer
        else ("Read the shortest rollouts: if the working is gone, reward it or lower the pressure for brevity.",)
    )
    more = (*advice, "If reward is averaged per sequence, compare with a loss that does not favour a length (dr-grpo, dapo).")
    return Verdict("found", tuple(seen), f"Completions grow {'longer' if longer else 'shorter'}", "bad" if idle and longer else "warn", links, more)


def last_steps(facts: Facts) -> str:
    return f"step:ge:{newest(facts.of(LENGTH)).first}"


CUT_OFF = Rule("cut-off", "Cut-off completions", "the share of completions cut off at the length limit", (CUT,), cut_off)
LENGTH_DRIFT = Rule(
    "length-drift", "Length drift", "the trend of the mean completion length, beside the reward's", (LENGTH,), length_drift, ("reward",)
)
