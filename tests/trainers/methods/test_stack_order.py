"""Every pair of the catalogue and random triples: no order of a recipe undoes what a method filtered, and nothing that a method does is lost without
a word. Stacks that cannot keep that are refused at the preflight, with the reason."""

import itertools
import random
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainers.conftest import make_spec
from tests.trainers.methods.pair_stacks import FLIPPED, PairOutcome, outcome_on_pairs, plain_rows, stack_on_pairs
from tests.trainers.methods.stacks import HEATING, ROWS, Outcome, names_on, outcome, plain_batch, stack_of
from trainers.adapters.rollouts import GenerationBatch
from trainers.adapters.scoring import advantages_of
from trainers.catalog.describe import describe_method
from trainers.catalog.entries import built_in_entries
from trainers.contract import stack_conflicts, stacking
from trainers.contract.stack_order import ROLES, STAGES
from trainers.methods import registry
from trainers.methods.base import Method, hooks_of
from trainers.methods.batch import RolloutBatch
from trainers.methods.pairs.ipo_safe import shared_prefix
from trainers.methods.stack import Stack

TRIPLES = 200
CUT_OFF = [1, 6]  # rows that did not end by themselves
UNTRAINED = [8, 9, 10, 11]  # the group that clpo's rollout left out
GATES = {"critique-coder": CUT_OFF, "clpo": UNTRAINED, HEATING: list(range(ROWS))}
GRPO = names_on("grpo")


@cache
def words(names: frozenset[str], trainer: str = "grpo") -> tuple[str, str]:
    """What the preflight says about the stack: problems, warnings; neither depends on the order."""
    found = []
    for order in (sorted(names), sorted(names, reverse=True)):
        base = [name for name in order if built_in_entries()[name]["group"] == "bases"]
        methods = [{"name": name} for name in order if name not in base]
        chosen = {"base": {"name": base[0]}} if base else {"base": {"name": "dr-grpo"}} if trainer == "grpo" else {}
        verdict = stacking.check_stack(make_spec(Path("unused"), trainer, methods=methods, **chosen), built_in_entries())
        kept = [[one for one in part if one.field.endswith(".name")] for part in (verdict.problems, verdict.warnings)]
        found.append(tuple(" ".join(sorted(one.message for one in part)) for part in kept))
    assert bool(found[0][0]) == bool(found[1][0]), names
    assert bool(found[0][1]) == bool(found[1][1]), names
    return found[0][0], found[0][1]


@cache
def alone(*names: str) -> Outcome:
    return outcome(names)


@cache
def acts(name: str) -> bool:
    """Whether a method changes anything on this batch."""
    return alone(name).differs(alone())


