"""Masked paragraphs in stages of one to four masks against all at once: are more paragraphs with four masks filled in?"""

from bench import search_runs
from bench.effect_cases import Case, Pairs, tiny

OPTIONS = {"masks": 4}  # of held-out paragraphs, in both arms


def trained(seed: int, is_staged: bool) -> tiny.Trained:
    return search_runs.run_search(seed, "masksearch", {"staged": is_staged}, OPTIONS, world="paragraphs", base="dapo")


def measure(seed: int) -> Pairs:
    own, parent = trained(seed, True), trained(seed, False)
    return {
        **tiny.accuracies(own, parent),
        search_runs.ACCURACY_AT_WRITTEN.name: search_runs.compare_at_written_tokens(own, parent),
    }


CASE = Case(
    method="masksearch",
    parent="dapo",
    claim="After as many steps, more held-out paragraphs with four masks are filled in where training began with one mask.",
    quantities=(tiny.ACCURACY, search_runs.ACCURACY_AT_WRITTEN),
    problem="paragraphs with four masked words, tiny policy, 60 steps; the parent draws all numbers of masks from the beginning",
    measure=measure,
    seeds=3,
    launch={"base": "dapo", "task": {"name": "paragraphs", "difficulty": "easy", "options": OPTIONS}, "training__max_completion_length": 144},
    changed="the world: blanks are filled one by one, because neither arm learnt to copy several words into one answer",
)
