"""Tool-Light: where branches leave an episode, and which episodes are paired."""

import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods.batches import pair_batch
from tests.trainers.methods.turn_scripts import script_turns
from trainers.adapters.dpo import method_loss
from trainers.data.pairs import NoPairs
from trainers.methods.bases.dpo import DPO
from trainers.methods.stack import Stack
from trainers.methods.worlds.tool_light import (
    Config,
    ToolLight,
    Trajectory,
    choose_branch_steps,
    find_entropy_peak,
    is_hard,
    limit_easy,
    pair_fewest_calls,
    pair_longest,
    pair_shortest,
    read_gold,
    write_pair_row,
)
from trainers.worlds.base import Replay
from trainers.worlds.sums import Sums

EMPTY = Replay((), {}, True, "")
EPISODES = st.lists(st.builds(Trajectory, st.just(EMPTY), st.booleans(), st.integers(0, 4), st.floats(0, 2), st.integers(1, 50)), max_size=8)


def tell(is_right, calls, entropy=0.0, length=1):
    return Trajectory(EMPTY, is_right, calls, entropy, length)


def test_the_worked_example():
    assert choose_branch_steps([0.2, 0.9, 0.4, 0.7], 3) == [1, 3, 2]
    found = [tell(True, 2, 0.5), tell(True, 1, 0.6), tell(True, 1, 0.4), tell(False, 3), tell(False, 1)]
    assert pair_fewest_calls(found) == (found[2], found[3])


def test_the_peak_is_the_best_mean_of_a_prefix():
    assert find_entropy_peak([0.0, 1.0, 0.5, 0.0], 1) == (0.5, 2)  # of equals the shortest
    assert find_entropy_peak([1.0, 0.0, 0.0], 1) == (1.0, 1)
    assert find_entropy_peak([0.0, 0.0, 1.0], 1) == (pytest.approx(1 / 3), 0)  # the whole step: it is written anew
    assert find_entropy_peak([0.5, 0.7], 10) == (pytest.approx(0.6), 0)
    assert find_entropy_peak([], 10) == (0.0, 0)


def test_without_a_right_episode_the_fallback_is_chosen_if_it_is_leaner():
    gold, wrong = tell(True, 1), tell(False, 2)
    assert pair_fewest_calls([wrong], gold) == (gold, wrong)
    assert pair_fewest_calls([tell(False, 1)], gold) is None
    assert pair_fewest_calls([wrong]) is None


def test_hard_questions_are_wrong_more_than_twice_as_often_as_right():
    assert is_hard([tell(True, 0), *[tell(False, 0)] * 3])
    assert not is_hard([tell(True, 0), *[tell(False, 0)] * 2])


@given(EPISODES)
def test_a_pair_has_a_right_and_a_wrong_side_and_the_rule_holds(found):
    for rule in (pair_fewest_calls, pair_shortest, pair_longest):
        pair = rule(found)
        assert pair is None or (pair[0].is_right, pair[1].is_right) == (True, False)
    if (pair := pair_fewest_calls(found)) is not None:
        assert pair[0].calls == min(one.calls for one in found if one.is_right) < pair[1].calls
    if (pair := pair_shortest(found)) is not None:
        assert pair[0].length < pair[1].length
    assert (pair_longest(found) is None) == (len({one.is_right for one in found}) < 2)


@given(st.integers(0, 9), st.integers(0, 9), st.sampled_from([0.0, 1 / 3, 0.5, 1.0]))
def test_easy_rows_have_at_most_their_share(hard, easy, share):
    rows = [{"kind": "hard"}] * hard + [{"kind": "easy"}] * easy
    kept = limit_easy(rows, share, random.Random(0))
    assert kept.count({"kind": "hard"}) == hard
    if hard:
        assert kept.count({"kind": "easy"}) <= share * len(kept) + 1e-9
    else:
        assert kept == rows


def test_the_loss_is_dpos():
    method = ToolLight()
    method.prepare(SimpleNamespace(tokenizer=None))
    batch = pair_batch(torch.tensor([[1.0], [4.0]]), torch.tensor([[-1.0], [-2.0]]), rows=[{"kind": "easy"}, {"kind": "hard"}])
    plain = torch.stack([-logsigmoid(torch.tensor(0.1 * gap)) for gap in (2.0, 6.0)]).mean()
    assert method_loss(Stack(DPO(), [method]), batch, lambda score: -logsigmoid(score)).item() == pytest.approx(plain.item(), abs=1e-6)
    assert method.collect() == pytest.approx({"share/easy": 0.5, "share/hard": 0.5, "margin/easy": 0.2, "margin/hard": 0.6})


