"""The world ``search``: what finds what, who gets a score for what, and that junk strikes everybody alike."""

import random
import re
from collections.abc import Callable

import pytest

from trainers.contract.spec import SpecError, TaskChoice
from trainers.policies import tiny
from trainers.policies.sampling import chat_ids
from trainers.tasks.base import Example
from trainers.tasks.registry import load_chosen_task
from trainers.worlds.base import replay_episode
from trainers.worlds.facts import Engine, Fact, Facts, Size, draw_facts
from trainers.worlds.search import Search, read_facts

KIM, LEO, ROME = Fact("Eva", "friend", "Leo"), Fact("Leo", "friend", "Eva"), Fact("Leo", "city", "Rome")


def make_example() -> Example:
    """What is the city of the friend of Eva?"""
    facts = [KIM, LEO, ROME, Fact("Eva", "city", "Oslo")]
    data = {"facts": [[one.subject, one.relation, one.value] for one in facts], "evidence": [0, 2], "person": "Eva", "attribute": "city"}
    return Example([], "Rome", data)


def scores(world: Search, example: Example, text: str) -> dict[str, float | None]:
    return {name: reward.function(text, example) for name, reward in world.rewards.items()}


def test_bm25_finds_rare_words_first_and_breaks_ties_by_number() -> None:
    engine = Engine(["a b", "a c", "a c", "d"])
    assert engine.search("c a", 3) == [1, 2, 0]
    assert engine.search("a", 2) == [0, 1]
    assert engine.search("?", 2) == engine.search("", 2) == []


def test_who_has_a_friend_is_not_who_is_one() -> None:
    facts = Facts([LEO, KIM])
    assert facts.engine.search("Eva's friend", 1) == [1]
    assert facts.engine.search("Leo's friend", 1) == [0]


def test_everybody_has_one_value_of_everything() -> None:
    facts = Facts(draw_facts(random.Random(0), Size(6, 3, 3)))
    assert len(facts.facts) == 36
    assert all(len(facts.values(one.subject, one.relation)) == 1 for one in facts.facts)
    with pytest.raises(LookupError, match="Mia has 0 of the relation shoe"):
        facts.value("Mia", "shoe")


def test_an_episode_by_hand() -> None:
    world, example = Search(), make_example()
    gold = (
        "<search>Eva's friend</search><information>Eva's friend is Leo. Leo's friend is Eva.</information>"
        "<search>Leo's city</search><information>Leo's city is Rome. Leo's friend is Eva.</information><answer>Rome</answer>"
    )
    assert world.gold(example) == gold
    assert scores(world, example, gold) == {"correct": 1, "format": 1, "evidence": 1, "useful": 1}
    assert scores(world, example, "<answer>Rome</answer>") == {"correct": 1, "format": 1, "evidence": 0, "useful": 0}
    once = gold.partition("</information>")[0] + "</information><answer>Oslo</answer>"
    assert scores(world, example, once) == {"correct": 0, "format": 1, "evidence": 0.5, "useful": 1}


@pytest.mark.parametrize(
    "change",
    [
        lambda gold: gold.replace("city is Rome", "city is Oslo"),  # another result than the world's
        lambda gold: gold.replace("<search>Leo", "<search>Leo</search><search>Leo"),  # a turn without its result
        lambda gold: gold + "<answer>Rome</answer>",
        lambda gold: gold.replace("<answer>Rome</answer>", "Rome"),
        lambda gold: gold.replace("<answer>", "<answer><answer>"),
        lambda gold: "<information>Eva's friend is Leo.</information>" + gold,
    ],
)
def test_what_the_policy_made_up_earns_nothing(change: Callable[[str], str]) -> None:
    world, example = Search(), make_example()
    found = scores(world, example, change(world.gold(example)))
    assert (found["correct"], found["format"]) == (0, 0)


def test_junk_strikes_all_members_of_a_group_alike_and_held_out_in_every_run() -> None:
    example = make_example()
    query = "<search>Eva's friend</search>"
    met = {seed: [Search({"junk": 0.5}, seed).respond(example, query) for _ in range(3)] for seed in range(40)}
    assert all(len(set(answers)) == 1 for answers in met.values())
    assert len({answers[0] for answers in met.values()}) > 1
    for example in Search().examples("heldout", 5, 0, "easy"):
        assert len({Search({"junk": 0.5}, seed).respond(example, query) for seed in range(20)}) == 1


