"""The benchmark of effects: what makes a result stale, what a comparison says, and that the committed report is that of the code."""

import dataclasses
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from bench import effect_digest, effects
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.effect_digest import code_of, digest_case, find_covered_names
from bench.effect_statistics import Difference, adjust_holm, find_grid, judge_difference, paired_difference, results_of
from bench.effects_report import render_report
from bench.equal_tokens import values_at_equal_tokens

DOCS = Path(effects.DOCS)
CANON = "trainers.methods.group.canon"


def case_of(name: str) -> Case:
    (found,) = effects.all_cases([name])
    return found


def kept_for(case: Case, code: str, seeds: int = 3, by: float = 1.0) -> dict[str, Any]:
    values = {str(seed): {one.name: [by + 0.01 * seed, 0.0] for one in case.quantities} for seed in range(seeds)}
    return {"method": case.method, "code": code, "values": values, "seconds": 1.0, "step_time": None}


def changed_source(monkeypatch: pytest.MonkeyPatch, module: str, old: str, new: str) -> None:
    """As if the file of a module said ``new`` where it says ``old``."""
    read = effect_digest.source_of
    assert old in read(module)
    monkeypatch.setattr(effect_digest, "source_of", lambda name: read(name).replace(old, new) if name == module else read(name))


# the committed report


def test_the_committed_report_agrees_with_results_and_code() -> None:
    """Fails after a change of a method or of what it imports: `python -m bench.effects --report` then marks its row as stale."""
    for name, text in render_report([(case, effects.load(case), digest_case(case)) for case in effects.all_cases([])]).items():
        assert (DOCS / name).read_text() == text, f"docs/{name} is not what the results say: run python -m bench.effects --report"


def test_every_case_is_in_the_report_measured_or_not() -> None:
    rows = json.loads((DOCS / "effects.json").read_text())
    assert set(rows) == {case.method for case in effects.all_cases([])}
    assert {"siren", "llds", "e2c-explore-execute", "pns", "prompt-augmentation", "rc-grpo"} <= set(rows)


def test_fresh_results_have_every_quantity_of_their_case() -> None:
    for case in effects.all_cases([]):
        kept = effects.load(case)
        if kept.get("code") == digest_case(case):
            assert all(set(values) == {one.name for one in case.quantities} for values in kept["values"].values()), case.method


def test_what_a_method_pays_for_is_never_all_that_is_measured() -> None:
    for case in effects.all_cases([]):
        assert any(not one.by_construction for one in case.quantities), case.method
        assert all(one.least > 0 and one.least_because for one in case.quantities), case.method
        assert len({one.name for one in case.quantities}) == len(case.quantities)


# stale


def test_the_digest_covers_what_case_and_method_import_and_the_cases_helpers() -> None:
    modules = find_covered_names("bench.effect_cases.canon", CANON)
    assert {
        CANON,
        "bench.effect_cases.canon",
        "bench.length_bandit",
        "bench.equal_tokens",
        "trainers.maths.advantages",
        "trainers.methods.base",
    } <= set(modules)
    assert "bench.effect_cases.tiny" in find_covered_names("bench.effect_cases.farl", "trainers.methods.tokens.farl")
    assert "trainers.attempt.train" not in find_covered_names(
        "bench.effect_cases.farl", "trainers.methods.tokens.farl"
    )  # what a helper imports does not count


def test_a_system_that_is_no_method_has_a_digest_of_its_case_and_tool_and_a_group_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    case = case_of("advchain")
    kept = [(case, kept_for(case, digest_case(case)))]
    assert "| advchain" in report_of(kept)["effects.md"].split("## Data and ablations")[1]
    assert json.loads(report_of(kept)["effects.json"])["advchain"]["state"] == "fresh"
    changed_source(monkeypatch, "trainers.contract.dataset_tools.corrected_slips", "rng.randint(1, largest)", "largest")
    assert json.loads(report_of(kept)["effects.json"])["advchain"]["state"] == "stale"


def test_every_case_is_of_a_method_or_of_a_published_system() -> None:
    systems = tomllib.loads((effects.DOCS.parent / "lab" / "training" / "catalog" / "systems.toml").read_text())
    assert all(case.method in systems or effects.is_method(case) for case in effects.all_cases([]))


