"""Episodes that a method samples before training, from the beginning or from the middle, for pairs of their parts."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from trainers.attempt.evaluate import own_randomness
from trainers.policies.sampling import Sampler, Sampling, prompt_ids
from trainers.tasks.base import Example
from trainers.worlds.base import Replay, World, replay_episode

if TYPE_CHECKING:
    from trainers.methods.context import RunContext


def continue_episodes(
    run: "RunContext", examples: Sequence[Example], begun: Sequence[Sequence[str]], temperature: float, key: object, longest: int = 0
) -> list[Replay]:
    """One episode for each example that goes on from ``begun``, the turns and answers of the world before; played again as a whole.

    ``longest``: tokens of an episode, those before included; 0: as many as a sampled answer may have. Pieces are encoded one by one, as they are
    while an episode is sampled.
    """
    world, tokenizer = run.task, run.tokenizer
    assert isinstance(world, World)
    batch = run.attempt.sampling_batch
    sampler = Sampler(run.model, tokenizer, world, Sampling(temperature, longest or run.training.max_completion_length, batch, statistics=False))
    found: list[Replay] = []
    with own_randomness(run.rng("episodes", key).randrange(2**31), run.device):
        for start in range(0, len(examples), batch):
            some = examples[start : start + batch]
            prefixes = [encode_pieces(tokenizer, pieces) for pieces in begun[start : start + batch]]
            made = sampler.complete_batch(some, prompt_ids(tokenizer, some), prefixes)
            found += [replay_episode(world, example, one.text) for example, one in zip(some, made, strict=True)]
    return found


def encode_pieces(tokenizer: Any, pieces: Sequence[str]) -> list[int]:
    return [number for piece in pieces for number in tokenizer.encode(piece, add_special_tokens=False)]


def write_pieces(replay: Replay, turns: int) -> list[str]:
    """The first turns of an episode, each with what the world answered."""
    return [piece for turn in replay.turns[:turns] for piece in (turn.text, turn.step.text) if piece]


def write_replay(replay: Replay) -> str:
    """The text that was played, without what could not be."""
    last = len(replay.turns) - 1
    return "".join(turn.text + ("" if number == last else turn.step.text) for number, turn in enumerate(replay.turns))
