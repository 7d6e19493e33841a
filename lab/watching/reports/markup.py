"""A report's Markdown cut into prose and blocks, with the line of each problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from django.utils.safestring import SafeString
from markdown_it.token import Token

from lab.lib.markdown import clean_markdown_html, make_markdown_parser
from lab.watching.reports.blocks import KINDS, BlockProblem, ParsedBlock, parse_block

MOST_BLOCKS = 40
Rewrite = Callable[[str], str]


@dataclass(frozen=True)
class Prose:
    """What stands between blocks, as safe HTML; ``line`` is its first."""

    line: int
    html: SafeString
    kind: ClassVar[str] = "prose"


def parse_markup(text: str, rewrite: Rewrite | None = None) -> list[Prose | ParsedBlock]:
    """``rewrite`` changes the addresses of links. Of a block inside a list or a quotation, or after MOST_BLOCKS, only the problem is kept."""
    parser = make_markdown_parser()
    environment: dict[str, object] = {}  # definitions of links hold for the whole text
    tokens = parser.parse(text, environment)
    if rewrite:
        rewrite_links(tokens, rewrite)
    parts: list[Prose | ParsedBlock] = []
    waiting: list[Token] = []

    def close_prose() -> None:
        if waiting:
            html = parser.renderer.render(waiting, parser.options, environment)
            parts.append(Prose(line_of(waiting[0]), clean_markdown_html(html, down=1, lowest=5)))
            waiting.clear()

    blocks = 0
    for token in tokens:
        if token.type != "fence" or token.info.strip() not in KINDS:
            waiting.append(token)
        elif token.level:
            waiting.append(token)
            parts.append(refuse_block(token, "a block stands alone: move it out of the list or the quotation."))
        else:
            close_prose()
            blocks += 1
            parts.append(
                parse_block(token.info.strip(), token.content.removesuffix("\n"), line_of(token))
                if blocks <= MOST_BLOCKS
                else refuse_block(token, f"a report has at most {MOST_BLOCKS} blocks; this is number {blocks}.")
            )
    close_prose()
    return parts


def refuse_block(token: Token, words: str) -> ParsedBlock:
    return ParsedBlock(token.info.strip(), line_of(token), None, [BlockProblem(line_of(token), words)])


def line_of(token: Token) -> int:
    """From 1."""
    return token.map[0] + 1 if token.map else 1


def rewrite_links(tokens: list[Token], rewrite: Rewrite) -> None:
    for link in iterate_links(tokens):
        link.attrSet("href", rewrite(str(link.attrGet("href") or "")))


def iterate_links(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        if token.type == "link_open":
            yield token
        yield from iterate_links(token.children or [])


def list_block_problems(parts: list[Prose | ParsedBlock]) -> list[BlockProblem]:
    return [problem for part in parts if isinstance(part, ParsedBlock) for problem in part.problems]
