"""Questions of many sockets asked once, and messages unpacked once."""

import asyncio
import threading

import pytest
from channels.layers import get_channel_layer

from lab.lib.channel_layer import KEPT, SharedMessageLayer
from lab.lib.shared_queries import SharedQuery

pytestmark = pytest.mark.django_db(transaction=True)  # asking looks after database connections


class Squares:
    """A query that waits until it is let go."""

    def __init__(self) -> None:
        self.asked: list[set[int]] = []
        self.started, self.goes_on = threading.Event(), threading.Event()

    def __call__(self, numbers: set[int]) -> dict[int, int]:
        self.asked.append(numbers)
        self.started.set()
        self.goes_on.wait(30)
        if 13 in numbers:
            raise ValueError("13")
        return {number: number**2 for number in numbers if number < 100}


async def ask_meanwhile(squares: Squares, first: int, *later: int) -> list[int | BaseException | None]:
    """The answers, of which all but the first were asked for while the first query was under way."""
    query = SharedQuery(squares)
    tasks = [asyncio.create_task(query.ask(first))]
    await asyncio.to_thread(squares.started.wait, 30)
    tasks += [asyncio.create_task(query.ask(number)) for number in later]
    await asyncio.sleep(0)
    squares.goes_on.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_asks_while_a_query_is_under_way_shares_the_next() -> None:
    squares = Squares()
    assert await ask_meanwhile(squares, 2, 3, 4, 3, 2, 100) == [4, 9, 16, 9, 4, None]
    assert squares.asked == [{2}, {2, 3, 4, 100}]


async def test_an_error_reaches_those_who_asked_together_and_nobody_else() -> None:
    squares = Squares()
    first, *others = await ask_meanwhile(squares, 2, 13, 4)
    assert first == 4
    assert [str(one) for one in others] == ["13", "13"]


async def test_who_has_gone_is_missed_by_nobody() -> None:
    squares = Squares()
    query = SharedQuery(squares)
    gone, stays = asyncio.create_task(query.ask(2)), asyncio.create_task(query.ask(3))
    await asyncio.to_thread(squares.started.wait, 30)
    gone.cancel()
    squares.goes_on.set()
    assert await stays == 9


def test_a_query_outlives_the_loop_that_asked_it() -> None:
    squares = Squares()
    squares.goes_on.set()
    query = SharedQuery(squares)
    assert [asyncio.run(query.ask(number)) for number in (2, 3)] == [4, 9]


def test_a_message_is_unpacked_once_for_all_sockets() -> None:
    layer = get_channel_layer()
    assert isinstance(layer, SharedMessageLayer)
    sent = layer.serialize({"type": "delta", "to": 7})
    assert layer.deserialize(sent) == {"type": "delta", "to": 7}
    assert layer.deserialize(sent) is layer.deserialize(sent)
    for number in range(2 * KEPT):
        layer.deserialize(layer.serialize({"type": "delta", "to": number}))
    assert layer.deserialize.cache_info().currsize == KEPT