def orders(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """The orders of a recipe that act differently."""
    seen = {}
    for order in itertools.permutations(names):
        stack = stack_of(order)
        seen.setdefault(tuple(tuple(method.card.name for method in stack.filling(hook)) for hook in STAGES), order)
    return list(seen.values())


def lost(names: tuple[str, ...]) -> list[str]:
    """Methods without which the stack would be the same, although they act."""
    whole = outcome(names)
    return [name for name in names if acts(name) and not whole.differs(alone(*(other for other in names if other != name)))]


def silent_losses(names: tuple[str, ...]) -> list[str]:
    problems, warnings = words(frozenset(names))
    if problems:
        return []
    return [f"{order}: what {name} does is lost without a word" for order in orders(names) for name in lost(order) if name not in warnings]


def leaks(names: tuple[str, ...]) -> list[str]:
    """What was left out and is trained on after all."""
    if words(frozenset(names))[0]:
        return []
    found = []
    finished = torch.tensor([row not in CUT_OFF for row in range(ROWS)])
    notes = [{**note, "trained": row not in UNTRAINED} for row, note in enumerate(plain_batch().notes)]
    rows = sorted({row for name in names for row in GATES.get(name, ())})
    for order in orders(names):
        made = outcome(order, heating=True, finished=finished, notes=notes)
        found += [f"{order}: an advantage came back"] if made.advantages[rows].any() else []
        found += [f"{order}: pass {number} trains on a row that was left out" for number, one in enumerate(made.gradients) if one[rows].any()]
        found += [f"{order}: left out without a reason"] if not all(made.reported.filtered[row] for row in rows) else []
    return found


def test_what_a_method_does_is_present_or_spoken_of_in_every_pair() -> None:
    assert [text for pair in itertools.combinations(["rloo", *GRPO], 2) for text in silent_losses(pair)] == []


@pytest.mark.parametrize("gate", GATES)
def test_what_a_gate_left_out_stays_out_in_every_pair(gate: str) -> None:
    assert [text for name in ["rloo", *GRPO] if name != gate for text in leaks((gate, name))] == []


def test_both_hold_for_random_triples() -> None:
    rng = random.Random(20261122)
    drawn = [tuple(rng.sample(GRPO, 3)) for _ in range(TRIPLES)]
    assert [text for triple in drawn for text in silent_losses(triple)] == []
    assert [text for triple in drawn if set(triple) & set(GATES) for text in leaks(triple)] == []
    assert sum(not words(frozenset(triple))[0] for triple in drawn) > TRIPLES / 4, "most triples are refused: nothing is held"


PAIRS = names_on("dpo")


@cache
def alone_on_pairs(*names: str) -> PairOutcome:
    return outcome_on_pairs(names)


def orders_on_pairs(names: tuple[str, ...]) -> list[tuple[str, ...]]:
    seen = {}
    for order in itertools.permutations(names):
        stack = stack_on_pairs(order, {})
        seen.setdefault(tuple(tuple(method.card.name for method in stack.filling(hook)) for hook in STAGES), order)
    return list(seen.values())


def silent_losses_on_pairs(names: tuple[str, ...]) -> list[str]:
    problems, warnings = words(frozenset(names), "dpo")
    found = []
    for order in [] if problems else orders_on_pairs(names):
        whole = outcome_on_pairs(order)
        for name in order:
            without = tuple(other for other in order if other != name)
            acting = alone_on_pairs(name).differs(alone_on_pairs())
            if acting and name not in warnings and not whole.differs(alone_on_pairs(*without)):
                found.append(f"{order}: what {name} does is lost without a word")
        if any(gradient.isnan().any() for gradient in whole.gradients) or not any(gradient.any() for gradient in whole.gradients):
            found.append(f"{order}: nothing is learnt from the pairs")
    return found


def test_what_a_method_of_pairs_does_is_present_or_spoken_of_in_every_pair() -> None:
    assert [text for pair in itertools.combinations(PAIRS, 2) for text in silent_losses_on_pairs(pair)] == []


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "prefcleanbench"])
def test_a_pair_that_was_cleaned_away_stays_away(name: str) -> None:
    if words(frozenset({name, "prefcleanbench"}), "dpo")[0]:
        return
    removed = {plain_rows()[place]["prompt"][-1]["content"] for place in FLIPPED}
    for order in ((name, "prefcleanbench"), ("prefcleanbench", name)):
        rows = outcome_on_pairs(order, {"prefcleanbench": {"cleaner": "vote_maj_r"}}).rows
        assert rows
        assert not removed & {row["prompt"][-1]["content"] for row in rows}, order


@pytest.mark.parametrize("name", [name for name in PAIRS if name != "ipo-safe"])
def test_what_a_cut_left_out_of_a_chain_stays_out(name: str) -> None:
    if words(frozenset({name, "ipo-safe"}), "dpo")[0]:
        return
    for order in ((name, "ipo-safe"), ("ipo-safe", name)):
        made = outcome_on_pairs(order)
        start = shared_prefix(made.batch.chosen_ids, made.batch.rejected_ids)
        assert start.any()
        for gradient in made.gradients:
            before = torch.arange(gradient.shape[1]) < start[:, None]
            assert not gradient[before].any(), order


ALONE = ("prompts", "rollout", "policy_loss", "log_ratios", "reference")  # hooks of which a stack calls one


@pytest.mark.parametrize("trainer", ["grpo", "dpo", "sft"])
def test_what_only_one_method_can_fill_is_filled_by_one(trainer: str) -> None:
    known = built_in_entries()
    for pair in itertools.combinations(names_on(trainer), 2):
        shared = [hook for hook in ALONE if all(hook in known[name]["hooks"] for name in pair)]
        assert not shared or words(frozenset(pair), trainer)[0], f"{pair} both fill {shared}"


def test_every_method_says_what_it_does_where_the_order_matters() -> None:
    for _, kind in registry.built_in():
        ordered = {hook for hook in hooks_of(kind) if hook in STAGES}
        assert set(kind.roles) == ordered, kind.card.name
        assert set(kind.roles.values()) <= set(ROLES)
        assert all(role in STAGES[hook] for hook, role in kind.roles.items())
        assert (kind.roles.get("advantages") == "makes") == ("advantages" in kind.owns), kind.card.name


