"""Every dataset tool: the same rows for the same seed wherever they stand, counts that add up, settings that are checked, the command line."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.__main__ import main
from trainers.contract.dataset_tools.application import ToolCounts, apply_tool, load_tool
from trainers.contract.dataset_tools.registry import TOOLS
from trainers.contract.problems import SpecError

SAID = st.lists(st.sampled_from(("Ann buys 3.", "3+4=7", "7-2=5", "So 5.")), min_size=1, max_size=5).map("\n".join)
ROWS = st.fixed_dictionaries({"prompt": SAID, "completion": SAID, "label": st.booleans(), "chosen": SAID, "rejected": SAID, "reference": SAID})
COLUMNS = {
    "preference": ("prompt", "chosen", "rejected"),
    "kto": ("prompt", "completion", "label"),
    "completion": ("prompt", "completion"),
    "prompt": ("prompt", "reference"),
}
FORMS = [(name, form) for name, kind in TOOLS.items() for form in kind.forms]


def of_form(rows, form):
    return [{column: row[column] for column in COLUMNS[form]} for row in rows]


@pytest.mark.parametrize(("name", "form"), FORMS)
@given(rows=st.lists(ROWS, max_size=5), seed=st.integers(0, 3))
def test_a_row_becomes_the_same_wherever_it_stands(name, form, rows, seed):
    rows, tool = of_form(rows, form), load_tool(name, {})
    outcomes = list(apply_tool(tool, rows, form, seed))
    assert list(apply_tool(tool, rows[::-1], form, seed)) == outcomes[::-1]
    assert list(apply_tool(load_tool(name, {}), rows, form, seed)) == outcomes


@pytest.mark.parametrize(("name", "form"), FORMS)
@given(rows=st.lists(ROWS, max_size=8))
def test_every_row_is_counted_once_and_none_is_changed_in_place(name, form, rows):
    rows, counts, columns = of_form(rows, form), ToolCounts(), set(COLUMNS[TOOLS[name].forms[form]])
    before = json.dumps(rows)
    outcomes = list(apply_tool(load_tool(name, {}), rows, form, 0))
    for outcome in outcomes:
        counts.add(outcome)
        assert bool(outcome.made) != bool(outcome.dropped)
        assert all(made.note and columns <= set(made.row) for made in outcome.made)
    assert json.dumps(rows) == before
    assert counts.read == len(rows) == sum(counts.dropped.values()) + sum(bool(outcome.made) for outcome in outcomes)
    assert counts.made == sum(len(outcome.made) for outcome in outcomes)
    assert counts.as_json()["dropped"] == dict(Counter(outcome.dropped for outcome in outcomes if outcome.dropped))


def test_another_seed_draws_again():
    row = {"prompt": "p", "completion": "\n".join("abcdefgh")}
    made = {seed: next(apply_tool(load_tool("skyreels-v2", {}), [row], "completion", seed)).made[0].row["rejected"] for seed in range(8)}
    assert len(set(made.values())) > 4


def test_wrong_names_and_settings_are_refused_with_what_to_do():
    with pytest.raises(SpecError, match="did you mean skyreels-v2"):
        load_tool("skyreels", {})
    with pytest.raises(SpecError) as refused:
        load_tool("skyreels-v2", {"per_answer": 0, "order": 1})
    assert [problem.field for problem in refused.value.problems] == ["config.per_answer", "config.order"]


@pytest.mark.parametrize("kind", TOOLS.values(), ids=lambda kind: kind.card.name)
def test_a_card_says_what_a_person_needs_to_know(kind):
    assert kind.card.summary.endswith(".")
    assert kind.card.departures
    assert kind.suffix
    assert kind.forms
    assert set(kind.forms) | set(kind.forms.values()) <= set(COLUMNS)
    assert all(field.description for field in kind.Config.model_fields.values())


def test_a_file_becomes_another_on_the_command_line(tmp_path, capsys):
    source, out = tmp_path / "rows.jsonl", tmp_path / "pairs.jsonl"
    source.write_text('{"prompt": "p", "completion": "a\\nb"}\n{"prompt": "p", "completion": "a"}\n')
    before = source.read_bytes()
    command = ["dataset-tool", "skyreels-v2", str(source), "--set", "distortion=swap", "--out", str(out)]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().err) == {"read": 2, "made": 1, "dropped": {"answers with fewer than two steps": 1}}
    (row,) = map(json.loads, out.read_text().splitlines())
    assert row["chosen"][0]["content"] == "a\nb"
    assert row["rejected"][0]["content"] == "b\na"
    assert source.read_bytes() == before
    assert main(command) == 2
    assert "is there already" in capsys.readouterr().err
    assert main([*command[:2], "nowhere.jsonl"]) == 2
    for wrong in (["--set", "per_answer"], ["--set", "per_answer=x"], ["--seed", "-1"], ["--form", "prompt"]):
        assert main([*command[:3], *wrong]) == 2
    assert main(["dataset-tool"]) == 0
    assert "skyreels-v2" in capsys.readouterr().out
