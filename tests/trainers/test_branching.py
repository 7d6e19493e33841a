"""Branches with the tiny policy: the tokens that are given stay as they are, the task's turns go on from there, and the run's own functions score."""

import io
import json
import math

import pytest
import torch

from tests.trainers.conftest import make_spec
from trainers.contract.events import Turn
from trainers.contract.problems import SpecError
from trainers.judges import rewards
from trainers.policies import sampling_requests, tiny
from trainers.policies.branch_sampling import BranchSampler
from trainers.policies.branching import cut_turns
from trainers.policies.loading import load_model, load_tokenizer
from trainers.policies.sampling import Completion, Sampling, chat_ids
from trainers.tasks import registry


@pytest.fixture(scope="module")
def folder():
    return tiny.ensure_untrained_policy()


@pytest.fixture(scope="module")
def policy(folder):
    return load_model(folder, torch.float32).eval(), load_tokenizer(folder)


@pytest.fixture
def run(tmp_path):
    """A run folder of word problems, and one of its training examples."""
    spec = make_spec(tmp_path)
    spec.task.rewards["format"] = 0.5
    (tmp_path / "run.json").write_text(spec.model_dump_json())
    task = registry.get_task("mini_gsm")
    return tmp_path, spec, task, task.examples("train", spec.training.prompts, spec.seed, spec.task.difficulty)[2]


def answers(monkeypatch, *requests):
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    sampling_requests.answer_sampling_requests(json.dumps(request).encode() for request in requests)
    return [json.loads(line) for line in out.getvalue().splitlines()]


def about(run, folder, policy):
    _, _, task, example = run
    prefix = policy[1].encode(task.gold(example), add_special_tokens=False)[:5]
    prompt = [{"role": message.role, "content": message.content} for message in example.prompt]
    return {"folder": str(folder), "prompt": prompt, "prefix": prefix, "temperature": 1.0}


@pytest.mark.feature(99)
def test_every_continuation_begins_with_the_given_ids_and_is_scored_as_the_run_scores(run, folder, policy, monkeypatch):
    path, spec, task, example = run
    request = {**about(run, folder, policy), "ask": "branch", "run": str(path), "phase": "train", "reference": example.reference, "turns": []}
    lines = answers(monkeypatch, {**request, "token": 77, "count": 3, "max_tokens": 9, "seed": 4})
    assert lines[-1] == {"event": "done"}
    loaded = next(line for line in lines if line["event"] == "loaded")
    made = [line for line in lines if line["event"] == "written"][-1]["completions"]
    assert len(made) == 3
    assert len({one["text"] for one in made}) > 1
    begun = [*request["prefix"], 77]
    model, tokenizer = policy
    [prompt] = chat_ids(tokenizer, [example.prompt])
    for one in made:
        assert one["ids"][: len(begun)] == begun
        assert len(begun) < len(one["ids"]) <= len(begun) + 9
        assert sum(one["lengths"]) == len(one["text"])
        with torch.no_grad():
            scores = torch.log_softmax(model(torch.tensor([prompt + one["ids"]])).logits[0, len(prompt) - 1 : -1], -1)
        expected = scores[torch.arange(len(one["ids"])), torch.tensor(one["ids"])].tolist()
        assert one["logprobs"] == pytest.approx(expected, abs=1e-3)
        assert one["entropies"] == pytest.approx(torch.special.entr(scores.exp()).sum(-1).tolist(), abs=1e-3)
    assert loaded["entropy"] == pytest.approx(made[0]["entropies"][5])
    assert (loaded["logprob"], loaded["note"]) == (pytest.approx(made[0]["logprobs"][5]), "")
    for line, one in zip([line for line in lines if line["event"] == "scored"], made, strict=True):
        known = rewards.score_all(task, one["text"], example)
        assert (line["rewards"], line["reward"]) == (known, rewards.weighted_sum(known, rewards.weights_of(task, spec)))


