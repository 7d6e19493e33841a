"""verl's dump: what arrives, how it is followed, and what becomes of lines that are broken, torn or written anew."""

import json
from pathlib import Path

import pytest

from tests.trainers.outside_readers.reading import (
    events_in,
    metrics_of,
    open_spool,
    places_of,
    read_once,
    rollouts_of,
    verl_row,
    warnings_of,
    write_lines,
    write_verl_step,
)
from trainers.contract.events import AttemptFinished, AttemptStarted, Message, Turn
from trainers.contract.spool import SPOOL
from trainers.outside.readers.base import SourceError
from trainers.outside.source_spool import POSITION

TOOLS = (
    '<think>look it up</think>\n<tool_call>\n{"name": "add", "arguments": {"a": 3, "b": 4}}\n</tool_call>'
    "\nuser\n<tool_response>\n7\n</tool_response>\nassistant\n<answer>7</answer>"
)


@pytest.fixture
def dump(tmp_path: Path) -> Path:
    return tmp_path / "dump"


@pytest.fixture
def keep(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def test_groups_rewards_and_references_arrive_and_nothing_is_made_up(dump: Path, keep: Path) -> None:
    write_verl_step(dump, 1)
    write_verl_step(dump, 2)
    events = read_once(keep, dump)
    assert places_of(events) == [(step, "train", group, sample) for step in (1, 2) for sample in (0, 1) for group in (0, 1)]
    first = rollouts_of(events)[0]
    assert first.prompt == [Message("system", "You solve sums."), Message("user", "What is 0 + 4?")]
    assert (first.completion, first.reference, first.reward, first.rewards) == ("<answer>1</answer>", "4", 0.0, {"score": 0.0, "acc": 0.0})
    assert (first.length, first.finish_reason, first.advantage, first.mean_entropy, first.ids) == (None, "", None, None, b"")
    assert metrics_of(events) == {1: {"reward": 0.5, "rewards/score/mean": 0.5, "rewards/acc/mean": 0.5}}  # step 2 may still grow


def test_validation_rows_are_held_out(dump: Path, keep: Path) -> None:
    write_verl_step(dump / "rollout", 5, 1, 1)
    write_verl_step(dump / "validation", 5, 1, 1)
    assert [place[:2] for place in places_of(read_once(keep, dump))] == [(5, "train"), (5, "heldout")]


@pytest.mark.feature(33)
def test_turns_of_a_tool_are_told_from_the_policys_own(dump: Path, keep: Path) -> None:
    write_lines(dump / "1.jsonl", verl_row(1, answer=TOOLS))
    [one] = rollouts_of(read_once(keep, dump))
    assert one.completion == TOOLS
    assert [(turn.role, one.completion[turn.start : turn.end]) for turn in one.turns] == [
        ("assistant", TOOLS[: TOOLS.index("\nuser\n")]),
        ("tool", "\nuser\n<tool_response>\n7\n</tool_response>\nassistant\n"),
        ("assistant", "<answer>7</answer>"),
    ]


@pytest.mark.parametrize(
    "text", ["<tool_response>7</tool_response>", "a\nuser\nb\nassistant\nc", "\nuser\n<tool_response>\nnever closed\nassistant\n"]
)
def test_what_a_policy_writes_itself_is_no_turn_of_a_tool(dump: Path, keep: Path, text: str) -> None:
    write_lines(dump / "1.jsonl", verl_row(1, answer=text))
    assert rollouts_of(read_once(keep, dump))[0].turns == list[Turn]()


def test_lines_arrive_as_they_are_written_and_a_torn_one_is_not_yet(dump: Path, keep: Path) -> None:
    rows = [json.dumps(verl_row(1, answer=str(number))) for number in range(3)]
    write_lines(dump / "1.jsonl", rows[0], tail=rows[1][:20])
    spool = open_spool(keep, dump)
    spool.take_new(final=False)
    assert [one.completion for one in rollouts_of(events_in(keep))] == ["0"]
    write_lines(dump / "1.jsonl", mode="a", tail=rows[1][20:] + "\n" + rows[2])
    spool.take_new(final=False)
    assert [one.completion for one in rollouts_of(events_in(keep))] == ["0", "1"]
    write_verl_step(dump, 2, 1, 1)
    spool.take_new(final=False)
    spool.take_new(final=True)  # nothing more will come: the last line needs no newline
    spool.finish("finished")
    spool.close()
    events = events_in(keep)
    assert [(one.step, one.sample) for one in rollouts_of(events)] == [(1, 0), (1, 1), (2, 0), (1, 2)]
    assert isinstance(events[-1], AttemptFinished)
    assert warnings_of(events) == []


@pytest.mark.parametrize("torn", [0, 7, 400])
def test_a_process_that_dies_loses_nothing_and_sends_nothing_twice(dump: Path, keep: Path, torn: int) -> None:
    """Killed after lines were appended and before their place was noted: they are cut off, and read again."""
    write_verl_step(dump, 1)
    read_once(keep, dump, final=False)
    noted = (keep / POSITION).read_bytes()
    before = (keep / SPOOL).read_bytes()
    write_lines(dump / "1.jsonl", verl_row(1, 0, "later"), mode="a")
    read_once(keep, dump, final=False)
    (keep / POSITION).write_bytes(noted)
    (keep / SPOOL).write_bytes((keep / SPOOL).read_bytes()[: len(before) + torn])
    events = read_once(keep, dump, final=False)
    assert places_of(events) == [(1, "train", 0, 0), (1, "train", 1, 0), (1, "train", 0, 1), (1, "train", 1, 1), (1, "train", 0, 2)]
    assert (keep / SPOOL).read_bytes().startswith(before)


def test_a_step_that_is_written_anew_begins_an_attempt(dump: Path, keep: Path) -> None:
    for step in (1, 2, 3):
        write_verl_step(dump, step, 1, 2)
    spool = open_spool(keep, dump)
    spool.take_new(final=False)
    for step in (2, 3):  # resumed from the checkpoint of step 1
        write_lines(dump / f"{step}.jsonl", *(verl_row(step, answer=f"again {sample}") for sample in range(2)))
    spool.take_new(final=False)
    spool.close()
    events = events_in(keep)
    assert [(one.attempt, one.from_step) for one in events if isinstance(one, AttemptStarted)] == [(1, 0), (2, 1)]
    assert [(one.attempt, one.step, one.sample) for one in rollouts_of(events)][6:] == [(2, 2, 0), (2, 2, 1), (2, 3, 0), (2, 3, 1)]
    assert read_once(keep, dump, final=False) == events


def test_an_ended_run_is_taken_up_again_when_more_comes(dump: Path, keep: Path) -> None:
    write_verl_step(dump, 1, 1, 1)
    for step in (2, 3):
        spool = open_spool(keep, dump)
        spool.take_new(final=True)
        spool.finish("finished")
        spool.finish("finished")  # nothing new: it has ended already
        spool.close()
        write_verl_step(dump, step, 1, 1)
    started = [(one.attempt, one.from_step) for one in events_in(keep) if isinstance(one, AttemptStarted)]
    assert started == [(1, 0), (1, 1)]
    assert metrics_of(events_in(keep)).keys() == {1, 2}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{broken", "1.jsonl, line 2 was left out: is not JSON"),
        ("[1, 2]", "is not a JSON object"),
        ('{"input": "a", "score": 1}', "output is missing"),
        ('{"input": "a", "output": 3, "score": 1}', "output is not a text"),
        ('{"input": "a", "output": "b", "score": "good"}', "score is not a number"),
        ("\xff\xfe", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('{"input": "a", "output": "' + "x" * (8 << 20) + '", "score": 1}', "the lab takes 7 at most"),
    ],
)
def test_a_broken_line_is_named_and_the_rest_goes_on(dump: Path, keep: Path, line: str, words: str) -> None:
    write_lines(dump / "1.jsonl", verl_row(1, answer="a"), line, verl_row(1, answer="b"))
    events = read_once(keep, dump)
    assert [one.completion for one in rollouts_of(events)] == ["a", "b"]
    [told] = warnings_of(events)
    assert told.startswith("1.jsonl, line 2 was left out")
    assert words in told


def test_many_broken_lines_are_named_once_in_a_while(dump: Path, keep: Path) -> None:
    write_lines(dump / "1.jsonl", verl_row(1), *["{"] * 100, verl_row(1))
    events = read_once(keep, dump)
    assert (len(rollouts_of(events)), len(warnings_of(events))) == (2, 21)
    assert "further broken lines" in warnings_of(events)[-1]


def test_numbers_and_texts_no_database_holds_become_what_the_contract_says(dump: Path, keep: Path) -> None:
    row = json.dumps(verl_row(1, answer="a\0b\ud800c")).replace('"score": 1.0', '"score": NaN')
    write_lines(dump / "1.jsonl", row, json.dumps(verl_row(1, score=1e400, wide=10**400)))
    first, second = rollouts_of(read_once(keep, dump))
    assert (first.completion, first.reward, first.rewards["score"]) == ("a\u2400b\ufffdc", None, None)
    assert (second.reward, second.rewards["wide"]) == (None, None)


def test_a_folder_of_no_known_format_says_what_was_looked_for(tmp_path: Path, keep: Path) -> None:
    write_lines(tmp_path / "some" / "notes.jsonl", {"a": 1})
    with pytest.raises(SourceError, match=r"no rollouts or metrics of a known format(.|\n)*verl: <step>.jsonl"):
        open_spool(keep, tmp_path / "some")
    with pytest.raises(SourceError, match="is not there"):
        open_spool(keep, tmp_path / "nowhere")
    with pytest.raises(SourceError, match="there is no format 'verll'"):
        open_spool(keep, tmp_path / "some", "verll")


def test_two_processes_do_not_read_into_one_folder(dump: Path, keep: Path) -> None:
    write_verl_step(dump, 1)
    spool = open_spool(keep, dump)
    with pytest.raises(SourceError, match="another process reads into"):
        open_spool(keep, dump)
    spool.close()
    (keep / POSITION).unlink()
    read_spool = keep / SPOOL
    read_spool.write_bytes(b'{"event": "warning"}\n')
    with pytest.raises(SourceError, match="not read from files"):
        open_spool(keep, dump)