def test_only_the_policys_own_words_are_marked():
    world = Sums()
    example = next(one for one in world.examples("train", 9, 0, "easy") if one.data["needed"])
    gold = read_gold(world, example)
    row = write_pair_row(example, "hard", (gold, gold))
    text = row["chosen"][0]["content"]
    assert [text[start:end] for start, end in row["own"][text]] == world.way(example, world.begin(example))


def write_turn(number, text):
    """A call at first, then another one or an answer, which is right every third time."""
    if not text:
        return "<calc>2*3</calc>" if number % 2 else "<answer>6</answer>"
    if text.endswith("<answer>"):
        return "none</answer>"
    return "<calc>1+1</calc>" if text.count("<calc>") < 2 and number % 3 else "<answer>6</answer>" if number % 3 == 2 else "<answer>1</answer>"


def prepare_run(session, monkeypatch):
    run, world = session.run, Sums()
    run.attempt.task = world
    example = world.read("What is 2 * 3?")
    run.training.__dict__["max_completion_length"] = 96
    monkeypatch.setattr("trainers.methods.worlds.tool_light.examples_of", lambda rows, run: [example])
    return run, example


@pytest.mark.parametrize(("guide", "stride", "places"), [("entropy", 1, "inside"), ("entropy", 10, "before"), ("random", 1, "anywhere")])
def test_branches_leave_the_first_episode_where_it_is_least_sure(make_session, monkeypatch, guide, stride, places):
    session = make_session(Sums())
    run, example = prepare_run(session, monkeypatch)
    script_turns(monkeypatch, write_turn, entropy=lambda text: 1.0 if text else 0.5)
    method = ToolLight(Config(guide=guide, stride=stride, branches=2, steps=2))
    branched = []
    monkeypatch.setattr(type(session), "branch", watch_branches(type(session).branch, branched))
    (tree,) = method.grow_trees([example], run)
    assert len(tree) == 1 + sum(count for _, count, _, _ in branched)
    assert all(count == 2 for _, count, _, _ in branched)
    if places != "anywhere":
        assert all((token > 0) == (places == "inside") for _, _, _, token in branched)
        assert [why for _, _, why, _ in branched] == sorted((why for _, _, why, _ in branched), reverse=True)
    assert 0 < method.collect()["different"] <= 1


def watch_branches(plain, branched):
    def branch(self, at, count, why="", *, token=0):
        branched.append((at, count, why, token))
        return plain(self, at, count, why, token=token)

    return branch


def test_pairs_of_both_stages_come_from_a_question(make_session, monkeypatch):
    session = make_session(Sums())
    run, example = prepare_run(session, monkeypatch)
    script_turns(monkeypatch, write_turn)
    aligned = ToolLight(Config(samples=8, filter=False, stage="aligned"))
    evolved = ToolLight(Config(samples=8, filter=False, stage="evolved"))
    first, second = aligned.make_pairs([], run), evolved.make_pairs([], run)
    for row in (*first, *second):
        assert example.reference in row["chosen"][0]["content"][-len("6</answer>") :]
        assert not row["rejected"][0]["content"].endswith("<answer>6</answer>")
    assert all(row["rejected"][0]["content"].count("<calc>") >= row["chosen"][0]["content"].count("<calc>") for row in first)
    always = ToolLight(Config(samples=2, steps=0, filter=False))
    script_turns(monkeypatch, lambda number, text: "<answer>6</answer>")
    with pytest.raises(NoPairs):
        always.make_pairs([], run)


def test_questions_answered_without_a_tool_are_left_out(make_session, monkeypatch):
    session = make_session(Sums())
    run, example = prepare_run(session, monkeypatch)
    method = ToolLight()
    script_turns(monkeypatch, lambda number, text: "6</answer>" if text == "<answer>" else "never asked")
    assert method.keep_unanswered([example], run) == []
    script_turns(monkeypatch, lambda number, text: "7</answer>")
    assert method.keep_unanswered([example], run) == [example]
    assert method.collect()["needless"] == 0.5


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes, monkeypatch):
    """Members of a group call the calculator twice and are wrong, answer right at once, or are wrong at once."""
    options = {key: value for key, value in written_episodes.items() if key != "training__prompts"}

    def write(number, text):
        if number % 3 == 0 or text:
            return "<answer>none</answer>" if text.count("<calc>") == 2 else "<calc>1+1</calc>"
        return "<answer>none</answer>" if number % 3 == 1 else "<calc>2*3</calc>"

    script_turns(monkeypatch, write)
    more = {"training__sampled_prompts": 16, "training__max_length": 240}
    trained = two_steps("tool-light", {"prompts": 8, "samples": 3, "filter": False, "easy": 1.0}, trainer="dpo", task__name="sums", **options, **more)
    assert all(step["tool-light/share/easy"] + step["tool-light/share/hard"] == 1 for step in trained.steps)
    assert trained.steps[0]["tool-light/calls/chosen"] < trained.steps[0]["tool-light/calls/rejected"]
