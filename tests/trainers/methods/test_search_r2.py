"""Search-R2: where an episode is cut, what stays of it, and what it is paid."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.turn_scripts import WORLD, script_turns
from trainers.methods.worlds.search_r2 import Config, SearchR2, combine_rewards, find_flawed_turn, measure_useful_share

SEARCH = {"tool": "search", "hits": [1, 2]}


def make_method(session, **config):
    method = SearchR2(Config(**config))
    method.prepare(session.run)
    return method


def test_the_worked_example():
    right, useful = torch.tensor([1.0, 1, 0, 0]), torch.tensor([3 / 4, 1 / 4, 1, 0])
    rewards = combine_rewards(right, useful, 1.0, "times")
    assert rewards.tolist() == [1.75, 1.25, 0, 0]
    advantages = (rewards - rewards.mean()) / rewards.std(correction=0)
    assert advantages.tolist() == pytest.approx([1.2978, 0.6489, -0.9733, -0.9733], abs=1e-4)
    assert combine_rewards(right, useful, 0.5, "plus").tolist() == [1.375, 1.125, 0.5, 0]


def test_the_first_search_without_new_evidence_is_flawed():
    good, bad = {**SEARCH, "evidence": [1]}, {**SEARCH, "evidence": []}
    assert find_flawed_turn([good, bad, bad, {}]) == 1
    assert find_flawed_turn([good, {}]) is None
    assert find_flawed_turn([]) is None
    assert measure_useful_share([good, bad, {}]) == 0.25
    assert measure_useful_share([{}]) == 0


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 1)), min_size=1), st.floats(0, 10))
def test_a_wrong_answer_earns_nothing_and_useful_hits_never_cost(rows, weight):
    right, useful = (torch.tensor(column, dtype=torch.float64) for column in zip(*rows, strict=True))
    rewards = combine_rewards(right, useful, weight, "times")
    assert (rewards[right == 0] == 0).all()
    assert (rewards >= right).all()


def test_without_revisions_and_process_reward_it_is_grpo(make_session):
    session = make_session()
    torch.manual_seed(0)
    whole = session.complete()
    torch.manual_seed(0)
    method = make_method(session, revisions=0, weight=0.0)
    assert method.rollout(session) == whole
    scores = [1.0, 0.0, 1.0, 0.0]
    batch = rollout_batch(scores, 4, texts=["<answer>Rome</answer>"] * 4, examples=session.examples[:4])
    assert method.rewards(batch, batch.reward).tolist() == scores


def test_the_prefix_is_kept_and_the_rest_is_written_again(make_session, monkeypatch):
    session = make_session()
    world, example = session.run.task, next(one for one in session.examples if len(one.data["evidence"]) == 2)
    session.examples = [example] * 2
    session.prompts = [list(example.prompt)] * 2
    first, second, answer = world.way(example, world.begin(example))
    ways = iter([first, first, "<search>zzz</search>", second, answer, answer, second, answer])  # by depth, both members at once
    script_turns(monkeypatch, lambda number, text: next(ways))
    method = make_method(session)
    flawed, fine = method.rollout(session)
    assert flawed.text == fine.text == world.gold(example)
    tree = flawed.row.episode
    cut = [node for node in tree.nodes if node.fate == "cut"]
    assert next(node.text for node in cut if node.by == "policy") == "<search>zzz</search>"
    assert {node.why for node in cut} == {"first flawed step", ""}
    assert not any(node.fate == "cut" for node in fine.row.episode.nodes)
    for one in (flawed, fine):
        assert one.mask == [int(turn.role == "assistant") for turn in one.turns for _ in range(turn.start, turn.end)]
    logged = method.collect()
    assert (logged["flagged"], logged["place"], logged["right_after"]) == (0.5, 1, 1)
    assert method.measure_episode(example, flawed.text) == 0.5  # two of four hits


def test_rejection_sampling_keeps_nothing(make_session):
    session = make_session()
    torch.manual_seed(3)
    made = make_method(session, keep="nothing").rollout(session)
    cut = [one for one in made if any(node.fate == "cut" for node in one.row.episode.nodes)]
    assert cut
    for one in cut:
        first = next(node for node in one.row.episode.nodes if node.why)
        assert first.parent == 0
        assert first.fate == "cut"
        kept = one.row.episode.path(one.row.leaf)
        assert all(node.fate == "kept" for node in kept)


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    script_turns(monkeypatch, lambda number, text: "<answer>Rome</answer>" if text or number % 2 else "<search>zzz</search>")
    trained = two_steps("search-r2", {}, base="grpo", **WORLD)
    assert all(0 < step["search-r2/flagged"] <= 0.5 for step in trained.steps)
    cut = [rollout for rollout in trained.rollouts if any(node.fate == "cut" for node in rollout.nodes)]
    assert cut
    for rollout in cut:
        gone = [node for node in rollout.nodes if node.fate == "cut"]
        assert gone[0].why == "first flawed step"
        assert any(node.text == "<search>zzz</search>" for node in gone)
