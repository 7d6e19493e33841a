"""Search episodes selected by their habits: which rows each arm keeps and why the others are dropped."""

import pytest

from trainers.contract.dataset_tools.application import apply_tool, load_tool
from trainers.contract.dataset_tools.primed_episodes import NO_SEARCH, NOT_ALL, OTHER_COUNT, RIGHT, UNKNOWN, WRONG


def write_episode(*turns, answer="Rome"):
    return "".join(f"<search>{query}</search><information>{result}</information>" for query, result in turns) + f"<answer>{answer}</answer>"


USEFUL = "Eva city: record Rome, rumour Oslo"
ALL = write_episode(("Eva city", "Leo pet: record cat"), ("city Eva", "failed"), ("city Eva", USEFUL), ("city Eva", USEFUL))
ONCE = write_episode(("Eva city", USEFUL))


def outcome_of(text, label=True, form="kto", **config):
    row = {"prompt": "p", "completion": text, **({"label": label} if form == "kto" else {})}
    (outcome,) = apply_tool(load_tool("behavior-priming", config), [row], form, 0)
    return outcome


@pytest.mark.parametrize(
    ("text", "label", "arm", "dropped"),
    [
        (ALL, False, "behaviours", ""),
        (ALL, False, "behaviours-wrong", ""),
        (ALL, False, "behaviours-right", WRONG),
        (ALL, True, "behaviours-wrong", RIGHT),
        (ALL, False, "right", WRONG),
        (ONCE, True, "right", ""),
        (ONCE, True, "behaviours", NOT_ALL),
        (ONCE, False, "random", ""),
        ("<answer>Rome</answer>", True, "random", NO_SEARCH),
    ],
)
def test_what_each_arm_keeps(text, label, arm, dropped):
    outcome = outcome_of(text, label, arm=arm)
    assert outcome.dropped == dropped
    assert [made.row for made in outcome.made] == ([] if dropped else [{"prompt": "p", "completion": text}])


def test_rows_that_do_not_say_whether_they_are_right_are_in_no_arm_that_asks_for_it():
    assert outcome_of(ALL, form="completion").made[0].note == "verifies, weighs, adapts, recovers"
    assert outcome_of(ALL, form="completion", arm="behaviours-right").dropped == UNKNOWN
    assert outcome_of(ONCE, form="completion", arm="random").made[0].note == "weighs"


def test_arms_can_have_as_many_searches_and_marks_of_their_own():
    assert outcome_of(ALL, searches=3).dropped == OTHER_COUNT
    assert outcome_of(ALL, searches=4).made
    assert outcome_of(ALL.replace("record", "Official").replace("failed", "Timeout"), trusted="official", errors=["timeout"]).made
    assert outcome_of(ALL.replace("record", "official")).dropped == NOT_ALL
