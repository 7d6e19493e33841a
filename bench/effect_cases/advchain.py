"""SFT on right answers with an error that is taken back in each, against SFT on the same answers without: what is right after a wrong step?"""

import random

from bench import made_rows
from bench.effect_cases import Case, Pairs, Quantity
from bench.made_rows import answer_after, draw_examples, make_rows, write_right_answers
from trainers.contract.dataset_tools.corrected_slips import Config, CorrectedSlips, draw_wrong_result
from trainers.contract.dataset_tools.word_problems import read_lines

TRAINED, HELD_OUT, STEPS, TOKENS = 400, 256, 60, 96
CORRECTION = "No."  # in few of the built-in policy's tokens
LARGEST = Config().largest_slip


def write_wrong_beginning(text: str, rng: random.Random) -> str:
    """A right answer up to its first equation, with another result."""
    first = read_lines(text.partition("<think>")[2].partition("</think>")[0])[0]
    return f"<think>{first.before}{first.change:+d}={draw_wrong_result(first.after, LARGEST, rng)}"


def measure(seed: int) -> Pairs:
    clean = write_right_answers(draw_examples("pairs", TRAINED, seed))
    tool = CorrectedSlips(Config(correction=CORRECTION, share=0.5, mark_wrong=False))
    held_out, rng = draw_examples("heldout", HELD_OUT, seed), random.Random(f"advchain/{seed}")
    prompts, right = [example.prompt[0].content for example in held_out], write_right_answers(held_out)
    begun = [write_wrong_beginning(row["completion"], rng) for row in right]
    found = []
    for rows in (make_rows(tool, clean, "completion", seed), clean):
        folder = made_rows.keep_trained(seed, rows, trainer="sft", steps=STEPS)
        texts = answer_after(folder, held_out, prompts, begun, TOKENS)
        found.append((made_rows.share_right(texts, held_out), made_rows.score_heldout(folder, held_out, TOKENS)))
    after_error, accuracy = zip(*found, strict=True)
    return {"after an error": after_error, "accuracy": accuracy}


CASE = Case(
    method="advchain",
    parent="sft",
    claim="A policy that has seen errors taken back is right more often after a wrong step of its own, and no less often without one.",
    quantities=(
        Quantity(
            "after an error",
            "held-out answers that are right although a wrong first step was written for the policy",
            "higher",
            0.02,
            "two more of a hundred answers",
        ),
        Quantity("accuracy", "held-out answers that are right", "higher", 0.02, "two more of a hundred answers"),
    ),
    problem=f"word problems, tiny policy, {TRAINED} right answers, half of them with an error that is taken back, {STEPS} steps of SFT",
    measure=measure,
    seeds=3,
)
