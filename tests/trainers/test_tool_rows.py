"""Rows with calls of tools reach TRL as they are, and are refused where the chat template would leave the calls out; steps become answers for KTO."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast

from trainers.adapters.tables import ROW, table_of
from trainers.attempt.train import refuse_unrendered
from trainers.checks.preflight import run_preflight_checks
from trainers.contract.problems import SpecError
from trainers.contract.spec import FolderPolicy, RunSpec
from trainers.data import datasets
from trainers.policies.checks import template_of

ASKED = {"role": "user", "content": "What is 2 + 2?"}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {}}}}]
RENDERING = (
    "{%- if tools %}{{ tools | tojson }}{% endif %}{%- for message in messages %}{{ message['role'] + ':' + message['content'] }}"
    "{%- for call in message.tool_calls or [] %}{{ call.function.name }}{{ call.function.arguments | tojson }}{% endfor %}|{% endfor %}"
)


def call(name: str, **arguments: int) -> dict[str, Any]:
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}],
    }


def rows() -> list[datasets.Row]:
    own = [
        {"prompt": [ASKED, call("add", a=2, b=2), {"role": "tool", "content": "4"}], "completion": "4", "tools": TOOLS},
        {"prompt": [ASKED, call("find", page=1), {"role": "tool", "content": "no"}], "completion": "Four.", "label": True},
    ]
    return [datasets.row_of(json.loads(json.dumps(row)), "sft") for row in own]


def tokenizer(template: str) -> PreTrainedTokenizerFast:
    found = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]")), unk_token="[UNK]")
    found.chat_template = template
    return found


def test_a_call_keeps_its_own_arguments_and_no_others() -> None:
    table = table_of(rows(), ("prompt", "completion"), numbered=True)
    assert [one[ROW] for one in table] == [0, 1]
    assert [one["prompt"] for one in table] == [row["prompt"] for row in rows()]
    assert [one["tools"] and json.loads(one["tools"]) for one in table] == [TOOLS, None]
    text = tokenizer(RENDERING).apply_chat_template(table[1]["prompt"], tokenize=False)
    assert text == 'user:What is 2 + 2?|assistant:find{"page": 1}|tool:no|'


def test_rows_without_tools_are_a_table_as_before() -> None:
    table = table_of([{"prompt": [ASKED], "completion": [ASKED], "label": True}], ("prompt", "completion", "label"))
    assert table.column_names == ["prompt", "completion", "label"]
    assert table[0]["prompt"] == [ASKED]


def test_a_template_that_leaves_calls_out_is_refused() -> None:
    spec = SimpleNamespace(dataset=SimpleNamespace(path="rows.jsonl"))
    silent = SimpleNamespace(spec=spec, policy=SimpleNamespace(tokenizer=tokenizer("{%- for one in messages %}{{ one['content'] }}{% endfor %}")))
    with pytest.raises(SpecError, match="chat template does not render"):
        refuse_unrendered(silent, rows())  # type: ignore[arg-type]
    refuse_unrendered(silent, [{"prompt": [ASKED], "completion": [ASKED]}])  # type: ignore[arg-type]
    speaking = SimpleNamespace(spec=spec, policy=SimpleNamespace(tokenizer=tokenizer(RENDERING)))
    refuse_unrendered(speaking, rows())  # type: ignore[arg-type]


def test_the_check_before_the_launch_refuses_them_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"prompt": [ASKED], "completion": [call("add", a=2)], "tools": TOOLS}) + "\n", encoding="utf-8")
    training = {"trainer": "sft", "max_steps": 1}
    spec = RunSpec.model_validate({"task": {"name": "mini_gsm"}, "training": training, "dataset": {"path": str(path)}, "output": str(tmp_path)})
    assert [problem.message for problem in run_preflight_checks(spec).problems if problem.field == "dataset.path"] == [datasets.UNRENDERED[0]]
    (tmp_path / "chat_template.jinja").write_text(RENDERING, encoding="utf-8")
    assert template_of(FolderPolicy(kind="folder", path=str(tmp_path))) == RENDERING
    assert template_of(FolderPolicy(kind="folder", path=str(tmp_path / "gone"))) is None


def test_steps_are_one_answer_that_is_good_if_all_of_them_are() -> None:
    row = {"prompt": "What is 2 + 2?", "completions": ["2 + 2\n", "is 4"], "labels": [True, True]}
    found = datasets.row_of(row, "kto")
    assert found == {"prompt": [ASKED], "completion": [{"role": "assistant", "content": "2 + 2\nis 4"}], "label": True}
    assert datasets.row_of({**row, "labels": [True, False]}, "kto")["label"] is False
