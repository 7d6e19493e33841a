"""RAR^2: the card's numbers, which thoughts and answers are paired, and that only the policy's own words count."""

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
from trainers.methods.worlds import rar2
from trainers.methods.worlds.rar2 import RAR2, Config, compute_query_recall, find_thoughts, make_row, pair_by_value, pair_right_and_wrong
from trainers.worlds.base import replay_episode
from trainers.worlds.search import Search

VALUES = st.lists(st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]), max_size=6)


def test_the_worked_example():
    assert pair_by_value([1.0, 0.5, 0.0], 0.5) == [(0, 1), (0, 2), (1, 2)]
    method = RAR2()
    method.prepare(SimpleNamespace(tokenizer=None))
    rows = [{"kind": "thought"}, {"kind": "answer"}]
    batch = pair_batch(torch.tensor([[1.0], [4.0]]), torch.tensor([[-1.0], [-2.0]]), rows=rows)
    losses = [-logsigmoid(torch.tensor(0.1 * gap)).item() for gap in (2, 6)]
    assert losses == pytest.approx([0.5981, 0.4375], abs=1e-4)
    assert method_loss(Stack(DPO(), [method]), batch, lambda score: -logsigmoid(score)).item() == pytest.approx(0.5178, abs=1e-4)
    assert method.collect() == pytest.approx({"share/thought": 0.5, "share/answer": 0.5, "margin/thought": 0.2, "margin/answer": 0.6})


@given(VALUES, st.sampled_from([0.25, 0.5, 1.0]))
def test_pairs_are_apart_by_delta_and_none_is_missing(values, delta):
    made = pair_by_value(values, delta)
    assert all(values[better] - values[worse] >= delta for better, worse in made)
    assert len(made) == sum(one - other >= delta for one in values for other in values)


@given(st.lists(st.booleans(), max_size=6))
def test_an_answer_pair_has_a_right_and_a_wrong_side(right):
    found = pair_right_and_wrong(right)
    assert (found is None) == (len(set(right)) < 2)
    assert found is None or (right[found[0]], right[found[1]]) == (True, False)


def episodes_of(world, example):
    """Right after a good first query, wrong after the same, wrong after another, and wrong without a search."""
    gold = world.gold(example)
    first = gold[: gold.index("</information>") + len("</information>")]
    other = f"<search>{example.data['person']}</search>"
    aside = other + world.respond(example, other) + "<answer>none</answer>"
    texts = [gold, first + "<answer>none</answer>", aside, "<answer>none</answer>"]
    return [replay_episode(world, example, text) for text in texts]


def test_thoughts_are_first_queries_and_pairs_are_of_both_kinds(monkeypatch):
    world = Search()
    example = world.examples("pairs", 1, 0, "medium")[0]
    good, wrong, aside, silent = episodes_of(world, example)
    assert find_thoughts([silent, good, wrong, aside]) == [good, aside]
    asked = []

    def go_on(run, examples, begun, temperature, key):
        asked.append((key, len(examples)))
        return [good, aside] if key == "thoughts" else [good, wrong, aside, aside]

    monkeypatch.setattr(rar2, "continue_episodes", go_on)
    run = SimpleNamespace(task=world, seed=0, training=SimpleNamespace(sampled_prompts=1))
    run.attempt = SimpleNamespace(spec=SimpleNamespace(task=SimpleNamespace(difficulty="medium")))
    method = RAR2(Config(thoughts=2, answers=2))
    rows = method.data([{"prompt": [{"role": "user", "content": example.prompt[0].content}]}], run)
    assert asked == [("thoughts", 2), ("answers", 4)]
    assert [row["kind"] for row in rows] == ["thought", "answer"]
    assert rows[0]["chosen"][0]["content"] == good.turns[0].text
    assert rows[0]["rejected"][0]["content"] == aside.turns[0].text
    assert rows[1]["chosen"][0]["content"].startswith(good.turns[0].text + good.turns[0].step.text)
    logged = method.collect()
    assert logged["recall_thought"] >= logged["recall_question"]


def test_only_the_policys_own_words_are_marked():
    world = Search()
    example = next(one for one in world.examples("train", 20, 0, "medium") if len(one.data["evidence"]) == 2)
    good, wrong, *_ = episodes_of(world, example)
    row = make_row(example, "answer", good, wrong)
    for side, replay in (("chosen", good), ("rejected", wrong)):
        text = row[side][0]["content"]
        assert [text[start:end] for start, end in row["own"][text]] == [turn.text for turn in replay.turns[1:]]
    row = make_row(example, "thought", good, wrong)
    assert row["own"] == {good.turns[0].text: [(0, len(good.turns[0].text))]}


def test_a_question_is_a_worse_query_than_what_it_asks_for():
    world = Search({"distractors": 2})
    examples = world.examples("train", 40, 0, "easy")
    raw = [compute_query_recall(world, one, f"<search>{one.prompt[0].content}</search>") for one in examples]
    own = [compute_query_recall(world, one, world.way(one, world.begin(one))[0]) for one in examples]
    assert sum(own) > 2 * sum(raw)


@pytest.mark.training
def test_two_real_steps(two_steps, written_episodes, monkeypatch):
    from trainers.policies.sampling import Completion, Sampler

    whole = Sampler.complete_batch

    def go_on(self, examples, prompts, prefixes=None, watched=()):
        """Every other continuation of a beginning answers at once, and wrongly."""
        made = whole(self, examples, prompts)
        for place, prefix in enumerate(prefixes or ()):
            if prefix and place % 2:
                made[place] = Completion(prompts[place])
                made[place].add("given", prefix, [0.0] * len(prefix), [0.0] * len(prefix))
                ids = self.tokenizer.encode("<answer>none</answer>", add_special_tokens=False)
                made[place].add("assistant", ids, [0.0] * len(ids), [0.0] * len(ids))
                made[place].text = self.tokenizer.decode(made[place].ids)
        return made

    monkeypatch.setattr(Sampler, "complete_batch", go_on)
    options = {key: value for key, value in written_episodes.items() if key != "training__prompts"}
    more = {"training__sampled_prompts": 16, "training__max_length": 240}
    trained = two_steps("rar2", {"prompts": 8, "answers": 2}, trainer="dpo", task__name="search", **options, **more)
    assert all(step["rar2/share/thought"] + step["rar2/share/answer"] == 1 for step in trained.steps)
