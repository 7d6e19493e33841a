"""Filters of the account pages: ``{% load account_words %}``."""

from __future__ import annotations

import json
from typing import Any

from django import template

from lab.teams.accounts.mail import has_mail_server

register = template.Library()

# The first that the header names; browsers name their forebears too, so the order counts.
BROWSERS = {"Edg": "Edge", "OPR": "Opera", "Firefox": "Firefox", "Chrome": "Chrome", "Safari": "Safari", "curl": "curl", "python": "a Python script"}
SYSTEMS = {"iPhone": "iPhone", "iPad": "iPad", "Android": "Android", "Windows": "Windows", "Mac OS X": "macOS", "CrOS": "ChromeOS", "Linux": "Linux"}


@register.filter
def as_json(value: Any) -> str:
    """For a data attribute: the template escapes it, a script parses it."""
    return json.dumps(value)


@register.filter
def browser(agent: str) -> str:
    """The User-Agent header in words: "Firefox on Linux"."""
    name = next((words for sign, words in BROWSERS.items() if sign in agent), "")
    system = next((words for sign, words in SYSTEMS.items() if sign in agent), "")
    return " on ".join(filter(None, (name, system))) or agent[:60] or "unknown"


@register.simple_tag
def mails_wait() -> bool:
    """Whether this installation has no mail server: its mails are files that only the operator reads."""
    return not has_mail_server()
