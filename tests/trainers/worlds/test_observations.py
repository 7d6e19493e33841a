"""Observations: what tools gave back is read call by call, without thoughts, and judged by that alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.tasks.registry import get_task
from trainers.worlds.base import POLICY, replay_episode
from trainers.worlds.observations import Observation, holds_evidence, list_hits, list_observations, remove_thought, write_findings
from trainers.worlds.search import Search

SEARCHING = ("entity_search", "graph", "judged_search", "paragraphs", "planned_search", "search", "two_corpora")
NOTHING = "<information>nothing</information>"


def observe_gold(name):
    world = get_task(name)
    example = world.examples("train", 1, 0, "medium")[0]
    return world, example, list_observations(replay_episode(world, example, world.gold(example)))


@pytest.mark.parametrize("name", SEARCHING)
def test_every_world_with_evidence_tells_what_its_tools_gave_back(name):
    world, example, seen = observe_gold(name)
    assert seen
    assert all(one.call.endswith(world.stop) and one.text.startswith("<information>") for one in seen)
    assert any(holds_evidence(one, example) for one in seen)
    findings = write_findings(seen)
    assert all(one.text in findings for one in seen if one.has_findings)
    assert all((one.call in findings) != one.stands_alone for one in seen if one.has_findings)


def test_thoughts_are_seen_by_nobody():
    world = Search()
    example = world.examples("train", 1, 0, "medium")[0]
    plain, (*calls, answer) = world.gold(example), world.way(example, world.begin(example))
    thinking = world.write_episode(example, [*(f"<think>Eva it is</think>{call}" for call in calls), answer])
    seen = list_observations(replay_episode(world, example, thinking))
    assert seen == list_observations(replay_episode(world, example, plain))
    assert "think" not in write_findings(seen)


@given(st.text("<think>/ab ", max_size=30))
def test_a_call_is_what_follows_the_last_thought(text):
    assert remove_thought(f"<think>{text}</think> <search>x</search>") == "<search>x</search>"
    assert "</think>" not in remove_thought(text)


def test_a_repeated_hit_holds_evidence_again_and_is_one_document():
    world = Search()
    example = world.examples("train", 1, 0, "medium")[0]
    first = world.way(example, world.begin(example))[0]
    text = world.write_episode(example, [first, first, "<search>zzz</search>", "<answer>none</answer>"])
    one, again, empty = list_observations(replay_episode(world, example, text))
    assert again.facts["evidence"] == []
    assert holds_evidence(one, example)
    assert holds_evidence(again, example)
    assert not holds_evidence(empty, example)
    assert list_hits([one, again, empty]) == one.facts["hits"]
    assert (empty.text, empty.is_empty, empty.has_findings) == (NOTHING, True, False)
    assert write_findings([one, again, empty]) == one.text * 2


def test_a_failure_is_no_finding_and_not_empty_either():
    world = Search({"failures": 1.0})
    example = world.examples("train", 1, 0, "medium")[0]
    step = world.step(example, world.begin(example), POLICY, "<search>Eva's city</search>", world.draw_noise(example, 0))
    failed = Observation("<search>Eva's city</search>", step.text, step.facts)
    assert not failed.has_findings
    assert not failed.is_empty
    assert write_findings([failed]) == ""
