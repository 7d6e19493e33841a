"""What is refused before a model loads, and how it is said: the field, the value, the reason and the fix."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.contract.hyperparameters import DPO, GRPO, SFT, TRAINERS
from trainers.contract.spec import Problem, RunSpec, SpecError, parse_spec, read_spec

BASE: dict[str, Any] = {"task": {"name": "mini_gsm"}, "training": {"trainer": "grpo"}, "output": "run"}


def make_spec(**parts: Any) -> dict[str, Any]:
    return {**BASE, **parts}


def problems(data: Any) -> list[Problem]:
    with pytest.raises(SpecError) as caught:
        parse_spec(data)
    return caught.value.problems


def only(**parts: Any) -> Problem:
    found = problems(make_spec(**parts))
    assert len(found) == 1, found
    return found[0]


def test_defaults_make_a_whole_spec():
    spec = parse_spec(BASE)
    assert spec.policy.kind == "tiny"
    assert isinstance(spec.training, GRPO)
    assert spec.training.num_generations == 8


def test_a_spec_survives_json():
    spec = parse_spec(make_spec(lora={}, policy={"kind": "run", "folder": "x", "checkpoint": 40}, seed=3))
    assert parse_spec(json.loads(spec.model_dump_json())) == spec


def test_a_group_size_that_does_not_divide_the_batch_is_refused_at_its_field():
    problem = only(training={"trainer": "grpo", "num_generations": 7})
    assert problem.field == "training.num_generations"
    assert problem.value == 7
    assert problem.message == "does not divide the generation batch of 64 completions"
    assert problem.fix == "make the generation batch 63, or use groups of 8"


@pytest.mark.parametrize(("batch", "accumulation", "micro", "group"), [(32, 2, None, 64), (8, 1, 4, 32), (4, 6, 2, 8)])
def test_the_generation_batch_counts_all_its_micro_batches(batch, accumulation, micro, group):
    training = {"trainer": "grpo", "per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulation, "num_generations": group}
    training |= {"steps_per_generation": micro}
    assert parse_spec(make_spec(training=training)).training.prompts_per_batch() == 1


@given(size=st.integers(2, 600), group=st.integers(2, 600))
def test_the_group_fix_is_always_one_that_works(size, group):
    training = {"trainer": "grpo", "per_device_train_batch_size": size, "num_generations": group}
    if size % group == 0:
        parse_spec(make_spec(training=training))
        return
    words = only(training=training).fix.replace(",", "").split()
    parse_spec(make_spec(training=training | {"per_device_train_batch_size": int(words[words.index("batch") + 1])}))
    parse_spec(make_spec(training=training | {"num_generations": int(words[-1])}))


@pytest.mark.parametrize(
    ("training", "field", "fix"),
    [
        ({"trainer": "sft", "warmup_steps": 700}, "training.warmup_steps", "use at most max_steps, 600"),
        ({"trainer": "grpo", "prompts": 7}, "training.prompts", "use at least 8"),
        ({"trainer": "dpo", "max_completion_length": 128}, "training.max_completion_length", "use less than 128"),
        (
            {"trainer": "grpo", "gradient_accumulation_steps": 2, "steps_per_generation": 3},
            "training.steps_per_generation",
            "use a multiple or a divisor of gradient_accumulation_steps, 2",
        ),
    ],
)
def test_numbers_that_do_not_go_together_are_refused_at_their_field(training, field, fix):
    problem = only(training=training)
    assert (problem.field, problem.fix) == (field, fix)
    assert problem.value == training[field.rpartition(".")[2]]


@pytest.mark.parametrize(("steps", "warmup"), [(10, 1), (5, 0), (100, 10), (1000, 20), ("60", 6)])
def test_a_short_run_that_says_nothing_about_its_warm_up_gets_a_short_one(steps, warmup):
    spec = parse_spec(make_spec(training={"trainer": "sft", "max_steps": steps}))
    assert spec.training.warmup_steps == warmup
    assert parse_spec(make_spec(training={"trainer": "sft", "max_steps": 100, "warmup_steps": 50})).training.warmup_steps == 50


def test_a_dataset_brings_its_own_number_of_prompts():
    parse_spec(make_spec(training={"trainer": "grpo", "prompts": 7}, dataset={"path": "rows.jsonl"}))


def test_vllm_on_a_cpu_is_refused():
    assert only(training={"trainer": "grpo", "generation": "server"}, device="cpu").field == "training.generation"


@pytest.mark.parametrize(
    ("parts", "field", "fix"),
    [
        ({"training": {"trainer": "grpo", "num_generation": 4}}, "training.num_generation", "did you mean training.num_generations?"),
        ({"training": {"trainer": "sft", "num_generations": 4}}, "training.num_generations", "only for trainer grpo or rloo or procedure; remove it"),
        ({"policy": {"kind": "tiny", "path": "x"}}, "policy.path", "only for kind folder; remove it"),
        ({"learning_rate": 1e-4}, "learning_rate", "it belongs to training.learning_rate"),
        ({"sed": 4}, "sed", "did you mean seed?"),
        ({"lora": {"rank": 4}}, "lora.rank", "remove it; known here: r, alpha, dropout, quantize, target_modules"),
        ({"methods": [{"name": "x", "confg": {}}]}, "methods.0.confg", "did you mean methods.0.config?"),
    ],
)
def test_an_unknown_key_is_refused_with_what_was_probably_meant(parts, field, fix):
    problem = only(**parts)
    assert (problem.field, problem.message, problem.fix) == (field, "unknown setting", fix)


def test_a_missing_field_shows_no_value():
    found = {problem.field: problem for problem in problems({})}
    assert set(found) == {"task", "training", "output"}
    assert all(not problem.given and problem.value is None for problem in found.values())
    assert str(found["task"]) == "task: is missing (add it)"
    assert "…" not in str(found["output"])


@pytest.mark.parametrize(
    ("parts", "field", "fix"),
    [
        ({"training": {}}, "training.trainer", f"use one of {', '.join(TRAINERS)}"),
        ({"training": {"trainer": "gpro"}}, "training.trainer", f"use one of {', '.join(TRAINERS)}; did you mean grpo?"),
        ({"teacher": {"kind": "foldr"}}, "teacher.kind", "use one of tiny, hub, folder, run; did you mean folder?"),
        ({"policy": {"kind": "hubb"}}, "policy.kind", "use one of tiny, hub, folder, run; did you mean hub?"),
        ({"device": "cud"}, "device", "use one of these; did you mean cuda?"),
        ({"training": "grpo"}, "training", "write {…}"),
        ({"lora": 3}, "lora", "write {…}"),
        ({"training": {"trainer": "grpo", "learning_rate": 0}}, "training.learning_rate", "the default is 0.0003"),
    ],
)
def test_a_wrong_choice_is_refused_with_what_is_allowed(parts, field, fix):
    problem = only(**parts)
    assert (problem.field, problem.fix) == (field, fix)


def test_a_checkpoint_that_is_neither_final_nor_a_step_is_one_problem():
    problem = only(policy={"kind": "run", "folder": "x", "checkpoint": "best"})
    assert problem.field == "policy.checkpoint"
    assert "'final', or" in problem.message


@pytest.mark.parametrize("name", ["../up", "a/..", "/etc/passwd", "a b/c", "a", "a/b/c", ".hidden/x", "a/b\n"])
def test_a_hub_id_is_never_a_path(name):
    assert only(policy={"kind": "hub", "name": name}).field == "policy.name"


def test_every_problem_is_reported_at_once():
    data = make_spec(training={"trainer": "grpo", "learning_rate": -1, "max_steps": "many", "colour": 3}, seed=-1, task={})
    assert {problem.field for problem in problems(data)} == {
        "training.learning_rate",
        "training.max_steps",
        "training.colour",
        "seed",
        "task.name",
    }


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    ("parts", "field"),
    [
        (lambda x: {"training": {"trainer": "grpo", "learning_rate": x}}, "training.learning_rate"),
        (lambda x: {"task": {"name": "kb", "rewards": {"correct": x}}}, "task.rewards.correct"),
        (lambda x: {"methods": [{"name": "m", "config": {"deep": [1, x]}}]}, "methods.0.config.deep.1"),
        (lambda x: {"limits": {"minutes": x}}, "limits.minutes"),
    ],
)
def test_numbers_that_are_not_finite_are_refused_everywhere(value, parts, field):
    assert only(**parts(value)).field == field


def test_the_models_themselves_refuse_what_is_not_finite():
    for model in (SFT, GRPO, DPO):
        with pytest.raises(ValueError, match="finite"):
            model(learning_rate=float("nan"))


@pytest.mark.parametrize(("text", "reason"), [("a\0b", "NUL"), ("\ud800", "lone surrogate")])
def test_text_that_cannot_be_stored_is_refused_where_it_is(text, reason):
    problem = only(task={"name": text})
    assert problem.field == "task.name"
    assert reason in problem.message
    json.dumps(problem.value).encode()


@pytest.mark.parametrize("data", [None, 3, "x", [], [BASE]])
def test_what_is_not_an_object_is_refused(data):
    assert "must be a JSON object" in str(problems(data)[0])


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(st.characters(), max_size=6)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=6,
)
KEYS = [*RunSpec.model_fields, "x"]
INNER = ["trainer", "kind", "name", "folder", "num_generations", "learning_rate", "rewards", "checkpoint", "minutes", "path", "r"]


@given(
    st.dictionaries(
        st.sampled_from(KEYS),
        st.one_of(json_values, st.dictionaries(st.sampled_from(INNER), st.one_of(json_values, st.sampled_from(["grpo", "run"])))),
    )
)
@settings(max_examples=200, deadline=None)
def test_any_json_is_a_spec_or_a_list_of_problems(data):
    try:
        spec = parse_spec({**BASE, **data})
    except SpecError as error:
        found = error
    else:
        assert parse_spec(json.loads(spec.model_dump_json())) == spec
        return
    assert found.problems
    json.dumps(found.as_json(), allow_nan=False).encode()
    assert all(str(problem) for problem in found.problems)


def test_a_file_is_read(tmp_path):
    path = tmp_path / "run.json"
    path.write_text(json.dumps(BASE))
    assert read_spec(path) == parse_spec(BASE)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "is not JSON"),
        (b"{", "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"seed": NaN}', "NaN is not a JSON number"),
        (b'{"seed": 1, "seed": 2}', "the key 'seed' is given twice"),
    ],
)
def test_a_file_that_is_not_json_is_refused_by_name(tmp_path, content, reason):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=r"run\.json") as caught:
        read_spec(path)
    assert reason in str(caught.value)


def test_a_file_that_is_not_there_is_refused_by_name(tmp_path):
    with pytest.raises(SpecError, match=r"nowhere\.json cannot be read: No such file"):
        read_spec(tmp_path / "nowhere.json")


@pytest.mark.feature(12)
def test_every_hyperparameter_has_help_and_a_place_in_the_form():
    for model in (SFT, GRPO, DPO):
        for name, field in model.model_fields.items():
            if name != "trainer":
                assert field.description, name
                assert "advanced" in (field.json_schema_extra or {}), name
