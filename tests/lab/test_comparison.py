"""Comparing runs and rollouts: what the address chooses, the points and their groups, settings, summaries, pairs, and where two texts part."""

import html
import json
import re
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from lab.rollouts.comparison import chart_choice, configs, finder, series
from lab.rollouts.comparison.compared_runs import COLORS, DASHES, MOST, read_chosen_runs, style_of
from lab.rollouts.comparison.divergence import build_completion_side, count_common_prefix, find_divergence
from lab.rollouts.comparison.pair import read_pair
from lab.rollouts.comparison.summaries import summarize_compared_runs
from lab.rollouts.trajectories.models import Prompt, Rollout, RolloutTokens
from lab.teams.accounts.models import Team, User
from lab.training.ablations.launch import create_ablation
from lab.training.runs import metrics
from lab.training.runs.metrics import Series
from lab.training.runs.models import Attempt, Run, Status
from tests.hostile import PAYLOADS, stored
from tests.lab.supervisor.spools import make_run, measured, rollout, started, steps, store
from trainers.contract.arrays import pack_array, pack_ids
from trainers.contract.events import Message

SPEC: dict[str, Any] = {"recipe": "grpo", "seed": 0, "task": {"name": "mini_gsm"}, "training": {"trainer": "grpo", "learning_rate": 1e-4}}


def logged(team: Team, points: dict[str, list[tuple[int, float]]] | None = None, **fields: Any) -> Run:
    """A finished run with these metric points."""
    run = make_run(team, **{"status": Status.FINISHED, "spec": SPEC, **fields})
    now = timezone.now()
    Attempt.objects.create(run=run, number=1, from_step=0, host="h", device="cpu", started_at=now)
    with transaction.atomic(), connection.cursor() as cursor:
        metrics.append_metric_points(cursor, run.pk, 1, points or {"reward": [(step, 0.1 * step) for step in range(1, 11)]})
    Run.across_teams.filter(pk=run.pk).update(started_at=now - timedelta(hours=2), finished_at=now, step=10, total_steps=10, tokens=12_000)
    run.refresh_from_db()
    return run


