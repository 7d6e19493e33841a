"""Lineage: every step of the loop is an edge, around one object only what belongs to it, and the layout holds its promises on any graph."""

from itertools import combinations, pairwise
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from hypothesis import given
from hypothesis import strategies as st

from lab.data.datasets.models import Recall, RecallKind, Version
from lab.data.loop.graph import Graph, GraphNode, graph_of
from lab.data.loop.graph_layout import GAP_X, HEIGHT, WIDTH, compute_graph_layout, remove_cycles
from lab.data.loop.matches import request_match
from lab.labelling.labels.models import Queue
from lab.teams.accounts.models import Team, User
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Run
from tests.hostile import PAYLOADS
from tests.lab.loop.making import SPEC, finished_run, frozen, heldout, labelled_queue, sampled


@pytest.fixture
def version(team: Team, owner: User, settings: Any, tmp_path: Any) -> Version:
    settings.DATASETS_ROOT = tmp_path / "datasets"
    run = finished_run(team, owner, *sampled(50, 52), *heldout(0, ["a", "b"]), *heldout(100, ["c", "d"]))
    return frozen(team, owner, labelled_queue(team, owner, run))


@pytest.fixture
def child(version: Version, owner: User) -> Run:
    source = Run.across_teams.get(name="source")
    policy = {"kind": "run", "run": str(source.pk), "checkpoint": 50}
    dpo = {"policy": policy, "recipe": "dpo", "training": {"trainer": "dpo", "max_steps": 20}, "dataset": {"file": version.train_file}}
    return finished_run(version.dataset.team, owner, *heldout(0, ["c", "d"]), *heldout(20, ["e", "f"]), step=20, kept=(), **dpo)


def edges(graph: Graph) -> set[tuple[str, str]]:
    return {(graph.nodes[one].title, graph.nodes[two].title) for one, two in graph.edges}


def page(client: Client, **query: Any) -> str:
    response = client.get("/lineage/", query)
    assert response.status_code == 200
    return response.content.decode()


@pytest.mark.feature(75)
def test_every_step_of_the_loop_is_an_edge(team: Team, owner: User, version: Version, child: Run) -> None:
    Run.across_teams.filter(pk=child.pk).update(name="child")
    match = request_match(team, owner, Run.across_teams.get(name="child"))
    found = edges(graph_of(team))
    assert match.queue is not None
    assert {
        ("mini_gsm", "#1 source"),
        ("#1 source", "Answers of #1"),
        ("Answers of #1", "Pairs"),
        ("Pairs", "Preferences v1"),
        ("Preferences v1", "#2 child"),
        ("#1 source", "#1 at step 50"),
        ("#1 at step 50", "#2 child"),
        ("#2 child", "Answers of #2"),
        ("Answers of #2", match.queue.name),
    } <= found
    assert ("mini_gsm", "#2 child") not in found  # it was trained on the version


def test_around_one_object_stands_only_what_belongs_to_it(as_owner: Client, team: Team, owner: User, version: Version, child: Run) -> None:
    Run.across_teams.filter(pk=child.pk).update(name="child")
    launch_run(team, owner, SPEC, "elsewhere")
    for query in ({"version": version.pk}, {"run": 2}, {"run": str(child.pk)}, {"queue": Queue.across_teams.get().pk}):
        text = page(as_owner, **query)
        for part in ("#1 source", "Pairs", "Preferences v1", "#2 child"):
            assert part in text
        assert "elsewhere" not in text
        assert 'class="node' in text
    assert "As a table" in page(as_owner)


def test_recalled_labels_mark_everything_below(as_owner: Client, team: Team, owner: User, version: Version, child: Run) -> None:
    assert "flagged" not in page(as_owner, run=2).split("lineage-key")[0]
    Recall.objects.create(team=team, kind=RecallKind.QUEUE, queue=Queue.across_teams.get(), reason="r", by=owner)
    graph = graph_of(team)
    marked = {node.title: node.flag for node in graph.nodes.values() if node.flag}
    assert marked == {"Pairs": "recalled", "Preferences v1": "recalled labels", f"#2 {child.name}": "recalled labels"}
    assert "labels · recalled" in page(as_owner, run=2)


