"""Formats with one answer, with marks, and with references."""

from typing import Any

from tests.lab.datasets.samples.base import ANSWERED, ASKED, BAD, GOOD, Sample, asked, said, system

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "number"}}}}}]
CALLING = {"role": "assistant", "content": "", "tool_calls": [CALL]}
RESULT = {"role": "tool", "content": "4", "tool_call_id": "c1"}
SHARED = [{"from": "human", "value": "What is 2 + 2?"}, {"from": "gpt", "value": "4"}]
BRIEF = system("Be brief.")


def chat(*messages: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


SAMPLES = (
    Sample(
        "openai-chat",
        "openai-chat",
        [chat(*BRIEF, *ASKED, *GOOD), chat(*ASKED, {**GOOD[0], "weight": 0}), chat(*ASKED)],
        [{"prompt": [*BRIEF, *ASKED], "completion": GOOD}, "weight 0", "message of user"],
    ),
    Sample(
        "openai-chat with tools",
        "openai-chat",
        [
            chat(*ASKED, {**CALLING, "content": None}, RESULT, *GOOD, tools=TOOLS),
            chat(*ASKED, {**CALLING, "content": None}, tools=TOOLS),
            chat(*ASKED, {"role": "assistant", "content": None, "tool_calls": [{"id": "c1"}]}),
        ],
        [
            {"prompt": [*ASKED, CALLING, RESULT], "completion": GOOD, "tools": TOOLS},
            {"prompt": ASKED, "completion": [CALLING], "tools": TOOLS},
            "without the name of a function",
        ],
    ),
    Sample(
        "openai-chat in pieces",
        "openai-chat",
        [
            chat({"role": "user", "content": [{"type": "text", "text": "What is 2 + 2?"}]}, *GOOD),
            chat({"role": "user", "content": [{"type": "image_url"}]}, *GOOD),
        ],
        [ANSWERED, "no text"],
    ),
    Sample(
        "sharegpt",
        "sharegpt",
        [{"id": "i", "conversations": SHARED, "system": "Be brief."}, {"id": "i", "conversations": [{"from": "boss", "value": "x"}]}],
        [{"prompt": [*BRIEF, *ASKED], "completion": GOOD}, "role 'boss'"],
        ["id"],
    ),
    Sample(
        "sharegpt with tools",
        "sharegpt",
        [
            {
                "conversations": [
                    SHARED[0],
                    {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 2}}'},
                    {"from": "observation", "value": "4"},
                    SHARED[1],
                ],
                "tools": '[{"name": "add"}]',
            }
        ],
        [
            {
                "prompt": [
                    *ASKED,
                    {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"a": 2}}}]},
                    {"role": "tool", "content": "4"},
                ],
                "completion": GOOD,
                "tools": [{"name": "add"}],
            }
        ],
    ),
    Sample(
        "alpaca",
        "alpaca",
        [
            {"instruction": "Translate to French.", "input": "Good morning", "output": "Bonjour"},
            {"instruction": "What is 2 + 2?", "input": "", "output": "4", "history": [["Hi", "Hello."]]},
        ],
        [
            {"prompt": asked("Translate to French.\n\nGood morning"), "completion": said("Bonjour")},
            {"prompt": [*asked("Hi"), *said("Hello."), *ASKED], "completion": GOOD},
        ],
    ),
    Sample(
        "orca",
        "orca",
        [
            {"id": "i", "system_prompt": "Be brief.", "question": "What is 2 + 2?", "response": "4"},
            {"system_prompt": "", "question": "What is 2 + 2?", "response": "4"},
        ],
        [{"prompt": [*BRIEF, *ASKED], "completion": GOOD}, ANSWERED],
        ["id"],
    ),
    Sample("trl-completion", "trl-completion", [{"prompt": "What is 2 + 2?", "completion": "4"}], [ANSWERED]),
    Sample(
        "kto",
        "kto",
        [{"prompt": "What is 2 + 2?", "completion": "4", "label": True}, {"prompt": "What is 2 + 2?", "completion": "5", "label": "False"}],
        [{**ANSWERED, "label": True}, {"prompt": ASKED, "completion": BAD, "label": False}],
    ),
    Sample("sharegpt-kto", "sharegpt-kto", [{"conversations": SHARED, "kto_tag": False}], [{**ANSWERED, "label": False}]),
    Sample(
        "alpaca-kto", "alpaca-kto", [{"instruction": "What is 2 + 2?", "input": "", "output": "4", "kto_tag": True}], [{**ANSWERED, "label": True}]
    ),
    Sample(
        "stepwise",
        "stepwise",
        [
            {"prompt": "What is 2 + 2?", "completions": ["2 + 2", "is 5"], "labels": [True, False]},
            {"prompt": "What is 2 + 2?", "completions": ["2 + 2", "is 5"], "labels": [True]},
        ],
        [{"prompt": "What is 2 + 2?", "completions": ["2 + 2", "is 5"], "labels": [True, False]}, "2 steps and 1 labels"],
    ),
    Sample(
        "prompt-reference",
        "prompt-reference",
        [{"prompt": "What is 2 + 2?", "reference": 4, "data": {"kind": "sum"}}, {"prompt": "What is 2 + 2?", "reference": " "}],
        [{"prompt": ASKED, "reference": "4", "data": {"kind": "sum"}}, "reference is empty"],
    ),
    Sample(
        "gsm8k",
        "gsm8k",
        [
            {"question": "What is 2 + 2?", "answer": "Two and two.\n#### 4"},
            {"question": "How many?", "answer": "#### 1,200"},
            {"question": "Why?", "answer": "So."},
        ],
        [
            {"prompt": ASKED, "reference": "4", "solution": "Two and two."},
            {"prompt": asked("How many?"), "reference": "1200"},
            "no ####",
        ],
    ),
)
