"""The tree of a group: members merged where they say the same, what is cut apart from it, drawn within a second for 500 turns."""

import time
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from lab.rollouts.reading.merged_tree import MergedTree, merge_trees
from lab.rollouts.reading.tree_picture import MOST_DRAWN, draw_tree
from lab.rollouts.trajectories.models import Rollout
from lab.rollouts.trajectories.turn_tree import read_turn_trees
from lab.teams.accounts.models import Team
from lab.training.runs.models import Run, Status
from tests.hostile import MARK, PAYLOADS, stored
from tests.lab.reading.episodes import ANSWER, BETTER, CUT, EPISODE, PARTS, SEARCH, WORSE, tell_episode
from tests.lab.supervisor.spools import make_run, rollout, started, store
from trainers.contract.events import RolloutNode


@pytest.fixture
def run(team: Team) -> Run:
    return make_run(team, status=Status.FINISHED, task="search")


def merged(run: Run) -> tuple[MergedTree, dict[int, float | None]]:
    rollouts = list(Rollout.objects.filter(run=run).order_by("sample"))
    values = {one.pk: one.reward for one in rollouts}
    return merge_trees(rollouts, read_turn_trees(rollouts), values), values


def told(tree: MergedTree) -> list[tuple[int, str, int, float | None, bool]]:
    return [(turn.depth, turn.turn.text if turn.turn else "", turn.visits, turn.value, turn.is_gone) for turn in tree.walk()]


def test_members_are_merged_where_they_say_the_same(run: Run) -> None:
    """Both search for Eva; the first was cut and went on, the second answers at once."""
    short = (SEARCH, PARTS[1], ANSWER)
    nodes = [
        RolloutNode(0, "prompt"),
        RolloutNode(1, "policy", 0, start=0, end=1),
        RolloutNode(2, "world", 1, start=1, end=2),
        RolloutNode(3, "policy", 2, start=2, end=3, finish="stop"),
    ]
    store(run, started(), rollout(**tell_episode(reward=1.0)), rollout(sample=1, **tell_episode(short, nodes, reward=0.0)))
    tree, _ = merged(run)
    assert told(tree) == [
        (0, "", 2, 0.5, False),
        (1, SEARCH, 2, 0.5, False),
        (2, BETTER, 1, 1.0, False),
        (3, ANSWER, 1, 1.0, False),
        (2, ANSWER, 1, 0.0, False),
        (2, WORSE, 1, None, True),
        (3, "<answer>Mia</answer>", 1, None, True),
    ]


def test_the_page_of_a_group_links_each_turn_to_its_rollout(run: Run, as_owner: Client) -> None:
    store(run, started(), rollout(**tell_episode()), rollout(sample=1, **tell_episode()))
    first = Rollout.across_teams.filter(sample=0).get()
    html = as_owner.get(f"/runs/{run.pk}/groups/train/1/0/tree/").content.decode()
    assert html.count('class="tree-turn') == 6
    assert f'href="/rollouts/{first.pk}/#node-6"' in html
    assert f"cut: {CUT}" in html
    assert html.count("<tr id=") == 6
    assert "/tree/" in as_owner.get(f"/runs/{run.pk}/groups/train/1/0/").content.decode()
    alone = as_owner.get(f"/rollouts/{first.pk}/tree/", {"colour": "advantage"}).content.decode()
    assert "Tree of an episode" in alone


def test_without_trees_the_page_says_where_they_come_from(run: Run, as_owner: Client, as_stranger: Client) -> None:
    store(run, started(), rollout())
    one = Rollout.across_teams.get()
    for url in (f"/rollouts/{one.pk}/tree/", f"/runs/{run.pk}/groups/train/1/0/tree/"):
        assert "Trees are stored for runs in a" in as_owner.get(url).content.decode()
        assert as_stranger.get(url).status_code == 404
    assert "groups/train/1/0/tree/" not in as_owner.get(f"/runs/{run.pk}/groups/train/1/0/").content.decode()
    assert as_owner.get(f"/runs/{run.pk}/groups/train/7/0/tree/").status_code == 404
    assert as_owner.get(f"/runs/{run.pk}/groups/nophase/1/0/tree/").status_code == 404


