"""Which charts a run gets, and that no cell of a download is a formula."""

import pytest

from lab.lib.downloads import csv_safe
from lab.training.runs.charts import PANELS, SECTIONS, build_chart_panels

GRPO = [
    "reward",
    "reward_std",
    "rewards/correct/mean",
    "rewards/correct/std",
    "rewards/format/mean",
    "entropy",
    "loss",
    "grad_norm",
    "heldout/reward",
]


def titles(names: list[str], trainer: str = "grpo") -> list[str]:
    return [panel["title"] for panel in build_chart_panels(names, trainer)]


def metrics_of(panel_id: str, names: list[str]) -> dict[str, str]:
    found = {panel["id"]: panel for panel in build_chart_panels(names)}
    return {trace["metric"]: trace["label"] for trace in found[panel_id]["traces"]}


@pytest.mark.feature(47)
def test_reward_is_shown_with_the_mean_of_each_function() -> None:
    assert metrics_of("reward", GRPO) == {"reward": "total", "rewards/correct/mean": "correct", "rewards/format/mean": "format"}


def find_traces(panel_id: str, names: list[str], weights: dict[str, float]) -> dict[str, dict[str, object]]:
    found = {panel["id"]: panel for panel in build_chart_panels(names, weights=weights)}
    return {trace["metric"]: trace for trace in found[panel_id]["traces"]}


@pytest.mark.feature(47)
def test_what_counts_nothing_is_named_so_and_off_and_the_total_leads() -> None:
    traces = find_traces("reward", GRPO, {"correct": 1.0, "format": 0.0})
    assert [(trace["label"], trace["off"], trace["lead"]) for trace in traces.values()] == [
        ("total", False, True),
        ("correct", False, False),
        ("format (weight 0)", True, False),
    ]
    heldout = find_traces("heldout", ["heldout/reward", "heldout/accuracy", "heldout/correct", "heldout/format"], {"correct": 1.0, "format": 0.0})
    assert [trace["label"] for trace in heldout.values() if trace["off"]] == ["format (weight 0)"]
    assert [trace["label"] for trace in heldout.values() if trace["lead"]] == ["reward"]


def test_a_chart_of_nothing_but_weight_0_shows_its_lines_and_a_lone_total_is_not_thick() -> None:
    spread = find_traces("component-spread", ["rewards/format/std"], {"format": 0.0})
    assert [(trace["label"], trace["off"]) for trace in spread.values()] == [("format (weight 0)", False)]
    assert not find_traces("reward", ["reward"], {})["reward"]["lead"]


def test_only_what_was_measured_gets_a_panel() -> None:
    assert "KL to the reference" not in titles(GRPO)
    assert "KL to the reference" in titles([*GRPO, "kl"])
    assert build_chart_panels([]) == []


@pytest.mark.parametrize("trainer", [*SECTIONS, "of another package"])
def test_every_metric_is_in_exactly_one_panel(trainer: str) -> None:
    names = [
        *GRPO,
        "rewards/chosen",
        "rewards/margins",
        "profiling/Time/x",
        "num_tokens",
        "epoch",
        "a/b/c",
        "rewards//mean",
        "/",
        "system/gpu_percent",
    ]
    shown = [trace["metric"] for panel in build_chart_panels(names, trainer) for trace in panel["traces"]]
    assert sorted(shown) == sorted(names)


def test_axes_are_not_metrics() -> None:
    assert build_chart_panels(["@time", "@tokens"]) == []


def test_an_unknown_metric_goes_to_a_folded_section_by_its_prefix() -> None:
    found = build_chart_panels(["sampling/x/mean", "sampling/x/max", "mine"])
    assert [(panel["title"], panel["section"], panel["folded"]) for panel in found] == [("mine", "Other", True), ("sampling/x", "Other", True)]


def test_a_hundred_unknown_metrics_do_not_share_one_chart() -> None:
    found = build_chart_panels([f"probe/layer_{index}" for index in range(100)])
    assert max(len(panel["traces"]) for panel in found) == 8
    assert len({panel["id"] for panel in found}) == len(found) == 13


def test_a_dpo_run_begins_with_its_preferences_and_a_cold_start_with_its_loss() -> None:
    names = ["loss", "rewards/margins", "rewards/accuracies", "reward", "mean_token_accuracy"]
    assert build_chart_panels(names, "dpo")[0]["title"] == "Reward margins"
    assert build_chart_panels(names, "sft")[0]["title"] == "Loss"


def test_colours_never_leave_the_series_of_the_stylesheet() -> None:
    names = [f"rewards/f{index}/mean" for index in range(20)]
    assert {trace["color"] for panel in build_chart_panels(names) for trace in panel["traces"]} == set(range(1, 9))


def test_panel_ids_are_unique_and_fit_an_address() -> None:
    ids = [panel.id for panel in PANELS]
    assert len(set(ids)) == len(ids)
    assert all(name.replace("-", "").isalnum() for name in ids)


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1"])
def test_a_text_that_a_spreadsheet_would_run_is_quoted(text: str) -> None:
    assert csv_safe(text) == "'" + text


def test_an_ordinary_name_stays_as_it_is() -> None:
    assert csv_safe("rewards/correct/mean") == "rewards/correct/mean"


def test_what_several_held_out_answers_say_has_charts_of_its_own() -> None:
    names = [
        "heldout/reward",
        "heldout/correct",
        "heldout/pass-at-2",
        "heldout/pass-within-64",
        "heldout/heterogeneity",
        "heldout/anti-concentration",
    ]
    assert metrics_of("heldout", names) == {"heldout/reward": "reward", "heldout/correct": "correct"}
    assert metrics_of("heldout-pass", names) == {"heldout/pass-at-2": "at-2", "heldout/pass-within-64": "within-64"}
    assert set(metrics_of("heldout-spread", names).values()) == {"heterogeneity", "anti-concentration"}
