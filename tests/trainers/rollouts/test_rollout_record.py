"""What a rollout event says of the tree behind it."""

import math

import msgspec
import pytest
import torch

from tests.hostile import PAYLOADS
from trainers.contract.events import Message, Rollout, RolloutNode
from trainers.rollouts.compile import compile_leaves, compile_rows
from trainers.rollouts.record import MOST_BYTES, MOST_FACTS, MOST_NODES, clean_facts, record_nodes
from trainers.rollouts.tree import Place


def played(session, seed):
    torch.manual_seed(seed)
    return session.play([episode.root for episode in session.begin()])


def test_a_path_is_told_by_its_places_and_what_is_beside_it_by_its_text(make_session):
    session = make_session()
    leaf = next(leaf for leaf in played(session, 10) if len(leaf.episode.turns(leaf)) > 1)
    at = session.cut(leaf, Place(turn=1), "first flawed step")
    (asked,) = session.ask("judge", [at], [[Message("user", "good?")]], max_tokens=3)[0]
    (end,) = session.play([at])
    row = compile_rows(leaf.episode)[0]
    nodes = record_nodes(row, [row])
    path = {node.number for node in leaf.episode.path(end)}
    assert {node.number for node in nodes} == {node.number for node in leaf.episode.nodes}
    for node in nodes:
        if node.number in path and node.number:
            assert session.engine.decode(row.ids[node.start : node.end]) == leaf.episode.nodes[node.number].text
            assert node.text == ""
        elif node.number:
            assert (node.start, node.end) == (-1, -1)
            assert node.text == leaf.episode.nodes[node.number].text
    assert [node.why for node in nodes if node.fate == "cut" and node.why] == ["first flawed step"]
    assert [node.about for node in nodes if node.about is not None] == [at.number]
    assert asked.number in {node.number for node in nodes}
    assert msgspec.json.decode(msgspec.json.encode(nodes), type=list[RolloutNode]) == nodes


def test_a_node_of_a_shared_tree_is_told_by_those_whose_path_it_is_on(make_session):
    session = make_session()
    leaf = next(leaf for leaf in played(session, 6) if len(leaf.episode.turns(leaf)) > 1)
    first = leaf.episode.turns(leaf)[0][-1]
    world_node = next(node for node in leaf.episode.path(leaf) if node.parent == first.number)
    leaves = [leaf, *session.play(session.branch(world_node, 2))]
    session.success([world_node], 2)
    rows = compile_leaves(leaves, keep_all=True)
    told = [record_nodes(row, rows) for row in rows]
    for row, nodes in zip(rows, told, strict=True):
        numbers = [node.number for node in nodes]
        assert numbers[: len(row.episode.path(row.leaf))] == [node.number for node in row.episode.path(row.leaf)]
    assert sum(any(node.fate == "abandoned" for node in nodes) for nodes in told) == 1
    assert {node.number for nodes in told for node in nodes} == {node.number for node in leaf.episode.nodes}


def test_a_large_tree_is_told_in_part(make_session):
    session = make_session()
    episode = session.begin([0])[0]
    for _ in range(2 * MOST_NODES):
        node = session.force(session.branch(episode.root, 1)[0], "<answer>" + "x" * 4000 + "</answer>", whole=True)
        node.fate = "abandoned"
    (leaf,) = session.play([episode.root])
    row = compile_rows(episode)[0]
    nodes = record_nodes(row, [row])
    assert len(msgspec.json.encode(nodes)) < MOST_BYTES + 4000
    assert leaf.number in {node.number for node in nodes}
    assert 2 < len(nodes) <= MOST_NODES


@pytest.mark.parametrize("payload", PAYLOADS)
def test_facts_are_json_that_can_be_stored(payload):
    deep: dict = {}
    for _ in range(50):
        deep = {payload: deep}
    facts = {"query": payload[:200] or "?", "deep": deep, "odd": object(), "number": math.nan, "hits": (1, 2), "huge": 10**30}
    kept = clean_facts({**facts, "long": payload * 1000, "more": [payload] * 500})
    text = msgspec.json.encode(kept)
    assert len(text) < MOST_FACTS + 200
    assert b"\\u0000" not in text
    assert kept["query"]
    assert kept["number"] is None
    assert kept["hits"] == [1, 2]
    assert kept["huge"] == hex(10**30)


def test_events_of_earlier_versions_have_no_nodes():
    event = {"event": "rollout", "attempt": 1, "time": 0, "step": 1, "phase": "train", "group": 0, "sample": 0, "prompt": [], "completion": ""}
    line = msgspec.json.encode(event | {"rewards": {}, "reward": None, "finish_reason": "stop"})
    assert msgspec.json.decode(line, type=Rollout).nodes == []
