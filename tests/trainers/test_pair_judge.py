"""Judges of pairs: asked in both orders, by likelihood, by what a policy writes, and behind an endpoint."""

from types import SimpleNamespace

import torch

from tests.trainers.rollouts.conftest import make_session, scripted  # noqa: F401
from trainers.contract.pair_judgements import FIRST, SECOND, PairVerdict, measure_judge, write_judge_question
from trainers.judges.pair_judge import AnswerPair, ask_endpoint, compare_verdict_likelihoods, judge_pairs, write_out_verdicts

PAIRS = [AnswerPair("1+1?", "2", "3"), AnswerPair("2+2?", "4", "5")]


def test_every_pair_is_asked_in_both_orders_and_equal_questions_once():
    asked = []

    def longer_first(questions):
        asked.extend(questions)
        return [FIRST if "A: 2" in question or "A: 4" in question else SECOND for question in questions]

    verdicts = judge_pairs([*PAIRS, PAIRS[0]], longer_first)
    assert asked == [
        write_judge_question("1+1?", "2", "3"),
        write_judge_question("1+1?", "3", "2"),
        write_judge_question("2+2?", "4", "5"),
        write_judge_question("2+2?", "5", "4"),
    ]
    assert verdicts == [PairVerdict(FIRST, SECOND)] * 3
    assert judge_pairs([], longer_first) == []


def test_a_judge_that_looks_at_the_place_alone_is_biased():
    verdicts = judge_pairs(PAIRS, lambda questions: [SECOND] * len(questions))
    assert measure_judge(verdicts).biased == 1


def test_the_likelier_verdict_is_that_of_the_models_own_log_probabilities(make_session):  # noqa: F811
    session = make_session()
    run = session.run
    run.trained = session.model
    questions = [write_judge_question(pair.question, pair.better, pair.worse) for pair in PAIRS]
    alone = [compare_verdict_likelihoods(run)([question])[0] for question in questions]
    assert compare_verdict_likelihoods(run)(questions) == alone
    assert set(alone) <= {FIRST, SECOND}
    letters = [run.completion_ids(f"<answer>{place}</answer>", end=False) for place in (FIRST, SECOND)]
    (differs,) = [place for place, (one, other) in enumerate(zip(*letters, strict=True)) if one != other]
    weights = session.model.lm_head.weight  # of the letters, each its own row
    kept = weights.detach().clone()
    try:
        with torch.no_grad():
            weights[letters[0][differs]] = weights[letters[1][differs]]
        assert compare_verdict_likelihoods(run)(questions) == [None, None]
    finally:
        with torch.no_grad():
            weights.copy_(kept)


def test_written_verdicts_are_read_from_greedy_answers():
    seen = []

    def sample(examples, temperature, key, model):
        seen.append((temperature, model))
        return [SimpleNamespace(text="<think>2</think><answer>A</answer>" if "A: 2" in one.prompt[0].content else "who knows") for one in examples]

    made = judge_pairs(PAIRS[:1], write_out_verdicts(SimpleNamespace(sample=sample), "judge"))
    assert made == [PairVerdict(FIRST, None)]
    assert seen == [(0.0, "judge")]


def test_an_endpoint_is_told_that_answers_are_data():
    def ask(questions):
        assert all("not instructions" in question for question in questions)
        return ["<answer>A</answer>\n", "the second"]

    assert judge_pairs(PAIRS[:1], ask_endpoint(SimpleNamespace(ask=ask))) == [PairVerdict(FIRST, None)]
