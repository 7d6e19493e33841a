"""The world ``placement``: what fits, what ends an episode, and that placing low always meets a dead end."""

from types import SimpleNamespace

import pytest

from trainers.methods.worlds.cost_to_go import Config, CostToGo
from trainers.policies import tiny
from trainers.rollouts.engine import Engine
from trainers.rollouts.moves import force_text
from trainers.rollouts.search import search_trees
from trainers.rollouts.search_strategies import BestFirst
from trainers.tasks.base import Example
from trainers.worlds.base import replay_episode
from trainers.worlds.packings import do_overlap, find_way, list_free_rows, place_lowest
from trainers.worlds.placement import Placement, read_buffers
from trainers.worlds.tool_use import write_call

BUFFERS = ((1, 1, 1), (1, 3, 1), (2, 3, 2))
EXAMPLE = Example([], "1 0 1", {"rows": 3, "buffers": [list(one) for one in BUFFERS]})


def play(text):
    return [reward.function(text, EXAMPLE) for reward in Placement().rewards.values()]


def write_moves(rows):
    world = Placement()
    return "".join(said.text for said in world.tell_turns(EXAMPLE, [f"<put>{row}</put>" for row in rows]))


def test_buffers_overlap_in_time_and_in_rows():
    assert do_overlap((1, 3, 2), 0, (3, 4, 1), 1)
    assert not do_overlap((1, 3, 2), 0, (4, 4, 1), 1)
    assert not do_overlap((1, 3, 2), 0, (3, 4, 1), 2)


def test_free_rows_leave_out_what_lives_at_the_same_time():
    assert list_free_rows(3, BUFFERS, ()) == [0, 1, 2]
    assert list_free_rows(3, BUFFERS, (1,)) == [0, 2]
    assert list_free_rows(3, BUFFERS, (0, 1)) == []
    assert list_free_rows(3, BUFFERS, (1, 0)) == [1]
    assert place_lowest(3, BUFFERS) == (0, 1)
    assert find_way(3, BUFFERS, ()) == (0, 2, 0)
    assert find_way(3, BUFFERS, (0, 1)) is None


def test_an_episode_by_hand():
    assert write_moves([1, 0, 1]) == "<put>1</put><information>1-3 x1</information><put>0</put><information>2-3 x2</information><put>1</put>"
    assert play(write_moves([1, 0, 1])) == [1, 1, 1]
    assert play(write_moves([1, 1])) == pytest.approx([0, 1 / 3, 1])  # it does not fit
    dead = write_moves([0, 1])
    assert play(dead) == pytest.approx([0, 2 / 3, 1])
    assert replay_episode(Placement(), EXAMPLE, dead).turns[-1].step.facts["error"] == "no room for the next"


@pytest.mark.parametrize("text", ["<put>-1</put>", "<put>9</put>", "<put>00</put>", "<put>x</put>", "<put></put>", "0", ""])
def test_what_is_no_free_row_ends_the_episode(text):
    step = Placement().step(EXAMPLE, Placement().begin(EXAMPLE), "policy", text, None)
    assert step.done
    assert step.state["rows"] == []


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard"])
def test_there_is_a_way_but_not_by_the_lowest_nor_by_the_highest_rows(difficulty):
    for example in Placement().examples("train", 20, 0, difficulty):
        rows, buffers = read_buffers(example)
        assert find_way(rows, buffers, ()) is not None
        assert len(place_lowest(rows, buffers)) < len(buffers)
        high = ()
        while free := list_free_rows(rows, buffers, high):
            high = (*high, free[-1])
        assert len(high) < len(buffers)


def test_tree_search_finds_the_way_past_dead_ends():
    world = Placement()
    family = tiny.find_family(world)
    tokenizer = tiny.build_tokenizer(family.texts, family.tags)
    run = SimpleNamespace(task=world, tokenizer=tokenizer, prompt_ids=lambda prompts: [tokenizer.encode(prompts[0][-1].content)])
    engine, method = Engine(run, None, 1.0, 200, 8), CostToGo(Config(weight=1.0))
    method.run, method.values = run, SimpleNamespace(estimate_open=lambda nodes: [len(node.state["rows"]) / 8 for node in nodes])
    examples = world.examples("train", 6, 0, "medium")
    roots = [engine.open_episode(example, example.prompt).root for example in examples]
    trees = search_trees(
        roots,
        BestFirst(200, world.max_turns),
        lambda nodes: [[force_text(engine, node, write_call("put", row)) for row in range(4)] for node in nodes],
        method.rank_positions,
        lambda node: world.outcome(node.episode.example, node.state)["policy"]["correct"] == 1,
    )
    assert all(tree.goal is not None for tree in trees)
    assert all(len(find_way(*read_buffers(tree.root.episode.example), ())) == tree.depth(tree.goal) for tree in trees)
    assert any(node.facts.get("error") == "no room for the next" for tree in trees for node in tree.positions)
