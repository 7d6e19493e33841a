"""A planner over two search agents against one policy that searches both corpora itself, where three searches in ten are noise."""

from bench import search_runs
from bench.effect_cases import Case, Pairs, Quantity, tiny

FLAT = {"junk": 0.3}
LED = {**FLAT, "agents": True}


def measure(seed: int) -> Pairs:
    own = search_runs.run_search(seed, "hiersearch", options=LED, world="two_corpora")
    flat = search_runs.run_search(seed, options=FLAT, world="two_corpora")
    plain = search_runs.run_search(seed, options=LED, world="two_corpora")
    return {
        **tiny.accuracies(own, flat),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, flat),
        "both": (own.final("heldout/both"), plain.final("heldout/both")),
        "reward alone": (own.final("heldout/accuracy"), plain.final("heldout/accuracy")),
    }


CASE = Case(
    method="hiersearch",
    parent="grpo",
    claim="A planner over search agents answers more held-out questions than one policy that searches both corpora itself, after as many steps.",
    quantities=(
        tiny.ACCURACY,
        search_runs.ACCURACY_AT_WRITTEN,
        Quantity(
            "both",
            "share of the two agents that a held-out episode asks; the parent has the same agents and is paid for the answer alone",
            "higher",
            0.05,
            "one agent more in ten episodes",
            by_construction="a wrong answer pays for the agents that were asked",
        ),
        Quantity(
            "reward alone",
            "held-out accuracy after 60 steps; the parent has the same agents and is paid for the answer alone",
            "higher",
            0.02,
            "two more of a hundred problems",
        ),
    ),
    problem="chained questions over two corpora, 30 % of the searches noise, tiny policy, 60 steps; the parent searches itself",
    measure=measure,
    seeds=3,
    launch={"base": "grpo", "task": {"name": "two_corpora", "difficulty": "easy", "options": LED}, "training__max_completion_length": 128},
)