def test_what_a_model_wrote_is_text_in_the_picture_and_in_the_table(run: Run, as_owner: Client) -> None:
    texts = [stored(payload) for payload in PAYLOADS]
    nodes = [RolloutNode(0, "prompt")]
    nodes += [
        RolloutNode(place, "policy", 0, seat=text, why=text, text=text, fate="cut", facts={"tool": text}) for place, text in enumerate(texts, 1)
    ]
    store(run, started(), rollout(nodes=nodes))
    html = as_owner.get(f"/rollouts/{Rollout.across_teams.get().pk}/tree/").content.decode()
    part = html[html.index('id="tree"') :]
    assert MARK in part
    for tag in ("<script>", "<img", "<iframe", "<b hx-get", 'onmouseover=window.hostileRan=1 autofocus onfocus=window.hostileRan=1 x="'):
        assert tag not in part


@pytest.mark.parametrize(
    "nodes", [[{"number": 1, "by": "policy", "parent": 1}], [{"number": n, "by": "policy", "parent": n - 1} for n in range(900)]]
)
def test_whatever_is_stored_the_page_is_shown(nodes: Any, run: Run, as_owner: Client) -> None:
    store(run, started(), rollout(nodes=EPISODE))
    Rollout.across_teams.update(nodes=nodes)
    assert as_owner.get(f"/rollouts/{Rollout.across_teams.get().pk}/tree/").status_code == 200


def make_wide_group(run: Run, members: int, turns: int) -> None:
    """Members that share their first turn and then go ways of their own."""
    events = []
    for sample in range(members):
        parts = tuple(f"<search>{'Eva' if not turn else f'{sample} {turn}'}</search>" for turn in range(turns))
        nodes = [RolloutNode(0, "prompt")]
        for turn in range(turns):
            nodes.append(RolloutNode(2 * turn + 1, "policy", 2 * turn, start=turn, end=turn + 1))
            nodes.append(RolloutNode(2 * turn + 2, "world", 2 * turn + 1, text="<information>x</information>"))
        events.append(rollout(sample=sample, **tell_episode(parts, nodes, reward=float(sample))))
    store(run, started(), *events)


def test_five_hundred_turns_are_laid_out_and_rendered_within_a_second(run: Run, as_owner: Client) -> None:
    make_wide_group(run, 16, 40)
    as_owner.get(f"/runs/{run.pk}/groups/train/1/0/tree/")  # templates are read once
    start = time.process_time()
    html = as_owner.get(f"/runs/{run.pk}/groups/train/1/0/tree/").content.decode()
    assert time.process_time() - start < 1.0
    assert html.count('class="tree-turn') == MOST_DRAWN
    assert "126 more are not" in html  # of 16 x 39 + 1 turns and the prompt


@given(st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), min_size=1, max_size=6))
def test_no_two_turns_stand_in_one_place_and_every_parent_is_drawn(paths: list[list[str]]) -> None:
    from lab.rollouts.trajectories.turn_tree import TurnNode, TurnTree

    rollouts, trees = [], {}
    for pk, path in enumerate(paths, 1):
        nodes = [TurnNode(0, None, "prompt", is_path=True)]
        for place, text in enumerate(path):
            nodes += [
                TurnNode(2 * place + 1, 2 * place, "policy", text=text, is_path=True),
                TurnNode(2 * place + 2, 2 * place + 1, "world", text="w"),
            ]
        rollouts.append(Rollout(pk=pk))
        trees[pk] = TurnTree(nodes)
    tree = merge_trees(rollouts, trees, {one.pk: float(one.pk) for one in rollouts})
    picture = draw_tree(tree, {})
    assert len({(one.x, one.y) for one in picture.turns}) == len(picture.turns) == len(tree.turns)
    assert len(tree.turns) - 1 == len({tuple(path[: length + 1]) for path in paths for length in range(len(path))})
    for turn in tree.turns[1:]:
        assert tree.turns[turn.parent].visits >= turn.visits
