"""What ``bench/ranks.py`` has measured and what the catalogue says of several processes agree."""

import json

import pytest

from bench.ranks import STORED, list_cases

MEASURED = json.loads(STORED.read_text())


def test_every_base_and_method_is_measured_or_refused():
    cases, refused = list_cases([])
    anywhere = {case.key for case in cases} | set(refused)
    assert anywhere <= set(MEASURED), "python -m bench.ranks NAME --store"


@pytest.mark.parametrize("key", sorted(MEASURED))
def test_two_processes_train_what_one_does_or_are_refused(key):
    cases, refused = list_cases([key.split(" on ")[0]])
    found = MEASURED[key]
    if key in refused:
        assert found["outcome"] == "refused"
        return
    assert key in {case.key for case in cases}
    assert found["outcome"] == "equal", found
