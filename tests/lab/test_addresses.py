"""Addresses that end with numbers are those that Django reverses, under the team of the request."""

from collections.abc import Iterator

import pytest
from django.urls import reverse, set_script_prefix

from lab.lib.addresses import build_numbered_address

RUN = "7a0b4a4e-3d0a-4a7e-9b3a-0d7a3f6b2c11"


@pytest.fixture
def prefixes() -> Iterator[list[str]]:
    yield ["/t/one/", "/t/two/", "/"]
    set_script_prefix("/")


def test_it_is_the_address_that_django_reverses(prefixes: list[str]) -> None:
    for prefix in prefixes:
        set_script_prefix(prefix)
        assert build_numbered_address("rollout", (17,)) == reverse("rollout", args=[17])
        assert build_numbered_address("group", (3, 0), RUN, "heldout") == reverse("group", args=[RUN, "heldout", 3, 0])


def test_a_page_whose_address_ends_otherwise_is_refused() -> None:
    with pytest.raises(ValueError, match="rollout-tokens"):
        build_numbered_address("rollout-tokens", (17,))
