"""Agentar-Scale-SQL: a graded reward for queries against a binary one, and a trained selector's tournament against the majority of candidates."""

from pathlib import Path
from typing import Any

from bench import kept_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny
from bench.policy_tokens import ACCURACY_AT_POLICY_TOKENS, compare_at_policy_tokens
from trainers.contract.events import Message
from trainers.maths.tournament import count_wins, group_by_result, pick_majority, pick_winner
from trainers.methods.worlds.agentar_scale_sql import read_queries, run_candidate, write_choice
from trainers.tasks.base import Example
from trainers.texts.spans import extract_answer
from trainers.worlds.tables import Tables

TASK = {"name": "tables", "difficulty": "hard"}
LAUNCH: dict[str, Any] = {"base": "grpo", "task": TASK, "training__max_completion_length": 80, "training__lr_scheduler_type": "linear"}
STEPS, CHOICES, EARLY = 40, 300, 15
QUESTIONS, CANDIDATES = 96, 8


def train_selector(seed: int, start: Path) -> Path:
    """A policy that was fine-tuned on choices between queries of ``start``, then trained by GRPO on others."""
    config = {"role": "selector", "generator": str(start)}
    first = tiny.spec_of(seed, "agentar-scale-sql", config, trainer="sft", steps=CHOICES, heldout=0, task=TASK, training__demonstrations=2048)
    policy = {"kind": "folder", "path": str(kept_runs.keep_policy(f"choices-{seed}", first))}
    more = {**LAUNCH, "training__max_completion_length": 12, "training__prompts": 256}
    second = tiny.spec_of(seed, "agentar-scale-sql", config, steps=STEPS, heldout=0, policy=policy, **more)
    return kept_runs.keep_policy(f"selector-{seed}", second)


def collect_classes(start: Path, seed: int) -> list[tuple[Example, list[str], list[int]]]:
    """(question, a query for each class of equal results, the classes' sizes) of held-out questions with several classes, one of them right."""
    world, found = Tables(), []
    examples = world.examples("heldout", QUESTIONS, 0, TASK["difficulty"])
    asked = [example for example in examples for _ in range(CANDIDATES)]
    made = kept_runs.sample_answers([example.prompt for example in asked], asked, start, TASK, 80, seed)
    for place, example in enumerate(examples):
        texts = [one.text for one in made[place * CANDIDATES : (place + 1) * CANDIDATES]]
        ran = [(query, result) for text in texts for query in read_queries(world, example, text)[-1:] if (result := run_candidate(example, query))]
        groups = group_by_result([result for _, result in ran])
        if len(groups) > 1 and example.reference in [result for _, result in ran]:
            found.append((example, [ran[group[0]][0] for group in groups], [len(group) for group in groups]))
    return found


def compare_choosers(seed: int, start: Path, selector: Path) -> tuple[float, float]:
    """Share of right choices among classes: by the selector's tournament and by majority."""
    known = collect_classes(start, seed)
    games = [
        (number, one, other) for number, (_, queries, _) in enumerate(known) for one in range(len(queries)) for other in range(one + 1, len(queries))
    ]
    asked = []
    for number, one, other in games:
        example, queries, _ = known[number]
        prompt = [Message("user", write_choice(example, [queries[one], queries[other]]))]
        asked.append(Example(prompt, "1", example.data))
    made = kept_runs.sample_answers([example.prompt for example in asked], asked, selector, TASK, 12, seed)
    firsts = {game: extract_answer(answer.text) == "1" for game, answer in zip(games, made, strict=True)}
    scores = []
    for number, (example, queries, sizes) in enumerate(known):
        wins = count_wins(len(queries), lambda one, other, number=number: firsts[number, one, other])  # type: ignore[misc]
        chosen = (queries[pick_winner(wins, sizes)], queries[pick_majority(sizes)])
        scores.append([run_candidate(example, query) == example.reference for query in chosen])
    own, majority = (sum(score[place] for score in scores) / len(scores) for place in (0, 1))
    return own, majority


def mean_ran(made: tiny.Trained) -> float:
    """Share of queries that ran in the first steps."""
    early = [rollout["rewards"]["ran"] for rollout in made.rollouts if rollout["step"] <= EARLY]
    return float(sum(early) / len(early))


def measure(seed: int) -> Pairs:
    own, parent = (tiny.run_train(seed, name, steps=STEPS, **LAUNCH) for name in ("agentar-scale-sql", ""))
    start = kept_runs.find_cold_start(TASK)
    return (
        {"runs early": (mean_ran(own), mean_ran(parent))}
        | tiny.accuracies(own, parent)
        | compare_at_policy_tokens(own, parent)
        | {"tournament": compare_choosers(seed, start, train_selector(seed, start))}
    )


CASE = Case(
    method="agentar-scale-sql",
    parent="grpo",
    claim="queries run sooner than when right answers alone pay, and a tournament of the selector finds the right class more often than the majority",
    quantities=(
        Quantity(
            "runs early",
            f"share of queries that run, first {EARLY} steps",
            "higher",
            0.02,
            "two more of a hundred queries",
            by_construction="a query that runs earns 0.1",
        ),
        tiny.ACCURACY,
        ACCURACY_AT_POLICY_TOKENS,
        Quantity(
            "tournament",
            "share of held-out questions with several classes of results, one of them right, where the right one is chosen; against the majority",
            "higher",
            0.02,
            "two more of a hundred questions",
        ),
    ),
    problem=f"four kinds of questions to a table, tiny policy, {STEPS} steps; candidates of the selector from the policy after its cold start",
    measure=measure,
    seeds=3,
    launch=LAUNCH,
)
