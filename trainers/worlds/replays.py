"""A batch of episodes played again, for methods whose rewards read them turn by turn."""

from collections.abc import Sequence

from trainers.tasks.base import Example, Task
from trainers.worlds.base import END_THINK, THINK, Replay, World, replay_episode


def replay_texts(task: Task, examples: Sequence[Example], texts: Sequence[str]) -> list[Replay]:
    """One replay for each text. Raises TypeError for a task that is no world, which the preflight refuses for methods bound to one."""
    if not isinstance(task, World):
        raise TypeError(f"{task.name} is no world: its answers have no turns to play again")
    return [replay_episode(task, example, text) for example, text in zip(examples, texts, strict=True)]


def read_final_answer(replay: Replay) -> str | None:
    """The answer of an episode in the right form all through; None for any other."""
    if replay.rest or not replay.done or replay.state["errors"]:
        return None
    answer: str | None = replay.state["answer"]
    return answer


def count_calls(replay: Replay) -> int:
    return sum("tool" in turn.step.facts for turn in replay.turns)


def read_thought(turn: str) -> str:
    """What a turn says between thought tags at its beginning; empty where it has no thought."""
    opened, _, rest = turn.strip().partition(THINK)
    thought, closed, _ = rest.partition(END_THINK)
    return thought.strip() if closed and not opened else ""
