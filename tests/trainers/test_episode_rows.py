"""Step pairs of worlds: both sides become the episode up to their turn, as the policy has seen and written it."""

from typing import Any

import pytest

from trainers.data.episode_rows import join_episode_row, join_episode_rows

USER = {"role": "user", "content": "Who?"}
SAID = [{"role": "assistant", "content": "<search>Eva</search>"}, {"role": "tool", "content": "<information>Lumo</information>"}]


def pair(prompt: list[dict[str, str]], **more: Any) -> dict[str, Any]:
    sides = {
        "chosen": [{"role": "assistant", "content": "<search>Lumo</search>"}],
        "rejected": [{"role": "assistant", "content": "<answer>Mia</answer>"}],
    }
    return {"prompt": prompt, **sides, **more}


def test_what_was_said_before_goes_in_front_of_both_sides() -> None:
    row = join_episode_row(pair([USER, *SAID], weight=0.5))
    begun = "<search>Eva</search><information>Lumo</information>"
    assert row["prompt"] == [USER]
    assert row["chosen"] == [{"role": "assistant", "content": f"{begun}<search>Lumo</search>"}]
    assert row["rejected"] == [{"role": "assistant", "content": f"{begun}<answer>Mia</answer>"}]
    assert row["weight"] == 0.5


@pytest.mark.parametrize(
    "row",
    [
        pair([USER]),
        pair([USER, SAID[0], {"role": "tool", "content": "x"}, USER]),
        pair([USER, *SAID], chosen_spans=[{"start": 0, "end": 2, "label": "good", "text": "<s"}]),
        {"prompt": [USER, *SAID], "completion": [SAID[0]]},
        pair(SAID),
    ],
)
def test_other_rows_stay_as_they_are(row: dict[str, Any]) -> None:
    assert join_episode_rows([row]) == [row]
