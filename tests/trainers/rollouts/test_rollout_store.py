"""What outlives an episode."""

import json
import random
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.rollouts.seats import Player
from trainers.rollouts.store import LIMIT, Store


def test_a_list_keeps_its_newest_items():
    store = Store()
    store.limit("lemmas", 3)
    store.add("lemmas", 1, 2, 3, 4)
    assert store.items("lemmas") == [2, 3, 4]
    assert store.take("lemmas", 2) == [2, 3]
    assert store.items("lemmas") == [4]
    assert store.draw("lemmas", 5, random.Random(0)) == [4]
    store.replace("lemmas", ["a"])
    assert (store.items("lemmas"), store.size("lemmas"), store.size("others")) == (["a"], 1, 0)


@given(st.lists(st.integers(0, 9), max_size=20), st.integers(1, 5))
def test_a_restored_store_goes_on_as_the_one_that_was_saved(items, count):
    store, again = Store(), Store()
    store.limit("questions", count)
    store.add("questions", *items)
    again.restore(json.loads(json.dumps(store.state())))
    for one in (store, again):
        one.add("questions", -1)
    assert store.items("questions") == again.items("questions")
    assert store.items("questions") == [*items, -1][-count:]


def test_what_json_cannot_hold_is_refused():
    store = Store()
    with pytest.raises(TypeError):
        store.add("x", object())
    with pytest.raises(ValueError, match="longer"):
        store.add("x", "y" * 30_000)
    with pytest.raises(ValueError, match="keeps nothing"):
        store.limit("x", 0)
    store.add("x", *range(LIMIT + 5))
    assert store.items("x")[0] == 5


def test_players_say_what_they_need():
    assert Player().in_loss
    assert not Player("snapshot").in_loss
    with pytest.raises(ValueError, match="rule"):
        Player("rule")
    with pytest.raises(ValueError, match="folder"):
        Player("folder")


def test_the_tree_needs_no_torch():
    code = "import sys; import trainers.rollouts.tree, trainers.rollouts.seats, trainers.rollouts.store; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "False"