def test_alternatives_are_those_of_the_distribution_at_the_place(run, folder, policy, monkeypatch):
    request = {**about(run, folder, policy), "ask": "alternatives", "token": 77, "top": 6}
    line = next(line for line in answers(monkeypatch, request) if line["event"] == "alternatives")
    model, tokenizer = policy
    [prompt] = chat_ids(tokenizer, [run[3].prompt])
    with torch.no_grad():
        scores = torch.log_softmax(model(torch.tensor([prompt + request["prefix"]])).logits[0, -1], -1)
    assert [token["id"] for token in line["tokens"]] == scores.topk(6).indices.tolist()
    assert line["own"]["logprob"] == pytest.approx(float(scores[77]), abs=1e-4)
    assert line["own"]["rank"] == int((scores > scores[77]).sum()) + 1
    assert line["entropy"] == pytest.approx(float(torch.special.entr(scores.exp()).sum()), abs=1e-4)
    assert sum(math.exp(token["logprob"]) for token in line["tokens"]) <= 1


def test_a_chosen_end_token_ends_every_continuation(run, folder, policy, monkeypatch):
    request = {**about(run, folder, policy), "ask": "branch", "run": str(run[0]), "phase": "heldout", "reference": "other", "turns": []}
    lines = answers(monkeypatch, {**request, "token": policy[1].eos_token_id, "count": 2, "max_tokens": 9})
    made = [line for line in lines if line["event"] == "written"][-1]["completions"]
    assert [(one["ids"][-1], one["finish_reason"]) for one in made] == [(policy[1].eos_token_id, "stop")] * 2
    assert "not found again" in next(line for line in lines if line["event"] == "loaded")["note"]


@pytest.mark.parametrize(("changes", "field"), [({"count": 17}, "count"), ({"prefix": [10**6]}, "prefix"), ({"folder": "/nowhere"}, "folder")])
def test_what_cannot_be_branched_names_its_field(run, folder, policy, monkeypatch, changes, field):
    request = {**about(run, folder, policy), "ask": "branch", "run": str(run[0]), "phase": "train", "reference": "", "turns": [], "token": 1}
    with pytest.raises(SpecError) as raised:
        answers(monkeypatch, {**request, "count": 1, "max_tokens": 2, **changes})
    assert raised.value.problems[0].field == field


def test_turns_go_on_where_the_prefix_stopped_and_the_world_answers(policy):
    model, tokenizer = policy
    task = registry.get_task("kb")
    [example] = task.examples("train", 1, 0, "easy")
    search = tokenizer.encode(f"<search>{example.data['hops'][0]}</search>", add_special_tokens=False)
    [prompt] = chat_ids(tokenizer, [example.prompt])
    begun = Completion(prompt, search, [1] * len(search), {}, [Turn("assistant", 0, len(search))], [0.0] * len(search), [0.0] * len(search))
    seen: list[list[Completion]] = []
    made = BranchSampler(model, tokenizer, task, Sampling(1.0, 90, 2), seen.append).continue_from(begun, example, 2)
    world = f"<information>{example.data['facts'][example.data['hops'][0]]}</information>"
    for one in made:
        assert one.ids[: len(search)] == search
        assert [turn.role for turn in one.turns[:3]] == ["assistant", "tool", "assistant"]
        assert tokenizer.decode(one.ids[one.turns[1].start : one.turns[1].end]) == world
        assert sum(turn.role == "assistant" for turn in one.turns) <= task.max_turns
        assert one.mask == [int(turn.role == "assistant") for turn in one.turns for _ in range(turn.start, turn.end)]
    assert all(one.ids[: len(search)] == search for report in seen for one in report)


def test_a_turn_that_is_cut_goes_on_as_one_turn_and_no_longer_than_a_turn_may_be(policy):
    model, tokenizer = policy
    task = registry.get_task("kb")
    [example] = task.examples("train", 1, 0, "easy")
    [prompt] = chat_ids(tokenizer, [example.prompt])
    begun = Completion(prompt, [50, 51, 52], [1] * 3, {}, [Turn("assistant", 0, 3)], [0.0] * 3, [0.0] * 3)
    [one] = BranchSampler(model, tokenizer, task, Sampling(1.0, 40, 1), lambda made: None).continue_from(begun, example, 1)
    assert one.turns[0].role == "assistant"
    assert 3 < one.turns[0].end <= task.max_turn_tokens


def test_stored_turns_are_cut_to_what_is_kept():
    turns = [("assistant", 0, 4), ("tool", 4, 6), ("assistant", 6, 9)]
    assert cut_turns(turns, 8) == [Turn("assistant", 0, 4), Turn("tool", 4, 6), Turn("assistant", 6, 8)]
    assert cut_turns([], 3) == [Turn("assistant", 0, 3)]
    assert cut_turns([], 0) == []
