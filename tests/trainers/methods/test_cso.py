"""CSO: the card's candidates and loss, which steps become pairs, and that only the two actions count."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods.batches import pair_batch
from trainers.adapters.dpo import method_loss
from trainers.contract.problems import SpecError
from trainers.methods.bases.dpo import DPO
from trainers.methods.stack import Stack
from trainers.methods.worlds import cso
from trainers.methods.worlds.cso import CSO, Config, find_better_action, make_step_row, pair_episodes, propose_moves, score_move
from trainers.worlds.base import replay_episode
from trainers.worlds.room_moves import MOVES, choose_move
from trainers.worlds.rooms import Rooms
from trainers.worlds.tool_use import write_call

SCORES = st.floats(0, 1)
WORLD = Rooms()
EXAMPLE = next(one for one in WORLD.examples("pairs", 40, 0, "medium") if len(WORLD.way(one, WORLD.begin(one))) > 4)
TOO_EARLY = write_call("do", "open")


def prepared(monkeypatch, play_on, **config):
    """``play_on(example, begun)``: the whole text of an episode that goes on from there."""

    def go_on(run, examples, begun, temperature, key):
        return [replay_episode(WORLD, example, play_on(example, list(pieces))) for example, pieces in zip(examples, begun, strict=True)]

    monkeypatch.setattr(cso, "continue_episodes", go_on)
    run = SimpleNamespace(task=WORLD, tokenizer=None, rng=lambda *key: random.Random(str(key)))
    run.attempt = SimpleNamespace(spec=SimpleNamespace(seed=0, task=SimpleNamespace(difficulty="medium")))
    method = CSO(Config(**config))
    method.prepare(run)
    return method


def walk_out(example, begun):
    """The best moves from wherever ``begun`` has led."""
    state = replay_episode(WORLD, example, "".join(begun)).state
    rest = []
    for text in WORLD.way(example, state):
        step = WORLD.step(example, state, "policy", text, WORLD.draw_noise(example, state["moves"]))
        state, rest = step.state, [*rest, text, step.text]
    return "".join([*begun, *rest])


def test_the_worked_example_of_the_card():
    assert find_better_action(0.30, [0.40, 0.80, 0.50], 0.45, 0.65) == 1
    assert find_better_action(0.50, [0.40, 0.80, 0.50], 0.45, 0.65) is None
    assert find_better_action(0.30, [0.40, 0.60], 0.45, 0.65) is None
    method = CSO()
    method.prepare(SimpleNamespace(tokenizer=None))
    batch = pair_batch(torch.tensor([[0.2]]), torch.tensor([[-0.1]]), beta=0.5, rows=[{}])
    assert method_loss(Stack(DPO(), [method]), batch, lambda score: -logsigmoid(score)).item() == pytest.approx(0.6210, abs=1e-4)


@given(SCORES, st.lists(SCORES, max_size=6), SCORES, SCORES)
def test_a_candidate_is_bad_and_has_something_good_beside_it(own, others, low, high):
    found = find_better_action(own, others, low, high)
    assert (found is not None) == (own < low and any(one > high for one in others))
    assert found is None or others[found] == max(others)


@given(st.integers(0, 1000), st.sampled_from(MOVES), st.booleans())
def test_without_noise_expert_and_judge_are_right(seed, best, is_best):
    assert propose_moves(best, 3, 0.0, random.Random(seed)) == [best] * 3
    assert (score_move(is_best, 0.0, random.Random(seed)) >= 0.5) == is_best


def test_noise_is_as_frequent_as_it_says():
    rng = random.Random(0)
    assert sum(score_move(True, 0.2, rng) < 0.5 for _ in range(2000)) / 2000 == pytest.approx(0.2, abs=0.03)
    assert sum(move != "take" for move in propose_moves("take", 2000, 0.4, rng)) / 2000 == pytest.approx(0.3, abs=0.03)


def test_a_candidate_becomes_a_pair_where_the_policy_succeeds_from_it(monkeypatch):
    failed = replay_episode(WORLD, EXAMPLE, TOO_EARLY)
    exact = {"expert_noise": 0.0, "judge_noise": 0.0, "low": 0.5, "high": 0.5}
    method = prepared(monkeypatch, walk_out, **exact)
    (graft,) = method.find_grafts([(EXAMPLE, failed)])
    assert (graft.turn, graft.action) == (0, WORLD.way(EXAMPLE, WORLD.begin(EXAMPLE))[0])
    assert method.collect() == {"candidates": 1, "verified": 1, "supervised": 1, "best_moves": 1}
    stubborn = prepared(monkeypatch, lambda example, begun: "".join([*begun, TOO_EARLY]), **exact)
    assert stubborn.find_grafts([(EXAMPLE, failed)]) == []
    assert stubborn.collect()["verified"] == 0
    blind = prepared(monkeypatch, None, pairs="unverified", **exact)
    assert blind.find_grafts([(EXAMPLE, failed)]) == [graft]


def test_a_last_action_is_verified_by_the_world_alone(monkeypatch):
    way = WORLD.way(EXAMPLE, WORLD.begin(EXAMPLE))
    failed = replay_episode(WORLD, EXAMPLE, WORLD.write_episode(EXAMPLE, way[:-1]) + "out")
    method = prepared(monkeypatch, None)
    assert failed.turns[-1].text == "out"
    assert method.verify([cso.Graft(EXAMPLE, failed, len(way) - 1, way[-1])]) == [True]
    assert method.verify([cso.Graft(EXAMPLE, failed, 0, TOO_EARLY)]) == [False]


def test_only_the_two_actions_are_marked():
    way = WORLD.way(EXAMPLE, WORLD.begin(EXAMPLE))
    text = WORLD.write_episode(EXAMPLE, way[:2]) + TOO_EARLY
    row = make_step_row(cso.Graft(EXAMPLE, replay_episode(WORLD, EXAMPLE, text), 2, way[2]))
    for side, action in (("chosen", way[2]), ("rejected", TOO_EARLY)):
        whole = row[side][0]["content"]
        ((start, end),) = row["own"][whole]
        assert whole[start:end] == action
        assert whole[:start] == text[: -len(TOO_EARLY)]


def test_whole_episodes_are_pairs_of_a_success_and_a_failure():
    good, bad = replay_episode(WORLD, EXAMPLE, WORLD.gold(EXAMPLE)), replay_episode(WORLD, EXAMPLE, TOO_EARLY)
    (row,) = pair_episodes([EXAMPLE] * 4, [bad, good, bad, bad], [False, True, False, False], 2)
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == (WORLD.gold(EXAMPLE), TOO_EARLY)


def test_the_same_move_has_the_same_score_and_no_pair_is_said(monkeypatch):
    method = prepared(monkeypatch, lambda example, begun: TOO_EARLY, prompts=4, judge_noise=0.5)
    failed = replay_episode(WORLD, EXAMPLE, TOO_EARLY)
    assert method.find_candidates(EXAMPLE, failed) == method.find_candidates(EXAMPLE, failed)
    with pytest.raises(SpecError, match="no pair was found"):
        method.make_pairs()
    assert choose_move(EXAMPLE.data, WORLD.begin(EXAMPLE)) in MOVES


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    from trainers.policies.sampling import Completion, Sampler

    def complete(self, examples, prompts, prefixes=None, watched=()):
        """Half of the episodes open the door at once; what goes on from a place walks out."""
        made = [Completion(ids) for ids in prompts]
        for place, (completion, example) in enumerate(zip(made, examples, strict=True)):
            begun = self.tokenizer.decode(prefixes[place]) if prefixes and prefixes[place] else ""
            text = begun + TOO_EARLY if place % 2 and not begun else walk_out(example, [begun])
            completion.add("assistant", self.tokenizer.encode(text, add_special_tokens=False), [0.0], [0.0])
            completion.text = text
        return made

    monkeypatch.setattr(Sampler, "complete_batch", complete)
    small = {"training__sampled_prompts": 8, "training__max_length": 240, "training__max_completion_length": 136}
    policy = {"kind": "tiny", "cold_start": False}
    trained = two_steps("cso", {"prompts": 16, "judge_noise": 0.0}, trainer="dpo", task__name="rooms", policy=policy, **small)
    assert trained.steps[0]["cso/verified"] == 1
    assert all(2 <= step["cso/tokens"] <= 8 for step in trained.steps)
