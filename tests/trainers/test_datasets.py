"""A person's own file: every accepted shape comes out conversational, every broken row is named with its line and reason."""

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.contract.spec import SpecError
from trainers.data import datasets
from trainers.data.datasets import check_dataset_file, examples_from_rows, read_rows
from trainers.tasks.mini_gsm import MiniGsm

USER, ASSISTANT = {"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}
CALL = {"type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
GOOD = {
    "sft": {"prompt": "2+2?", "completion": "4"},
    "dpo": {"prompt": "2+2?", "chosen": "4", "rejected": "5"},
    "grpo": {"prompt": "2+2?", "reference": "4"},
}


def write(folder: Path, *rows: Any) -> Path:
    path = folder / "rows.jsonl"
    path.write_text("".join(row if isinstance(row, str) else json.dumps(row) + "\n" for row in rows))
    return path


def problems(path: Path, trainer: str = "sft"):
    with pytest.raises(SpecError) as caught:
        read_rows(path, trainer)
    return caught.value.problems


def reason(folder: Path, row: Any, trainer: str = "sft") -> str:
    found = problems(write(folder, row), trainer)
    assert len(found) == 1
    assert found[0].field == "dataset.path"
    assert found[0].value.endswith("rows.jsonl line 1")
    return found[0].message


@pytest.mark.parametrize(
    ("trainer", "row", "expected"),
    [
        ("sft", GOOD["sft"], {"prompt": [USER], "completion": [ASSISTANT]}),
        ("sft", {"prompt": [USER], "completion": [ASSISTANT]}, {"prompt": [USER], "completion": [ASSISTANT]}),
        ("sft", {"prompt": [USER], "completion": "4", "id": 7}, {"prompt": [USER], "completion": [ASSISTANT], "id": 7}),
        ("dpo", GOOD["dpo"], {"prompt": [USER], "chosen": [ASSISTANT], "rejected": [{"role": "assistant", "content": "5"}]}),
        ("grpo", GOOD["grpo"], {"prompt": [USER], "reference": "4", "data": {}}),
        ("grpo", {"prompt": "2+2?", "reference": 4, "data": {"k": 1}}, {"prompt": [USER], "reference": "4", "data": {"k": 1}}),
        ("grpo", {"prompt": "2+2?", "reference": "4", "data": '{"k": 1}'}, {"prompt": [USER], "reference": "4", "data": {"k": 1}}),
    ],
)
def test_every_accepted_shape_comes_out_conversational(tmp_path, trainer, row, expected):
    assert read_rows(write(tmp_path, row), trainer) == [expected]


@pytest.mark.parametrize("trainer", GOOD)
def test_a_parquet_file_gives_the_same_rows(tmp_path, trainer):
    rows = [GOOD[trainer] | {"prompt": f"{number}+2?"} for number in range(2500)]
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    assert read_rows(path, trainer) == read_rows(write(tmp_path, *rows), trainer)


def test_conversations_come_out_of_a_parquet_file(tmp_path):
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"prompt": [USER], "completion": [ASSISTANT]}]), path)
    assert read_rows(path, "sft") == [{"prompt": [USER], "completion": [ASSISTANT]}]


@pytest.mark.parametrize(
    ("trainer", "row", "message"),
    [
        ("sft", {"prompt": "2+2?"}, "completion is missing; it has prompt"),
        ("sft", {"question": "2+2?", "completion": "4"}, "prompt is missing; rename question to prompt"),
        ("sft", {"prompt": "2+2?", "answer": "4"}, "completion is missing; rename answer to completion"),
        (
            "sft",
            {"messages": [USER, ASSISTANT]},
            "prompt is missing; split messages: everything before the last answer is prompt, the answer is completion",
        ),
        ("sft", {"text": "2+2? 4"}, "prompt is missing; split text into prompt and completion"),
        (
            "dpo",
            {"chosen": [USER, ASSISTANT], "rejected": []},
            "prompt is missing; move the messages that chosen and rejected begin with into prompt",
        ),
        ("dpo", {"prompt": "2+2?", "chosen": "4", "rejected": "4"}, "chosen and rejected are the same: there is nothing to prefer"),
        ("grpo", {"prompt": "2+2?", "solution": "4"}, "reference is missing; rename solution to reference"),
        ("grpo", {"prompt": "2+2?", "reference": True}, "reference is not text but True; write it as the exact text of the answer"),
        ("grpo", {"prompt": "2+2?", "reference": "4", "data": "{"}, "data is not a JSON object"),
        ("grpo", {"prompt": [USER, ASSISTANT], "reference": "4"}, "prompt ends with an assistant message; end it with the question"),
        ("sft", {"prompt": "2+2?", "completion": [USER]}, "completion begins with role 'user'"),
        ("sft", {"prompt": "2+2?", "completion": ""}, "completion is empty"),
        ("sft", {"prompt": "2+2?", "completion": None}, "completion is missing"),
        ("sft", {"prompt": [], "completion": "4"}, "prompt is neither text nor a list of messages but []"),
        ("sft", {"prompt": ["2+2?"], "completion": "4"}, "prompt[0] is not an object with role and content but '2+2?'"),
        ("sft", {"prompt": [{"from": "human", "value": "x"}], "completion": "4"}, "prompt[0] uses from and value; rename them to role and content"),
        (
            "sft",
            {"prompt": [{"role": "human", "content": "x"}], "completion": "4"},
            "prompt[0] has role 'human'; use one of system, user, assistant, tool",
        ),
        ("sft", {"prompt": [USER | {"audio": {}}], "completion": "4"}, "prompt[0] has audio; only role, content, tool_calls"),
        ("sft", {"prompt": [USER | {"tool_calls": [CALL]}], "completion": "4"}, "prompt[0] has role user and calls tools; only the assistant does"),
        ("sft", {"prompt": [USER], "completion": [{"role": "assistant", "tool_calls": [1]}]}, "completion[0] has a tool call without function.name"),
        (
            "sft",
            {"prompt": [USER], "completion": [{"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": "2"}}]}]},
            "completion[0] calls add with arguments that are no JSON object",
        ),
        ("sft", {"prompt": [USER], "completion": "4", "tools": "add"}, "tools is no list of descriptions"),
        (
            "grpo",
            {"prompt": [USER, {"role": "assistant", "tool_calls": [CALL]}, USER], "reference": "4"},
            "prompt holds calls of tools, which grpo cannot",
        ),
        ("kto", {"prompt": "2+2?", "completions": ["4"], "labels": []}, "labels is not one true or false for each step"),
        ("kto", {"prompt": "2+2?", "completions": "4", "labels": [True]}, "completions is no list of steps"),
        ("sft", {"prompt": [{"role": "user", "content": [{"type": "text"}]}], "completion": "4"}, "prompt[0].content is not text but"),
        ("sft", {"prompt": "\ud800", "completion": "4"}, "prompt holds a lone surrogate"),
        ("sft", 7, "is not a JSON object but 7"),
        ("sft", "{\n", "is not JSON"),
        ("sft", "[" * 100_000 + "\n", "is nested too deeply"),
    ],
)
def test_a_broken_row_is_refused_with_its_line_and_reason(tmp_path, trainer, row, message):
    assert message in reason(tmp_path, row, trainer)


