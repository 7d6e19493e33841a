"""Worlds as tasks: vocabularies of their own, options, demonstrations by turns."""

import random

import pytest

from trainers.adapters.sft import tokenize_turns
from trainers.attempt.cold_start import find_cold_start_task
from trainers.contract.spec import SpecError, TaskChoice
from trainers.policies import tiny
from trainers.policies.sampling import chat_ids
from trainers.tasks.registry import BUILT_IN, WORLDS, all_tasks, load_chosen_task
from trainers.worlds.search import Search

CORE_POLICY = "tiny-1707a8ca19511119"  # made before there were worlds: caches and measured effects stand on it


def test_worlds_change_nothing_of_the_built_in_tasks() -> None:
    assert tiny.name_untrained_policy() == CORE_POLICY
    assert {tiny.find_family(kind()).policy_name for kind in BUILT_IN} == {CORE_POLICY}
    assert not set(WORLDS) & set(BUILT_IN)
    assert set(all_tasks()) >= {kind.name for kind in WORLDS}


def test_a_world_has_words_of_its_own_whatever_its_options() -> None:
    own = tiny.find_family(Search()).policy_name
    assert own != CORE_POLICY
    assert tiny.find_family(Search({"junk": 0.5}, 3)).policy_name == own


def test_options_name_what_is_kept_and_are_refused_by_name() -> None:
    assert (
        load_chosen_task(TaskChoice(name="search")).cache_key
        == load_chosen_task(TaskChoice(name="search", options={"junk": 0})).cache_key
        == "search"
    )
    assert load_chosen_task(TaskChoice(name="search", options={"junk": 0.5})).cache_key != "search"
    with pytest.raises(SpecError) as refused:
        load_chosen_task(TaskChoice(name="search", options={"junk": 2, "jank": 0}))
    assert [problem.field for problem in refused.value.problems] == ["task.options.junk", "task.options.jank"]
    with pytest.raises(SpecError) as refused:
        load_chosen_task(TaskChoice(name="kb", options={"junk": 0.5}))
    assert [problem.field for problem in refused.value.problems] == ["task.options"]


def test_the_worlds_words_are_not_trained_and_pieces_join_as_they_are_sampled() -> None:
    world = Search()
    family = tiny.find_family(world)
    tokenizer = tiny.build_tokenizer(family.texts, family.tags)
    example = world.examples("train", 1, 0, "hard")[0]
    row = tokenize_turns(example.prompt, world.tell_turns(example, world.way(example, world.begin(example))), tokenizer)
    ids, mask = row["input_ids"], row["completion_mask"]
    prompt = chat_ids(tokenizer, [example.prompt])[0]
    assert ids[: len(prompt)] == prompt
    assert not any(mask[: len(prompt)])
    assert tokenizer.decode(ids[len(prompt) :]) == world.gold(example) + tokenizer.eos_token
    trained = tokenizer.decode([one for one, kept in zip(ids, mask, strict=True) if kept])
    assert trained == "".join(world.way(example, world.begin(example))) + tokenizer.eos_token
    assert ids[len(prompt) : -1] == tokenizer.encode(world.gold(example), add_special_tokens=False)
    assert len(ids) < tiny.CONTEXT


def test_a_kept_cold_start_does_not_depend_on_the_seed_of_the_run_that_made_it() -> None:
    first, other = Search({"junk": 0.5}, 1), Search({"junk": 0.5}, 2)
    examples = first.examples("train", 40, 0, "medium")

    def tell(world: Search) -> list[str]:
        rng = random.Random(0)
        return [world.demonstration(example, rng) for example in examples]

    assert tell(first) != tell(other)
    assert tell(find_cold_start_task(first)) == tell(find_cold_start_task(other))
    assert find_cold_start_task(first).cache_key == first.cache_key
