"""DPO on right answers against the same with their steps out of order: do answers go wrong in that way less often, and what does it cost?"""

from itertools import pairwise

from bench import kept_runs, made_rows
from bench.effect_cases import Case, Pairs, Quantity
from bench.made_rows import draw_examples, make_rows, score_pairs, write_right_answers
from trainers.contract.dataset_tools.corrupted_answers import CorruptedAnswers
from trainers.contract.dataset_tools.word_problems import read_lines

DIFFICULTY = "hard"  # an easy problem has too few steps for their order to go wrong
TRAINED, HELD_OUT, STEPS, TOKENS = 400, 512, 60, 96


def has_steps_in_order(text: str) -> bool:
    """Whether each equation of the working begins where the one before it ends."""
    lines = read_lines(text.partition("<think>")[2].partition("</think>")[0])
    return all(line.before == last.after for last, line in pairwise(lines))


def measure(seed: int) -> Pairs:
    tool, held_out = CorruptedAnswers(), draw_examples("heldout", HELD_OUT, seed, DIFFICULTY)
    pairs = make_rows(tool, write_right_answers(draw_examples("pairs", TRAINED, seed, DIFFICULTY)), "completion", seed)
    unseen = make_rows(tool, write_right_answers(held_out), "completion", seed)
    prompts = [example.prompt[0].content for example in held_out]
    found = []
    for folder in (
        made_rows.keep_trained(seed, pairs, DIFFICULTY, trainer="dpo", steps=STEPS),
        kept_runs.find_cold_start(made_rows.choose_task(DIFFICULTY)),
    ):
        texts, scores = made_rows.answer_after(folder, held_out, prompts, [""] * HELD_OUT, TOKENS), score_pairs(folder, unseen)
        disordered = sum(not has_steps_in_order(text) for text in texts) / HELD_OUT
        found.append((scores.preferred, disordered, scores.chosen, made_rows.share_right(texts, held_out)))
    preferred, disordered, chosen, accuracy = zip(*found, strict=True)
    return {"preferred": preferred, "out of order": disordered, "likelihood": chosen, "accuracy": accuracy}


CASE = Case(
    method="skyreels-v2",
    parent="the policy before DPO",
    claim="After DPO on right answers against the same with their steps out of order, fewer answers have steps out of order, and right ones do not"
    " become less likely.",
    quantities=(
        Quantity(
            "preferred",
            "held-out pairs of a right answer and the same out of order whose right answer is likelier",
            "higher",
            0.02,
            "two more of a hundred pairs",
            by_construction="the loss asks for it on other pairs of that kind",
        ),
        Quantity(
            "out of order",
            "held-out answers with a step that does not begin where the last one ended",
            "lower",
            0.02,
            "two fewer of a hundred answers",
        ),
        Quantity("likelihood", "log-likelihood of a token of right held-out answers, nats", "higher", 0.05, "a twentieth of a nat a token"),
        Quantity("accuracy", "held-out answers that are right", "higher", 0.02, "two more of a hundred answers"),
    ),
    problem=f"hard word problems, tiny policy, {TRAINED} right answers, {STEPS} steps of DPO; the parent is the policy it starts from",
    measure=measure,
    seeds=3,
)
