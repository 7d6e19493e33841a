"""Place intervals in a few rows of memory so that none overlap: a small game of which tree search is made. After mallocMuZero.

``4 rows. 1-3 x2, 2-5 x1, 4-6 x3.`` names buffers by the times they live, the last one included, and the rows they take, in the order they come.
``<put>0</put>`` puts the first into rows 0 and 1, gets ``<information>2-5 x1</information>``, the next one, and so on to the last. A buffer that does
not fit where it is put ends the episode, and so does one for which no room is left. There is always a way, but not from everywhere: to put each as
low as can be, or as high, never places all.

mallocMuZero (arXiv 2305.07440) plays the memory map of a compiler with a learned model of the game. Here the rules are known to the search, which is
that of the lab's methods for trees of turns.
"""

import random
from typing import Any

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, Step, Tool, World, make_rewards, parse_call
from trainers.worlds.packings import Buffer, draw_packing, find_way, list_free_rows, place_lowest
from trainers.worlds.tool_use import write_call, write_information

SIZES = {"easy": (4, 5, 4), "medium": (4, 6, 5), "hard": (4, 7, 6)}  # rows of memory, buffers, times: few, so that they are packed


class Placement(World):
    name = "placement"
    title = "Intervals in memory"
    summary = "Put buffers into rows of memory, one a turn, so that no two overlap: a game of dead ends for tree search."
    difficulties = {name: f"{buffers} buffers in {rows} rows." for name, (rows, buffers, _) in SIZES.items()}
    demonstrations = "Of mixed quality by design: 50 % place all, 30 % put every buffer into the lowest rows that are free, 20 % into rows at random."
    tools = (Tool("put", "Puts the next buffer into the memory from this row on."),)
    max_turns = 8
    max_turn_tokens = 8
    episode_tokens = 112

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        placed = ("Share of the buffers that were placed.", 0.0)
        form = ("1 when every turn is one row.", 0.0)
        self.rewards = make_rewards(self, {"correct": ("1 when all buffers were placed.", 1.0), "placed": placed, "format": form})

    def example(self, rng: random.Random, difficulty: str) -> Example:
        rows, count, times = SIZES[difficulty]
        buffers = draw_packing(rng, rows, count, times)
        while len(place_lowest(rows, buffers)) == count:
            buffers = draw_packing(rng, rows, count, times)
        way = find_way(rows, buffers, ())
        assert way is not None
        data = {"rows": rows, "buffers": [list(one) for one in buffers]}
        return Example([Message("user", f"{rows} rows. {', '.join(map(write_buffer, buffers))}.")], " ".join(map(str, way)), data)

    def begin(self, example: Example) -> State:
        return {"rows": [], "over": False, "errors": 0}

    def step(self, example: Example, state: State, seat: str, text: str, rng: random.Random) -> Step:
        call, (rows, buffers) = parse_call(text, self.tools), read_buffers(example)
        if call is None or not (call[1].isascii() and call[1].isdigit() and len(call[1]) == 1):
            return Step({**state, "errors": state["errors"] + 1, "over": True}, done=True, facts={"error": "not one row"})
        row, facts = int(call[1]), {"tool": "put", "query": call[1]}
        if row not in list_free_rows(rows, buffers, tuple(state["rows"])):
            return Step({**state, "over": True}, done=True, reward=0.0, facts=facts | {"error": "it does not fit there"})
        placed = [*state["rows"], row]
        if len(placed) == len(buffers):
            return Step({**state, "rows": placed, "over": True}, done=True, reward=1.0, facts=facts)
        if not list_free_rows(rows, buffers, tuple(placed)):
            return Step({**state, "rows": placed, "over": True}, done=True, reward=0.0, facts=facts | {"error": "no room for the next"})
        return Step({**state, "rows": placed}, write_information(write_buffer(buffers[len(placed)])), facts=facts)

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        count, placed = len(read_buffers(example)[1]), len(state["rows"])
        return {POLICY: {"correct": float(0 < count == placed), "placed": placed / max(1, count), "format": float(not state["errors"])}}

    def way(self, example: Example, state: State) -> list[str]:
        rows, buffers = read_buffers(example)
        way = None if state["over"] else find_way(rows, buffers, tuple(state["rows"]))
        if not way:
            raise LookupError("the episode is over" if state["over"] else "there is no way from here")
        return [write_call("put", row) for row in way[len(state["rows"]) :]]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        (rows, buffers), kind, placed = read_buffers(example), rng.random(), list[int]()
        if kind < 0.5:
            return self.tell_turns(example, self.way(example, self.begin(example)))
        if kind < 0.8:
            placed = [*place_lowest(rows, buffers)]
        while kind >= 0.8 and (free := list_free_rows(rows, buffers, tuple(placed))):
            placed.append(rng.choice(free))
        return self.tell_turns(example, [write_call("put", row) for row in placed])


def write_buffer(one: Buffer) -> str:
    return f"{one[0]}-{one[1]} x{one[2]}"


def read_buffers(example: Example) -> tuple[int, tuple[Buffer, ...]]:
    return example.data.get("rows", 0), tuple((first, last, size) for first, last, size in example.data.get("buffers", ()))
