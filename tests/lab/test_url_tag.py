"""Addresses in templates that are reversed once: each team has its own, and Django's other ways of ``{% url %}`` stay what they are."""

import sys
from collections.abc import Iterator

import pytest
from django.template import Context, Template
from django.urls import NoReverseMatch, get_script_prefix, set_script_prefix

from lab.rollouts.trajectories.text_pieces import INVISIBLE, has_invisible_text


@pytest.fixture
def prefix() -> Iterator[None]:
    before = get_script_prefix()
    yield
    set_script_prefix(before)


def test_an_address_begins_with_the_team_it_is_drawn_for(prefix: None) -> None:
    page = Template("{% url 'rollouts' %}")
    for team in ("/", "/t/one/", "/t/two/", "/t/one/"):
        set_script_prefix(team)
        assert page.render(Context()) == f"{team}rollouts/"


def test_names_arguments_and_pages_that_do_not_exist(prefix: None) -> None:
    set_script_prefix("/")
    assert Template("{% url 'rollouts' as here %}[{{ here }}]").render(Context()) == "[/rollouts/]"
    assert Template("{% url page %}").render(Context({"page": "rollouts"})) == "/rollouts/"
    assert Template("{% url 'prompt' 7 %}").render(Context()) == "/prompts/7/"
    assert Template("{% url 'nowhere' as here %}[{{ here }}]").render(Context()) == "[]"
    with pytest.raises(NoReverseMatch):
        Template("{% url 'nowhere' %}").render(Context())


def test_a_text_of_ascii_need_not_be_searched_for_what_is_invisible() -> None:
    for character in map(chr, [*range(0x3200), *range(0xFDFF, 0x10000), 0xE0001, sys.maxunicode]):
        assert has_invisible_text(f"a{character}b") == bool(INVISIBLE.search(character)), hex(ord(character))
