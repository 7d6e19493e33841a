"""Markdown of people as HTML that can do nothing: no raw HTML, no images, no addresses but of the web and of mail."""

from __future__ import annotations

from functools import cache

import nh3
from django.utils.safestring import SafeString
from markdown_it import MarkdownIt

TAGS = {"h1", "h2", "h3", "h4", "h5", "h6", "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a"}
TAGS |= {"table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
SCHEMES = {"http", "https", "mailto"}
LEVELS = range(6, 0, -1)  # of headings, the lowest first, so that none is moved twice


@cache
def make_markdown_parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"]).disable("image")


def clean_markdown_text(text: str) -> str:
    """Without what PostgreSQL cannot hold or a parser trips over: NUL, halves of characters, line ends of other systems."""
    return text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n").encode(errors="replace").decode()


def clean_markdown_html(html: str, down: int, lowest: int) -> SafeString:
    """HTML of the parser, safe in a page. Headings move ``down`` so many levels, because they stand below the page's, to ``lowest`` at most."""
    for level in LEVELS:
        moved = min(level + down, lowest)
        html = html.replace(f"<h{level}>", f"<h{moved}>").replace(f"</h{level}>", f"</h{moved}>")
    return SafeString(nh3.clean(html, tags=TAGS, attributes=ATTRIBUTES, url_schemes=SCHEMES, link_rel="noopener noreferrer nofollow"))