def test_junk_holds_no_evidence_and_the_expert_asks_again() -> None:
    world = Search({"junk": 0.4, "hits": 1})
    for example in world.examples("train", 60, 0, "medium"):
        try:
            gold = world.gold(example)
        except LookupError:
            continue
        replay = replay_episode(world, example, gold)
        assert scores(world, example, gold)["evidence"] == 1
        for turn in replay.turns[:-1]:
            assert not (turn.step.facts["junk"] and turn.step.facts["evidence"])
            assert len(turn.step.facts["hits"]) == 1


def test_a_search_loses_one_sentence_for_all_members_of_a_group_and_the_expert_asks_again() -> None:
    example, query = make_example(), "<search>Eva's friend</search>"
    shown = {"<information>Eva's friend is Leo.</information>", "<information>Leo's friend is Eva.</information>"}
    met = {seed: {Search({"missing": 1.0}, seed).respond(example, query) for _ in range(3)} for seed in range(20)}
    assert all(len(answers) == 1 for answers in met.values())
    assert set.union(*met.values()) == shown
    assert Search({"missing": 1.0, "hits": 1}).respond(example, query) == "<information>nothing</information>"
    assert Search({"missing": 1.0}).respond(example, "<search>?</search>") == "<information>nothing</information>"
    losses = 0
    for one in Search().examples("train", 30, 0, "easy"):
        world = Search({"missing": 0.5})
        try:
            replay = replay_episode(world, one, world.gold(one))
        except LookupError:
            continue
        losses += sum("lost" in turn.step.facts for turn in replay.turns)
        assert world.outcome(one, replay.state)["policy"]["evidence"] == 1
        assert all(turn.step.facts["lost"] not in turn.step.facts["hits"] for turn in replay.turns if "lost" in turn.step.facts)
    assert losses > 5


def test_the_last_turn_is_not_answered_by_the_world() -> None:
    world, example = Search(), make_example()
    text = world.gold(example).partition("<answer>")[0]
    assert world.respond(example, text.rpartition("<information>")[0]) == "<information>Leo's city is Rome. Leo's friend is Eva.</information>"
    assert world.respond(example, "<answer>Rome</answer>") is None


HARDEST = {"hits": 4, "hops": 2, "distractors": 3, "ambiguous": 1.0}


def test_options_that_are_off_change_no_example() -> None:
    spelled = {"hits": 2, "junk": 0.0, "hops": 0, "distractors": 0, "ambiguous": 0.0}
    assert Search(spelled).examples("train", 20, 0, "easy") == Search().examples("train", 20, 0, "easy")
    assert Search(spelled).cache_key == "search"


def test_of_two_people_the_question_says_which_is_meant() -> None:
    world, told = Search({"ambiguous": 1.0}), 0
    for example in world.examples("train", 60, 0, "easy"):
        found = re.fullmatch(r"What is the (\w+) of the (\w+) \((\w+): (\w+)\) of (\w+)\?", example.prompt[0].content)
        if found is None:  # nothing but what is asked tells the two apart
            continue
        asked, relation, mark, value, person = found.groups()
        facts = read_facts(example)
        meant = [one for one in facts.values(person, relation) if facts.value(one, mark) == value]
        assert len(facts.values(person, relation)) == 2
        assert asked != mark
        assert [facts.value(one, asked) for one in meant] == [example.reference]
        told += 1
    assert told > 50
    share = sum("(" in example.prompt[0].content for example in Search({"ambiguous": 0.5}).examples("train", 200, 0, "medium")) / 200
    assert 0.4 < share < 0.6


def test_distractors_stand_beside_what_is_needed_and_never_before_it() -> None:
    world = Search({"distractors": 2})
    for example in world.examples("train", 20, 0, "medium"):
        facts = read_facts(example)
        for number in example.data["evidence"]:
            fact = facts.facts[number]
            beside = [other for other in facts.facts if other.subject == fact.subject and other.relation.endswith(f" {fact.relation}")]
            assert len(beside) == 2
            assert all(other.value != fact.value for other in beside)
            assert facts.engine.search(f"{fact.subject}'s {fact.relation}", 1) == [number]


