"""Guidelines, written in Markdown by people, as HTML that can do nothing: no raw HTML, no images, no addresses but of the web and of mail."""

from __future__ import annotations

from functools import cache

import nh3
from django.utils.safestring import SafeString
from markdown_it import MarkdownIt

MOST = 20_000  # characters
TAGS = {"h1", "h2", "h3", "h4", "p", "br", "hr", "em", "strong", "s", "code", "pre", "blockquote", "ul", "ol", "li", "a"}
TAGS |= {"table", "thead", "tbody", "tr", "th", "td"}
ATTRIBUTES = {"a": {"href", "title"}, "ol": {"start"}}
SCHEMES = {"http", "https", "mailto"}


@cache
def make_markdown_parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"]).disable("image")


def render_guidelines(markdown: str) -> SafeString:
    """Safe HTML. Headings start at h3, because they stand inside a page; only the first ``MOST`` characters are read."""
    html = make_markdown_parser().render(markdown[:MOST].replace("\0", "").encode(errors="replace").decode())
    for level in (3, 2, 1):
        html = html.replace(f"<h{level}>", f"<h{min(level + 2, 4)}>").replace(f"</h{level}>", f"</h{min(level + 2, 4)}>")
    clean = nh3.clean(html, tags=TAGS, attributes=ATTRIBUTES, url_schemes=SCHEMES, link_rel="noopener noreferrer nofollow")
    return SafeString(clean)