def test_heating_holds_under_a_method_that_makes_the_advantages() -> None:
    for order in (("annealed-rlvr", "rs-grpo"), ("rs-grpo", "annealed-rlvr")):
        made = outcome(order, heating=True)
        assert made.reported.contributions["rs-grpo"] != [0.0] * ROWS
        assert made.advantages.tolist() == [0.0] * ROWS
        assert set(made.reported.filtered) == {"only imitation while heating (annealed-rlvr)"}


def test_a_cut_off_row_stays_out_under_a_method_that_makes_the_advantages() -> None:
    finished = torch.tensor([row != 1 for row in range(ROWS)])
    for order in (("critique-coder", "canon"), ("canon", "critique-coder")):
        made = outcome(order, finished=finished)
        assert made.reported.contributions["canon"][1] != 0.0
        assert made.advantages[1] == 0.0
        assert [bool(reason) for reason in made.reported.filtered] == [not done for done in finished.tolist()]


class Third(Method):
    """Of another package: no card of the catalogue, no role."""

    card = replace(registry.load_method_class("rs-grpo").card, name="third")

    def advantages(self, batch: RolloutBatch, advantages: Tensor) -> Tensor:
        return advantages * 0.5


def test_a_gate_answers_0_or_1() -> None:
    class Scaling(Third):
        roles = {"advantages": "gates"}

    base: Any = registry.load_method_class("grpo")()
    stack = Stack(base, [Scaling()])
    batch = plain_batch()
    reported = GenerationBatch(batch.examples, batch.prompts, batch.texts, [], {})
    with pytest.raises(ValueError, match="third gates advantages and has to answer 0 or 1"):
        advantages_of(stack, replace(batch), batch.reward, "group", reported)


def test_a_method_that_does_not_say_what_it_does_is_refused_where_it_would_have_to_be_ordered() -> None:
    entry = {**describe_method("installed", Third), "parameters": {}}
    other = built_in_entries()["rs-grpo"]
    found = [
        one.message
        for one in stack_conflicts.find_stack_problems([stack_conflicts.fill_method_defaults("methods", one, {}) for one in (entry, other)])
    ]
    assert found == ["third does not say whether it makes, maps or gates advantages, so it cannot be ordered with rs-grpo"]
    assert not stacking.has_default_conflict(entry, built_in_entries()["siren"])


@pytest.mark.parametrize(
    ("trainer", "names", "message"),
    [
        ("grpo", ("mentalseek-dx", "faithrl"), "both faithrl and mentalseek-dx make the reward anew"),
        ("grpo", ("rc-grpo", "prompt-augmentation"), "both prompt-augmentation and rc-grpo decide the prompt"),
        ("grpo", ("humanline", "c2gspg"), "c2gspg brings its own policy loss, which does not read the importance ratio of humanline"),
        ("grpo", ("retro-star", "rest-rl"), "retro-star conflicts with rest-rl: retro-star replaces the training prompts with documents"),
        ("dpo", ("seapo", "pns"), "both pns and seapo make what the run trains on anew"),
        ("dpo", ("sail", "mnpo"), "mnpo measures the margin of a pair itself: what sail does to log-ratios or margins would be lost"),
        ("dpo", ("re-po", "mnpo"), "both mnpo and re-po decide the pair loss"),
    ],
)
def test_what_cannot_be_ordered_is_refused_with_the_reason(trainer: str, names: tuple[str, str], message: str) -> None:
    assert message in words(frozenset(names), trainer)[0]


def test_a_method_that_is_off_under_its_settings_conflicts_with_nobody() -> None:
    methods = [{"name": "e2c-explore-execute", "config": {"reward": "plain"}}, {"name": "faithrl"}]
    assert stacking.check_stack(make_spec(Path("unused"), methods=methods, base={"name": "grpo"}), built_in_entries()).problems == []


def test_what_a_policy_loss_leaves_of_its_base_is_said() -> None:
    assert "rover brings its own policy loss: of cispo only" in words(frozenset({"cispo", "rover"}))[1]
    assert "e2c-explore-execute does to single tokens counts by its mean" in words(frozenset({"c2gspg", "e2c-explore-execute"}))[1]