def test_a_run_of_the_command_line_on_a_file_of_the_same_name_is_not_joined(team: Team, owner: User, version: Version, tmp_path: Any) -> None:
    other = tmp_path / version.train_file
    other.write_bytes(version.path().read_bytes())
    launch_run(team, owner, {**SPEC, "training": {"trainer": "dpo"}, "dataset": {"path": str(other)}}, "by hand", paths=True)
    assert not any(one == "Preferences v1" for one, _ in edges(graph_of(team)))


def test_another_teams_objects_are_not_found(as_stranger: Client, version: Version, child: Run) -> None:
    for query in ({"version": version.pk}, {"run": child.pk}, {"run": child.number}, {"queue": Queue.across_teams.get().pk}):
        assert as_stranger.get("/lineage/", query).status_code == 404
    assert "source" not in page(as_stranger)


@pytest.mark.parametrize("query", ["run=x", f"run={2**31}", f"run={10**30}", "version=-1", f"queue={2**63}", "queue=0"])
def test_mangled_addresses_are_not_found(as_owner: Client, query: str) -> None:
    assert as_owner.get(f"/lineage/?{query}").status_code == 404


def test_a_team_without_anything_is_told_what_to_do(as_owner: Client) -> None:
    assert "The graph starts with a run" in page(as_owner, other="ignored")


def test_hostile_names_are_text(as_owner: Client, version: Version, child: Run) -> None:
    for text in [text for text in PAYLOADS if "<" in text][:8]:
        Run.across_teams.filter(pk=child.pk).update(name=text[:100])
        Queue.across_teams.update(name=text[:100])
        assert text[:100] not in page(as_owner, run=2)


def test_more_runs_do_not_mean_more_queries(team: Team, owner: User, version: Version) -> None:
    def asked() -> int:
        with CaptureQueriesContext(connection) as queries:
            graph_of(team)
        return len(queries)

    before = asked()
    source = Run.across_teams.get(name="source")
    for number in range(5):
        launch_run(team, owner, {**SPEC, "policy": {"kind": "run", "run": str(source.pk)}}, f"more {number}")
    assert asked() == before <= 12


def test_what_is_too_much_is_left_out_from_the_far_end() -> None:
    graph = Graph()
    keys = [graph.add(GraphNode(("run", str(number)), str(number), "", "/")) for number in range(20)]
    for one, two in pairwise(keys):
        graph.join(one, two, "")
    part, left_out = graph.around([keys[10]], most=5)
    assert (set(part.nodes), left_out) == (set(keys[8:13]), 15)
    assert len(part.edges) == 4


GRAPHS = st.integers(1, 12).flatmap(
    lambda count: st.tuples(st.just(count), st.lists(st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)), max_size=30))
)


@given(GRAPHS)
def test_any_graph_is_laid_out_without_overlap_and_left_to_right(drawn: tuple[int, list[tuple[int, int]]]) -> None:
    nodes, pairs = list(range(drawn[0])), drawn[1]
    placed = compute_graph_layout(nodes, pairs)
    kept = remove_cycles(nodes, pairs)
    assert set(placed.at) == set(nodes)
    assert set(placed.paths) == set(kept)
    for one, two in kept:
        assert placed.at[one][0] + WIDTH + GAP_X <= placed.at[two][0]
    for one, two in combinations(nodes, 2):
        (x, y), (left, top) = placed.at[one], placed.at[two]
        assert x != left or abs(y - top) >= HEIGHT
    assert all(0 <= x <= placed.width - WIDTH and 0 <= y <= placed.height - HEIGHT for x, y in placed.at.values())
    assert compute_graph_layout(nodes, pairs) == placed
    if all(one < two for one, two in pairs):  # nothing to break
        assert set(kept) == set(pairs)
