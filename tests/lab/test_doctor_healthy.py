"""No health check speaks where nothing is wrong: over real runs that went as they should (``bench/doctor_runs.json``), and over runs
redrawn from them."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lab.rollouts.doctor.facts import RunFacts, TrainingAnswer
from lab.rollouts.doctor.rules import RULES
from lab.rollouts.doctor.verdicts import HealthRule, RuleVerdict
from lab.training.runs.metrics import Series
from lab.training.runs.reward_weights import collect_reward_weights

FILE = Path(__file__).resolve().parents[2] / "bench" / "doctor_runs.json"
# What is true of a stored run and is said of it. Everything else that a check finds in one is a false alarm.
TRUE = {"kb": {"length-drift"}}  # it learns to search before it answers: answers twice as long, and the reward rises with them
DRAWS = 40
FALSE_ALARMS = 0.02  # of redrawn flat runs, for one check


@cache
def stored_runs() -> dict[str, RunFacts]:
    return {name: facts_of(kept) for name, kept in json.loads(FILE.read_text()).items()}


def facts_of(kept: dict[str, Any]) -> RunFacts:
    spec = kept["spec"]
    found = {name: Series(name, np.array(steps), np.array(values, dtype=float)) for name, (steps, values) in kept["series"].items()}
    answers = [TrainingAnswer(**answer) for answer in kept["answers"]]
    training, base = spec["training"], spec.get("base") or {}
    recipe = frozenset({base.get("name", ""), *(method["name"] for method in spec["methods"])})
    limit, held = training.get("max_completion_length"), spec["evaluation"]["prompts"]
    return RunFacts(training["trainer"], found, answers if "reward" in found else [], collect_reward_weights(spec), limit, held, recipe)


def redraw(facts: RunFacts, seed: int) -> RunFacts:
    """The run as if nothing in it had a course: blocks of neighbouring points of its last half, drawn by chance."""
    rng = np.random.default_rng(seed)
    return replace(facts, series={name: redraw_series(one, rng) for name, one in facts.series.items()})


def redraw_series(one: Series, rng: np.random.Generator, block: int = 4) -> Series:
    source = one.values[len(one) // 2 :]
    starts = rng.integers(0, max(1, len(source) - block + 1), len(one) // block + 1)
    values = np.concatenate([source[start : start + block] for start in starts])
    return Series(one.name, np.arange(1, len(values) + 1), values)


def find(rule: HealthRule, facts: RunFacts) -> RuleVerdict | None:
    verdict = rule.judge(facts)
    return verdict if verdict.state == "found" else None


@pytest.mark.feature(105)
@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_check_finds_nothing_in_runs_that_went_well(rule: HealthRule) -> None:
    found = {
        name: verdict.evidence for name, facts in stored_runs().items() if (verdict := find(rule, facts)) and rule.name not in TRUE.get(name, ())
    }
    assert found == {}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_a_check_hardly_ever_finds_anything_in_runs_without_a_course(rule: HealthRule) -> None:
    alarms = {}
    for name, facts in stored_runs().items():
        if rule.name not in TRUE.get(name, ()):
            alarms[name] = sum(find(rule, redraw(facts, seed)) is not None for seed in range(DRAWS))
    assert sum(alarms.values()) <= FALSE_ALARMS * DRAWS * len(alarms), alarms


def test_every_stored_run_is_looked_at_by_some_check() -> None:
    runs = stored_runs()
    assert {facts.trainer for facts in runs.values()} == {"grpo", "dpo", "kto", "sft", "reward"}
    for name, facts in runs.items():
        assert sum(rule.judge(facts).state in ("clear", "found") for rule in RULES) >= 2, name


def test_a_run_that_is_cut_off_from_its_first_step_never_used_to_end() -> None:
    """One point under the threshold is noise, not the time when completions still ended."""
    rule = next(one for one in RULES if one.name == "cut-off")
    told = [rule.judge(RunFacts("grpo", {"completions/clipped_ratio": noisy(0.95, 0.03, seed)})) for seed in range(200)]
    assert sum(bool((noisy(0.95, 0.03, seed).values < 0.9).any()) for seed in range(200)) > 100
    assert sum("now cut off" in verdict.title for verdict in told) <= 2
    assert sum("since the first step" in verdict.title for verdict in told) >= 190


@pytest.mark.parametrize(
    ("rule", "metric", "level", "spread"),
    [
        ("cut-off", "completions/clipped_ratio", 0.89, 0.08),
        ("zero-variance", "frac_reward_zero_std", 0.89, 0.08),
        ("sampler-mismatch", "sampling/sampling_logp_difference/mean", 0.098, 0.02),
    ],
)
def test_noise_about_a_level_below_a_threshold_is_no_finding(rule: str, metric: str, level: float, spread: float) -> None:
    one = next(own for own in RULES if own.name == rule)
    found = [one.judge(RunFacts("grpo", {metric: noisy(level, spread, seed)})).state == "found" for seed in range(200)]
    assert sum(found) <= FALSE_ALARMS * len(found)


def noisy(level: float, spread: float, seed: int, count: int = 60) -> Series:
    values = np.clip(level + np.random.default_rng(seed).normal(0, spread, count), 0, 1)
    return Series("x", np.arange(1, count + 1), values)


def test_advice_leaves_out_what_the_run_already_does() -> None:
    dead = {"frac_reward_zero_std": Series("x", np.arange(1, 61), np.ones(60)), "reward": Series("x", np.arange(1, 61), np.zeros(60))}
    rule = next(one for one in RULES if one.name == "zero-variance")
    plain, used = (rule.judge(RunFacts("grpo", dead, recipe=frozenset(recipe))) for recipe in ({"dapo"}, {"dapo", "clpo", "sage"}))
    assert "(rest-rl, clpo, sage)" in " ".join(plain.advice)
    assert "dapo" not in " ".join(plain.advice)
    assert "(rest-rl)" in " ".join(used.advice)
    assert not any("Choose or rewrite" in line for line in rule.judge(RunFacts("grpo", dead, recipe=frozenset({"rest-rl", "clpo", "sage"}))).advice)
