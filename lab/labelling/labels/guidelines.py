"""Guidelines, written in Markdown by people, as HTML that can do nothing (``lab.lib.markdown``)."""

from __future__ import annotations

from django.utils.safestring import SafeString

from lab.lib.markdown import clean_markdown_html, clean_markdown_text, make_markdown_parser

MOST = 20_000  # characters


def render_guidelines(markdown: str) -> SafeString:
    """Safe HTML. Headings start at h3, because they stand inside a page; only the first ``MOST`` characters are read."""
    return clean_markdown_html(make_markdown_parser().render(clean_markdown_text(markdown[:MOST])), down=2, lowest=4)
