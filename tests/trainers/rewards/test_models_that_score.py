"""Reward models of the team, sentence encoders and a judge as reward functions: the same numbers as the models themselves, one bad row alone."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from tests.trainers.conftest import ensure_cold_start, events_in, make_spec
from tests.trainers.rewards.scoring import DEFINITION, library, make_example
from tests.trainers.test_embedding import write_encoder
from tests.trainers.test_judge import Endpoint, completion
from trainers.contract.events import Metrics, Rollout
from trainers.contract.reward_definitions import LibraryReward
from trainers.rewards.composition import build_reward
from trainers.rewards.definition_checks import find_definition_problems
from trainers.rewards.judgements import FILE
from trainers.rewards.scores import ScoringContext

pytestmark = [pytest.mark.training]


def build(definition: dict[str, Any], folder: Any = None) -> Any:
    scorer = build_reward(DEFINITION.validate_python(definition))
    scorer.open(ScoringContext(folder, "cpu"))
    return scorer


@pytest.fixture(scope="module")
def reward_run(tmp_path_factory):
    from trainers.attempt import train

    ensure_cold_start()
    folder = tmp_path_factory.mktemp("reward-run")
    assert train.run_training(make_spec(folder, "reward", training__max_steps=2), folder) == train.FINISHED
    return folder


@pytest.fixture
def endpoint(monkeypatch) -> Iterator[Endpoint]:
    import threading

    with Endpoint() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("LAB_JUDGE_URL", server.judge().url)
        monkeypatch.setenv("LAB_JUDGE_MODEL", "small-judge")
        yield server
        server.shutdown()


def test_a_reward_model_says_what_it_says_by_itself(reward_run):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    scorer = build(library("reward-model", folder=str(reward_run)))
    rows = [("<answer>7</answer>", make_example()), ("a much longer answer, with words " * 3, make_example()), ("", make_example())]
    scores = scorer.score_batch([*rows, ("x" * 5000, make_example())])
    model = AutoModelForSequenceClassification.from_pretrained(reward_run / "final", dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(reward_run / "final")
    for score, (text, example) in zip(scores, rows, strict=False):
        chat = [{"role": "user", "content": example.prompt[0].content}, {"role": "assistant", "content": text}]
        ids = tokenizer.apply_chat_template(chat, tokenize=True, return_dict=True, return_tensors="pt")["input_ids"]
        assert score.value == pytest.approx(model(ids).logits.item(), abs=1e-5)
    assert scores[3].value is None
    assert "more than the" in scores[3].error
    squeezed = build(library("reward-model", folder=str(reward_run), scale="sigmoid")).score_batch(rows[:1])
    assert squeezed[0].value == pytest.approx(torch.sigmoid(torch.tensor(scores[0].value)).item(), abs=1e-6)


def test_a_folder_that_is_no_reward_run_is_refused(reward_run, tmp_path):
    def problems(folder: Any) -> list[str]:
        definition = LibraryReward(function="reward-model", config={"folder": str(folder)})
        return [f"{problem.field}: {problem.message}" for problem in find_definition_problems(definition, "rewards.0.definition")]

    assert problems(reward_run) == []
    assert problems(tmp_path) == ["rewards.0.definition.config.folder: has no folder final on this machine"]
    (tmp_path / "final").symlink_to(ensure_cold_start())
    assert problems(tmp_path) == ["rewards.0.definition.config.folder: is no reward model"]


def test_two_columns_load_one_model(reward_run, monkeypatch):
    from trainers.policies import reward_models

    loaded: list[Any] = []
    load = reward_models.RewardModel.__init__
    monkeypatch.setattr(reward_models.RewardModel, "__init__", lambda self, *rest: loaded.append(rest) or load(self, *rest))
    part = {"reward": library("reward-model", folder=str(reward_run))}
    scorer = build({"kind": "sum", "parts": [part, part]})
    scorer.score_batch([("7", make_example())])
    scorer.score_batch([("8", make_example())])
    assert len(loaded) == 1


def test_embedding_similarity_is_the_cosine_of_the_encoders_vectors(tmp_path):
    from trainers.policies.embedding import EmbeddedItem, embed_rows, load_embedder

    folder = write_encoder(tmp_path / "encoder")
    scorer = build(library("embedding-similarity", folder=str(folder)))
    same, other, empty, without = scorer.score_batch(
        [("Max buys 3", make_example("Max buys 3")), ("so 5", make_example("Max buys 3")), ("", make_example("Max")), ("x", make_example(""))]
    )
    embedder = load_embedder("encoder", folder)
    first, second = embed_rows(embedder, [embedder.tokenize(EmbeddedItem([], text)) for text in ("so 5", "Max buys 3")])
    assert same.value == pytest.approx(1.0, abs=1e-5)
    assert other.value == pytest.approx(max(0.0, float(first @ second)), abs=1e-5)
    assert (empty.value, without.value) == (0.0, None)
    missing = LibraryReward(function="embedding-similarity", config={"folder": str(tmp_path / "none")})
    assert [problem.field for problem in find_definition_problems(missing, "here")] == ["here.config.folder"]


def graded(text: str, tokens: int = 0) -> tuple[int, bytes]:
    return 200, json.dumps({**json.loads(completion(text)), "usage": {"total_tokens": tokens}}).encode()


def test_a_judge_grades_by_the_rubric_and_its_cost_is_counted(endpoint, tmp_path):
    scorer = build(library("rubric-judge", rubric="Politeness.", least=0, most=4), tmp_path)
    endpoint.reply = lambda body: graded("Score: 1" if "rude" in body["messages"][0]["content"] else "It is fine.\n**Score:** 3", 50)
    rows = [("rude", make_example("be nice")), ("please", make_example()), ("rude", make_example("be nice"))]
    assert [score.value for score in scorer.score_batch(rows)] == [0.25, 0.75, 0.25]
    assert scorer.collect() == {"calls": 2.0, "tokens": 100.0, "failures": 0.0, "kept": 0.0}
    asked = [body["messages"][0]["content"] for _, _, body in endpoint.asked]
    assert all("Politeness." in question for question in asked)
    assert sum("be nice" in question for question in asked) == 1
    again = build(library("rubric-judge", rubric="Politeness.", least=0, most=4), tmp_path)  # a resumed attempt
    assert [score.value for score in again.score_batch(rows)] == [0.25, 0.75, 0.25]
    assert again.collect() == {"calls": 0.0, "tokens": 0.0, "failures": 0.0, "kept": 2.0}
    assert len(endpoint.asked) == 2
    assert len((tmp_path / FILE).read_text().splitlines()) == 2


def test_a_judge_that_fails_costs_the_rows_it_fails_on(endpoint):
    scorer = build(library("rubric-judge", rubric="Any."))
    scorer.function.judge = endpoint.judge()
    said = {"odd": graded("I will not."), "high": graded("Score: 11"), "down": (400, b"")}
    endpoint.reply = lambda body: next((answer for word, answer in said.items() if word in body["messages"][0]["content"]), graded("7"))
    scores = scorer.score_batch([(text, make_example()) for text in ("fine", "odd", "high", "down")])
    assert scores[0].value == pytest.approx(6 / 9)
    assert [score.value for score in scores[1:]] == [None, None, None]
    assert "no grade from 1 to 10" in scores[1].error
    assert "status 400" in scores[3].error
    assert scorer.collect()["failures"] == 3.0


def test_a_judge_that_is_down_is_not_asked_for_every_row(endpoint):
    scorer = build(library("rubric-judge", rubric="Any."))
    scorer.function.judge = endpoint.judge()
    endpoint.reply = lambda body: (400, b"")
    scores = scorer.score_batch([(str(number), make_example()) for number in range(64)])
    assert all(score.value is None for score in scores)
    assert scorer.collect()["calls"] < 24


def test_without_an_endpoint_preflight_refuses(monkeypatch):
    monkeypatch.delenv("LAB_JUDGE_URL", raising=False)
    judge = LibraryReward(function="rubric-judge", config={"rubric": "Any."})
    [problem] = find_definition_problems(judge, "rewards.0.definition")
    assert problem.field == "rewards.0.definition.config"
    assert "LAB_JUDGE_URL" in problem.fix


def test_grpo_trains_on_a_reward_model_and_a_judge(reward_run, endpoint, tmp_path):
    from trainers.attempt import train

    endpoint.reply = lambda body: graded("Score: 10", 5)
    columns = [
        {"name": "learned", "definition": library("reward-model", folder=str(reward_run)), "weight": 1.0},
        {"name": "graded", "definition": library("rubric-judge", rubric="Any."), "weight": 0.5},
    ]
    spec = make_spec(tmp_path, rewards=columns, training__max_steps=2)
    assert train.run_training(spec, tmp_path) == train.FINISHED
    events = events_in(tmp_path)
    rollouts = [event for event in events if isinstance(event, Rollout)]
    assert len(rollouts) == 16
    for event in rollouts:
        assert event.rewards["graded"] == 1.0
        assert event.reward == pytest.approx(event.rewards["correct"] + event.rewards["learned"] + 0.5)
    steps = [event.values for event in events if isinstance(event, Metrics) and "loss" in event.values]
    assert all(values["rewards/graded/calls"] + values["rewards/graded/kept"] <= 8 for values in steps)
    assert sum(values["rewards/graded/tokens"] for values in steps) == 5 * len(endpoint.asked)
