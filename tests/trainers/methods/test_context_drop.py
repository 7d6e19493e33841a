"""Context drop: the rate in the training rows, what episodes meet, and no rate at all."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.methods.worlds.context_drop import Config, ContextDrop
from trainers.worlds.base import replay_episode
from trainers.worlds.search import Search, draw_lost_sentence


class Dice:
    """A draw that is known."""

    def __init__(self, drawn):
        self.drawn = drawn

    def random(self):
        return self.drawn

    def choice(self, hits):
        return hits[-1]


def test_the_worked_example():
    assert draw_lost_sentence([4, 7], 0.3, Dice(0.29)) == 7
    assert draw_lost_sentence([4, 7], 0.3, Dice(0.3)) is None
    assert draw_lost_sentence([], 1.0, Dice(0.0)) is None


@given(st.lists(st.integers(0, 50), max_size=4, unique=True), st.floats(0, 1), st.randoms())
def test_one_of_the_hits_is_lost_or_none(hits, rate, rng):
    lost = draw_lost_sentence(hits, rate, rng)
    assert lost is None or lost in hits
    assert draw_lost_sentence(hits, 0.0, rng) is None
    assert (draw_lost_sentence(hits, 1.0, rng) is None) == (not hits)


def rows_of(share, options=None):
    world = Search(options or {})
    examples = world.examples("train", 12, 0, "easy")
    return world, examples, ContextDrop(Config(share=share)).data(examples, SimpleNamespace(task=world))


def test_training_episodes_lose_a_sentence_and_held_out_ones_as_the_world_says():
    world, _, rows = rows_of(1.0)
    query = "<search>Eva's friend</search>"
    assert [row.data["missing"] for row in rows] == [1.0] * 12
    assert all(world.respond(row, query).count(" is ") == 1 for row in rows)
    assert all(world.respond(one, query).count(" is ") == 2 for one in world.examples("heldout", 12, 0, "easy"))


def test_without_a_rate_training_is_grpo_on_whole_results():
    world, examples, rows = rows_of(0.0, {"missing": 1.0})
    whole = Search()
    for example, row in zip(examples, rows, strict=True):
        assert row.prompt == example.prompt
        assert world.gold(row) == whole.gold(example)


def test_what_was_lost_is_measured():
    world, _, [row, *_] = rows_of(0.0)
    short = next(one for one in rows_of(1.0)[2] if len(one.data["evidence"]) == 1)
    asked = world.tell_turns(short, [f"<search>{short.data['person']}</search>", "<answer>none</answer>"])
    texts = [world.gold(row), "<answer>none</answer>", "".join(said.text for said in asked), ""]
    assert "lost" in replay_episode(world, short, texts[2]).turns[0].step.facts
    method = ContextDrop()
    method.prepare(SimpleNamespace(task=world))
    method.observe(rollout_batch([1, 0, 0, 0], 4, texts=texts, examples=[row, row, short, row]))
    logged = method.collect()
    searches = texts[0].count("<search>") + 1
    assert logged["lost"] == pytest.approx(1 / searches)
    assert logged["searches"] == searches / 4
    assert logged["accuracy_short"] == 0
    assert logged["accuracy_whole"] == pytest.approx(1 / 3)


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes):
    trained = two_steps("context-drop", {"share": 1.0}, base="grpo", task__name="search", **written_episodes)
    assert [step["context-drop/lost"] for step in trained.steps] == [1.0, 1.0]
    assert all(step["context-drop/searches"] > 0 for step in trained.steps)