def page(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return response.content.decode()


def points_of(client: Client, query: str) -> dict[str, Any]:
    response = client.get(f"/compare/series/?{query}")
    assert response.status_code == 200
    found: dict[str, Any] = response.json()["series"]
    return found


# Which runs


def test_a_run_looks_the_same_whatever_stands_beside_it_and_forty_look_different() -> None:
    styles = [style_of(number) for number in range(1, 41)]
    assert len(set(styles)) == COLORS * len(DASHES) == 40
    assert {style.color for style in styles} == set(range(1, 9))
    assert style_of(3) == style_of(3)


def test_runs_come_in_the_order_of_the_address_and_unknown_ones_are_named(team: Team, as_owner: Client) -> None:
    first, second = logged(team), logged(team)
    chosen = read_chosen_runs(team, ["2", "#1", "2", "77", "abc", "99999999999999999999"])
    assert chosen.runs == [second, first]
    assert "no run #77, #abc, #99999999999999999999;" in chosen.notes[0]
    text = page(as_owner, "/compare/?run=2&run=1&run=77&whatever=1")
    assert "Your team has no run #77" in text


def test_at_most_twenty_runs_are_compared(team: Team) -> None:
    for _ in range(MOST + 2):
        make_run(team)
    chosen = read_chosen_runs(team, [str(number) for number in range(1, MOST + 3)])
    assert len(chosen.runs) == MOST
    assert "the last 2 of the URL were ignored" in chosen.notes[0]


def test_an_empty_comparison_says_what_to_do(team: Team, as_owner: Client) -> None:
    logged(team, name="Candidate")
    text = page(as_owner, "/compare/")
    assert "Choose runs to compare" in text
    assert 'href="?run=1"' in text  # the runs there are can be added at once


def test_the_search_finds_runs_to_add_and_leaves_out_those_that_are_there(team: Team, as_owner: Client) -> None:
    for name in ("alpha", "beta", "beta two"):
        logged(team, name=name)
    found = page(as_owner, "/compare/?part=found&run=2&find=beta")
    assert "<html" not in found
    assert re.findall(r'href="([^"]+)"', found) == ["?run=2&amp;run=3"]
    assert "No other run matches" in page(as_owner, "/compare/?part=found&run=2&find=%00nowhere")


def test_a_run_that_trains_is_named_and_its_part_comes_alone(team: Team, as_owner: Client) -> None:
    logged(team, status=Status.RUNNING)
    logged(team)
    text, part = page(as_owner, "/compare/?run=1&run=2"), page(as_owner, "/compare/?run=1&run=2&part=live")
    for found in (text, part):
        assert "#1 is running at step 10 of 10" in found
        assert [run["open"] for run in json.loads(re.findall(r'id="compare-data"[^>]*>(.*?)</script>', found, re.S)[0])["runs"]] == [True, False]
    assert "<html" not in part


@pytest.mark.feature(21)
def test_samples_are_steps_by_what_each_trains_on(team: Team) -> None:
    sized = logged(team, {"reward": [(1, 0.1), (5, 0.2)]})
    Run.across_teams.filter(pk=sized.pk).update(
        trainer="grpo", spec={"training": {"trainer": "grpo", "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}}
    )
    unsaid = logged(team, {"reward": [(1, 0.1)]})
    runs = list(Run.objects.of(team).order_by("number"))
    assert [run.pk for run in runs] == [sized.pk, unsaid.pk]
    read = series.build_metric_series(runs, ["reward"], "samples", aligned=False)["reward"]
    assert [one["x"] for one in read] == [[16.0, 80.0], [None]]


# Points


def test_points_of_a_metric_of_the_runs_that_have_it(team: Team, as_owner: Client) -> None:
    logged(team)
    logged(team, {"loss": [(1, 2.0), (2, float("nan")), (4, 1.0)]})
    found = points_of(as_owner, "run=1&run=2&name=loss&name=reward&name=nothing&name=@time")
    assert set(found) == {"loss", "reward", "nothing"}
    assert found["nothing"] == []
    (loss,) = found["loss"]
    assert (loss["run"], loss["steps"], loss["values"], loss["nonfinite"]) == (2, [1, 2, 4], [2.0, None, 1.0], 1)
    assert [one["run"] for one in found["reward"]] == [1]


@pytest.mark.feature(21)
def test_the_other_axes_are_exact_where_they_are_known(team: Team, as_owner: Client) -> None:
    logged(team, {"reward": [(1, 0.0), (3, 1.0), (9, 2.0)], "@time": [(1, 1000.0), (3, 1120.0)], "@tokens": [(1, 50), (3, 150)]})
    (one,) = points_of(as_owner, "run=1&name=reward&x=time")["reward"]
    assert one["x"] == [0.0, 2.0, None]
    (one,) = points_of(as_owner, "run=1&name=reward&x=tokens")["reward"]
    assert one["x"] == [50.0, 150.0, None]
    (one,) = points_of(as_owner, "run=1&name=reward&x=nonsense")["reward"]
    assert one["x"] is None


def test_a_long_series_keeps_its_spike(team: Team) -> None:
    points = [(step, 1.0) for step in range(1, 30_001)]
    points[12_345] = (12_346, 99.0)
    run = logged(team, {"loss": points})
    found = series.build_metric_series([run], ["loss"], "step", aligned=False)["loss"][0]
    assert found["thinned"]
    assert len(found["steps"]) <= series.POINTS + 2
    assert found["values"][found["steps"].index(12_346)] == 99.0


@pytest.mark.feature(24)
def test_aligned_series_share_their_steps_and_keep_their_means(team: Team) -> None:
    runs = [logged(team, {"loss": [(step, float(step % 2)) for step in range(start, 40_001)]}) for start in (1, 20_001)]
    long, late = series.build_metric_series(runs, ["loss"], "step", aligned=True)["loss"]
    assert set(late["steps"]) <= set(long["steps"])
    assert max(late["values"]) - min(late["values"]) < 0.2
    assert np.mean(long["values"]) == pytest.approx(0.5, abs=0.01)


def test_the_mean_of_step_ranges_by_hand() -> None:
    found = series.average_step_ranges(Series("x", np.array([0, 1, 5, 9]), np.array([1.0, 3.0, np.nan, 7.0])), 9, 5)
    assert (found.steps.tolist(), found.values.tolist()) == ([0, 8], [2.0, 7.0])


def test_short_aligned_series_are_the_points_themselves(team: Team) -> None:
    found = series.build_metric_series([logged(team)], ["reward"], "step", aligned=True)["reward"][0]
    assert found["steps"] == list(range(1, 11))


def test_charts_the_usual_ones_first_with_how_many_runs_have_them(team: Team) -> None:
    runs = [logged(team, {name: [(1, 1.0)] for name in names}) for names in (("reward", "zzz", "entropy", "heldout/accuracy"), ("reward", "loss"))]
    found = chart_choice.build_metric_charts(runs)
    assert [chart["metric"] for chart in found] == ["heldout/accuracy", "reward", "entropy", "loss", "zzz"]
    assert found[1] == {"metric": "reward", "runs": 2, "title": "Reward", "unit": "", "section": "Training", "points": False, "first": True}


# Settings and summaries


@pytest.mark.feature(26)
def test_settings_that_differ_stand_first_and_paths_are_left_out(team: Team, as_owner: Client) -> None:
    other = {**SPEC, "seed": 1, "output": "/data/runs/x", "training": {"trainer": "grpo", "learning_rate": 3e-4, "beta": 0.1}}
    runs = [logged(team), logged(team, spec=other)]
    rows = configs.build_settings_table(runs)
    changed = {row.key: row.values for row in rows if row.changed}
    assert changed == {"seed": ["0", "1"], "training.learning_rate": ["0.0001", "0.0003"], "training.beta": ["–", "0.1"]}
    assert [row.changed for row in rows] == sorted((row.changed for row in rows), reverse=True)
    assert not any(row.key == "output" for row in rows)
    assert [row.key for row in configs.list_groupable_settings(rows)][-1] == "seed"
    text = page(as_owner, "/compare/?run=1&run=2")
    assert "/data/runs/x" not in text
    data = json.loads(re.search(r'id="compare-data" type="application/json">(.*?)</script>', text)[1])  # type: ignore[index]
    assert [run["config"]["training.learning_rate"] for run in data["runs"]] == ["0.0001", "0.0003"]
    assert data["quantiles"][0] == pytest.approx(12.706, abs=1e-3)
    assert len(data["quantiles"]) == MOST - 1


def test_the_stack_is_compared_by_names_and_parameters(team: Team) -> None:
    stacked = {**SPEC, "base": {"name": "dr-grpo", "config": {}}, "methods": [{"name": "rs-grpo", "config": {"risk": 4}}]}
    changed = {row.key: row.values for row in configs.build_settings_table([logged(team), logged(team, spec=stacked)]) if row.changed}
    assert changed["methods"] == ["–", "rs-grpo"]
    assert changed["method.rs-grpo.risk"] == ["–", "4"]
    assert changed["base"][1] == "dr-grpo"


def test_a_summary_has_the_end_the_best_and_what_it_took(team: Team) -> None:
    held = [(0, 0.1), (5, 0.9), (10, 0.6)]
    runs = [logged(team, {"heldout/reward": held}), logged(team, {"heldout/reward": [(0, 0.1), (10, 0.7)], "reward": [(1, 0.5)]}), logged(team)]
    one, other, without = summarize_compared_runs(runs)
    [final, highest, *_] = one.values
    [other_final, *_] = other.values
    assert final
    assert highest
    assert other_final
    assert (final.number, final.step, final.best) == (0.6, 10, False)
    assert (highest.number, highest.step, highest.best) == (0.9, 5, True)
    assert other_final.best
    assert without.values[0] is None
    assert one.seconds == pytest.approx(7200, abs=1)


def test_header_and_summary_say_which_statistic_of_the_same_curve_they_show(team: Team, as_owner: Client) -> None:
    """One run's reward was 0.453 in its header and 0.574 in the comparison: the last step, and the mean of the last tenth."""
    spec = {**SPEC, "evaluation": {"prompts": 256}}
    points = {"reward": [(step, 0.9 if step < 20 else 0.5) for step in range(1, 21)], "heldout/reward": [(10, 0.7), (20, 0.6)]}
    run, other = logged(team, points, spec=spec, latest={"reward": 0.5}), logged(team, spec=spec)
    header = page(as_owner, f"/runs/{run.pk}/")
    assert re.search(r"<dt>reward, last step</dt><dd[^>]*>0\.500</dd>", header)
    text = page(as_owner, f"/compare/?run={run.number}&run={other.number}")
    heads = re.findall(r'<th scope="col" class="num">([^<]*)<small>([^<]*)</small>', text)
    assert heads == [
        ("Held-out reward", "last evaluation, 256 prompts"),
        ("Held-out reward", "best evaluation, 256 prompts"),
        ("Held-out accuracy", "last evaluation, 256 prompts"),
        ("Reward", "mean of the last 10 % of steps"),
        ("Token entropy", "mean of the last 10 % of steps"),
    ]
    assert summarize_compared_runs([run])[0].figures == {"final": 0.6, "highest": 0.7, "accuracy": None, "reward": 0.7, "entropy": None}
    panels = {panel["id"]: panel["said"] for panel in as_owner.get(f"/runs/{run.pk}/metrics.json").json()["panels"]}
    assert panels == {"reward": "", "heldout": "256 prompts"}


def test_a_comparison_of_twenty_runs_takes_as_many_queries_as_one_of_two(team: Team, as_owner: Client) -> None:
    for _ in range(20):
        logged(team)
    page(as_owner, "/compare/")  # the first request of a session is entered in the person's list of sessions
    counts = []
    for numbers in (range(1, 3), range(1, 21)):
        with CaptureQueriesContext(
            connection,
        ) as queries:
            page(as_owner, "/compare/?" + "&".join(f"run={number}" for number in numbers))
        counts.append(len(queries))
    assert counts[0] == counts[1]


# Two rollouts


def tokens(run: Run, texts: list[str], ids: list[int], **fields: Any) -> Rollout:
    """A stored rollout whose tokens have these texts and ids; an empty text is a special token."""
    count = len(ids)
    event = rollout(
        **{
            "completion": "".join(texts),
            "ids": pack_ids(ids),
            "lengths": pack_array([len(text) for text in texts], "H"),
            "logprobs": pack_array([-0.5] * count, "e"),
            "entropies": pack_array([index / 4 for index in range(count)], "e"),
            "length": count,
            **fields,
        }
    )
    store(run, *([] if run.attempt else [started()]), event)
    return Rollout.across_teams.select_related("run", "prompt").latest("pk")


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.RUNNING)


def sides(one: Rollout, other: Rollout) -> Any:
    return find_divergence(
        *(build_completion_side(each, RolloutTokens.objects.filter(rollout=each).first(), {"9": "<|end|>"}) for each in (one, other))
    )


@pytest.mark.feature(98)
def test_the_first_token_that_differs_with_its_entropy_and_both_alternatives(run: Run) -> None:
    one = tokens(run, ["2", "+", "2", "=4"], [1, 2, 1, 7])
    other = tokens(run, ["2", "+", "3", "=5"], [1, 2, 3, 8], sample=1)
    found = sides(one, other)
    assert (found.by, found.left.token, found.shared) == ("token", 2, "2+")
    assert (found.left.text, found.left.id, found.left.entropy) == ("2", 1, 0.5)
    assert (found.right.text, found.right.id, found.right.offset) == ("3", 3, 2)
    assert found.left.probability == pytest.approx(0.6065, abs=1e-3)


def test_one_that_ends_earlier_and_an_end_token(run: Run) -> None:
    short, long = tokens(run, ["a", "b"], [1, 2]), tokens(run, ["a", "b", "c"], [1, 2, 3], sample=1)
    found = sides(short, long)
    assert (found.left.ended, found.right.text, found.right.token) == (True, "c", 2)
    ended = tokens(run, ["a", "b", ""], [1, 2, 9], sample=2)
    found = sides(ended, long)
    assert (found.left.text, found.left.special, found.left.id, found.right.text) == ("<|end|>", True, 9, "c")


def test_equal_rollouts_have_no_difference(run: Run) -> None:
    assert sides(tokens(run, ["a", "b"], [1, 2]), tokens(run, ["a", "b"], [1, 2], sample=1)) is None


def test_the_same_text_cut_otherwise_is_compared_by_characters(run: Run) -> None:
    one, other = tokens(run, ["ab", "c", "x"], [1, 2, 3]), tokens(run, ["a", "bc", "y"], [4, 5, 6], sample=1)
    found = sides(one, other)
    assert (found.by, found.left.offset, found.left.text, found.right.text) == ("character", 3, "x", "y")
    assert found.left.entropy == 0.5  # the tokens still know how sure they were
    assert "tokenized differently" in found.why


def test_two_tokenizers_and_missing_tokens_fall_back_to_characters(run: Run) -> None:
    one, other = tokens(run, ["yes", " no"], [1, 2]), tokens(run, ["yet", " no"], [1, 2], sample=1)
    assert (sides(one, other).by, sides(one, other).left.offset) == ("character", 0)  # the token that differs
    RolloutTokens.objects.filter(rollout=one).delete()
    found = sides(one, other)
    assert (found.by, found.left.token, found.left.text, found.right.text) == ("character", None, "s", "yet")
    RolloutTokens.objects.filter(rollout=other).update(ids=b"broken")
    assert sides(one, other).by == "character"


def test_the_common_beginning_of_long_texts() -> None:
    assert count_common_prefix("", "x") == 0
    assert count_common_prefix("same", "same") == 4
    text = "ab" * 100_000
    assert count_common_prefix(text + "x", text + "y") == 200_000
    assert count_common_prefix("xa", "ya") == 0


def test_a_pair_has_the_differences_of_every_number(run: Run) -> None:
    one = tokens(run, ["a"], [1], reward=0.25, rewards={"correct": 0.0, "format": 1.0}, advantage=-1.0)
    other = tokens(run, ["b"], [2], sample=1, reward=1.0, rewards={"correct": 1.0, "style": None}, advantage=2.0)
    pair = read_pair(one, other, ignore_space=False)
    assert [(row.name, row.change) for row in pair.rewards] == [("total", "+0.75"), ("format", "–"), ("correct", "+1"), ("style", "–")]
    assert {row.name: row.change for row in pair.measures}["advantage"] == "+3"
    assert pair.same_prompt
    assert [(segment.text, segment.only, segment.mark) for column in pair.columns for segment in column.segments] == [
        ("a", True, True),
        ("b", True, True),
    ]


def test_the_mark_stands_where_the_texts_part_and_the_texts_are_whole(run: Run) -> None:
    one = tokens(run, ["we ", "add ", "two ", "here"], [1, 2, 3, 4])
    other = tokens(run, ["we ", "add ", "ten ", "here"], [1, 2, 5, 4], sample=1)
    for ignore in (False, True):
        pair = read_pair(one, other, ignore)
        for column in pair.columns:
            assert "".join(segment.text for segment in column.segments) == column.rollout.completion
            assert "".join(segment.text for segment in column.segments if segment.mark) == ("two " if column.letter == "A" else "ten ")
            assert sum(segment.anchor for segment in column.segments) == 1


def test_an_ablation_leads_to_its_runs_by_variant(as_owner: Client, team: Team, owner: User) -> None:
    spec = {**SPEC, "methods": [{"name": "rs-grpo"}, {"name": "siren"}], "training": {"trainer": "grpo", "max_steps": 20}}
    ablation = create_ablation(team, owner, "Parts", spec, 2)
    text = page(as_owner, f"/ablations/{ablation.pk}/")
    address = html.unescape(re.search(r'href="(/compare/[^"]+)"', text)[1])  # type: ignore[index]
    compared = page(as_owner, address)
    assert compared.count('class="run-toggle"') == ablation.members.count() == 8
    assert 'name="by" value="methods"' in compared


def test_the_page_of_a_pair_and_its_warning_when_prompts_differ(as_owner: Client, run: Run) -> None:
    one = tokens(run, ["a", "b"], [1, 2])
    other = tokens(run, ["a", "c"], [1, 3], sample=1)
    text = page(as_owner, f"/compare/rollouts/?a={one.pk}&b={other.pk}")
    assert "Token 1: both completions start with the same 1 token." in text
    assert "answer different prompts" not in text
    third = tokens(run, ["a"], [1], sample=2, prompt=[Message("user", "another")])
    assert "answer different prompts" in page(as_owner, f"/compare/rollouts/?a={one.pk}&b={third.pk}")
    assert "completions are identical" in page(as_owner, f"/compare/rollouts/?a={one.pk}&b={one.pk}")


def test_a_rollout_alone_shows_what_else_answers_its_prompt(as_owner: Client, team: Team, run: Run) -> None:
    asked = [Message("user", "Same?")]
    store(run, started(), *(rollout(step, prompt=asked, reference="r") for step in (1, 2, 3)), rollout(4))
    other = make_run(team, name="Elder", status=Status.FINISHED)
    store(other, started(), rollout(7, prompt=asked, reference="r", completion="older"))
    one = Rollout.objects.get(run=run, step=2)
    found = finder.list_pair_candidates(team, one)
    assert [(part.run, [each.step for each in part.rollouts]) for part in found] == [(run, [3, 1]), (other, [7])]
    text = page(as_owner, f"/compare/rollouts/?a={one.pk}")
    assert "Elder" in text
    assert text.count(f"?a={one.pk}&amp;b=") == 3
    lonely = Rollout.across_teams.get(step=4)
    assert "No other rollouts of this prompt" in page(as_owner, f"/compare/rollouts/?a={lonely.pk}")


def answered(team: Team, rewards: dict[str, list[tuple[int, float]]]) -> Run:
    run = make_run(team, status=Status.FINISHED)
    events = [
        rollout(step, group, prompt=[Message("user", asked)], reference="r", reward=reward, completion=f"{run.number} {step}")
        for group, (asked, answers) in enumerate(rewards.items())
        for step, reward in answers
    ]
    store(run, started(), *events)
    return run


def test_prompts_that_two_runs_answered_by_how_far_apart_they_are(as_owner: Client, team: Team) -> None:
    one = answered(team, {"even": [(1, 0.5), (2, 0.5)], "apart": [(1, 0.0)], "mine": [(1, 1.0)]})
    other = answered(team, {"even": [(1, 0.5)], "apart": [(3, 1.0)], "theirs": [(1, 1.0)]})
    shared, count = finder.shared_prompts(one, other)
    assert [(row.prompt.text, row.counts, row.delta) for row in shared] == [("apart", (1, 1), 1.0), ("even", (2, 1), 0.0)]
    assert count == 2
    text = page(as_owner, "/compare/prompts/?run=1&run=2&a=1&b=2&q=EVE")
    assert "even" in text
    assert "apart" not in text
    assert as_owner.get("/compare/prompts/?a=1&b=99").status_code == 404


def test_a_pair_of_the_same_step_or_of_the_same_reward(as_owner: Client, team: Team) -> None:
    one = answered(team, {"q": [(1, 0.0), (5, 0.2), (9, 1.0)]})
    other = answered(team, {"q": [(4, 0.9), (5, 0.7), (30, 0.25)]})
    prompt = Prompt.across_teams.get(text="q").pk

    def stood(by: str) -> list[int]:
        found = finder.pick_rollout_pair(one, other, prompt, by)
        assert found
        return [Rollout.across_teams.get(pk=key).step for key in found]

    assert stood("step") == [5, 5]
    assert stood("reward") == [5, 30]
    response = as_owner.get(f"/compare/rollouts/?prompt={prompt}&run=1&run=2&by=step")
    assert response.status_code == 302
    assert "Two rollouts of one prompt" in page(as_owner, response["Location"])
    assert as_owner.get(f"/compare/rollouts/?prompt={prompt + 9999}&run=1&run=2").status_code == 404


# Whose it is, and what models and people write


def test_another_teams_runs_and_rollouts_are_not_there(as_stranger: Client, team: Team, run: Run) -> None:
    one = tokens(run, ["secret text"], [1])
    text = page(as_stranger, "/compare/?run=1")
    assert "Your team has no run #1" in text
    assert points_of(as_stranger, "run=1&name=reward")["reward"] == []
    assert as_stranger.get(f"/compare/rollouts/?a={one.pk}").status_code == 404
    assert as_stranger.get(f"/compare/rollouts/?a={one.pk}&b={one.pk}").status_code == 404
    assert as_stranger.get(f"/compare/rollouts/?prompt={one.prompt_id}&run=1&run=1").status_code == 404
    assert as_stranger.get("/compare/prompts/?a=1&b=1").status_code == 404


@pytest.mark.parametrize("given", ["x", "-1", "99999999999999999999", "9223372036854775808", "1.5", "²"])
def test_ids_that_are_none_are_not_found(as_owner: Client, given: str) -> None:
    assert as_owner.get("/compare/rollouts/", {"a": given}).status_code == 404
    assert as_owner.get("/compare/rollouts/", {"prompt": given, "run": ["1", "2"]}).status_code == 404


@pytest.mark.parametrize("address", ["/compare/", "/compare/series/", "/compare/rollouts/", "/compare/prompts/"])
def test_nothing_here_is_changed_by_a_request(as_owner: Client, address: str) -> None:
    assert as_owner.post(address).status_code == 405


def test_signed_out_people_are_sent_to_the_door(client: Client) -> None:
    assert client.get("/compare/").status_code == 302
    assert client.get("/compare/series/?run=1&name=x").status_code in (302, 401, 403)


@pytest.mark.parametrize("payload", [stored(payload) for payload in PAYLOADS if payload.strip()])
def test_hostile_text_is_text_everywhere(as_owner: Client, team: Team, payload: str) -> None:
    spec = {**SPEC, "task": {"name": payload[:90]}}
    first = logged(team, {payload[:150]: [(1, 1.0)]}, name=payload[:90], spec=spec)
    second = make_run(team, name=payload[:90])
    asked = [Message("user", payload)]
    store(
        second,
        started(),
        *(rollout(1, sample=sample, prompt=asked, completion=f"{payload}{sample}", rewards={payload[:90]: 1.0}) for sample in (0, 1)),
    )
    one, other = Rollout.objects.filter(run=second).order_by("pk")
    for address in ("/compare/?run=1&run=2", f"/compare/rollouts/?a={one.pk}&b={other.pk}", f"/compare/rollouts/?a={one.pk}"):
        text = page(as_owner, address)
        for tag in ("<script>window.hostileRan", "<img src=x", "<svg onload", "<iframe srcdoc", "<details open ontoggle", "<b hx-get"):
            assert tag not in text, address
    assert first.number == 1


def test_measured_events_feed_the_comparison(as_owner: Client, team: Team, run: Run) -> None:
    store(run, started(), *steps(1, 5), measured(6))
    (one,) = points_of(as_owner, f"run={run.number}&name=loss")["loss"]
    assert one["steps"] == [1, 2, 3, 4, 5, 6]
