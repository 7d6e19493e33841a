"""Episodes of the world search as a trainer stores them, with a search that was cut and one that came in its place."""

from __future__ import annotations

from typing import Any

from trainers.contract import arrays
from trainers.contract.events import Message, RolloutNode

QUESTION = "Who leads the firm of Eva?"
SEARCH, FOUND = "<search>Eva</search>", "<information>Eva works at Lumo.</information>"
BETTER, ANSWERED, ANSWER = "<search>Lumo</search>", "<information>Leo leads Lumo.</information>", "<answer>Leo</answer>"
WORSE, NOTHING, WRONG = "<search>Mia</search>", "<information>Mia has a dog.</information>", "<answer>Mia</answer>"
CUT = "first flawed step"
PARTS = (SEARCH, FOUND, BETTER, ANSWERED, ANSWER)
# Number of the first node of each branch after the first search, and of the state that both go on from.
STATE, KEPT_BRANCH, CUT_BRANCH = 2, 6, 3

EPISODE = [
    RolloutNode(0, "prompt"),
    RolloutNode(1, "policy", 0, start=0, end=1, facts={"tool": "search", "query": "Eva", "evidence": [1]}),
    RolloutNode(2, "world", 1, start=1, end=2),
    RolloutNode(6, "policy", 2, start=2, end=3, facts={"tool": "search", "query": "Lumo", "evidence": [2]}),
    RolloutNode(7, "world", 6, start=3, end=4),
    RolloutNode(8, "policy", 7, start=4, end=5, finish="stop"),
    RolloutNode(3, "policy", 2, fate="cut", why=CUT, text=WORSE, facts={"tool": "search", "query": "Mia", "junk": True}),
    RolloutNode(4, "world", 3, fate="cut", text=NOTHING),
    RolloutNode(5, "policy", 4, fate="cut", text=WRONG, finish="stop"),
]


def tell_episode(parts: tuple[str, ...] = PARTS, nodes: list[RolloutNode] | None = None, **more: Any) -> dict[str, Any]:
    """Fields of a rollout event whose tokens are ``parts``."""
    count = len(parts)
    zeros = arrays.pack_array([0.0] * count, "e")
    return {
        "prompt": [Message("user", QUESTION)],
        "reference": "Leo",
        "completion": "".join(parts),
        "ids": arrays.pack_ids(range(10, 10 + count)),
        "lengths": arrays.pack_array([len(part) for part in parts], "H"),
        "logprobs": zeros,
        "entropies": zeros,
        "length": count,
        "nodes": EPISODE if nodes is None else nodes,
        **more,
    }
