"""AceSearcher: the card's numbers, the three kinds of pairs, and that each counts only where its sides differ."""

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods.batches import pair_batch
from trainers.adapters.dpo import method_loss
from trainers.methods.bases.dpo import DPO
from trainers.methods.stack import Stack
from trainers.methods.worlds import acesearcher
from trainers.methods.worlds.acesearcher import (
    AceSearcher,
    Config,
    Planned,
    choose_plans,
    choose_solutions,
    compute_agreement,
    find_first_difference,
    is_valid_plan,
    make_row,
    score_final_answer,
)
from trainers.worlds.base import replay_episode
from trainers.worlds.planned_search import PlannedSearch

SCORES = st.lists(st.sampled_from([0.0, 0.4, 0.9, 1.2, 1.5, 2.5, 3.0]), max_size=6)


def test_the_worked_example():
    assert choose_plans([0.9, 2.5], [True, True]) == (1, 0)
    assert choose_plans([2.5, 1.1], [True, True]) is None, "the worse one is too good"
    assert choose_plans([2.0, 0.8], [True, True]) is None, "they are too near"
    assert choose_plans([2.5, 0.9], [False, True]) is None, "the better one may not be learnt"
    same = [["Leo", "Max", "Ida"], ["Leo", "Max", "Eva"]]
    assert compute_agreement(*same) == pytest.approx(2 / 3)
    assert choose_solutions([3.0, 0.4], same) == [(0, 1)]
    assert choose_solutions([3.0, 0.4], [["Leo", "Max", "Ida"], ["Leo", "Eva", "Eva"]]) == []


def test_scores_of_final_answers():
    assert score_final_answer("The Rome", "rome") == pytest.approx(3)
    assert score_final_answer("Rome Oslo", "Rome") == pytest.approx(0 + 1 + 2 / 3)
    assert score_final_answer("Romeo", "Rome") == score_final_answer(None, "Rome") == 0
    assert is_valid_plan(["Eva's friend", "the city of subquestion #1"])
    assert not is_valid_plan(["the city of subquestion 1"])
    assert not is_valid_plan(["x"] * 7)


@given(SCORES)
def test_pairs_keep_to_the_thresholds(scores):
    found = choose_plans(scores, [True] * len(scores))
    if found:
        assert scores[found[0]] == max(scores)
        assert scores[found[1]] == min(scores) <= 1
        assert max(scores) - min(scores) >= 1.33
    for better, worse in choose_solutions(scores, [["Leo"]] * len(scores)):
        assert scores[better] - scores[worse] > 1.33
        assert scores[worse] <= 1.2


def test_the_first_difference_is_one_of_answers_that_share_no_word():
    assert find_first_difference(["Leo", "Max"], ["Leo", "Ida"]) == 1
    assert find_first_difference(["Leo Max", "Ida"], ["Leo", "Eva"]) is None
    assert find_first_difference(["Leo"], ["Leo"]) is None


WORLD = PlannedSearch({"hits": 1})


def example_and_episodes():
    """A right solution, one that misreads the first sub-question, one that misreads the last, and the question asked at once."""
    example = WORLD.examples("pairs", 1, 0, "easy")[0]
    way = WORLD.way(example, WORLD.begin(example))
    asked_at_once = f"<plan>{example.data['person']}'s {example.data['chain'][0]}'s {example.data['attribute']}</plan>"
    turns = [
        way,
        [way[0], "<sub>nobody</sub>", "<answer>none</answer>"],
        [*way[:2], "<answer>none</answer>"],
        [asked_at_once, "<answer>none</answer>"],
    ]
    return example, [replay_episode(WORLD, example, WORLD.write_episode(example, one)) for one in turns]


