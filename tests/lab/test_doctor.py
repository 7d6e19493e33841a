"""The doctor: each rule on invented series that must and must not make it speak, and the page that shows what it said."""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from django.db import connection, transaction
from django.http import QueryDict
from django.test import Client

from lab.rollouts.browse.selection import Selection
from lab.rollouts.doctor.examine import sorted_out
from lab.rollouts.doctor.facts import RunFacts, TrainingAnswer
from lab.rollouts.doctor.rules import RULES
from lab.rollouts.doctor.rules.completions import has_repeated_ending
from lab.rollouts.doctor.trends import compute_newest_window, fit_trend_line
from lab.rollouts.doctor.verdicts import RuleVerdict
from lab.teams.accounts.models import Team
from lab.training.runs import metrics
from lab.training.runs.metrics import Series
from lab.training.runs.models import Attempt, Run, Status
from tests.hostile import PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, measured, rollout, started, steps, store

STEPS = 200
NOISE = np.random.default_rng(7)


def series(values: Any, every: int = 1) -> Any:
    return np.asarray(values, dtype=float), every


def judge(rule: str, answers: Sequence[TrainingAnswer] = (), trainer: str = "grpo", **given: Any) -> RuleVerdict:
    """The verdict of one rule; metric names are written with __ for /."""
    found = {}
    for name, value in given.items():
        if isinstance(value, tuple):
            values, every = value
            metric = name.replace("__", "/")
            found[metric] = Series(metric, np.arange(1, len(values) + 1) * every, values)
    settings = {name: value for name, value in given.items() if not isinstance(value, tuple)}
    facts = RunFacts(trainer, found, answers, **settings)
    return next(one for one in RULES if one.name == rule).judge(facts)


def noisy(level: Any, spread: float, count: int = STEPS) -> Any:
    return series(level + NOISE.normal(0, spread, count))


def ramp(start: float, end: float, spread: float = 0.0, count: int = STEPS) -> Any:
    return noisy(np.linspace(start, end, count), spread, count)


def said(verdict: RuleVerdict) -> str:
    return " ".join((verdict.title, *verdict.evidence))


def test_a_trend_is_the_line_that_was_drawn_and_noise_has_none() -> None:
    line = fit_trend_line(Series("x", np.arange(100), 3.0 + 0.5 * np.arange(100)))
    assert (line.start, line.end) == (pytest.approx(3.0), pytest.approx(52.5))
    assert line.t > 1000
    assert all(abs(fit_trend_line(Series("x", np.arange(400), np.random.default_rng(seed).normal(size=400))).t) < 4 for seed in range(50))
    flat = fit_trend_line(Series("x", np.arange(40), np.full(40, 2.0)))
    assert (flat.t, flat.change) == (0.0, 0.0)


def test_now_is_a_tenth_of_the_run_but_ten_to_fifty_points() -> None:
    def count(points: int) -> int:
        return compute_newest_window(Series("x", np.arange(points), np.zeros(points))).count

    assert [count(points) for points in (3, 12, 150, 300, 9000)] == [3, 10, 15, 30, 50]


# Cut-off completions


def test_completions_that_never_end_point_at_the_end_token() -> None:
    answers = [TrainingAnswer(step, 1.0, {}, "length", 40, "so 7 </answer> so 7") for step in range(20)]
    verdict = judge("cut-off", answers, completions__clipped_ratio=series(np.full(40, 0.99)), length_limit=40)
    assert (verdict.state, verdict.severity) == ("found", "bad")
    assert "since the first step" in verdict.title
    assert "still got a reward" in said(verdict)
    assert "The limit is 40 tokens." in verdict.evidence
    assert any("template" in line for line in verdict.advice)
    assert verdict.links[0].filters == ("step:ge:31", "finish:is:length")


def test_completions_that_outgrew_the_limit_are_told_from_those_that_never_ended() -> None:
    assert judge("cut-off", completions__clipped_ratio=ramp(0.1, 0.9)).state == "clear"
    verdict = judge("cut-off", completions__clipped_ratio=series(np.r_[np.full(100, 0.2), np.full(100, 0.97)]))
    assert verdict.state == "found"
    assert "now cut off" in verdict.title
    assert "last over steps 81 to 100 (20.0 % were cut off)" in said(verdict)


def test_a_few_cut_completions_or_a_few_steps_say_nothing() -> None:
    assert judge("cut-off", completions__clipped_ratio=noisy(0.3, 0.1)).state == "clear"
    assert judge("cut-off", completions__clipped_ratio=series(np.ones(9))).state == "early"
    assert judge("cut-off").state == "absent"