@pytest.mark.parametrize(
    ("module", "old", "new"),
    [
        (CANON, "return", "return 0 *"),
        ("trainers.maths.advantages", "return", "return 0 *"),  # imported by the case
        ("trainers.methods.base", "BINS = 20", "BINS = 30"),  # imported by the method
        ("bench.length_bandit", "LEARNING_RATE = 16, 0.2", "LEARNING_RATE = 16, 0.3"),
        ("bench.equal_tokens", "min(", "max("),  # imported by the case's helper
        ("bench.effect_cases.canon", "0.8)", "0.7)"),
    ],
)
def test_a_changed_module_makes_its_rows_stale(module: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case, other = case_of("canon"), case_of("stackelberg-srs")
    kept = [(one, kept_for(one, digest_case(one))) for one in (case, other)]
    assert "*stale*" not in report_of(kept)["effects.md"].split("## Group")[1]
    changed_source(monkeypatch, module, old, new)
    made = report_of(kept)
    row = json.loads(made["effects.json"])["canon"]
    assert row["state"] == "stale"
    assert next(line for line in made["effects.md"].splitlines() if line.startswith("| canon")).count("*stale* (was: ") == 1
    assert "- Stale: " in made["effects.md"]
    expected = "stale" if module == "trainers.methods.base" else "fresh"  # which every method imports
    assert json.loads(made["effects.json"])["stackelberg-srs"]["state"] == expected


def report_of(kept: list[tuple[Case, dict[str, Any]]]) -> dict[str, str]:
    return render_report([(case, values, digest_case(case)) for case, values in kept])


METHOD = '''"""Docstring."""
from trainers.contract.hyperparameters import Strict, param

class Config(Strict):
    alpha: float = param(0.5, "Help.", title="Alpha", ge=0)

class Some(Method):
    """Says."""
    card = Card(name="some")
    owns = frozenset({"advantages"})
    needs = frozenset()

    def rewards(self, batch, rewards):
        owns = 1
        return rewards + owns
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("Docstring.", "Another."),
        ("Says.", "Tells."),
        ('name="some"', 'name="some", departures=("x",)'),
        ('    owns = frozenset({"advantages"})\n', '    owns = frozenset()\n    roles = {"rewards": "maps"}\n    cautions = {"a": "b"}\n'),
        ("Help.", "More help."),
        ("        return", "        # why\n        return"),
        ("self, batch, rewards):", 'self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:'),
    ],
)
def test_words_make_nothing_stale(old: str, new: str) -> None:
    assert old in METHOD
    assert code_of(METHOD.replace(old, new)) == code_of(METHOD)


@pytest.mark.parametrize(
    ("old", "new"), [("0.5,", "0.6,"), ("ge=0", "gt=0"), ("owns = 1", "owns = 2"), ("needs = frozenset()", "needs = frozenset({'logits'})")]
)
def test_what_computes_makes_it_stale(old: str, new: str) -> None:
    assert old in METHOD
    assert code_of(METHOD.replace(old, new)) != code_of(METHOD)


def test_a_new_hook_of_all_methods_makes_nothing_stale() -> None:
    """Only hooks that a method fills are called."""
    every = "class Method:\n    def log(self):\n        return 1\n"
    hook = "\n    def rewards(self, batch, rewards):\n        return rewards\n"
    assert code_of(every + hook) == code_of(every)
    assert code_of(every.replace("Method", "Some") + hook) != code_of(every.replace("Method", "Some"))
    assert code_of(every.replace("1", "2")) != code_of(every)


def test_measuring_goes_on_where_it_stopped_and_begins_again_when_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def measure(seed: int) -> Pairs:
        asked.append(seed)
        return {"length": (1.0, 2.0), "beside": (0.0, 0.0)}

    monkeypatch.setattr(effects, "RESULTS", tmp_path)
    monkeypatch.setattr(effects, "digest_case", lambda case: "today")
    case = dataclasses.replace(case_of("canon"), measure=measure, seeds=2, quantities=(Quantity("length", "length", "lower", 0.1, "why"),))
    effects.measure(case)
    effects.measure(dataclasses.replace(case, seeds=3))
    assert asked == [0, 1, 2]
    kept = effects.load(case)
    assert kept["values"]["2"] == {"length": [1.0, 2.0]}
    effects.store(case, kept | {"code": "yesterday", "step_time": {"ratio": 1.5}})
    effects.measure(case)
    assert asked == [0, 1, 2, 0, 1]
    assert effects.load(case)["step_time"] == {"ratio": 1.5}


def test_a_kept_run_belongs_to_the_code_that_made_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(tiny, "CACHE", tmp_path)
    monkeypatch.setattr(tiny, "train_once", lambda data: made.append(data) or tiny.Trained([], {}))
    tiny.run_train(0, "farl")
    tiny.run_train(0, "farl")
    assert len(made) == 1
    monkeypatch.setattr(tiny, "digest_sources", lambda: "another")
    tiny.run_train(0, "farl")
    assert len(made) == 2


# what a comparison says


def test_the_interval_is_students() -> None:
    made = paired_difference([1.0, 2.0, 3.0], 0.1)
    assert made.mean == pytest.approx(2.0)
    assert (made.low, made.high) == pytest.approx((2.0 - 4.30265 / 3**0.5, 2.0 + 4.30265 / 3**0.5), rel=1e-5)  # t(2) at 97.5 %
    assert made.p == pytest.approx(0.0742, abs=1e-4)
    assert paired_difference([0.0, 0.0], 0.5).p == 1.0


def test_the_same_difference_in_every_seed_is_as_sure_as_its_numbers_are_fine() -> None:
    coarse, fine = (paired_difference([0.5, 0.5, 0.5], grid) for grid in (0.5, 0.01))
    assert (coarse.mean, fine.mean) == (0.5, 0.5)
    assert (coarse.low, coarse.high) == pytest.approx((0.5 - 4.30265 * 0.5 / 18**0.5, 0.5 + 4.30265 * 0.5 / 18**0.5), abs=1e-5)
    assert coarse.p == pytest.approx(0.0513, abs=1e-4)
    assert fine.p < 1e-4
    assert find_grid([0.25, 1.0, 0.5, 0.25]) == 0.25
    assert find_grid([1.0, 1.0]) == 0.0


@pytest.mark.parametrize(
    ("low", "mean", "high", "direction", "verdict"),
    [
        (0.2, 0.3, 0.4, "higher", "held"),
        (0.01, 0.05, 0.09, "higher", "held, negligible"),
        (-0.1, 0.3, 0.7, "higher", "not seen"),
        (-0.4, -0.3, -0.2, "higher", "opposite"),
        (-0.09, -0.05, -0.01, "higher", "opposite, negligible"),
        (-0.4, -0.3, -0.2, "lower", "held"),
        (-0.09, -0.05, -0.01, "lower", "held, negligible"),
        (0.2, 0.3, 0.4, "lower", "opposite"),
    ],
)
def test_a_verdict_asks_for_the_side_and_for_a_difference_worth_having(low: float, mean: float, high: float, direction: Any, verdict: str) -> None:
    assert judge_difference(Difference(mean, low, high, 0.01), Quantity("one", "one", direction, 0.1, "why")) == verdict


def test_holms_correction() -> None:
    assert adjust_holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert adjust_holm([]) == []


def test_holms_correction_counts_every_comparison_of_the_report() -> None:
    case = case_of("canon")
    (alone,) = results_of([(case, kept_for(case, ""), "")])
    together = results_of([(case, kept_for(case, ""), "")] * 4)
    for one, many in zip(alone.comparisons, together[0].comparisons, strict=True):
        assert one.difference is not None
        assert one.holm == pytest.approx(3 * one.difference.p)
        assert many.holm == pytest.approx(12 * one.difference.p)


def test_what_is_by_construction_is_counted_apart() -> None:
    case = dataclasses.replace(
        case_of("canon"),
        quantities=(Quantity("a", "a", "higher", 0.1, "why", by_construction="it pays for it"), Quantity("b", "b", "higher", 2.0, "why")),
        changed="its length",
    )
    text = render_report([(case, kept_for(case, "same"), "same")])["effects.md"]
    assert "- Of what no method pays for, 1 comparisons: 0 held; 1 held, negligible; 0 not seen; 0 opposite" in text
    assert "- By construction, 1 comparisons: 1 held; 0 held, negligible" in text
    assert "*By construction: it pays for it.*" in text
    assert "*Changed after a first look: its length.*" in text


def test_a_case_without_results_is_not_measured_yet() -> None:
    case = case_of("siren")
    for kept in ({}, kept_for(case, "same", seeds=1)):
        made = render_report([(case, kept, "same")])
        assert json.loads(made["effects.json"])["siren"]["state"] == "not measured yet"
        assert "- Not measured yet: 1 method (siren)." in made["effects.md"]
        assert made["effects.md"].count("| not measured yet |") == len(case.quantities)


def test_equal_tokens_are_those_of_the_run_that_used_fewer() -> None:
    own, parent = [(0.0, 0.0), (10.0, 0.5), (20.0, 0.9)], [(0.0, 0.0), (40.0, 0.8)]
    assert values_at_equal_tokens(own, parent) == pytest.approx((0.9, 0.4))
    assert values_at_equal_tokens(parent, own) == pytest.approx((0.4, 0.9))
