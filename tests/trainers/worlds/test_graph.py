"""The world ``graph``: what the functions say, and which calls the answer needs."""

import pytest

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.graph import Graph, answer_call

NODES = {
    "Mia": {"friend": ["Leo"], "boss": ["Zoe"], "pet": [], "city": "Rome", "job": "cook"},
    "Leo": {"friend": ["Zoe"], "boss": ["Mia"], "pet": ["cat", "fox"], "city": "Oslo", "job": "judge"},
}
NEEDED = [["neighbours", "Mia friend"], ["degree", "Leo pet"]]
EXAMPLE = Example([Message("user", "q")], "2", {"nodes": NODES, "needed": NEEDED, "person": "Mia", "asked": "pet"})
FRIEND = "<neighbours>Mia friend</neighbours><information>Leo</information>"


@pytest.mark.parametrize(
    ("tool", "argument", "text"),
    [
        *(("node", "Leo", "Oslo judge"), ("feature", "Mia city", "Rome"), ("neighbours", "Leo pet", "cat fox"), ("neighbours", "Mia pet", "none")),
        *(
            ("degree", "Leo pet", "2"),
            ("degree", "Leo friend", "1"),
            ("feature", "Mia pet", "nothing"),
            ("node", "Bob", "nothing"),
            ("degree", "", "nothing"),
        ),
    ],
)
def test_what_the_functions_say(tool: str, argument: str, text: str) -> None:
    assert answer_call(NODES, tool, argument) == text


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        (f"{FRIEND}<degree>Leo pet</degree><information>2</information><answer>2</answer>", (1, 1, 1, 1)),
        (f"{FRIEND}<neighbours>Leo pet</neighbours><information>cat fox</information><answer>2</answer>", (1, 1, 1, 1)),  # counted by the policy
        (f"{FRIEND}<node>Leo</node><information>Oslo judge</information><answer>1</answer>", (0, 0.5, 0.5, 1)),
        (f"{FRIEND}{FRIEND}<answer>2</answer>", (1, 0.5, 0.5, 1)),
        ("<answer>2</answer>", (1, 0, 0, 1)),
    ],
)
def test_what_an_episode_earns(text: str, scores: tuple[float, ...]) -> None:
    assert tuple(reward.function(text, EXAMPLE) for reward in Graph().rewards.values()) == scores


def test_the_graph_can_stand_in_the_prompt() -> None:
    for shown in (False, True):
        for example in Graph({"shown": shown}).examples("train", 10, 0, "medium"):
            tool, argument = example.data["needed"][-1]
            told = f"{argument}: {answer_call(example.data['nodes'], tool, argument)}." in example.prompt[0].content
            assert told is shown
