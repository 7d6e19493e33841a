"""Preference rows that name the better answer: TRL, HH-RLHF, UltraFeedback as cleaned, OpenAI, ShareGPT, Alpaca and Orca pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lab.data.datasets.formats.base import ColumnMapping, ConvertedRow, Format, FormatPart, Row, Values, expand_nested_columns
from lab.data.datasets.formats.messages import is_dialogue, parse_dialogue, parse_json_messages, parse_messages
from lab.data.datasets.formats.rows import build_preference_row, parse_number
from lab.data.datasets.models import Form
from lab.data.datasets.raw import RowError

TOOLS = FormatPart("tools", "the tools its conversation may use", ("tools",), needed=False, keys=None)
SYSTEM = FormatPart("system", "a system message before the prompt", ("system", "system_prompt"), needed=False)
SCORES = (
    FormatPart("score_chosen", "the score of the chosen answer", ("score_chosen", "chosen_score", "rating_chosen", "chosen_rating"), needed=False),
    FormatPart(
        "score_rejected", "the score of the rejected answer", ("score_rejected", "rejected_score", "rating_rejected", "rejected_rating"), needed=False
    ),
)


def make_prompt_part(*names: str, needed: bool = True) -> FormatPart:
    return FormatPart("prompt", "the prompt", names, needed)


def make_side_parts(chosen: str = "chosen", rejected: str = "rejected") -> tuple[FormatPart, FormatPart]:
    return FormatPart("chosen", "the better answer", (chosen,)), FormatPart("rejected", "the worse answer", (rejected,))


def scores_of(values: Values) -> dict[str, float]:
    """Raises RowError where they say the contrary of the columns."""
    scores = {side: parse_number(values.get(f"score_{side}")) for side in ("chosen", "rejected")}
    known = {side: value for side, value in scores.items() if value is not None}
    if len(known) == 2 and known["chosen"] < known["rejected"]:
        raise RowError(f"chosen is rated {known['chosen']:g} and rejected {known['rejected']:g}: the scores say the contrary")
    return known


def from_pair(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    chosen, rejected = (parse_messages(values[side], side, "assistant") for side in ("chosen", "rejected"))
    return ConvertedRow(build_preference_row(values, chosen, rejected), scores_of(values))


def from_transcripts(values: Values, mapped: ColumnMapping, raw: Row) -> ConvertedRow:
    return ConvertedRow(build_preference_row(values, parse_dialogue(values["chosen"], "chosen"), parse_dialogue(values["rejected"], "rejected")))


def are_transcripts(rows: Sequence[Row], columns: Mapping[str, str]) -> bool:
    return any(is_dialogue(row.get(columns["chosen"])) for row in rows) and not any(row.get("prompt") for row in rows)


def name_their_prompt(rows: Sequence[Row], columns: Mapping[str, str]) -> bool:
    return "prompt" in columns or are_dialogues(rows, columns)


def are_dialogues(rows: Sequence[Row], columns: Mapping[str, str]) -> bool:
    """Whether chosen and rejected are lists of messages."""
    return any(isinstance(parse_json_messages(row.get(columns["chosen"])), list) for row in rows)


FORMATS = (
    Format(
        "openai-preference",
        "OpenAI preference (fine-tuning)",
        "The messages of input become the prompt, preferred_output the better and non_preferred_output the worse answer.",
        Form.PREFERENCE,
        (
            make_prompt_part("input.messages"),
            *make_side_parts("preferred_output", "non_preferred_output"),
            FormatPart("tools", TOOLS.words, ("input.tools",), False, TOOLS.keys),
        ),
        from_pair,
        flat=expand_nested_columns,
    ),
    Format(
        "sharegpt-preference",
        "ShareGPT preference",
        "The conversation becomes the prompt, chosen the better and rejected the worse answer.",
        Form.PREFERENCE,
        (make_prompt_part("conversations"), *make_side_parts(), SYSTEM, TOOLS, *SCORES),
        from_pair,
    ),
    Format(
        "alpaca-preference",
        "Alpaca preference",
        "Instruction and input are joined to the prompt; chosen and rejected are the answers.",
        Form.PREFERENCE,
        (
            make_prompt_part("instruction"),
            FormatPart("context", "text after the instruction", ("input",), needed=False),
            *make_side_parts(),
            SYSTEM,
            FormatPart("history", "what was said before", ("history",), needed=False),
            *SCORES,
        ),
        from_pair,
    ),
    Format(
        "orca-preference",
        "Orca pairs",
        "System becomes a system message, question the prompt; chosen and rejected are the answers.",
        Form.PREFERENCE,
        (FormatPart("system", SYSTEM.words, ("system", "system_prompt")), make_prompt_part("question", "input"), *make_side_parts(), *SCORES),
        from_pair,
    ),
    Format(
        "hh-rlhf",
        "HH-RLHF",
        "Two dialogues “Human: … Assistant: …”: what they share becomes the prompt, the rest of each the answers.",
        Form.PREFERENCE,
        make_side_parts(),
        from_transcripts,
        are_transcripts,
    ),
    Format(
        "ultrafeedback-binarized",
        "UltraFeedback binarized",
        "Chosen and rejected are dialogues that repeat the prompt; it stands before the answers once.",
        Form.PREFERENCE,
        (
            make_prompt_part("prompt", "instruction", "question"),
            *make_side_parts(),
            FormatPart("score_chosen", SCORES[0].words, SCORES[0].names),
            FormatPart("score_rejected", SCORES[1].words, SCORES[1].names),
            SYSTEM,
            TOOLS,
        ),
        from_pair,
        are_dialogues,
    ),
    Format(
        "trl-preference",
        "TRL preference",
        "Prompt, chosen and rejected. Without a prompt it is what the two answers begin with.",
        Form.PREFERENCE,
        (make_prompt_part("prompt", needed=False), *make_side_parts(), SYSTEM, TOOLS, *SCORES),
        from_pair,
        name_their_prompt,
    ),
)
