"""BFS-Prover-V2: the card's numbers, which steps are trained on, and two real steps on proofs that were searched."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.move_trees import every_move, make_tree  # noqa: F401
from trainers.data.search_samples import tokenize_step
from trainers.methods.worlds.bfs_prover_v2 import list_proof_steps, mark_central
from trainers.policies import tiny
from trainers.rollouts.search_tree import score_path, score_positions
from trainers.worlds.rewrites import Rewrites

NATS = st.lists(st.floats(0, 20), max_size=12)


def test_the_worked_example():
    assert mark_central([0.01, 0.2, 0.4, 0.9, 5.0], 0.2, 0.8) == [False, True, True, True, False]
    assert score_path([[-0.5, -0.5], [-1.0]], 0.5) == pytest.approx(-2 / 2**0.5)
    assert score_path([[-0.5, -0.5], [-1.0]], 0.0) == -2
    assert score_path([], 0.5) == 0


@given(NATS, st.floats(0, 0.4), st.floats(0.6, 1))
def test_the_middle_is_kept_and_the_tails_go(values, low, high):
    kept = mark_central(values, low, high)
    assert len(kept) == len(values)
    inside = [value for value, is_kept in zip(values, kept, strict=True) if is_kept]
    outside = [value for value, is_kept in zip(values, kept, strict=True) if not is_kept]
    assert all(value < min(inside) or value > max(inside) for value in outside if inside)
    assert len(outside) <= (low + 1 - high) * len(values) + 2


@given(NATS)
def test_without_tails_all_steps_stay(values):
    assert all(mark_central(values, 0.0, 1.0))


@given(st.lists(st.floats(-9, -0.01), min_size=2, max_size=6))
def test_a_longer_path_of_equal_probability_comes_first(steps):
    whole, split = [steps], [[value] for value in steps]
    assert score_path(split, 0.5) > score_path(whole, 0.5)
    assert score_path(split, 0.0) == pytest.approx(score_path(whole, 0.0))


@pytest.fixture
def proof():
    """A tree whose only path is a proof in three moves."""
    tree = make_tree(Rewrites(), "From 4 to 20 in 4 moves.", [["+3", "+3", "*2"]])
    tree.goal = tree.positions[-1]
    return tree


def tiny_tokenizer():
    family = tiny.find_family(Rewrites())
    return tiny.build_tokenizer(family.texts, family.tags)


def test_the_rows_are_the_steps_of_the_proof_and_only_they_are_in_the_loss(proof):
    tree, tokenizer = proof, tiny_tokenizer()
    rows = [tokenize_step(above, position, tokenizer.decode) for above, position in list_proof_steps(tree)]
    assert len(rows) == 3
    whole = tree.goal.episode.context_ids(tree.goal)
    assert rows[-1]["input_ids"] == [*whole[0], *whole[1]]
    world, example = Rewrites(), tree.root.episode.example
    for row, move in zip(rows, ["<move>+3</move>", "<move>+3</move>", "<move>*2</move>"], strict=True):
        trained = [id_ for id_, own in zip(row["input_ids"], row["completion_mask"], strict=True) if own]
        assert tokenizer.decode(trained) == move
        assert row["completion_mask"][-len(trained) :] == [1] * len(trained)
    assert world.rewards["correct"].function(rows[-1]["completion"][0]["content"], example) == 1


def test_positions_are_ranked_by_the_probability_of_their_paths(proof):
    path = proof.path(proof.goal)
    for place, position in enumerate(path[1:], 1):
        for node in position.episode.path(position):
            if node.by == "forced":
                node.logprobs = [-0.1] * len(node.ids)
        count = sum(len(node.ids) for node in position.episode.path(position) if node.by == "forced")
        assert score_positions([position], 0.5) == [pytest.approx(-0.1 * count / place**0.5)]


@pytest.mark.training
def test_two_real_steps(two_steps, every_move):  # noqa: F811
    trained = two_steps("bfs-prover-v2", {"nodes": 8}, trainer="sft", training__demonstrations=24, **every_move)
    first = trained.steps[0]
    assert first["bfs-prover-v2/data_solved"] == 1.0  # easy problems take two moves at most
    assert first["bfs-prover-v2/data_kept"] < first["bfs-prover-v2/data_pairs"]
    assert 1 <= first["bfs-prover-v2/data_expanded"] <= 4