def test_three_kinds_of_pairs_come_from_a_question(monkeypatch):
    example, (right, astray, misread, at_once) = example_and_episodes()
    solved = iter([[right, at_once], [right, astray, misread, right, at_once, at_once, at_once, at_once]])
    monkeypatch.setattr(acesearcher, "continue_episodes", lambda *asked: next(solved))
    run = SimpleNamespace(task=WORLD, seed=0, training=SimpleNamespace(sampled_prompts=1))
    run.attempt = SimpleNamespace(spec=SimpleNamespace(task=SimpleNamespace(difficulty="easy")))
    method = AceSearcher(Config(plans=2, solutions=4))
    rows = method.data([{"prompt": [{"role": "user", "content": example.prompt[0].content}]}], run)
    assert [row["kind"] for row in rows] == ["plan", "solution", "solution", "subquestion"]
    plan, solution, _, subquestion = rows
    assert (plan["chosen"][0]["content"], plan["rejected"][0]["content"]) == (right.turns[0].text, at_once.turns[0].text)
    assert solution["rejected"][0]["content"] == "".join(turn.text + turn.step.text for turn in misread.turns)
    assert subquestion["chosen"][0]["content"].endswith(right.turns[1].text)
    assert subquestion["rejected"][0]["content"].endswith("<sub>nobody</sub>")
    assert method.collect() == {"plans": 2, "single_step": 0.5, "plan_score": pytest.approx(0.75)}


def test_a_pair_counts_only_where_its_sides_differ():
    example, (right, astray, misread, _) = example_and_episodes()
    for kind, other, turn in (("solution", misread, 1), ("subquestion", astray, 1), ("plan", misread, 0)):
        row = make_row(example, kind, right, other, turn)
        for side, replay in (("chosen", right), ("rejected", other)):
            text = row[side][0]["content"]
            spans = row["own"][text]
            counted = replay.turns[turn:] if kind == "solution" else replay.turns[turn : turn + 1]
            assert [text[start:end] for start, end in spans] == [one.text for one in counted]
            assert spans[-1][1] == len(text)


def test_without_alpha_it_is_dpo_and_with_it_the_chosen_side_becomes_likelier():
    chosen, rejected = torch.tensor([[-1.0, -2.0]], requires_grad=True), torch.tensor([[-1.0, -1.0]])
    batch = pair_batch(chosen, rejected, rows=[{"kind": "plan"}])

    def loss_of(alpha):
        method = AceSearcher(Config(alpha=alpha))
        method.prepare(SimpleNamespace(tokenizer=None))
        return method_loss(Stack(DPO(), [method]), batch, lambda score: -logsigmoid(score))

    plain = -logsigmoid(torch.tensor(0.1 * (-3.0 + 2.0)))
    assert loss_of(0.0).item() == pytest.approx(plain.item(), abs=1e-6)
    assert loss_of(0.2).item() == pytest.approx(plain.item() + 0.2 * 1.5, abs=1e-6)
    (gradient,) = torch.autograd.grad(loss_of(0.2), chosen)
    assert (gradient < 0).all()


def test_a_plan_and_its_solutions_know_their_mean():
    example, episodes = example_and_episodes()
    found = Planned(example, episodes[:2], [3.0, 0.0])
    assert (found.score, len(found.plan)) == (1.5, 2)


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes, monkeypatch):
    from trainers.policies.sampling import Sampler

    whole = Sampler.complete_batch

    def go_on(self, examples, prompts, prefixes=None, watched=()):
        """Half of the plans ask for everything at once; they are solved wrongly."""
        made = whole(self, examples, prompts)
        for place, (example, prefix) in enumerate(zip(examples, prefixes or [[]] * len(examples), strict=True)):
            begun = self.tokenizer.decode(prefix)
            plan = f"<plan>{example.data['person']}</plan>" if (place % 2 and not begun) or (begun and ";" not in begun) else ""
            if begun or plan:
                turns = [plan, "<answer>none</answer>"] if plan else self.task.way(example, self.task.begin(example))
                made[place].text = self.task.write_episode(example, turns)
        return made

    monkeypatch.setattr(Sampler, "complete_batch", go_on)
    options = {key: value for key, value in written_episodes.items() if key != "training__prompts"}
    more = {"training__sampled_prompts": 16, "training__max_length": 240}
    trained = two_steps("acesearcher", {"prompts": 8, "solutions": 2}, trainer="dpo", task__name="planned_search", **options, **more)
    assert all(step["acesearcher/share/plan"] == 1 for step in trained.steps)
    assert trained.steps[0]["acesearcher/single_step"] == 0.5