def test_the_longest_episode_of_any_options_fits_the_tiny_policy() -> None:
    world = Search(HARDEST)
    family = tiny.find_family(world)
    tokenizer = tiny.build_tokenizer(family.texts, family.tags)
    for example in world.examples("train", 50, 0, "hard"):
        gold = world.gold(example)
        assert scores(world, example, gold) == {"correct": 1, "format": 1, "evidence": 1, "useful": 1}
        assert len(chat_ids(tokenizer, [example.prompt])[0]) + len(tokenizer.encode(gold, add_special_tokens=False)) < tiny.CONTEXT


def test_two_people_need_two_hits() -> None:
    with pytest.raises(SpecError) as refused:
        load_chosen_task(TaskChoice(name="search", options={"hits": 1, "ambiguous": 0.5}))
    assert [problem.field for problem in refused.value.problems] == ["task.options.ambiguous"]


def test_a_search_that_fails_finds_nothing_and_the_expert_asks_again() -> None:
    world, failed = Search({"failures": 0.4}), 0
    for example in world.examples("train", 40, 0, "easy"):
        try:
            gold = world.gold(example)
        except LookupError:
            continue
        for turn in replay_episode(world, example, gold).turns[:-1]:
            assert ("error" in turn.step.facts) == (turn.step.text == "<information>failed</information>")
            failed += "error" in turn.step.facts
        assert scores(world, example, gold)["correct"] == 1
    assert failed > 5


def test_an_example_can_bring_a_junk_rate_of_its_own() -> None:
    world, example = Search({"junk": 0.0}), make_example()
    noisy = Example(example.prompt, example.reference, {**example.data, "junk": 1.0})
    assert "Leo" in str(world.respond(example, "<search>Eva's friend</search>"))
    assert world.respond(noisy, "<search>Eva's friend</search>") == Search({"junk": 1.0}).respond(noisy, "<search>Eva's friend</search>")
    assert replay_episode(world, noisy, "<search>Eva's friend</search>").turns[0].step.facts["junk"]


def test_the_frozen_reader_is_right_where_it_has_all_it_needs() -> None:
    world = Search({"reader": True})
    for example in world.examples("train", 20, 0, "medium"):
        gold = world.gold(example)
        assert gold.endswith("<answer></answer>")
        assert scores(world, example, gold)["correct"] == 1
        assert world.answer_as_reader(example, example.data["evidence"]) == example.reference
        assert replay_episode(world, example, "<answer>anything</answer>").state["answer"] == world.answer_as_reader(example, [])
    guesses = [world.answer_as_reader(example, []) == example.reference for example in world.examples("train", 300, 0, "medium")]
    assert 0.1 < sum(guesses) / 300 < 0.25


def test_what_the_reader_knows_needs_no_search() -> None:
    example = make_example()
    assert Search({"reader": True, "known": 1.0}).answer_as_reader(example, []) == "Rome"
    world = Search({"reader": True, "known": 0.5})
    right = [world.answer_as_reader(one, []) == one.reference for one in world.examples("train", 300, 0, "easy")]
    assert 0.3 < sum(right) / 300 < 0.7
    assert [world.answer_as_reader(example, []) for _ in range(3)] == [world.answer_as_reader(example, [])] * 3
    with pytest.raises(SpecError) as refused:
        load_chosen_task(TaskChoice(name="search", options={"known": 0.5}))
    assert [problem.field for problem in refused.value.problems] == ["task.options.known"]


def test_demonstrations_for_a_reader_stop_search_on_or_stop_too_early() -> None:
    world, rng, counts = Search({"reader": True}), random.Random(0), []
    for example in world.examples("train", 200, 0, "medium"):
        text = "".join(said.text for said in world.turns(example, rng))
        replay = replay_episode(world, example, text)
        assert (replay.done, replay.rest) == (True, "")
        counts.append(len(replay.turns) - 1 - len(example.data["evidence"]))
    shares = [sum(count < 0 for count in counts), sum(count == 0 for count in counts), sum(count > 0 for count in counts)]
    assert [round(share / 200, 1) for share in shares] == pytest.approx([0.2, 0.4, 0.4], abs=0.11)
