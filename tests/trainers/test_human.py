"""People as one reward column: what a ranking is worth, and real runs that are answered, left alone, stopped and resumed."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.conftest import current, events_in, make_spec
from tests.trainers.test_replay import replay
from trainers.attempt import train
from trainers.checks.preflight import run_preflight_checks
from trainers.contract import spool
from trainers.contract.events import Asked, Metrics, Phase, Rollout, Warned
from trainers.contract.problems import SpecError
from trainers.contract.spec import ANSWERS
from trainers.judges.human import PHASE, AnswerFile, GroupQuestion, InvalidAnswer, compute_win_shares, parse_answer_line

MEMBERS = 4


@pytest.mark.parametrize(
    ("tiers", "expected"),
    [
        ([[2], [0], [1]], [0.5, 0.0, 1.0]),
        ([[0, 1, 2]], [0.5, 0.5, 0.5]),
        ([[0, 1], [2], [3, 4]], [7 / 8, 7 / 8, 0.5, 1 / 8, 1 / 8]),
    ],
)
def test_a_member_gets_its_share_of_the_comparisons_it_won(tiers, expected):
    assert compute_win_shares(tiers, len(expected)) == pytest.approx(expected)


@given(st.permutations(range(6)), st.lists(st.booleans(), min_size=5, max_size=5))
def test_the_shares_of_a_group_are_half_its_size_and_keep_its_order(places, tied):
    """Against every comparison counted one by one."""
    tiers = [[places[0]]]
    for place, same in zip(places[1:], tied, strict=True):
        (tiers[-1] if same else tiers.append([]) or tiers[-1]).append(place)
    level = {place: number for number, tier in enumerate(tiers) for place in tier}
    found = compute_win_shares(tiers, 6)
    for place in range(6):
        others = [other for other in range(6) if other != place]
        won = sum(1.0 if level[place] < level[other] else 0.5 if level[place] == level[other] else 0.0 for other in others)
        assert found[place] == pytest.approx(won / 5)
    assert sum(found) == pytest.approx(3)


@pytest.mark.parametrize("tiers", [[], [[0], [1]], [[0], [1], [2], [2]], [[0, 1, 2], []], [[0], [1], [3]], [[-1], [0], [1]]])
def test_a_ranking_that_is_none_is_not_taken(tiers):
    with pytest.raises(InvalidAnswer):
        compute_win_shares(tiers, 3)


def test_completions_that_are_the_same_share_what_one_of_them_is_given():
    """Two of four said the second text: one answer about three texts ranks four members."""
    question = GroupQuestion(0, [[0], [1, 3], [2]])
    assert question.rewards([[1], [0, 2]]) == pytest.approx([0.5 / 3, 2.5 / 3, 0.5 / 3, 2.5 / 3])
    with pytest.raises(InvalidAnswer):
        question.rewards([[1], [0, 2, 3]])  # places are those of the texts


@pytest.mark.parametrize(
    "line", ["", "[]", "{}", '{"key": "a"}', '{"key": 1, "tiers": null}', '{"key": "a", "tiers": [[true]]}', '{"key": "a", "tiers": [0]}', "[" * 9000]
)
def test_a_line_that_is_no_answer_is_passed_over(line):
    with pytest.raises(InvalidAnswer):
        parse_answer_line(line.encode())


def test_a_line_counts_once_its_newline_is_there(tmp_path):
    path = tmp_path / "answers.jsonl"
    answers = AnswerFile(path)
    assert list(answers.new()) == []
    path.write_text('nonsense\n{"key": "a", "tiers": null}\n{"key": "b", "ti')
    assert list(answers.new()) == [("a", None)]
    with path.open("a") as file:
        file.write('ers": [[1], [0]]}\n')
    assert list(answers.new()) == [("b", [[1], [0]])]
    assert list(answers.new()) == []


@pytest.mark.parametrize(
    ("trainer", "training", "field"),
    [("dpo", {}, "human.share"), ("grpo", {"num_generations": 32, "per_device_train_batch_size": 64}, "training.num_generations")],
)
def test_people_are_asked_only_about_groups_they_can_rank(tmp_path, trainer, training, field):
    with pytest.raises(SpecError) as refused:
        make_spec(tmp_path, trainer, human={}, **{f"training__{name}": value for name, value in training.items()})
    assert [problem.field for problem in refused.value.problems] == [field]


def test_people_may_be_the_only_reward(tmp_path):
    rewards = {"correct": 0, "format": 0, "brevity": 0}
    known = dict.fromkeys(run_preflight_checks(make_spec(tmp_path)).gold[0].rewards, 0) or rewards
    task = {"name": "mini_gsm", "rewards": known}
    assert not run_preflight_checks(make_spec(tmp_path, task=task)).ok
    assert run_preflight_checks(make_spec(tmp_path, task=task, human={"share": 1.0})).ok


Answer = Callable[[Asked], list[list[int]] | None]


@contextmanager
def answering(folder, answer: Answer):
    """Somebody who reads the spool and appends an answer to every question for as long as the block runs."""
    over = threading.Event()

    def work():
        offset, file = 0, folder / ANSWERS
        file.parent.mkdir(parents=True, exist_ok=True)
        while not over.wait(0.02):
            for line in spool.read_spool_lines(folder / spool.SPOOL, offset):
                offset = line.end
                if isinstance(line.event, Asked):
                    with file.open("a") as out:
                        out.write(json.dumps({"key": line.event.key, "tiers": answer(line.event)}) + "\n")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def longest_first(asked: Asked) -> list[list[int]]:
    """A ranking that a test can work out from the text: longer is better, equally long is a tie."""
    lengths = sorted({len(text) for text in asked.completions}, reverse=True)
    return [[place for place, text in enumerate(asked.completions) if len(text) == length] for length in lengths]


def compared(text: str, others: list[str]) -> float:
    """The share of the comparisons that a text wins where longer is better."""
    return sum(1.0 if len(text) > len(other) else 0.5 if len(text) == len(other) else 0.0 for other in others) / len(others)


def of_kind(folder, kind):
    return [event for event in events_in(folder) if isinstance(event, kind)]


def trained_groups(folder):
    groups: dict[tuple[int, int], list[Rollout]] = {}
    for event in current(events_in(folder), Rollout):
        groups.setdefault((event.step, event.group), []).append(event)
    return {key: sorted(members, key=lambda event: event.sample) for key, members in groups.items()}


@pytest.mark.training
def test_votes_are_a_reward_column(tmp_path):
    """Every group of every step is asked about; the column is the votes, the total has it with its weight, and nothing is asked twice."""
    spec = make_spec(tmp_path, human={"share": 1.0, "seconds": 60, "weight": 0.5}, training__max_steps=3)
    with answering(tmp_path, longest_first):
        assert train.run_training(spec, tmp_path) == train.FINISHED
    asked = {(event.step, event.group): event for event in of_kind(tmp_path, Asked)}
    groups = trained_groups(tmp_path)
    assert len(groups) == 6
    for key, members in groups.items():
        texts = [event.completion for event in members]
        question = asked.pop(key, None)
        if question is None:
            assert len(set(texts)) == 1  # nothing to compare
            expected = [None] * MEMBERS
        else:
            assert (question.completions, question.prompt, question.reference) == (
                list(dict.fromkeys(texts)),
                members[0].prompt,
                members[0].reference,
            )
            expected = [compared(text, [other for place, other in enumerate(texts) if place != own]) for own, text in enumerate(texts)]
        assert [event.rewards["human"] for event in members] == expected
        for event in members:
            assert event.rewards["human"] is None or event.reward == pytest.approx(task_reward(spec, event) + 0.5 * event.rewards["human"], abs=1e-6)
    assert asked == {}
    steps = [event.values for event in of_kind(tmp_path, Metrics) if "loss" in event.values]
    for number, step in enumerate(steps, 1):
        votes = [event.rewards["human"] for key, members in groups.items() if key[0] == number for event in members]
        scored = [vote for vote in votes if vote is not None]
        assert step["human/share"] == pytest.approx(len(scored) / len(votes), abs=1e-6)
        assert step["rewards/human/mean"] == pytest.approx(sum(scored) / len(scored), abs=1e-6)
        assert step["human/answered"] == 1.0
        assert step["human/wait_seconds"] < 30
    assert any(event.name == PHASE and event.total for event in of_kind(tmp_path, Phase))
    first = [event for event in of_kind(tmp_path, Rollout) if event.step == 1]
    again = {one["id"]: one["advantage"] for one in replay(spec, first)["rollouts"]}  # what-if questions know people's column and its weight
    assert [again[order] for order in range(len(first))] == pytest.approx([event.advantage for event in first], abs=1e-5)


def task_reward(spec, event):
    from trainers.judges.rewards import weights_of
    from trainers.tasks import registry

    weights = weights_of(registry.get_task("mini_gsm"), spec)
    return sum(weights[name] * value for name, value in event.rewards.items() if value is not None and name != "human")


@pytest.mark.training
@pytest.mark.parametrize("fallback", [0.25, None])
def test_without_an_answer_the_fallback_counts_once_the_deadline_is_over(tmp_path, fallback):
    spec = make_spec(tmp_path, human={"share": 1.0, "seconds": 1, "fallback": fallback}, training__max_steps=2)
    assert train.run_training(spec, tmp_path) == train.FINISHED
    votes = [event.rewards["human"] for members in trained_groups(tmp_path).values() for event in members]
    assert votes == [fallback] * 16
    steps = [event.values for event in of_kind(tmp_path, Metrics) if "loss" in event.values]
    assert [(step["human/share"], step["human/answered"]) for step in steps] == [(0.0, 0.0)] * 2
    assert all(1.0 <= step["human/wait_seconds"] < 10 for step in steps)
    assert [step.get("rewards/human/mean") for step in steps] == [fallback] * 2  # without an opinion there is no mean, and no nan either
    assert not any(name.startswith("rewards/human") for event in of_kind(tmp_path, Metrics) for name in event.nonfinite)


@pytest.mark.training
def test_nobody_is_waited_for_who_will_not_answer(tmp_path):
    spec = make_spec(tmp_path, human={"share": 1.0, "seconds": 3600}, training__max_steps=1)
    with answering(tmp_path, lambda asked: None):
        assert train.run_training(spec, tmp_path) == train.FINISHED
    assert {event.rewards["human"] for members in trained_groups(tmp_path).values() for event in members} == {None}


@pytest.mark.training
def test_a_share_of_the_groups_is_drawn_by_the_seed(tmp_path):
    spec = make_spec(tmp_path, human={"share": 0.5, "seconds": 3600}, training__max_steps=4)
    with answering(tmp_path, longest_first):
        assert train.run_training(spec, tmp_path) == train.FINISHED
    asked = {(event.step, event.group) for event in of_kind(tmp_path, Asked)}
    assert 0 < len(asked) < 8
    for key, members in trained_groups(tmp_path).items():
        assert all((event.rewards["human"] is not None) == (key in asked) for event in members)


@pytest.mark.training
def test_a_stop_does_not_wait_for_people_and_a_resumed_run_asks_anew(tmp_path):
    spec = make_spec(tmp_path, human={"share": 1.0, "seconds": 3600}, training__max_steps=3)
    with stopping_once_asked(tmp_path) as stopped:
        assert train.run_training(spec, tmp_path) == train.STOPPED
    assert time.monotonic() - stopped[0] < 20
    (tmp_path / "stop").unlink()
    first = of_kind(tmp_path, Asked)
    assert {event.attempt for event in first} == {1}
    assert {event.step for event in first} == {1}
    with (tmp_path / ANSWERS).open("a") as file:  # too late: that step is trained
        file.writelines(json.dumps({"key": event.key, "tiers": [[0], [1], [2], [3]]}) + "\n" for event in first)
    with answering(tmp_path, longest_first):
        assert train.run_training(spec, tmp_path) == train.FINISHED
    keys = [event.key for event in of_kind(tmp_path, Asked)]
    assert len(keys) == len(set(keys))
    for (step, _), members in trained_groups(tmp_path).items():
        assert all((event.rewards["human"] is None) == (step == 1) for event in members)
    assert of_kind(tmp_path, Warned) == []


@contextmanager
def stopping_once_asked(folder):
    """Requests a stop a moment after the first question; the list holds when that was."""
    at: list[float] = []

    def work():
        deadline = time.monotonic() + 300
        while time.monotonic() < deadline and not any(isinstance(line.event, Asked) for line in spool.read_spool_lines(folder / spool.SPOOL, 0)):
            time.sleep(0.02)
        at.append(time.monotonic())
        (folder / "stop").touch()

    thread = threading.Thread(target=work)
    thread.start()
    yield at
    thread.join()