def test_a_tail_that_repeats_itself() -> None:
    assert has_repeated_ending("and then we add one again. " * 6)
    assert has_repeated_ending("x" * 60)
    assert not has_repeated_ending("a sentence that says one thing only, and then ends as it should")
    assert not has_repeated_ending("short")


# Groups


def test_groups_without_spread_that_all_fail_are_told_from_solved_ones() -> None:
    failing = judge("zero-variance", frac_reward_zero_std=series(np.ones(40)), reward=series(np.zeros(40)))
    assert (failing.state, failing.severity) == ("found", "bad")
    assert "all members fail" in said(failing)
    solved = judge("zero-variance", frac_reward_zero_std=ramp(0.1, 0.99, count=400), reward=ramp(0.2, 1.0, count=400))
    assert solved.state == "found"
    assert "solved rather than too hard" in said(solved)
    assert "zero_variance:is:yes" in solved.links[0].filters


def test_some_groups_without_spread_are_usual() -> None:
    assert judge("zero-variance", frac_reward_zero_std=noisy(0.6, 0.1)).state == "clear"
    assert judge("zero-variance", frac_reward_zero_std=series(np.ones(5))).state == "early"


# Gradients and values that are no numbers


def test_no_gradient_beside_a_reward_that_stands_still() -> None:
    norm = np.r_[noisy(0.5, 0.1, 150)[0], np.zeros(50)]
    verdict = judge("no-gradient", grad_norm=series(norm), reward=noisy(0.25, 0.02), frac_reward_zero_std=series(np.ones(STEPS)))
    assert (verdict.state, verdict.severity) == ("found", "bad")
    assert "100 % of the groups had zero" in said(verdict)


def test_a_small_gradient_or_a_reward_that_moves_is_no_finding() -> None:
    assert judge("no-gradient", grad_norm=noisy(1e-3, 1e-4), reward=noisy(0.2, 0.01)).state == "clear"
    assert judge("no-gradient", grad_norm=series(np.zeros(STEPS)), reward=ramp(0.0, 1.0, 0.001)).state == "clear"
    assert judge("no-gradient", grad_norm=series(np.zeros(5))).state == "early"


def test_a_supervised_run_is_judged_by_its_loss() -> None:
    assert judge("no-gradient", trainer="sft", grad_norm=series(np.zeros(50)), loss=series(np.full(50, 2.3))).state == "found"
    assert judge("no-gradient", trainer="sft", grad_norm=noisy(0.7, 0.1), loss=ramp(6, 0.2, 0.05)).state == "clear"


def test_values_that_are_not_finite_are_counted_and_dated() -> None:
    loss = np.ones(30)
    loss[[11, 20]] = np.nan, np.inf
    verdict = judge("not-finite", loss=series(loss), grad_norm=series(np.ones(30)))
    assert (verdict.state, verdict.severity) == ("found", "bad")
    assert "2 of 30 values are NaN or infinite, first at step 12, last at step 21" in said(verdict)
    assert judge("not-finite", loss=series(np.ones(30))).state == "clear"
    assert judge("not-finite").state == "absent"


# Rewards


def mixture(correct: float, style: float, count: int = 64) -> list[TrainingAnswer]:
    return [
        TrainingAnswer(step, correct + style, {"correct": correct * (step % 2), "style": style, "watched": 9.0}, "stop", 10) for step in range(count)
    ]


def test_one_component_that_is_nearly_all_of_the_reward() -> None:
    verdict = judge("one-component", mixture(0.1, 1.0), reward=series(np.ones(5)), weights={"watched": 0.0})
    assert verdict.state == "found"
    assert "95.2 %" in verdict.title  # 1 of 1 + 0.05, "watched" has no weight
    assert "which determines the advantages, is 0 %" in said(verdict)  # it never varies, so no advantage comes from it
    assert verdict.links[0].sort == "-component.style"


def test_weights_count_and_a_balance_is_no_finding() -> None:
    assert judge("one-component", mixture(1.0, 0.5), reward=series(np.ones(5)), weights={"watched": 0.0}).state == "clear"
    weighted = judge("one-component", mixture(1.0, 0.5), reward=series(np.ones(5)), weights={"watched": 0.0, "correct": 100.0})
    assert weighted.state == "found"
    alone = judge("one-component", mixture(1.0, 0.5), reward=series(np.ones(5)), weights={"watched": 0.0, "style": 0.0})
    assert alone.state == "clear"
    assert "Only correct has a weight" in said(alone)
    assert judge("one-component", mixture(0.1, 1.0, 8), reward=series(np.ones(5))).state == "early"
    nothing = [TrainingAnswer(1, 0.0, {"a": 0.0, "b": None}, "stop", 1)] * 40
    assert judge("one-component", nothing, reward=series(np.ones(5))).state == "clear"


