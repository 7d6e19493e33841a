"""Boxes in a grid of letters, to be found: their corners are written down and matched with the true ones as well as they can be.

``. A A . / . A A . / . . . B. Boxes?`` wants ``<answer>1 0 3 2, 3 2 4 3</answer>``: left, top, right and bottom of each box in any order of the
boxes, right and bottom one past its last cell. An answer is matched by trying every assignment of its boxes to the true ones, of which there are four
at most, and the one with the largest sum of overlaps counts:
    r_th = (1 / number of true boxes) sum over the matched pairs of IoU [IoU >= th]
After the reward for grounding of UI-UG (arXiv 2509.24361), whose boxes are elements of a picture of a user interface; a text stand-in. What cannot be
read as boxes is never right, so that in pairs of a policy's own answers it always loses.
"""

import random
from itertools import permutations
from typing import Any

from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import POLICY, Said, State, make_rewards
from trainers.worlds.tool_use import CORRECT, ToolWorld, write_answer

WIDTH, HEIGHT, LARGEST = 6, 5, 3  # of the grid, and of a side of a box
LETTERS = "ABCD"
MOST = len(LETTERS)
COUNTS = {"easy": (1, 1), "medium": (2, 3), "hard": (3, 4)}
EMPTY = "."
LOOSE, TIGHT = 0.5, 0.75

Box = tuple[int, int, int, int]  # left, top, right, bottom; the last two are one past the box


class Boxes(ToolWorld):
    name = "boxes"
    title = "Boxes in a grid"
    summary = "Find the boxes of letters in a grid and write down their corners."
    difficulties = {name: f"{low} or {high} boxes." if low < high else "1 box." for name, (low, high) in COUNTS.items()}
    demonstrations = (
        "Of mixed quality by design: 35 % are right, 35 % have sides that are off by one, 20 % leave out a box or make one up, 10 % lack a number."
    )
    max_turns = 1
    max_turn_tokens = 40
    episode_tokens = 48

    def __init__(self, options: dict[str, Any] | None = None, seed: int = 0) -> None:
        super().__init__(options, seed)
        self.rewards = make_rewards(
            self,
            {
                "correct": ("1 when there are as many boxes as there should be and each overlaps its own by half at least.", CORRECT[1]),
                "loose": (f"Mean overlap over the true boxes, of pairs that overlap by {LOOSE:g} at least.", 0.0),
                "tight": (f"The same, of pairs that overlap by {TIGHT:g} at least.", 0.0),
                "format": ("1 for an answer of one to four boxes, each four numbers with corners in their order.", 0.2),
            },
        )

    def example(self, rng: random.Random, difficulty: str) -> Example:
        while True:
            boxes = draw_boxes(rng, rng.randint(*COUNTS[difficulty]))
            if boxes is not None:
                break
        grid = [[EMPTY] * WIDTH for _ in range(HEIGHT)]
        for letter, (left, top, right, bottom) in zip(rng.sample(LETTERS, len(boxes)), boxes, strict=True):
            for row in grid[top:bottom]:
                row[left:right] = [letter] * (right - left)
        prompt = f"{' / '.join(' '.join(row) for row in grid)}. Boxes?"
        return Example([Message("user", prompt)], write_boxes(boxes), {"boxes": [list(box) for box in boxes]})

    def begin_calls(self, example: Example) -> State:
        return {}

    def outcome(self, example: Example, state: State) -> dict[str, dict[str, float | None]]:
        found = read_boxes(state["answer"])
        true = [(left, top, right, bottom) for left, top, right, bottom in example.data.get("boxes", ())]
        overlaps = match_boxes(found or [], true)
        return {
            POLICY: {
                "correct": float(found is not None and len(found) == len(true) and all(one >= LOOSE for one in overlaps)),
                "loose": score_matches(overlaps, LOOSE) if true else None,
                "tight": score_matches(overlaps, TIGHT) if true else None,
                "format": float(found is not None),
            }
        }

    def way(self, example: Example, state: State) -> list[str]:
        self.check_open(state)
        if "boxes" not in example.data:
            raise LookupError("the example does not say where its boxes are")
        return [write_answer(example.reference)]

    def turns(self, example: Example, rng: random.Random, seat: str = POLICY) -> list[Said]:
        boxes: list[Box] = [(left, top, right, bottom) for left, top, right, bottom in example.data["boxes"]]
        kind = rng.random()
        if 0.35 <= kind < 0.70:
            boxes = [stretch_box(box, rng) for box in boxes]
        elif 0.70 <= kind < 0.90:
            boxes = boxes[:-1] if len(boxes) > 1 else [*boxes, stretch_box(boxes[0], rng)]
        written = write_boxes(boxes)
        return self.tell_turns(example, [write_answer(written.rpartition(" ")[0] if kind >= 0.90 else written)])


def draw_boxes(rng: random.Random, count: int) -> list[Box] | None:
    """Boxes that do not overlap, from the top left on; None where they found no room."""
    boxes = list[Box]()
    for _ in range(count):
        wide, high = rng.randint(1, LARGEST), rng.randint(1, LARGEST)
        left, top = rng.randint(0, WIDTH - wide), rng.randint(0, HEIGHT - high)
        box = (left, top, left + wide, top + high)
        if any(measure_overlap_area(box, other) for other in boxes):
            return None
        boxes.append(box)
    return sorted(boxes, key=lambda box: (box[1], box[0]))


def stretch_box(box: Box, rng: random.Random) -> Box:
    """One of its sides is off by one cell, outwards where it is one cell wide, or high."""
    left, top, right, bottom = box
    if rng.random() < 0.5:
        return (left, top, right + 1 if right - left == 1 or rng.random() < 0.5 else right - 1, bottom)
    return (left, top, right, bottom + 1 if bottom - top == 1 or rng.random() < 0.5 else bottom - 1)


def write_boxes(boxes: list[Box]) -> str:
    return ", ".join(" ".join(map(str, box)) for box in boxes)


def read_boxes(answer: str | None) -> list[Box] | None:
    """None for an answer that is not one to four boxes whose corners are in their order."""
    parts = (answer or "").split(",", MOST)
    found = list[Box]()
    for part in parts:
        numbers = part.split()
        if len(numbers) != 4 or not all(one.isascii() and one.isdigit() and len(one) <= 3 for one in numbers):
            return None
        left, top, right, bottom = map(int, numbers)
        if left >= right or top >= bottom:
            return None
        found.append((left, top, right, bottom))
    return found if len(found) <= MOST else None


def measure_overlap_area(one: Box, other: Box) -> int:
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    return max(0, wide) * max(0, high)


def measure_iou(one: Box, other: Box) -> float:
    """Intersection over union of two boxes that are not empty."""
    shared = measure_overlap_area(one, other)
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)]
    return shared / (sum(areas) - shared)


def match_boxes(found: list[Box], true: list[Box]) -> list[float]:
    """For each true box its overlap with the box that it is matched with, 0 without one, so that the sum is the largest there is.

    Every assignment is tried: there are four boxes at most on either side.
    """
    places = [*range(len(found)), *[-1] * len(true)]  # -1: none
    best = [0.0] * len(true)
    for chosen in set(permutations(places, len(true))):
        overlaps = [0.0 if place < 0 else measure_iou(found[place], box) for place, box in zip(chosen, true, strict=True)]
        best = max(best, overlaps, key=sum)
    return best


def score_matches(overlaps: list[float], threshold: float) -> float:
    """r_th."""
    return sum(one for one in overlaps if one >= threshold) / len(overlaps)
