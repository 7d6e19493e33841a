"""SFT on right answers with an error that is taken back in each, against SFT on the same answers without: what is right after a wrong step?"""

import random
from typing import Any

from bench import made_rows
from bench.effect_cases import Case, Pairs, Quantity
from bench.made_rows import answer_after, draw_examples, make_rows, write_right_answers
from trainers.contract.dataset_tools.corrected_slips import Config, CorrectedSlips, draw_wrong_result
from trainers.contract.dataset_tools.word_problems import read_lines

TRAINED, HELD_OUT, STEPS, TOKENS = 400, 256, 60, 96
CORRECTION = "No."  # in few of the built-in policy's tokens
SHARE = 0.5  # of the answers get an error
LARGEST = Config().largest_slip


def write_wrong_beginning(text: str, rng: random.Random) -> str:
    """A right answer up to its first equation, with another result."""
    first = read_lines(text.partition("<think>")[2].partition("</think>")[0])[0]
    return f"<think>{first.before}{first.change:+d}={draw_wrong_result(first.after, LARGEST, rng)}"


def measure(seed: int) -> Pairs:
    clean = write_right_answers(draw_examples("pairs", TRAINED, seed))
    held_out, rng = draw_examples("heldout", HELD_OUT, seed), random.Random(f"advchain/{seed}")
    prompts, right = [example.prompt[0].content for example in held_out], write_right_answers(held_out)
    begun = [write_wrong_beginning(row["completion"], rng) for row in right]

    def train_and_ask(rows: list[dict[str, Any]], method: str = "") -> tuple[float, float]:
        """Share of right answers after a wrong first step, and from the beginning."""
        folder = made_rows.keep_trained(seed, rows, trainer="sft", steps=STEPS, method=method)
        texts = answer_after(folder, held_out, prompts, begun, TOKENS)
        return made_rows.share_right(texts, held_out), made_rows.score_heldout(folder, held_out, TOKENS)

    plain, marked = (CorrectedSlips(Config(correction=CORRECTION, share=SHARE, mark_wrong=mark)) for mark in (False, True))
    own, parent = train_and_ask(make_rows(plain, clean, "completion", seed)), train_and_ask(clean)
    without = train_and_ask(make_rows(marked, clean, "completion", seed), "span-credit")
    return {
        "after an error": (own[0], parent[0]),
        "accuracy": (own[1], parent[1]),
        "after an error, marked": (without[0], parent[0]),
        "accuracy, marked": (without[1], parent[1]),
    }


RECOVERED, WORTH = "held-out answers that are right although a wrong first step was written for the policy", "two more of a hundred answers"
MARKED = "; wrong steps are left out of the loss by span-credit"
CASE = Case(
    method="advchain",
    parent="sft",
    claim="A policy that has seen errors taken back is right more often after a wrong step of its own, and no less often without one.",
    quantities=(
        Quantity("after an error", RECOVERED, "higher", 0.02, WORTH),
        Quantity("accuracy", "held-out answers that are right", "higher", 0.02, WORTH),
        Quantity("after an error, marked", f"{RECOVERED}{MARKED}", "higher", 0.02, WORTH),
        Quantity("accuracy, marked", f"held-out answers that are right{MARKED}", "higher", 0.02, WORTH),
    ),
    problem=f"word problems, tiny policy, {TRAINED} right answers, half of them with an error that is taken back, {STEPS} steps of SFT",
    measure=measure,
    seeds=3,
)
