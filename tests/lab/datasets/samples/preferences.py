"""Formats that name the better answer, rate, rank or compare."""

from tests.lab.datasets.samples.base import ASKED, BAD, GOOD, PAIR, Sample, asked, said, system

HH = {"chosen": "\n\nHuman: Hi\n\nAssistant: Hello.\n\nHuman: What is 2 + 2?\n\nAssistant: 4"}
HH["rejected"] = HH["chosen"].replace("Assistant: 4", "Assistant: 5\nor so")
FOUR, FIVE = {"from": "gpt", "value": "4"}, {"from": "gpt", "value": "5"}
QUESTION = {"from": "human", "value": "What is 2 + 2?"}


def openai(good: str, bad: str) -> dict[str, object]:
    return {
        "input": {"messages": ASKED, "tools": [], "parallel_tool_calls": True},
        "preferred_output": said(good),
        "non_preferred_output": said(bad),
    }


def votes(a: int, b: int, tie: int) -> dict[str, object]:
    texts = {"prompt": '["What is 2 + 2?"]', "response_a": '["4"]', "response_b": '["5"]'}
    return {"id": 1, "model_a": "m1", "model_b": "m2", **texts, "winner_model_a": a, "winner_model_b": b, "winner_tie": tie}


def arena(winner: str) -> dict[str, object]:
    sides = {"conversation_a": [*ASKED, *BAD], "conversation_b": [*ASKED, *GOOD]}
    return {"question_id": "q", "model_a": "m1", "model_b": "m2", "winner": winner, "judge": "j", **sides, "turn": 1}


def helpsteer(strength: int) -> dict[str, object]:
    texts = {"prompt": "What is 2 + 2?", "response_1": "4", "response_2": "5"}
    return {"split": "train", **texts, "preference_strength": strength, "preference_statement": "one is right"}


def rated(*answers: tuple[str, float | None]) -> dict[str, object]:
    found = [
        {"model": "m", "response": text, "annotations": {"helpfulness": {"Rating": "N/A" if score is None else str(score)}}, "critique": "c"}
        for text, score in answers
    ]
    return {"source": "s", "instruction": "What is 2 + 2?", "models": ["m"], "completions": found}


def ranked(*answers: tuple[str, int]) -> dict[str, object]:
    found = [{"answer": text, "model": "m", "rank": rank} for text, rank in answers]
    return {"prompt": "\n\nHuman: What is 2 + 2?\n\nAssistant: ", "answers": found, "turns": 1, "good_natured": True}


SAMPLES = (
    Sample(
        "hh-rlhf",
        "hh-rlhf",
        [HH, {**HH, "rejected": HH["rejected"].replace("What is", "How much is")}],
        [{"prompt": [*asked("Hi"), *said("Hello."), *ASKED], "chosen": GOOD, "rejected": said("5\nor so")}, "part at a question"],
    ),
    Sample(
        "ultrafeedback-binarized",
        "ultrafeedback-binarized",
        [
            {
                "prompt": "What is 2 + 2?",
                "prompt_id": "p",
                "chosen": [*ASKED, *GOOD],
                "rejected": [*ASKED, *BAD],
                "score_chosen": 9,
                "score_rejected": 2.5,
            },
            {
                "prompt": "What is 2 + 2?",
                "prompt_id": "p",
                "chosen": [*ASKED, *BAD],
                "rejected": [*ASKED, *GOOD],
                "score_chosen": 2,
                "score_rejected": 9,
            },
        ],
        [PAIR, "the scores say the contrary"],
        ["prompt_id"],
        {"chosen": 9.0, "rejected": 2.5},
    ),
    Sample(
        "ultrafeedback",
        "ultrafeedback",
        [rated(("5", 1), ("4", 5), ("?", None)), rated(("5", 3), ("4", 3))],
        [PAIR, "is a tie"],
        ["completions[].critique", "completions[].model", "models", "source"],
        {"chosen": 5.0, "rejected": 1.0},
    ),
    Sample(
        "nectar",
        "nectar",
        [ranked(("5", 3), ("4", 1), ("4?", 2)), ranked(("5", 1), ("4", 1))],
        [PAIR, "is a tie"],
        ["answers[].model", "good_natured", "turns"],
    ),
    Sample("openai-preference", "openai-preference", [openai("4", "5"), openai("4", "4")], [PAIR, "the same"], ["input.parallel_tool_calls"]),
    Sample(
        "sharegpt-preference",
        "sharegpt-preference",
        [{"system": "Be brief.", "conversations": [QUESTION], "chosen": FOUR, "rejected": FIVE}],
        [{**PAIR, "prompt": [*system("Be brief."), *ASKED]}],
    ),
    Sample(
        "alpaca-preference",
        "alpaca-preference",
        [{"instruction": "What is", "input": "2 + 2?", "chosen": "4", "rejected": "5"}],
        [{**PAIR, "prompt": asked("What is\n\n2 + 2?")}],
    ),
    Sample(
        "orca-preference",
        "orca-preference",
        [{"system": "Be brief.", "question": "What is 2 + 2?", "chosen": "4", "rejected": "5"}],
        [{**PAIR, "prompt": [*system("Be brief."), *ASKED]}],
    ),
    Sample("trl-preference", "trl-preference", [{"prompt": "What is 2 + 2?", "chosen": "4", "rejected": "5"}], [PAIR]),
    Sample("trl-preference with the prompt in the answers", "trl-preference", [{"chosen": [*ASKED, *GOOD], "rejected": [*ASKED, *BAD]}], [PAIR]),
    Sample(
        "arena-votes",
        "arena-votes",
        [votes(1, 0, 0), votes(0, 1, 0), votes(0, 0, 1), votes(0, 0, 0), {**votes(1, 0, 0), "response_a": "[null]"}],
        [PAIR, {**PAIR, "chosen": BAD, "rejected": GOOD}, "is a tie", "not one 1", "first is no text"],
        ["id", "model_a", "model_b"],
    ),
    Sample(
        "arena",
        "arena",
        [arena("model_b"), arena("model_a"), arena("tie (bothbad)")],
        [PAIR, {**PAIR, "chosen": BAD, "rejected": GOOD}, "is a tie"],
        ["judge", "model_a", "model_b", "question_id", "turn"],
    ),
    Sample(
        "helpsteer2",
        "helpsteer2",
        [helpsteer(-3), helpsteer(1), helpsteer(0)],
        [PAIR, {**PAIR, "chosen": BAD, "rejected": GOOD}, "is a tie"],
        ["preference_statement", "split"],
        {"strength": 3.0},
    ),
    Sample(
        "helpsteer3",
        "helpsteer2",
        [{"domain": "general", "context": ASKED, "response1": "5", "response2": "4", "overall_preference": 2}],
        [PAIR],
        ["domain"],
        {"strength": 2.0},
    ),
)
