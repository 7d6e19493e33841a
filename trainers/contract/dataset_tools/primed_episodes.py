"""Search episodes selected by how they search and not by whether they are right.

After Behavior Priming (arXiv 2510.06534): supervised training on episodes that show four good habits, correct or not, before reinforcement. The arms
that are compared there are settings here: all four habits, those that are right (or wrong) among them, right episodes, and any.
"""

from __future__ import annotations

import random

from trainers.contract.dataset_tools.answers import read_answer_text, remove_columns
from trainers.contract.dataset_tools.base import DatasetTool, MadeRow, Row, RowDropped, RowForm, ToolCard
from trainers.contract.hyperparameters import Strict, param
from trainers.contract.search_behaviours import BEHAVIOURS, Arm, SourceMarks, belongs_to_arm, read_search_episode, shows_all, tag_behaviours

NO_SEARCH, UNKNOWN = "answers without a search", "episodes of which nothing says whether they are right"
NOT_ALL, WRONG, RIGHT, OTHER_COUNT = (
    "episodes without all four habits",
    "wrong episodes",
    "right episodes",
    "episodes with another number of searches",
)


class Config(Strict):
    arm: Arm = param(
        "behaviours",
        "behaviours: episodes that show all four habits, right or wrong. behaviours-right, behaviours-wrong: only one of these. right: right ones, "
        "whatever they show. random: any.",
        title="Episodes of",
    )
    searches: int = param(
        0, "Only episodes with so many searches, so that arms of as many rows have about as many tokens; 0: any number.", ge=0, le=50
    )
    errors: list[str] = param(
        list(SourceMarks().errors), "A result that begins with one of these words is an error.", title="Words of errors", min_length=1, max_length=20
    )
    trusted: str = param(SourceMarks().trusted, "Word before what the trusted source says.", title="Trusted source", min_length=1, max_length=40)
    doubtful: str = param(SourceMarks().doubtful, "Word before what the doubtful source says.", title="Doubtful source", min_length=1, max_length=40)


class PrimedEpisodes(DatasetTool):
    card = ToolCard(
        name="behavior-priming",
        title="Search episodes by their habits",
        summary="Keeps search episodes that ask again to verify, weigh their sources, change their words after results beside the point and go on "
        "after errors, right or wrong; or those of another arm of the comparison. Train SFT on them, then GRPO.",
        arxiv="2510.06534",
        system="Behavior Priming",
        departures=(
            "Habits are told by rules from the text; a language model tags the paper's episodes.",
            "Rows are taken as they are, and not sampled from a teacher that is prompted for each habit.",
            "An arm's tokens are matched by the number of searches and rows.",
            "Known from the abstract.",
        ),
    )
    suffix = "primed"
    forms = {"completion": "completion", "kto": "completion"}
    Config = Config

    def make_rows(self, row: Row, form: RowForm, rng: random.Random) -> list[MadeRow]:
        episode = read_search_episode(read_answer_text(row.get("completion")))
        if not episode.turns:
            raise RowDropped(NO_SEARCH)
        if self.config.searches and len(episode.turns) != self.config.searches:
            raise RowDropped(OTHER_COUNT)
        is_right = bool(row.get("label")) if form == "kto" else None
        marks = SourceMarks(tuple(word.lower() for word in self.config.errors), self.config.trusted.lower(), self.config.doubtful.lower())
        tags = tag_behaviours(episode, marks)
        if not belongs_to_arm(self.config.arm, tags, is_right):
            raise RowDropped(self.explain_drop(shows_all(tags), is_right))
        shown = ", ".join(name for name in BEHAVIOURS if tags[name]) or "none of the habits"
        return [MadeRow(remove_columns(row, "label"), shown)]

    def explain_drop(self, shows: bool, is_right: bool | None) -> str:
        if self.config.arm.startswith("behaviours") and not shows:
            return NOT_ALL
        return UNKNOWN if is_right is None else RIGHT if is_right else WRONG
