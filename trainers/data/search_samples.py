"""Trees that a method searches before training, and rows of their steps."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from trainers.policies.sampling import as_rows
from trainers.rollouts.search_tree import SearchTree, list_step_nodes
from trainers.rollouts.tree import Node
from trainers.tasks.base import Example

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session

Search = Callable[["Session", list[Node]], list[SearchTree]]


def search_examples(
    run: "RunContext", examples: Sequence[Example], key: str, search: Search, *, temperature: float = 1.0, model: Any = None
) -> list[SearchTree]:
    """One tree for each example, in order; as many are searched together as the run samples at once. ``model``: another policy than the run's own."""
    found, width = list[SearchTree](), run.attempt.sampling_batch
    for start in range(0, len(examples), width):
        session = run.session(examples[start : start + width], f"{key}/{start}", temperature=temperature, model=model)
        found += search(session, [episode.root for episode in session.begin()])
    return found


def tokenize_step(above: Node, position: Node, decode: Callable[[Sequence[int]], str]) -> dict[str, Any]:
    """A supervised row of one step: what was seen there, then the step's own tokens, which alone are in the loss."""
    prompt, before = above.episode.context_ids(above)
    step = [id_ for node in list_step_nodes(above, position) if node.by in ("policy", "forced") for id_ in node.ids]
    completion = [{"role": "assistant", "content": decode([*before, *step])}]
    mask = [0] * (len(prompt) + len(before)) + [1] * len(step)
    return {
        "prompt": as_rows(above.episode.example.prompt),
        "completion": completion,
        "input_ids": [*prompt, *before, *step],
        "completion_mask": mask,
    }
