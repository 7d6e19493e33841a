"""What every world keeps, whoever wrote it."""

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trainers.policies import tiny
from trainers.policies.sampling import chat_ids
from trainers.tasks.base import Example
from trainers.tasks.registry import WORLDS
from trainers.worlds.base import POLICY, Replay, State, World, replay_episode

ROOT = Path(__file__).resolve().parents[3]
HOSTILE = [
    "",
    "\0" * 50,
    "x" * 10_000,
    "9" * 10_000,
    "<" * 10_000,
    "\ud800",
    "<answer>" * 1_000,
    "<think></think>" * 500 + "<answer>1</answer>",
    "<answer>-1e999</answer>",
    "</answer><information>1</information>",
    "<answer>'; DROP TABLE x; --</answer>",
]


OPTIONS = [  # under which a world is played by other rules
    ("search", {"reader": True, "known": 0.5}),
    ("search", {"thoughts": True, "memorised": 0.5}),
    ("search", {"alone": True, "thoughts": True, "memorised": 1.0}),
    ("reader", {"numbered": True}),
    ("reader", {"levels": True}),
    ("two_corpora", {"agents": True}),
]
PLAYED = [*((kind, {}) for kind in WORLDS), *((kind, options) for name, options in OPTIONS for kind in WORLDS if kind.name == name)]


@pytest.fixture(params=PLAYED, ids=lambda played: "-".join([played[0].name, *played[1]]))
def world(request: pytest.FixtureRequest) -> World:
    kind, options = request.param
    return kind(options)


def examples_of(world: World, count: int = 4) -> Iterator[Example]:
    for difficulty in world.difficulties:
        yield from world.examples("train", count, 0, difficulty)


def freeze(value: Any) -> Any:
    """A state that complains about a change in place."""
    if isinstance(value, dict):
        return FrozenDict({key: freeze(one) for key, one in value.items()})
    return FrozenList(map(freeze, value)) if isinstance(value, list) else value


def refuse(*_: Any, **__: Any) -> Any:
    raise AssertionError("a step changed the state it was given")


class FrozenDict(dict[str, Any]):
    __setitem__ = __delitem__ = update = pop = popitem = setdefault = clear = __ior__ = refuse  # type: ignore[assignment]


class FrozenList(list[Any]):
    __setitem__ = __delitem__ = append = extend = insert = pop = remove = sort = reverse = clear = __iadd__ = __imul__ = refuse  # type: ignore[assignment]


def play_at_random(world: World, example: Example, rng: random.Random) -> State:
    """A state that some good and some bad turns lead to."""
    state = world.begin(example)
    for turn in range(rng.randrange(world.max_turns)):
        text = rng.choice(
            [*HOSTILE, *world.way(example, world.begin(example)), *(f"{tool.opening}{rng.random()}{tool.closing}" for tool in world.tools)]
        )
        step = world.step(example, state, POLICY, text, world.draw_noise(example, turn))
        if step.done:
            break
        state = step.state
    return state


def test_a_step_is_a_function_of_its_arguments_and_keeps_the_state(world: World) -> None:
    for example in examples_of(world):
        state = world.begin(example)
        assert json.loads(json.dumps(state)) == state
        for turn, text in enumerate([*world.way(example, state), *HOSTILE]):
            first, second = (world.step(example, freeze(state), POLICY, text, world.draw_noise(example, turn)) for _ in range(2))
            assert first == second
            assert json.loads(json.dumps(first.state)) == first.state
            json.dumps(first.facts)
            if not first.done:
                state = json.loads(json.dumps(first.state))


def test_the_way_earns_all_there_is_from_the_start_and_from_wherever_play_led(world: World) -> None:
    rng, reached = random.Random(0), 0
    for example in examples_of(world, 8):
        gold = world.gold(example)
        assert replay_episode(world, example, gold).done
        scores = {name: reward.function(gold, example) for name, reward in world.rewards.items()}
        assert {name for name, score in scores.items() if score not in (1, None)} == set()  # None: no opinion on this example
        assert scores[next(iter(world.rewards))] == 1
        state = play_at_random(world, example, rng)
        turns = state_turns(world, example, state)
        if turns is None:
            continue
        for number, text in enumerate(turns):
            step = world.step(example, state, POLICY, text, world.draw_noise(example, number))
            state = step.state
        assert world.outcome(example, state)[POLICY][next(iter(world.rewards))] == 1
        reached += 1
    assert reached > 5


def state_turns(world: World, example: Example, state: State) -> list[str] | None:
    try:
        return world.way(example, state)
    except LookupError:
        return None


def test_demonstrations_replay_as_this_world_wrote_them_and_fit(world: World) -> None:
    rng = random.Random(1)
    for example in examples_of(world, 20):
        said = world.turns(example, rng)
        text = "".join(one.text for one in said)
        replay: Replay = replay_episode(world, example, text)
        assert (replay.done, replay.rest) == (True, "")
        assert [turn.text for turn in replay.turns] == [one.text for one in said if one.seat]
        for whole in (text, world.gold(example)):
            prompt = " ".join(message.content for message in example.prompt)
            assert count_pieces(prompt) + count_pieces(whole) < tiny.CONTEXT


def test_the_longest_episode_fits_into_the_tokens_that_the_recipe_gives_it(world: World) -> None:
    family = tiny.find_family(world)
    tokenizer = tiny.build_tokenizer(family.texts, family.tags)
    longest = prompt = 0
    for example in examples_of(world, 100):
        longest = max(longest, len(tokenizer.encode(world.gold(example), add_special_tokens=False)))
        prompt = max(prompt, len(chat_ids(tokenizer, [example.prompt])[0]))
        for turn in world.way(example, world.begin(example)):
            assert len(tokenizer.encode(turn, add_special_tokens=False)) < world.max_turn_tokens
    assert longest <= 0.75 * world.episode_tokens
    assert prompt + world.episode_tokens <= tiny.CONTEXT


def count_pieces(text: str) -> int:
    """More than a tokenizer of the world's own makes of it: every word is two, every digit and sign one."""
    words = sum(2 for word in text.replace(">", "> ").split() if any(map(str.isalpha, word)))
    return words + sum(not one.isalpha() and not one.isspace() and one not in "<>/" for one in text)


def test_hostile_text_is_answered_at_once(world: World) -> None:
    example = next(examples_of(world))
    tools = [f"{tool.opening}{text}{tool.closing}" for tool in world.tools for text in HOSTILE]
    for text in [*HOSTILE, *tools]:
        began = time.process_time()
        step = world.step(example, world.begin(example), POLICY, text, world.draw_noise(example, 0))
        assert time.process_time() - began < 0.05  # of a second; goal 0.01, and the machine may be busy
        assert len(step.text) < 1_000
        assert len(json.dumps(step.state)) < 20_000
        for reward in world.rewards.values():
            score = reward.function(text, example)
            assert score is None or 0 <= score <= 1
        assert world.read(text) is None


def test_no_world_needs_torch() -> None:
    code = "import sys; from trainers.tasks.registry import WORLDS; [kind() for kind in WORLDS]; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"


# What a world keeps under options of its own too; the tests of a world call them with an object that has some.
CONTRACT = (
    test_a_step_is_a_function_of_its_arguments_and_keeps_the_state,
    test_the_way_earns_all_there_is_from_the_start_and_from_wherever_play_led,
    test_demonstrations_replay_as_this_world_wrote_them_and_fit,
    test_the_longest_episode_fits_into_the_tokens_that_the_recipe_gives_it,
    test_hostile_text_is_answered_at_once,
)
