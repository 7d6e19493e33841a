"""What is written in a report: prose and blocks told apart, settings read strictly with their lines, hostile Markdown made harmless."""

import time

import pytest

from lab.watching.reports.blocks import KINDS, READERS, ChartBlock, RolloutBlock, RunsBlock, parse_block, write_block
from lab.watching.reports.markup import MOST_BLOCKS, Prose, list_block_problems, parse_markup
from lab.watching.reports.models import TEXT_LENGTH

CHART = "```chart\nruns: 12, #15, 12\nmetric: rewards/margins\nx: tokens\nsmooth: 0.6\nlog: yes\ntitle: Both\n```"


def words(text: str) -> list[str]:
    return [str(problem) for problem in list_block_problems(parse_markup(text))]


def prose(text: str) -> str:
    return "".join(part.html for part in parse_markup(text) if isinstance(part, Prose))


@pytest.mark.feature(31)
def test_blocks_stand_between_prose_and_keep_their_lines() -> None:
    parts = parse_markup(f"# Title\n\nwords\n\n{CHART}\n\n- more\n\n```rollout\n7\n```\n\n```python\nchart = 1\n```\n")
    assert [(part.kind, part.line) for part in parts] == [("prose", 1), ("chart", 5), ("prose", 14), ("rollout", 16), ("prose", 20)]
    assert parts[1].block == ChartBlock((12, 15), "rewards/margins", "tokens", 0.6, True, "Both")  # type: ignore[union-attr]
    assert parts[3].block == RolloutBlock(7)  # type: ignore[union-attr]
    assert "<h2>Title</h2>" in prose("# Title")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("\n```chart\nmetric: reward\n```", ["Line 2: a chart block needs a line “runs: …”."]),
        (
            "```chart\nruns: 1\nmetric: a\ncolour: red\n```",
            ["Line 4: a chart block has no setting “colour”. It has runs, metric, x, smooth, log, title."],
        ),
        (
            "```chart\nruns: 1, two\nmetric: a\n```",
            ["Line 2: runs: “two” is no run number. Write numbers with commas between them, such as 12, 15."],
        ),
        ("```chart\nruns: 1\nmetric: a\nmetric: b\n```", ["Line 4: “metric” stands here twice."]),
        ("```chart\nruns: 1\nmetric: a\nx: steps\n```", ["Line 4: x: “steps” is not one of step, time, tokens, samples."]),
        ("```chart\nruns: 1\nmetric: a\nsmooth: 1\n```", ["Line 4: smooth: “1” is no weight. Use 0 (not smoothed) to 0.999, or auto."]),
        ("```chart\nruns: 1\nmetric: a\nsmooth: nan\n```", ["Line 4: smooth: “nan” is no weight. Use 0 (not smoothed) to 0.999, or auto."]),
        ("```chart\nruns: 1\nmetric: @time\n```", ["Line 3: metric: unknown metric “@time”."]),
        (
            "```chart\nruns 1\nmetric:\n```",
            [
                "Line 2: “runs 1” is no setting. Write a name, a colon and a value, such as runs: …",
                "Line 3: “metric” has no value.",
                "Line 1: a chart block needs a line “runs: …”.",
            ],
        ),
        ("```rollout\n" + "9" * 30 + "\n```", [f"Line 2: id: “{'9' * 30}” is not a whole number."]),
        ("```rollout\nid: 3\noverlay: colours\n```", ["Line 3: overlay: “colours” is not one of entropy, logprob, weight, advantage."]),
        ("```group\nrun: 1\nstep: 2\n```", ["Line 1: a group block needs a line “group: …”."]),
        (
            "```runs\nsort: shoe\n```",
            ["Line 2: sort: runs cannot be sorted by “shoe”. Use a column, with a minus for the largest first, such as -reward."],
        ),
        ("```runs\nlimit: 21\n```", ["Line 2: limit: “21” is not a whole number from 1 to 20."]),
        ("- a list\n\n  ```table\n  runs: 1\n  ```\n", ["Line 3: a block stands alone: move it out of the list or the quotation."]),
    ],
)
def test_what_cannot_be_read_is_said_with_its_line(text: str, said: list[str]) -> None:
    assert words(text) == said


def test_unknown_columns_name_the_known_ones() -> None:
    [said] = words("```table\nruns: 1\ncolumns: name, reward, shoe\n```")
    assert said.startswith("Line 3: columns: unknown column “shoe”. Columns are status, name")
    assert words("```table\nruns: 1\ncolumns: reward_tail, config.training.learning_rate\n```") == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"```table\nruns: {', '.join(map(str, range(1, 22)))}\n```", "a block shows at most 20 runs; these are 21."),
        (
            "```table\nruns: 1\ncolumns: " + ", ".join(f"config.a{number}" for number in range(13)) + "\n```",
            "a table has at most 12 columns; these are 13.",
        ),
        ("```chart\nruns: 1\nmetric: " + "m" * 501 + "\n```", "it has 501 characters; use at most 500."),
    ],
)
def test_a_block_is_bounded(text: str, said: str) -> None:
    assert any(said in one for one in words(text))


def test_a_report_has_so_many_blocks() -> None:
    parts = parse_markup("```runs\n```\n\n" * (MOST_BLOCKS + 2))
    assert len([part for part in parts if not isinstance(part, Prose) and part.block]) == MOST_BLOCKS
    assert len(list_block_problems(parts)) == 2


def test_what_is_written_is_read_again() -> None:
    made = write_block("chart", {"runs": "3, 4", "metric": "re\nward: x\n```\n", "title": ""})
    assert made.count("\n") == 3  # a value never leaves its line
    assert parse_block("chart", "\n".join(made.split("\n")[1:-1]), 1).block == ChartBlock((3, 4), "re ward: x ```")
    assert set(READERS) == set(KINDS) == {"chart", "table", "runs", "rollout", "group"}
    assert parse_block("runs", "", 1).block == RunsBlock()


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        "<img src=x onerror=alert(1)>",
        "[a](javascript:alert(1))",
        "[a](data:text/html,<script>alert(1)</script>)",
        "![a](https://evil.example/pixel.png)",
        "<style>@import url(https://evil.example)</style>",
        "[a]: javascript:alert(1)\n\n[a]",
        '```html" onmouseover="alert(1)\nx\n```',
        "<iframe src=//evil.example></iframe>",
    ],
)
def test_markdown_does_nothing(text: str) -> None:
    html = prose(text)
    assert not any(
        bad in html for bad in ("<script", "<img", "<style", "<iframe", "<svg", 'href="javascript', 'href="data', 'onmouseover="', "class=")
    )


@pytest.mark.parametrize("piece", ["[", "> ", "~~a", "**"])  # the slowest of those tried
def test_no_text_takes_long(piece: str) -> None:
    text = (piece * TEXT_LENGTH)[:TEXT_LENGTH]
    began = time.process_time()
    parse_markup(text)
    assert time.process_time() - began < 3, piece
