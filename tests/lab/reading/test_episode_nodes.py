"""The turns of an episode on the page of its rollout."""

from typing import Any

import numpy as np
import pytest
from django.test import Client

from lab.rollouts.reading.episode_nodes import count_branches, list_nodes
from lab.rollouts.trajectories.cards import with_cards
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.turn_tree import read_turn_tree
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.supervisor.spools import assert_database_equals_spool, make_run, rollout, started, store
from trainers.contract.events import RolloutNode

TREE = [
    RolloutNode(0, "prompt"),
    RolloutNode(1, "policy", 0, start=0, end=2, facts={"tool": "search", "query": "Eva's boss", "evidence": [3], "hits": [3, 4]}, reward=0.25),
    RolloutNode(2, "world", 1, start=2, end=3),
    RolloutNode(5, "policy", 2, start=3, end=4, finish="stop"),
    RolloutNode(3, "policy", 2, fate="cut", why="first flawed step", text="<search>Leo</search>", facts={"error": "no hits", "junk": True}),
    RolloutNode(4, "prompt", about=2, seat="judge", text="good or bad?", notes={"votes": 2.0}),
]


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.RUNNING)


def test_nodes_come_from_the_spool_to_the_row_and_the_page(run: Run, as_owner: Client) -> None:
    store(run, started(), rollout(nodes=TREE), rollout(sample=1))
    assert_database_equals_spool(run)
    with_tree, without = Rollout.objects.filter(run=run).order_by("sample")
    assert [node["number"] for node in with_tree.nodes] == [0, 1, 2, 5, 3, 4]
    assert without.nodes == []
    html = as_owner.get(f"/rollouts/{with_tree.pk}/").content.decode()
    for text in (
        "Turns of the episode",
        "2 beside the kept path",
        "first flawed step",
        "no hits",
        "asks about 2",
        "&lt;search&gt;Leo&lt;/search&gt;",
    ):
        assert text in html
    assert "Turns of the episode" not in as_owner.get(f"/rollouts/{without.pk}/").content.decode()


def test_the_feed_and_the_group_say_whose_turns_were_cut(run: Run, as_owner: Client) -> None:
    store(run, started(), rollout(nodes=TREE), rollout(sample=1))
    for page in (f"/runs/{run.pk}/rollouts/", f"/runs/{run.pk}/groups/train/1/0/"):
        html = as_owner.get(page).content.decode()
        assert html.count("1 turn cut") == 1, page
    cut, whole = with_cards(Rollout.objects.filter(run=run).order_by("sample"))
    assert cut.text == whole.text
    assert cut.text_key != whole.text_key  # one does not hide behind the other


def test_a_node_shows_its_part_of_the_completion_and_what_the_world_said(run: Run) -> None:
    store(run, started(), rollout(nodes=TREE, completion="abcdefghij"))
    lines = list_nodes(read_turn_tree(Rollout.objects.get(run=run), np.array([1, 2, 3, 4])))
    by_number = {line.number: line for line in lines}
    assert ["".join(piece.text for piece in by_number[number].pieces) for number in (1, 2, 5)] == ["abc", "def", "ghij"]
    first, gone = by_number[1], by_number[3]
    assert (first.tool, first.query, first.evidence, first.reward, first.facts) == ("search", "Eva's boss", 1, 0.25, [("hits", "[3, 4]")])
    assert (gone.error, gone.is_junk, gone.fate) == ("no hits", True, "cut")
    assert [line.number for line in lines] == [0, 1, 2, 5, 3, 4]
    assert [line.depth for line in lines] == [0, 0, 0, 1, 1, 0]  # only what forks is set in
    assert count_branches(lines) == 2


@pytest.mark.parametrize(
    "nodes",
    [
        None,
        5,
        "x",
        [None, 3, [], {}],
        [{"number": 1, "by": "policy", "parent": 1}],
        [{"number": 1, "by": "policy", "parent": 2}, {"number": 2, "by": "policy", "parent": 1}],
        [{"number": 1, "by": "policy", "start": 10**9, "end": -5, "facts": 3, "notes": [1], "reward": "x", "about": "y", "seat": None}],
        [{"number": number, "by": "world", "parent": number - 1} for number in range(3000)],
        [{"number": 0, "by": "x" * 9000, "facts": {"evidence": "x", "tool": {"a": [1]}, "query": 5}, "text": 7}],
    ],
)
def test_whatever_is_stored_the_page_is_shown(nodes: Any, run: Run, as_owner: Client) -> None:
    store(run, started(), rollout())
    Rollout.objects.filter(run=run).update(nodes=nodes) if nodes is not None else None
    assert as_owner.get(f"/rollouts/{Rollout.objects.get(run=run).pk}/").status_code == 200
    assert as_owner.get(f"/runs/{run.pk}/rollouts/").status_code == 200


def test_what_a_model_wrote_is_shown_as_text(run: Run, as_owner: Client) -> None:
    said = [stored(payload) for payload in PAYLOADS]
    nodes = [
        RolloutNode(
            number, "policy", 0, seat=text, why=text, text=text, fate="cut", facts={"tool": text, "query": text, text: text}, notes={text: 1.0}
        )
        for number, text in enumerate(said)
    ]
    store(run, started(), rollout(nodes=nodes))
    html = as_owner.get(f"/rollouts/{Rollout.objects.get(run=run).pk}/").content.decode()
    part = html[html.index('id="episode-nodes"') : html.index("</details>", html.index('id="episode-nodes"'))]
    assert MARK in part
    for tag in ("<script", "<img", "<svg", "<iframe", "<b hx-get", 'onmouseover=window.hostileRan=1 autofocus onfocus=window.hostileRan=1 x="'):
        assert tag not in part
