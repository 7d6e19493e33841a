"""Rows of no known format: a person says which column is what, and sees what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.data.datasets.formats.base import EMPTY, ColumnMapping, ConvertedRow, Format, FormatPart, Row, Values, expand_nested_columns
from lab.data.datasets.formats.chats import from_completion, make_completion_part
from lab.data.datasets.formats.labelled import DATA, are_steps, from_reference, from_steps
from lab.data.datasets.formats.messages import is_dialogue, parse_dialogue, parse_messages
from lab.data.datasets.formats.pairs import SCORES, SYSTEM, TOOLS, from_pair, from_transcripts, make_prompt_part
from lab.data.datasets.formats.rankings import answers_part, from_ranked
from lab.data.datasets.formats.rows import build_completion_row, normalize_value
from lab.data.datasets.models import Form
from lab.data.datasets.raw import RowError

ASKED = ("prompt", "question", "instruction", "query", "problem", "input", "user")
BEFORE = FormatPart("context", "text after the prompt", ("context", "input"), needed=False)
LABEL_SAYS = (("good", "Value of a good answer"), ("bad", "Value of a bad answer"))
OPPOSITES = (("true", "false"), ("1", "0"), ("yes", "no"), ("good", "bad"), ("up", "down"))
ANSWERS = ("completion", "response", "output", "answer", "target", "messages", "conversations")


def from_columns(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    return (from_transcripts if is_dialogue(values["chosen"]) and not values.get("prompt") else from_pair)(values, mapped, raw)


def from_marked(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    """Good or bad by the values that a person named. Raises RowError for any other."""
    label = normalize_value(values["label"])
    known = {normalize_value(mapped.settings.get("good")): True, normalize_value(mapped.settings.get("bad")): False}
    if label not in known:
        raise RowError(f"{mapped.columns['label']} is {label[:40]!r}, neither {mapped.settings.get('good')!r} nor {mapped.settings.get('bad')!r}")
    value = values["completion"]
    answer = parse_dialogue(value, "completion") if is_dialogue(value) else parse_messages(value, "completion", "assistant")
    return ConvertedRow(build_completion_row(values, answer) | {"label": known[label]})


def label_values(rows: Sequence[Row], columns: Mapping[str, str]) -> dict[str, str]:
    """The two values of the label where they are a yes and a no."""
    labels = {normalize_value(row[columns["label"]]) for row in rows if row.get(columns.get("label", "")) not in EMPTY}
    matches = [{"good": good, "bad": bad} for good, bad in OPPOSITES if labels and labels <= {good, bad}]
    return matches[0] if matches else {}


FORMATS = (
    Format(
        "pairs",
        "Chosen and rejected",
        "One column holds the better answer, one the worse.",
        Form.PREFERENCE,
        (
            make_prompt_part(*ASKED, needed=False),
            FormatPart("chosen", "the better answer", ("chosen", "preferred", "accepted", "response_w", "better", "chosen_response")),
            FormatPart("rejected", "the worse answer", ("rejected", "dispreferred", "response_l", "worse", "rejected_response")),
            BEFORE,
            SYSTEM,
            TOOLS,
            *SCORES,
        ),
        from_columns,
        flat=expand_nested_columns,
        by_hand=True,
    ),
    Format(
        "answers",
        "A list of rated or ranked answers",
        "The best answer of the list is chosen, the worst rejected. A rank of 1 is the best, a higher rating is better.",
        Form.PREFERENCE,
        (make_prompt_part(*ASKED), answers_part("completions", "responses", "answers", "candidates"), BEFORE, SYSTEM),
        from_ranked,
        flat=expand_nested_columns,
        by_hand=True,
    ),
    Format(
        "marked",
        "Answers marked good or bad (KTO)",
        "Each answer is good or bad, as its label says.",
        Form.KTO,
        (
            make_prompt_part(*ASKED, needed=False),
            make_completion_part(*ANSWERS),
            FormatPart("label", "good or bad", ("label", "desirable", "is_good", "good", "kto_tag", "thumbs")),
            BEFORE,
            SYSTEM,
            TOOLS,
        ),
        from_marked,
        flat=expand_nested_columns,
        settings=LABEL_SAYS,
        prefill=label_values,
        by_hand=True,
    ),
    Format(
        "completions",
        "Prompt and completion",
        "The completion is what is learned. Without a prompt it is a dialogue whose last answer is learned.",
        Form.COMPLETION,
        (make_prompt_part(*ASKED, needed=False), make_completion_part(*ANSWERS), BEFORE, SYSTEM, TOOLS),
        from_completion,
        flat=expand_nested_columns,
        by_hand=True,
    ),
    Format(
        "steps",
        "Steps, each right or wrong",
        "One column lists the steps of an answer, one whether each is right.",
        Form.STEPWISE,
        (
            make_prompt_part(*ASKED),
            FormatPart("completions", "the steps", ("completions", "steps")),
            FormatPart("labels", "whether each step is right", ("labels", "ratings")),
            BEFORE,
            SYSTEM,
        ),
        from_steps,
        are_steps,
        by_hand=True,
    ),
    Format(
        "references",
        "Prompts with a reference",
        "Answers to the prompt are sampled while training and scored against the reference.",
        Form.PROMPT,
        (
            make_prompt_part(*ASKED),
            FormatPart("reference", "the reference answer", ("reference", "ground_truth", "gold", "solution", "target", "answer")),
            DATA,
            BEFORE,
            SYSTEM,
        ),
        from_reference,
        by_hand=True,
    ),
)
