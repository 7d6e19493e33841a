"""What is done otherwise than published stands in the card's field, and "as published" is said only where there is nothing of it."""

import inspect
import re
import sys

import pytest

from lab.training.catalog import card_words
from trainers.catalog import methods_page as methods_doc
from trainers.catalog.entries import built_in_entries
from trainers.methods import registry

DEPARTING = re.compile(
    r"differs? from the (paper|code|report|authors)|what (differs|is different) (here|from the)|departs?\b|departure|chosen here|unclear in the"
    r"|left out|our (mapping|simplification)|the (code|script|paper|report) (has|keeps|takes|makes|divides|gives|codes) .{0,60}\bhere\b"
    r"|(here|ours) .{0,80}\bwhere the (code|paper|report)\b",
    re.I | re.S,
)
KINDS = [kind for _, kind in registry.built_in()]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.card.name)
def test_no_docstring_speaks_of_a_departure_that_the_card_does_not_name(kind: type) -> None:
    text = " ".join((inspect.getdoc(sys.modules[kind.__module__]) or "").split())
    assert kind.card.departures or not DEPARTING.search(text), DEPARTING.search(text)
    assert not (kind.card.departures and re.search(r"\bas published\b", text, re.I)), "something of it departs"


@pytest.mark.parametrize("entry", built_in_entries().values(), ids=lambda entry: entry["name"])
def test_as_published_is_shown_exactly_where_nothing_departs(entry: dict[str, object]) -> None:
    assert methods_doc.describe_provenance(entry).startswith("as published") == (not entry["departures"])
    assert (card_words.provenance_of(entry) in ("code", "paper")) == (not entry["departures"])
    assert entry["departures"] or not entry["reading"]
    for text in entry["departures"]:
        assert text.endswith("."), text
        assert len(text) <= 160, text
        assert text in methods_doc.in_full(entry)
        assert f"\n- {text}" in methods_doc.render_method_section(entry)
