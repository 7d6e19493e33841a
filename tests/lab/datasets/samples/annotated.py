"""Exports of annotation tools."""

from typing import Any

from tests.lab.datasets.samples.base import BAD, GOOD, PAIR, Sample

SWAPPED = {**PAIR, "chosen": BAD, "rejected": GOOD}
DATA = {"prompt": "What is 2 + 2?", "answer1": "4", "answer2": "5"}


def task(*selected: str | None, **data: str) -> dict[str, Any]:
    """A task of Label Studio's JSON export; None is an annotation that was skipped."""
    annotations = [
        {
            "id": place,
            "completed_by": 1,
            "was_cancelled": side is None,
            "lead_time": 3.5,
            "result": []
            if side is None
            else [{"id": "x", "type": "pairwise", "from_name": "pw", "to_name": "answer1,answer2", "value": {"selected": side}}],
        }
        for place, side in enumerate(selected)
    ]
    return {"id": 7, "data": data or DATA, "annotations": annotations, "project": 1, "total_annotations": len(annotations)}


def small(selected: str) -> dict[str, Any]:
    """A row of the JSON-MIN export."""
    times = {"created_at": "2024-01-01", "updated_at": "2024-01-01", "lead_time": 3.5}
    return {**DATA, "id": 7, "pw": [{"selected": selected}], "annotator": 1, "annotation_id": 9, **times}


def record(*responses: Any) -> dict[str, Any]:
    """A record of Argilla 2 as to_json writes it."""
    fields = {"instruction": "What is 2 + 2?", "response-1": "5", "response-2": "4"}
    given = {"preference": [{"value": value, "user_id": f"u{place}"} for place, value in enumerate(responses)]} if responses else {}
    suggestion = {"preference": {"value": ["response-1", "response-2"], "score": 0.9, "agent": "m"}}
    return {"id": "r", "fields": fields, "metadata": {}, "suggestions": suggestion, "responses": given, "vectors": {}, "_server_id": "s"}


def hub(value: Any, status: str = "submitted") -> dict[str, Any]:
    """A row of Argilla 2 as to_datasets writes it."""
    texts = {"instruction": "What is 2 + 2?", "response-1": "5", "response-2": "4"}
    return {"id": "r", **texts, "preference.responses": [value], "preference.responses.users": ["u"], "preference.responses.status": [status]}


def old(status: str, *ranks: int) -> dict[str, Any]:
    """A row of a feedback dataset of Argilla 1."""
    value = {"rank": list(ranks), "value": ["response-1", "response-2"]}
    texts = {"instruction": "What is 2 + 2?", "response-1": "5", "response-2": "4"}
    return {**texts, "preference": [{"user_id": "u", "value": value, "status": status}], "external_id": "e"}


FULL = ["annotations[].completed_by", "annotations[].id", "annotations[].lead_time", "id", "project", "total_annotations"]
SAMPLES = (
    Sample(
        "label-studio",
        "label-studio",
        [task("left"), task("right", None), task("left", "right", "left"), task("left", "right"), task(None)],
        [PAIR, SWAPPED, PAIR, "is a tie", "nobody has compared"],
        FULL,
    ),
    Sample(
        "label-studio whose tags are called otherwise",
        "label-studio",
        [task("right", question="What is 2 + 2?", text1="5", text2="4")],
        [PAIR],
        FULL,
    ),
    Sample(
        "label-studio-min",
        "label-studio-min",
        [small("left"), small("right"), {**small("left"), "pw": [{"selected": "middle"}]}],
        [PAIR, SWAPPED, "neither left nor right"],
        ["annotation_id", "annotator", "created_at", "id", "lead_time", "updated_at"],
    ),
    Sample(
        "argilla records",
        "argilla",
        [
            record(["response-2", "response-1"]),
            record(["response-1", "response-2"]),
            record(),
            record(["response-2", "response-1"], ["response-1", "response-2"]),
        ],
        [PAIR, SWAPPED, "responses.preference is missing", "is a tie"],
        ["_server_id", "id", "responses.preference[].user_id", "suggestions.preference"],
    ),
    Sample(
        "argilla records with a label",
        "argilla",
        [record("response-2"), record("response-1"), record("tie")],
        [PAIR, SWAPPED, "is a tie"],
        ["_server_id", "id", "responses.preference[].user_id", "suggestions.preference"],
    ),
    Sample(
        "argilla dataset",
        "argilla",
        [hub(["response-2", "response-1"]), hub(["response-1", "response-2"], "discarded")],
        [PAIR, "nobody has answered"],
        ["id", "preference.responses.users"],
    ),
    Sample(
        "argilla 1 dataset",
        "argilla",
        [old("submitted", 2, 1), old("submitted", 1, 1), old("draft", 1, 2)],
        [PAIR, "is a tie", "nobody has answered"],
        ["external_id", "preference[].user_id"],
    ),
)
