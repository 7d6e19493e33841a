"""What the table has room for: how a completion begins and ends, what a search found, heads of columns, and which columns leave."""

import re

import pytest
from django.conf import settings as settings_of_lab
from django.http import QueryDict
from django.test import Client

from lab.rollouts.browse.columns import build_table_columns, shorten_reward_names
from lab.rollouts.browse.ends import split_completion
from lab.rollouts.browse.indexing import index_all
from lab.rollouts.browse.pages import read_page
from lab.rollouts.browse.room import NARROWEST, STEP, WIDEST, place_columns
from lab.rollouts.browse.selection import Selection
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run
from tests.lab.supervisor.spools import make_run, rollout, started, steps, store


@pytest.fixture
def run(team: Team) -> Run:
    made = make_run(team, name="first")
    store(made, started(), *steps(1, 3))
    return made


def page(client: Client, query: str = "", **headers: str) -> str:
    response = client.get(f"/rollouts/{query}", headers=headers)
    assert response.status_code == 200
    return response.content.decode()


def shown(body: str) -> list[int]:
    return [int(key) for key in re.findall(r'data-row="(\d+)"', body)]


@pytest.mark.parametrize(
    ("completion", "start", "end"),
    [
        ("<answer>7</answer>", "<answer>7</answer>", ""),
        (
            "<think>17 + 25 is 42, I am sure of that.</think>\n<answer>42</answer>\n\n",
            "<think>17 + 25 is 42, I am sure of that.</think>",
            "<answer>42</answer>",
        ),
        ("x" * 4000 + "\n<answer>\n42\n</answer>  \n" + "\n" * 30, "x" * 300 + " …", "x" * 58 + "\n<answer>\n42\n</answer>"),
        ("so " * 110 + "it is 42", "so " * 87, "so " * 23 + "it is 42"),  # no longer than what is read of it: nothing is left out
        ("\u202e" * 60, "\u202e" * 30, "\u202e" * 30),
        ("\n" * 900, "\n" * 300 + " …", ""),
        ("\U0001f600" * 380, "\U0001f600" * 300, "\U0001f600" * 80),
        ("y" * 3000 + "\n" * 300, "y" * 300 + " …", ""),
    ],
)
def test_a_completion_shows_how_it_begins_and_how_it_ends(team: Team, completion: str, start: str, end: str) -> None:
    run = make_run(team)
    store(run, started(), rollout(1, completion=completion))
    row = read_page(team, Selection.read(QueryDict(""))).rows[0]
    begins, ends = split_completion(row.head, row.tail)
    assert (begins.rstrip(), ends) == (start.rstrip(), end)


@pytest.mark.parametrize("query", ["q=needle -hay or haystack", "re=n(e)%2Bdle"])
def test_what_a_search_finds_in_the_middle_is_shown_and_marked(as_owner: Client, run: Run, query: str) -> None:
    text = "First of all this is long & <b>bold</b>. " + "so on " * 99 + "a needle <i>here</i> " + "and on " * 99 + "<answer>42</answer>"
    store(run, rollout(9, completion=text))
    index_all()
    body = page(as_owner, f"?{query}")
    assert len(shown(body)) == 1
    assert "First of a … n a <mark>needle</mark> &lt;i&gt;here" in body
    assert "on &lt;answer&gt;42&lt;/answer&gt;</bdi>" in body
    assert "<mark>" not in page(as_owner, "?f=step:eq:9")


def test_the_heads_of_reward_functions_are_short_with_the_name_in_the_title(as_owner: Client, run: Run) -> None:
    names = ["format_reward_strict", "exact_reward_func", "tool_call_validity", "reward", "a_<b>", "match", "match_reward"]
    store(run, rollout(9, rewards=dict.fromkeys(names[:3], 1.0)))
    assert shorten_reward_names(names) == ["format_strict", "exact", "tool_call_validity", "reward", "a_<b>", "match", "match_reward"]
    body = page(as_owner)
    assert re.search(r'title="Value of the reward function format_reward_strict."><a [^>]*><bdi>format_<br>strict</bdi>', body)
    assert "<bdi>tool_call_<br>validity</bdi>" in body
    assert 'data-label="format_reward_strict"' in body


def test_the_least_important_columns_leave_first_and_those_asked_for_stay() -> None:
    offered = [column for column in build_table_columns(["correct", "format"], one_run=False) if column.usual or column.name == "max_entropy"]
    placed = {column.name: column.until for column in place_columns(offered, {"max_entropy"}, "length", [])}
    assert [name for name, until in placed.items() if not until] == ["step", "completion", "reward", "length", "max_entropy"]
    order = sorted((name for name in placed if placed[name]), key=lambda name: -placed[name])
    assert set(order[:3]) == {"tags", "rating", "labels"}  # nobody said anything about the rows
    assert order[3:] == ["sample", "mean_entropy", "finish", "group", "prompt", "component.format", "component.correct", "advantage", "run"]
    known = {int(width) for width in re.findall(r"\.until-(\d+)", (settings_of_lab.BASE / "static/rollouts/browse.css").read_text())}
    assert set(placed.values()) - {0} <= known == set(range(NARROWEST, WIDEST + 1, STEP))