def test_held_out_reward_that_falls_while_training_reward_rises() -> None:
    held = series([0.3, 0.6, 0.7, 0.5, 0.4], every=40)
    verdict = judge("goodhart", heldout__reward=held, reward=ramp(0.2, 0.9, 0.05), heldout_prompts=256)
    assert (verdict.state, verdict.severity) == ("found", "bad")
    assert "best 0.700 at step 120" in said(verdict)
    assert "not proof" in said(verdict)
    assert verdict.links[0].filters == ("phase:is:heldout", "step:eq:200")


@pytest.mark.parametrize(
    ("held", "reward", "state"),
    [
        ([0.3, 0.6, 0.7, 0.69, 0.71], ramp(0.2, 0.9, 0.05), "clear"),  # does not fall
        ([0.3, 0.6, 0.7, 0.66, 0.65], ramp(0.2, 0.9, 0.05), "clear"),  # falls less than 256 prompts can tell
        ([0.3, 0.6, 0.7, 0.4, 0.69], ramp(0.2, 0.9, 0.05), "clear"),  # one bad measurement
        ([0.3, 0.6, 0.7, 0.5, 0.4], ramp(0.9, 0.2, 0.05), "clear"),  # both fall: no Goodhart, just harm
        ([0.7, 0.5, 0.4], ramp(0.2, 0.9, 0.05), "early"),
        ([0.3, 0.6, 0.7, 0.5, 0.4], series(np.ones(10)), "early"),
    ],
)
def test_what_is_no_evidence_of_goodhart(held: list[float], reward: Any, state: str) -> None:
    assert judge("goodhart", heldout__reward=series(held, every=40), reward=reward, heldout_prompts=256).state == state


# Entropy, lengths, preferences, sampler


def test_entropy_must_be_low_both_ways() -> None:
    assert judge("entropy-collapse", entropy=ramp(0.6, 0.01, 0.002)).state == "found"
    assert judge("entropy-collapse", entropy=ramp(6.0, 0.5, 0.05)).state == "clear"  # a twelfth, but plenty
    assert judge("entropy-collapse", entropy=noisy(0.05, 0.005)).state == "clear"  # low, but always was
    assert judge("entropy-collapse", entropy=series(np.r_[np.full(10, 0.5), np.full(5, 0.001)])).state == "early"
    assert judge("entropy-collapse", trainer="sft", entropy=ramp(6.0, 0.01)).state == "absent"


def test_entropy_that_went_without_a_gain_is_worse() -> None:
    gone = ramp(0.6, 0.0, 0.0005)
    assert judge("entropy-collapse", entropy=gone, heldout__reward=series([0.5, 0.3])).severity == "bad"
    gained = judge("entropy-collapse", entropy=gone, heldout__reward=series([0.3, 0.8]))
    assert (gained.severity, "0.300 to 0.800" in said(gained)) == ("warn", True)


def test_length_drift_is_a_trend_not_noise() -> None:
    longer = judge("length-drift", completions__mean_length=ramp(100, 300, 20), reward=noisy(0.5, 0.05))
    assert (longer.state, longer.severity) == ("found", "bad")
    assert "grow longer" in longer.title
    assert judge("length-drift", completions__mean_length=ramp(100, 300, 20), reward=ramp(0.1, 0.9, 0.05)).severity == "warn"
    shorter = judge("length-drift", completions__mean_length=ramp(300, 60, 10))
    assert "grow shorter" in shorter.title
    assert judge("length-drift", completions__mean_length=ramp(100, 125, 5)).state == "clear"
    assert judge("length-drift", completions__mean_length=noisy(100, 60)).state == "clear"
    assert judge("length-drift", completions__mean_length=ramp(10, 300, count=12)).state == "early"


def test_both_log_probabilities_must_fall() -> None:
    falling = judge("both-fall", trainer="dpo", logps__chosen=ramp(-50, -80, 3), logps__rejected=ramp(-60, -140, 5), rewards__margins=ramp(0, 2))
    assert falling.state == "found"
    assert "The margin went from" in said(falling)
    assert judge("both-fall", logps__chosen=ramp(-50, -45, 3), logps__rejected=ramp(-60, -140, 5)).state == "clear"
    assert judge("both-fall", logps__chosen=noisy(-50, 8), logps__rejected=noisy(-60, 8)).state == "clear"
    assert judge("both-fall", logps__chosen=ramp(-50, -80, count=10), logps__rejected=ramp(-60, -90, count=10)).state == "early"
    assert judge("both-fall", logps__chosen=ramp(-50, -80)).state == "absent"


