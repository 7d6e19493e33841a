"""RLHI: the card's numbers, users who complain about what they dislike, and conversations that become pairs."""

import json
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.functional import logsigmoid

from tests.trainers.methods.batches import pair_batch
from trainers.adapters.dpo import method_loss
from trainers.methods.bases.dpo import DPO
from trainers.methods.context import RunContext
from trainers.methods.pairs.rlhi import RLHI, THANKS, USERS, Config, best_and_worst, is_complaint, score_for_user
from trainers.methods.stack import Stack
from trainers.tasks import registry

TASK = registry.get_task("mini_gsm")
QUESTION = "Max has 3 apples, gets 3, buys 5, drops 1. How many?"
FULL, SHORT, LAST = (f"<think>{working}</think><answer>10</answer>" for working in ("3+3=6 6+5=11 11-1=10", "", "11-1=10"))
STYLES = {"short": SHORT, "steps": FULL, "last": LAST}


def row(chosen=FULL, rejected="no", **columns):
    sides = {name: [{"role": "assistant", "content": text}] for name, text in (("chosen", chosen), ("rejected", rejected))}
    return {"prompt": [{"role": "user", "content": QUESTION}], **sides, **columns}


def run(seed=0):
    return RunContext(SimpleNamespace(spec=SimpleNamespace(seed=seed), task=TASK))


def test_the_worked_examples():
    batch = pair_batch(torch.tensor([[1.0]]), torch.tensor([[-2.0]]), rows=[{"source": "rewrite", "user": "steps"}])
    method = RLHI()
    assert method_loss(Stack(DPO(), [method]), batch, lambda margin: -logsigmoid(margin)).item() == pytest.approx(0.5544, abs=1e-4)
    assert method.collect() == {"margin/rewrite": pytest.approx(0.3), "margin/steps": pytest.approx(0.3)}
    assert best_and_worst([0.2, 0.9, 0.5, 0.1], 0.2) == (1, 3)
    assert not is_complaint("thanks!")


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.floats(0.01, 1))
def test_the_best_and_the_worst_are_apart_or_there_is_no_pair(scores, gap):
    found = best_and_worst(scores, gap)
    assert (found is None) == (max(scores) - min(scores) < gap)
    if found:
        assert (scores[found[0]], scores[found[1]]) == (max(scores), min(scores))


@pytest.mark.parametrize("name", USERS)
def test_a_user_thanks_for_the_style_asked_for_and_complains_about_every_other(name):
    for style, answer in STYLES.items():
        reply = USERS[name].reply(QUESTION, answer)
        assert (reply == THANKS) == (style == name)
        assert is_complaint(reply) == (style != name)
        assert USERS[name].rewrite(QUESTION, answer) == STYLES[name]


@given(st.sampled_from(sorted(USERS)), st.text(alphabet="<think>/answer 0123456789+-=", max_size=60))
def test_any_text_has_a_score_between_0_and_1(name, text):
    assert 0 <= score_for_user(USERS[name], QUESTION, text, FULL) <= 1
    assert score_for_user(USERS[name], QUESTION, STYLES[name], FULL) == 1
    assert score_for_user(USERS[name], "What?", text, text) <= 1


def test_a_complaint_becomes_a_pair_with_the_persona_in_the_prompt_and_thanks_become_none():
    method = RLHI(Config(source="rewrite"))
    made = method.data([row()] * 60, run())
    assert {one["user"] for one in made} == {"short", "last"}
    for one in made:
        assert one["prompt"][0] == {"role": "system", "content": USERS[one["user"]].persona}
        assert one["chosen"][0]["content"] == STYLES[one["user"]]
        assert one["rejected"][0]["content"] == FULL
    assert method.collect()["complaints"] == len(made) / 60
    assert made == RLHI(Config(source="rewrite")).data([row()] * 60, run())  # a resumed run trains on the same pairs


def test_conversations_of_a_dataset_keep_their_answers_and_their_persona():
    talks = [row("short", "long", followup="Too long.", persona="Hurried."), row("a", "b", followup="Thanks a lot!")]
    (made,) = RLHI(Config(source="rewrite")).data(talks, run())
    assert (made["chosen"][0]["content"], made["rejected"][0]["content"]) == ("short", "long")
    assert made["prompt"][0]["content"] == "Hurried."
    (plain,) = RLHI(Config(source="rewrite", persona=False)).data(talks[:1], run())
    assert plain["prompt"] == talks[0]["prompt"]


def test_without_users_to_please_the_pairs_loss_is_the_bases():
    batch = pair_batch(torch.zeros(2, 1), torch.zeros(2, 1))
    assert RLHI().pair_loss(batch, torch.tensor([2.0, -1.0]), lambda margin: margin * 3).tolist() == [6.0, -3.0]


@pytest.mark.training
def test_two_real_steps(tmp_path, two_steps):
    file = tmp_path / "pairs.jsonl"
    rows = [{"prompt": e.prompt[0].content, "chosen": TASK.gold(e), "rejected": SHORT} for e in TASK.examples("pairs", 24, 0, "easy")]
    file.write_text("\n".join(map(json.dumps, rows)))
    trained = two_steps("rlhi", {"samples": 4}, trainer="dpo", dataset={"path": str(file)}, training__max_steps=6, training__learning_rate=1e-3)
    first, last = trained.steps[0], trained.steps[-1]
    assert first["rlhi/share/rewrite"] + first["rlhi/share/reward"] == pytest.approx(1)
    assert 0 < first["rlhi/complaints"] < 1
    assert any(last[name] for name in last if name.startswith("rlhi/margin/"))
