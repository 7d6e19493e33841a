"""``{% url %}`` of every template. An address without arguments is reversed once: a page has thirty of them, and each takes Django as long as a cell
of a table takes to be drawn.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from django import template
from django.conf import settings
from django.template.base import Parser, Token
from django.template.defaulttags import URLNode
from django.template.defaulttags import url as parse_url_tag
from django.urls import NoReverseMatch, get_script_prefix, get_urlconf, reverse
from django.utils.html import conditional_escape

register = template.Library()

KEPT = 2048  # addresses: by page, and by the team, whose name begins them


class KeptURLNode(URLNode):
    """As Django's, of a page whose address has no arguments and whose name no namespace."""

    def render(self, context: Any) -> str:
        try:
            address = reverse_plain_page(get_script_prefix(), get_urlconf() or settings.ROOT_URLCONF, self.view_name.resolve(context))
        except NoReverseMatch:
            return super().render(context)
        if self.asvar:
            context[self.asvar] = address
            return ""
        return conditional_escape(address) if context.autoescape else address


@lru_cache(KEPT)
def reverse_plain_page(prefix: str, urlconf: str, page: str) -> str:
    """``prefix``: the team's, which stands in every address (Django's script prefix), and which ``reverse`` looks up itself."""
    return reverse(page, urlconf)


@register.tag(name="url")
def parse_kept_url(parser: Parser, token: Token) -> URLNode:
    node = parse_url_tag(parser, token)
    is_plain = not node.args and not node.kwargs and isinstance(node.view_name.var, str) and ":" not in node.view_name.var
    return KeptURLNode(node.view_name, [], {}, node.asvar) if is_plain else node