def test_a_row_that_is_not_utf_8_is_refused_with_its_byte(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(json.dumps(GOOD["sft"]).encode() + b'\n{"prompt": "\xff"}\n')
    found = problems(path)
    assert found[0].value.endswith("line 2")
    assert found[0].message == "is not UTF-8: byte 13 is 0xff"


def test_lines_are_counted_as_an_editor_counts_them(tmp_path):
    path = write(tmp_path, GOOD["sft"] | {"prompt": "a\u2028b"}, "\n", "   \n", GOOD["sft"], {"prompt": "x"})
    assert problems(path)[0].value.endswith("line 5")


def test_twenty_broken_rows_are_named_and_the_others_counted(tmp_path):
    found = problems(write(tmp_path, *[GOOD["sft"], {"prompt": "x"}] * 30))
    assert len(found) == 21
    assert found[-1].message == "10 more rows are broken: 30 of 60 in all"


def test_a_byte_order_mark_and_a_missing_last_newline_are_no_fault(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(GOOD["sft"]).encode())
    assert len(read_rows(path, "sft")) == 1


def test_nul_in_a_text_is_kept(tmp_path):
    assert read_rows(write(tmp_path, GOOD["sft"] | {"completion": "4\0"}), "sft")[0]["completion"][0]["content"] == "4\0"


def file(folder: Path, name: str, content: bytes = b"") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: file(folder, "rows.jsonl"), "holds no rows"),
        (lambda folder: file(folder, "rows.jsonl", b"\n\n"), "holds no rows"),
        (lambda folder: folder / "nowhere.jsonl", "cannot be read: No such file or directory"),
        (lambda folder: folder, "is a folder"),
        (lambda folder: file(folder, "rows.csv", b"a,b"), "is neither .jsonl nor .parquet but .csv"),
        (lambda folder: file(folder, "rows", b"{}"), "is neither .jsonl nor .parquet but without an ending"),
        (lambda folder: file(folder, "rows.parquet", b"PAR1 and then nothing"), "is not a readable parquet file"),
        (lambda folder: file(folder, "rows.parquet"), "is not a readable parquet file"),
        (lambda folder: Path("/dev/null"), "is not a regular file"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_the_reason(tmp_path, make, message):
    found = problems(make(tmp_path))
    assert len(found) == 1
    assert found[0].message.startswith(message)
    assert found[0].fix


def test_a_limit_stops_early_and_says_so(tmp_path):
    path = write(tmp_path, *[GOOD["sft"]] * 1000, {"prompt": "broken"})
    checked = check_dataset_file(path, "sft", limit=5000)
    assert not checked.complete
    assert 0 < len(checked.rows) < 1000
    assert check_dataset_file(write(tmp_path, GOOD["sft"]), "sft", limit=5000).complete


def test_rows_become_examples_that_reward_functions_score(tmp_path):
    gold = MiniGsm().examples("train", 1, 0, "easy")[0]
    row = {"prompt": gold.prompt[0].content, "reference": gold.reference, "data": gold.data}
    assert examples_from_rows(read_rows(write(tmp_path, row), "grpo")) == [gold]


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(st.characters(), max_size=5), st.sampled_from(["user", "assistant"])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["role", "content", "x"]), inner, max_size=2)),
    max_leaves=6,
)
names = st.sampled_from(["prompt", "completion", "chosen", "rejected", "reference", "data", "messages", "text"])


@given(row=st.one_of(json_values, st.dictionaries(names, json_values)), trainer=st.sampled_from(list(GOOD)))
@settings(max_examples=400, deadline=None)
def test_any_row_is_conversational_text_or_refused_with_a_short_reason(row, trainer):
    try:
        found = datasets.row_of(row, trainer)
    except datasets.BrokenRow as error:
        refusal = str(error)
    else:
        texts = [message for column in ("prompt", "completion", "chosen", "rejected") for message in found.get(column, [])]
        assert texts
        assert all(set(message) == {"role", "content"} and message["content"].encode() for message in texts)
        return
    assert refusal
    assert len(refusal) < 400