def test_a_sampler_that_disagrees() -> None:
    apart = {"sampling__sampling_logp_difference__mean": noisy(0.4, 0.01), "sampling__sampling_logp_difference__max": noisy(5.0, 0.01)}
    assert (judge("sampler-mismatch", **apart).state, judge("sampler-mismatch", **apart).severity) == ("found", "bad")
    off = {"sampling__sampling_logp_difference__mean": noisy(0.01, 0.001), "sampling__importance_sampling_ratio__mean": noisy(0.8, 0.01)}
    assert judge("sampler-mismatch", **off).state == "found"
    near = {"sampling__sampling_logp_difference__mean": noisy(0.01, 0.001), "sampling__importance_sampling_ratio__mean": noisy(1.0, 0.01)}
    assert judge("sampler-mismatch", **near).state == "clear"


def test_the_metrics_of_the_sampler_are_called_as_trl_calls_them() -> None:
    from pathlib import Path

    import trl

    source = (Path(trl.__file__).parent / "trainer" / "grpo_trainer.py").read_text()
    rule = next(one for one in RULES if one.name == "sampler-mismatch")
    assert all(f'"{name}"' in source for name in rule.metrics)


def test_every_link_is_one_the_browser_of_rollouts_understands(run: Run) -> None:
    """With findings of all rules: no filter, operator, value or sort of theirs is refused."""
    ones, zeros = np.ones(200), np.zeros(200)
    loss = ones.copy()
    loss[50] = np.nan
    values = {
        "loss": loss,
        "completions/clipped_ratio": ones,
        "frac_reward_zero_std": ones,
        "grad_norm": zeros,
        "heldout/reward": np.r_[0.2, 0.9, np.full(198, 0.3)],
        "reward": np.r_[np.linspace(0, 0.8, 150), np.full(50, 0.8)],
        "entropy": np.linspace(1, 0.001, 200) ** 4,
        "completions/mean_length": np.linspace(10, 90, 200),
        "logps/chosen": np.linspace(-10, -90, 200),
        "logps/rejected": np.linspace(-10, -90, 200),
        "sampling/sampling_logp_difference/mean": ones,
    }
    found = {name: Series(name, np.arange(1, 201), one) for name, one in values.items()}
    answers = [TrainingAnswer(9, 1.0, {"odd: name & co": 1.0, "b": 0.01}, "length", 4)] * 40
    examination = sorted_out(run, RunFacts("grpo", found, answers, heldout_prompts=256))
    assert {report.rule.name for report in examination.findings} == {rule.name for rule in RULES}
    for report in examination.findings:
        assert report.verdict.advice
        for _, url in report.links:
            asked = Selection.read(QueryDict(url.partition("?")[2]))
            assert asked.problems == (), url
            assert "/rollouts/" not in url or asked.runs == (run.number,)


# The page


def text_of(client: Client, run: Run, **query: str) -> str:
    response = client.get(f"/runs/{run.pk}/doctor/", query)
    assert response.status_code == 200
    return response.content.decode()


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.RUNNING)


def failing(last: int = 30) -> list[Any]:
    values = {"loss": 0.0, "grad_norm": 0.0, "reward": 0.0, "frac_reward_zero_std": 1.0, "completions/clipped_ratio": 0.1}
    return [started(), *(measured(step, values=values) for step in range(1, last + 1))]


def test_a_run_that_learns_nothing_is_told_so_with_links_to_its_rollouts(as_owner: Client, run: Run) -> None:
    store(run, *failing())
    page = text_of(as_owner, run)
    assert "Almost all groups have zero reward variance" in page
    assert "The policy gets no gradient" in page
    assert f"/rollouts/?run={run.number}&amp;f=step:ge:21&amp;f=zero_variance:is:yes" in page
    panel = text_of(as_owner, run, part="panel")
    assert "<html" not in panel
    assert "Almost all groups have zero reward variance" in panel


def test_a_resumed_run_is_judged_by_the_steps_that_count(as_owner: Client, run: Run) -> None:
    store(
        run,
        *failing(30),
        started(attempt=2, from_step=5),
        *(measured(s, 2, values={"grad_norm": 1.0, "frac_reward_zero_std": 0.1}) for s in range(6, 31)),
    )
    assert "gets no gradient" not in text_of(as_owner, run)


