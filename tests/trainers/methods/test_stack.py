"""Methods together: what does not go together is refused with the reason, and what they remember survives an interruption."""

import json
import subprocess
import sys

import pytest

from tests.trainers.conftest import make_spec
from tests.trainers.test_resume import answers, learned, run_until
from trainers.attempt import train
from trainers.catalog import describe as catalog
from trainers.catalog.entries import entries_for
from trainers.checks.preflight import run_preflight_checks
from trainers.contract import stacking
from trainers.contract.problems import SpecError
from trainers.methods import registry, stack
from trainers.methods.base import Base, hooks_of


def refused(tmp_path, trainer="grpo", **overrides):
    """(field, message) of every problem."""
    spec = make_spec(tmp_path, trainer, **overrides)
    return [(problem.field, problem.message) for problem in stacking.check_stack(spec, entries_for(spec)).problems]


def named(*names):
    return [{"name": name} for name in names]


def test_methods_that_go_together_are_not_refused(tmp_path):
    assert refused(tmp_path, base={"name": "dr-grpo"}, methods=named("rs-grpo", "siren")) == []


@pytest.mark.parametrize(
    ("trainer", "overrides", "field", "words"),
    [
        ("grpo", {"methods": named("rs-grpo", "stratified-grpo")}, "methods.1.name", "both rs-grpo and stratified-grpo decide the advantages"),
        ("grpo", {"base": {"name": "rloo"}, "methods": named("rs-grpo")}, "methods.0.name", "both rloo and rs-grpo decide the advantages"),
        ("grpo", {"methods": named("re-po")}, "methods.0.name", "works on dpo, not on grpo"),
        ("dpo", {"base": {"name": "gspo"}}, "base.name", "runs on the grpo trainer, not on dpo"),
        ("grpo", {"base": {"name": "siren"}}, "base.name", "is not a base"),
        ("grpo", {"methods": named("gspo")}, "methods.0.name", "is a base"),
        ("grpo", {"methods": named("siren", "siren")}, "methods.1.name", "twice"),
        ("grpo", {"methods": named("sirene")}, "methods.0.name", "no such method"),
        ("grpo", {"methods": [{"name": "rs-grpo", "config": {"risk": -1}}]}, "methods.0.config.risk", "must be at least 0"),
        ("grpo", {"methods": [{"name": "rs-grpo", "config": {"riks": 1}}]}, "methods.0.config.riks", "unknown setting"),
        ("grpo", {"methods": named("rlpt"), "training__beta": 0.1}, "training.beta", "rlpt defines its own log ratio"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_reason(tmp_path, trainer, overrides, field, words):
    found = refused(tmp_path, trainer, **overrides)
    assert [place for place, _ in found] == [field]
    assert words in found[0][1]


@pytest.mark.parametrize(("task", "refuses"), [("search", False), ("graph", False), ("mini_gsm", True)])
def test_a_method_that_is_bound_to_worlds_is_refused_on_other_tasks(tmp_path, task, refuses):
    spec = make_spec(tmp_path, task__name=task, methods=named("rs-grpo"), base={"name": "dr-grpo"})
    bound = {name: {**entry, "worlds": ["graph", "search"]} if name == "rs-grpo" else entry for name, entry in entries_for(spec).items()}
    found = [(problem.field, problem.fix) for problem in stacking.check_stack(spec, bound).problems]
    assert found == [("task.name", "set task.name to graph or search, or remove the method")] * refuses


def test_the_preflight_and_the_run_refuse_the_same(tmp_path):
    spec = make_spec(tmp_path, methods=named("re-po"))
    assert [problem.field for problem in run_preflight_checks(spec).problems] == ["methods.0.name"]
    with pytest.raises(SpecError, match="works on dpo"):
        stack.build_stack(spec)


def test_conflicts_are_found_without_torch(tmp_path):
    spec = make_spec(tmp_path, methods=[{"name": "rs-grpo", "config": {"risk": 99}}, {"name": "re-po"}])
    code = (
        "import sys, json; from trainers.contract.spec import parse_spec; from trainers.checks.preflight import run_preflight_checks;"
        "print(len(run_preflight_checks(parse_spec(json.load(sys.stdin))).problems)); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], input=json.dumps(spec.model_dump()), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr


def test_every_method_is_complete():
    """What the catalogue, the preflight and the pages rely on."""
    for group, kind in registry.built_in():
        card = kind.card
        assert registry.module_name(card.name) == kind.__module__.rpartition(".")[2]
        assert card.title, card.name
        assert card.idea, card.name
        assert card.formula, card.name
        assert card.source, card.name
        assert hooks_of(kind) or issubclass(kind, Base), card.name
        assert (group == "bases") == issubclass(kind, Base)
        assert card.base == "" or card.base in {other.card.name for where, other in registry.built_in() if where == "bases"}, card.name
        if card.provenance == "abstract":
            assert card.reading, f"{card.name} must say what is our reading"
        for name, field in kind.Config.model_fields.items():
            assert field.description, f"{card.name}.{name} has no help"
        kind(kind.Config())


def test_every_configuration_is_checked_as_the_method_itself_does():
    """The preflight's model is made from the catalogue: it accepts the defaults and knows the same fields."""
    for entry in catalog.build_catalog(built_in_only=True)["methods"]:
        model = stacking.from_schema(entry["parameters"])
        assert model().model_dump() == registry.load_method_class(entry["name"]).Config().model_dump(), entry["name"]


def test_panels_draw_what_methods_log_or_runs_always_have():
    for _, kind in registry.built_in():
        for panel in kind.panels():
            assert panel.series, kind.card.name
            assert panel.kind != "phases" or panel.phase_names, kind.card.name
            for series in panel.series:
                assert not series.metric.endswith("/"), kind.card.name


STATEFUL = {
    "base": {"name": "dr-grpo"},
    "methods": [{"name": "verl-effective-rank", "config": {"stride": 2}}, {"name": "siren", "config": {"weight": 1.0}}],
    "training__max_steps": 5,
    "training__prompts": 10,
}


@pytest.mark.training
def test_an_interrupted_stack_goes_on_exactly(tmp_path):
    """Running means of one method and the anchor of another are in the checkpoint."""
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    whole.mkdir()
    halved.mkdir()
    assert train.run_training(make_spec(whole, **STATEFUL), whole) == train.FINISHED
    spec = make_spec(halved, **STATEFUL)
    assert run_until(spec, halved, 3) == train.STOPPED
    assert train.run_training(spec, halved) == train.FINISHED
    assert learned(halved) == learned(whole)
    assert answers(halved) == answers(whole)
    assert any(name.startswith("siren/") for name in learned(whole)[5])


@pytest.mark.training
def test_an_interrupted_posterior_goes_on_exactly(tmp_path):
    noisy = {"methods": named("re-po"), "training__max_steps": 5, "training__label_noise": 0.3, "training__learning_rate": 1e-3}
    whole, halved = tmp_path / "whole", tmp_path / "halved"
    whole.mkdir()
    halved.mkdir()
    assert train.run_training(make_spec(whole, "dpo", **noisy), whole) == train.FINISHED
    spec = make_spec(halved, "dpo", **noisy)
    assert run_until(spec, halved, 3) == train.STOPPED
    assert train.run_training(spec, halved) == train.FINISHED
    assert learned(halved) == learned(whole)
    reliabilities = [learned(whole)[step]["re-po/reliability"] for step in range(1, 6)]
    assert len(set(reliabilities)) == 5
