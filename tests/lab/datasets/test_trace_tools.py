"""Tools that make demonstrations or questions out of prompts and episodes, from an imported file to rows that a trainer reads."""

from typing import Any

from django.test import Client

from lab.data.datasets.models import Form, Version
from lab.data.datasets.tool_acts import apply_tool_to_version
from lab.data.datasets.tool_plan import plan_tool
from lab.teams.accounts.models import User
from tests.lab.datasets.test_dataset_tools import address, built, make_source, page
from trainers.contract.dataset_tools.clue_questions import NO_FACTS
from trainers.contract.dataset_tools.countdown_traces import NO_PUZZLE
from trainers.contract.dataset_tools.primed_episodes import NOT_ALL
from trainers.data.datasets import read_rows

PUZZLE = "Using the numbers [3, 5, 7], create an equation that equals 22."
PEOPLE = {"Ana": {"city": "Rome", "job": "nurse"}, "Ben": {"city": "Oslo", "job": "cook"}, "Zoe": {"city": "Rome", "job": "cook"}}
USEFUL = "Eva city: record Rome, rumour Oslo"
SEARCHES = (("Eva city", "Leo pet: record cat"), ("city Eva", "failed"), ("city Eva", USEFUL), ("city Eva", USEFUL))
EPISODE = "".join(f"<search>{query}</search><information>{result}</information>" for query, result in SEARCHES) + "<answer>Oslo</answer>"


def apply(source: Version, user: User, name: str, **config: Any) -> Version:
    return built(apply_tool_to_version(source, plan_tool(source, name, config, 0), user, name="Made"))


def test_puzzles_become_traces_that_sft_reads(as_owner: Client, owner: User) -> None:
    source = make_source(as_owner, [{"prompt": PUZZLE, "reference": "22"}, {"prompt": "Hello?", "reference": "Hello."}])
    assert "Search traces with dead ends" in page(as_owner, address(source))
    version = apply(source, owner, "how-much-backtrack", dead_ends=2)
    assert (version.dataset.form, version.counts["left_out"]) == (Form.COMPLETION, {NO_PUZZLE: 1})
    [row] = read_rows(version.path(), "sft")
    assert row["completion"][0]["content"].count("back to step") == 2
    assert "dead ends: 2" in page(as_owner, f"/datasets/versions/{version.pk}/")


def test_facts_of_prompts_become_questions_with_a_funnel(as_owner: Client, owner: User) -> None:
    rows = [{"prompt": f"{number}?", "reference": "x", "data": {"nodes": PEOPLE}} for number in range(8)]
    source = make_source(as_owner, [*rows, {"prompt": "Hello?", "reference": "Hello."}])
    version = apply(source, owner, "bmgq", clues=2, solvers=0, drafts=50)
    assert version.counts["left_out"][NO_FACTS] == 1
    made = read_rows(version.path(), "grpo")
    assert {row["reference"] for row in made} == {"Zoe"}
    assert all(row["data"]["nodes"] == PEOPLE for row in made)


def test_episodes_that_show_all_habits_are_kept_though_they_are_wrong(as_owner: Client, owner: User) -> None:
    wrong = EPISODE.replace("Rome, rumour Oslo", "Oslo, rumour Rome")
    rows = [{"prompt": "p", "completion": wrong, "label": False}, {"prompt": "q", "completion": EPISODE, "label": True}]
    version = apply(make_source(as_owner, rows), owner, "behavior-priming", arm="behaviours-wrong")
    assert (version.dataset.form, version.counts["left_out"]) == (Form.COMPLETION, {NOT_ALL: 1})
    assert [row["completion"][0]["content"] for row in read_rows(version.path(), "sft")] == [wrong]


def test_cases_become_traces_that_cite_clauses(as_owner: Client, owner: User) -> None:
    case = "25 kg, sender 30, Sunday, books, worth 10, 5 km, permit."
    version = apply(make_source(as_owner, [{"prompt": case, "reference": "refused"}]), owner, "prt")
    [row] = read_rows(version.path(), "sft")
    assert row["completion"][0]["content"] == "<think>c1: 25 kg; c7: permit; c3: Sunday</think><answer>refused</answer>"