def test_nothing_found_says_what_was_looked_at_and_what_could_not_be(as_owner: Client, run: Run) -> None:
    store(run, started(), *(measured(step, values={"loss": 1 / step, "grad_norm": 1.0}) for step in range(1, 30)))
    page = text_of(as_owner, run)
    assert "No issues found" in page
    assert "Gradient norm 1 over steps 20 to 29" in page
    assert "This run does not log completions/clipped_ratio." in page
    assert "2 passed; 8 not applicable" in text_of(as_owner, run, part="panel")


def test_a_run_without_anything_yet(as_owner: Client, run: Run) -> None:
    assert "No data yet" in text_of(as_owner, run)
    assert "no data yet" in text_of(as_owner, run, part="panel")


def test_another_teams_run_is_not_there(as_stranger: Client, run: Run) -> None:
    assert as_stranger.get(f"/runs/{run.pk}/doctor/").status_code == 404
    assert as_stranger.get(f"/runs/{run.pk}/doctor/?part=panel").status_code == 404


def test_asking_takes_no_other_method(as_owner: Client, run: Run) -> None:
    assert as_owner.post(f"/runs/{run.pk}/doctor/").status_code == 405


def test_hostile_names_of_rewards_are_text(as_owner: Client, run: Run) -> None:
    names = [stored(payload)[:150] for payload in PAYLOADS if payload.strip()]
    rewards = dict.fromkeys(names[:8], 0.01) | {names[0]: 1.0}
    events = [rollout(1, group, sample, rewards=rewards) for group in range(8) for sample in range(4)]
    store(run, started(), *events, *(measured(step) for step in range(1, 30)))
    page = text_of(as_owner, run)
    assert "makes up" in page
    assert "<script>window.hostileRan" not in page
    assert "onerror=window" not in page.replace("&lt;img src=x onerror=window", "")


def test_rewards_that_are_no_numbers_do_not_stop_the_doctor(as_owner: Client, run: Run) -> None:
    store(run, started(), *steps(1, 20))
    run.samples.update(rewards={"correct": "nan", "format": None})
    assert "Dominant reward component" in text_of(as_owner, run)


def test_every_rule_reads_only_metrics_that_it_names() -> None:
    """Whatever a rule looks at must be in its list, or the database is never asked for it."""

    class Watched(dict[str, Series]):
        asked: set[str] = set()

        def get(self, key: str, default: Any = None) -> Any:
            self.asked.add(key)
            return super().get(key, default)

    for rule in RULES:
        names = {name for one in RULES for name in one.metrics}
        watched = Watched({name: Series(name, np.arange(1, 61), np.full(60, 0.95)) for name in names})
        watched.asked = set()
        rule.judge(RunFacts("grpo", watched, [TrainingAnswer(1, 1.0, {"a": 1.0, "b": 0.0}, "length", 4)] * 40))
        assert watched.asked <= set(rule.metrics), rule.name


def test_a_long_run_is_examined_quickly(team: Team, run: Run) -> None:
    """A million points of a run that logs twenty metrics; the rules need half of them."""
    Attempt.objects.create(run=run, number=1, from_step=0, host="h", device="cpu", started_at=run.created_at)
    names = sorted({name for rule in RULES for name in rule.metrics})
    points = [(step, 0.5 + 0.1 * (step % 7)) for step in range(1, 50_001)]
    with transaction.atomic(), connection.cursor() as cursor:
        metrics.append_metric_points(cursor, run.pk, 1, dict.fromkeys(names, points))
    from lab.rollouts.doctor.examine import examine_run

    examine_run(run)
    times = []
    for _ in range(3):
        began = time.perf_counter()
        assert len(examine_run(run).clear) >= 4
        times.append(time.perf_counter() - began)
    assert min(times) < 0.3, times  # 25 ms where nothing else runs; the bound is 60 ms


def test_serious_findings_stand_first(run: Run) -> None:
    found = {
        name: Series(name, np.arange(1, 101), values)
        for name, values in {
            "entropy": np.geomspace(0.9, 0.02, 100),
            "reward": np.zeros(100),
            "frac_reward_zero_std": np.ones(100),
            "heldout/reward": np.linspace(0, 1, 100),
        }.items()
    }
    order = [report.verdict.severity for report in sorted_out(run, RunFacts("grpo", found)).findings]
    assert order == sorted(order)
    assert order[0] == "bad"
    assert "warn" in order
