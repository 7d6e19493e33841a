"""SeaPO: the card's numbers, errors that are errors of their kind, and the base's loss unchanged."""

import json
import random
from collections import Counter
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread
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
from trainers.methods.context import RunContext
from trainers.methods.pairs.seapo import Config, SeaPO, drawn_error
from trainers.methods.stack import Stack
from trainers.tasks import answers, registry
from trainers.texts.chains import ERRORS, chain_of, corrupt_answer, score_coherence, score_soundness

TASK = registry.get_task("mini_gsm")
GOLD = "<think>3+3=6 6+5=11 11-1=10</think><answer>10</answer>"


def row(chosen, rejected="no"):
    sides = {name: [{"role": "assistant", "content": text}] for name, text in (("chosen", chosen), ("rejected", rejected))}
    return {"prompt": [{"role": "user", "content": "How many?"}], **sides}


def run(seed=0):
    return RunContext(SimpleNamespace(spec=SimpleNamespace(seed=seed)))


def test_the_worked_example_is_the_bases_loss():
    batch = pair_batch(torch.tensor([[2.0]]), torch.tensor([[-3.0]]), rows=[{"error": "logic"}])
    method = SeaPO()
    assert method_loss(Stack(DPO(), [method]), batch, lambda score: -logsigmoid(score)).item() == pytest.approx(0.4741, abs=1e-4)
    assert method.collect() == {"margin/logic": 0.5, "accuracy/logic": 1.0}


def test_a_mix_draws_every_error_about_equally_and_a_fixed_one_only_itself():
    rng = random.Random(0)
    counts = Counter(drawn_error("mix", rng) for _ in range(3000))
    assert all(abs(counts[error] - 1000) <= 80 for error in ERRORS)
    assert {drawn_error("fact", rng) for _ in range(20)} == {"fact"}


@given(st.integers(0, 500), st.sampled_from(ERRORS), st.sampled_from(["easy", "medium", "hard"]))
def test_an_error_makes_a_wrong_answer_of_its_kind_in_the_right_form(seed, error, difficulty):
    (example,) = TASK.examples("pairs", 1, seed, difficulty)
    gold = TASK.gold(example)
    made = corrupt_answer(gold, error, random.Random(seed))
    if made is None:
        return
    assert answers.well_formed(made, example) == 1
    assert answers.score_correctness(made, example) == 0
    assert score_coherence(made) == 1
    right, wrong = chain_of(gold)[0], chain_of(made)[0]
    assert (score_soundness(made) < 1) == (error == "logic")
    assert len(wrong) == len(right) - (error == "instruction")
    if error == "fact":
        assert sum(one.change != other.change for one, other in zip(right, wrong, strict=True)) == 1


def test_nearly_every_gold_answer_has_a_place_for_every_error():
    examples = TASK.examples("pairs", 200, 0, "easy")
    for error in ERRORS:
        made = [corrupt_answer(TASK.gold(example), error, random.Random(i)) for i, example in enumerate(examples)]
        assert sum(text is not None for text in made) >= 190


@given(st.text(alphabet="<think>/answer 0123456789+-=.", max_size=60), st.sampled_from(ERRORS), st.integers(0, 50))
def test_any_text_is_corrupted_or_refused_never_left_as_it_is(text, error, seed):
    assert corrupt_answer(text, error, random.Random(seed)) != text


@given(st.integers(0, 40), st.integers(0, 50))
def test_a_guess_without_working_becomes_another_guess(guess, seed):
    text = answers.write_answer([], str(guess))
    assert chain_of(corrupt_answer(text, "fact", random.Random(seed)))[1] != str(guess)
    assert corrupt_answer(text, "logic", random.Random(seed)) is None


def test_an_answer_that_has_the_error_already_is_refused():
    made = corrupt_answer(GOLD, "logic", random.Random(0))
    assert corrupt_answer(made, "logic", random.Random(0)) is None


def test_answers_of_other_tasks_are_corrupted_too():
    for name in ("calendar", "kb"):
        task = registry.get_task(name)
        (example,) = task.examples("pairs", 1, 0, next(iter(task.difficulties)))
        made = [corrupt_answer(task.gold(example), error, random.Random(1)) for error in ERRORS]
        assert any(text is not None and text != task.gold(example) for text in made)


def test_rows_keep_their_chosen_answer_and_one_without_a_place_is_dropped():
    method = SeaPO()
    made = method.data([row(GOLD), row("yes")], run())
    assert [one["chosen"][-1]["content"] for one in made] == [GOLD]
    assert made[0]["rejected"][-1]["content"] not in (GOLD, "no")
    assert made[0]["error"] in ERRORS
    assert method.collect()["dropped"] == 0.5
    assert method.data([row(GOLD)] * 9, run()) == SeaPO().data([row(GOLD)] * 9, run())  # a resumed run trains on the same pairs


def test_without_an_endpoint_the_run_is_refused(monkeypatch):
    monkeypatch.delenv("LAB_JUDGE_URL", raising=False)
    with pytest.raises(SpecError, match="no judge endpoint"):
        SeaPO(Config(injector="endpoint")).data([row(GOLD)], run())


class Injector(BaseHTTPRequestHandler):
    def do_POST(self):
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["messages"][0]["content"]
        text = "wrong" if "not the one of the question" in question else GOLD  # it fails to inject any other error
        body = json.dumps({"choices": [{"message": {"content": text}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


def test_an_endpoint_may_write_the_errors(monkeypatch):
    with HTTPServer(("127.0.0.1", 0), Injector) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("LAB_JUDGE_URL", f"http://127.0.0.1:{server.server_port}/v1")
        made = SeaPO(Config(injector="endpoint", error="fact")).data([row(GOLD)] * 2, run())
        assert [one["rejected"][-1]["content"] for one in made] == ["wrong"] * 2
        assert SeaPO(Config(injector="endpoint", error="logic")).data([row(GOLD)], run()) == []
        server.shutdown()


@pytest.mark.training
def test_two_real_steps(tmp_path, two_steps):
    file = tmp_path / "pairs.jsonl"
    rows = []
    for example in TASK.examples("pairs", 32, 0, "easy"):
        rows.append({**row(TASK.gold(example), "<think></think>"), "prompt": example.prompt[0].content})
    file.write_text("\n".join(map(json.dumps, rows)))
    trained = two_steps("seapo", trainer="dpo", dataset={"path": str(file)}, training__max_steps=6, training__learning_rate=1e-3)
    assert sum(trained.steps[0].get(f"seapo/share/{error}", 0) for error in ERRORS) == pytest.approx(1)
    margins = [trained.steps[-1][name] for name in trained.steps[-1] if name.startswith("seapo/margin/")]
    assert margins
    assert all(margin != 0 for margin in margins)
