"""The world ``interview`` about a stance and about intents: what moves the receiver, and what the gate lets through."""

import pytest

from tests.trainers.worlds.test_contract import CONTRACT
from trainers.contract.events import Message
from trainers.tasks.base import Example
from trainers.worlds.base import replay_episode
from trainers.worlds.interview import Interview
from trainers.worlds.interview_intents import compute_path_cosine, read_path
from trainers.worlds.interview_stance import list_evidence, value_stance

CLAIM = {"thing": "trees", "place": "park", "side": "for", "stance": 3, "messages": 3}


def say(*words: str, data: dict[str, object] | None = None) -> tuple[int, bool]:
    """The receiver's stance after these messages, and whether the dialogue is over."""
    world, example = Interview({"about": "stance"}), Example([Message("user", "q")], "", {**CLAIM, **(data or {})})
    text = ""
    for word in words:
        text += f"<say>{word}</say>"
        text += world.respond(example, text) or ""
    replay = replay_episode(world, example, text)
    return replay.state["stance"], replay.done


@pytest.mark.parametrize(
    ("words", "stance"),
    [(["birds"], 4), (["birds", "shade", "quiet"], 6), (["birds", "birds"], 4), (["mud"], 2), (["birds", "leaves"], 3), (["safety", "x" * 500], 3)],
)
def test_new_evidence_on_the_claim_moves_the_receiver(words: list[str], stance: int) -> None:
    assert say(*words)[0] == stance


def test_a_dialogue_ends_with_its_last_message_and_the_scale_has_ends() -> None:
    assert [say(*["birds"] * count)[1] for count in (1, 2, 3)] == [False, False, True]
    assert say("birds", data={"stance": 7, "messages": 1}) == (7, True)
    assert say("mud", data={"stance": 1, "messages": 1}) == (1, True)
    assert [value_stance("for", 3), value_stance("against", 3)] == [3, 5]


def test_held_out_claims_are_never_trained_on() -> None:
    world = Interview({"about": "stance"})
    claims = {
        split: {(one.data["thing"], one.data["place"]) for one in world.examples(split, 60, 1, "easy")} for split in ("train", "pairs", "heldout")
    }
    assert not claims["heldout"] & (claims["train"] | claims["pairs"])
    assert {thing for thing, _ in claims["heldout"]} == {thing for thing, _ in claims["train"]}
    assert len(claims["heldout"]) == 4
    with pytest.raises(ValueError, match="no difficulty"):
        world.examples("train", 1, 0, "impossible")


def test_evidence_for_and_against_are_different_words() -> None:
    evidence = list_evidence("trees", "park")
    assert not set(evidence["for"]) & set(evidence["against"])
    assert all(len(words) == 3 for words in evidence.values())


@pytest.mark.parametrize(
    ("one", "other", "cosine"),
    [
        (("cost", "fares"), ("cost", "fares"), 1.0),
        (("cost",), ("cost", "fares"), 0.5),
        (("cost", "wages"), ("cost", "fares"), 0.5),
        (("time", "night"), ("cost", "fares"), 0.0),
        ((), ("cost",), 0.0),
    ],
)
def test_the_cosine_is_the_share_of_a_common_path(one: tuple[str, ...], other: tuple[str, ...], cosine: float) -> None:
    assert compute_path_cosine(one, other) == compute_path_cosine(other, one) == cosine


def test_a_path_is_read_only_where_it_is_in_the_tree() -> None:
    assert read_path("cost fares") == ("cost", "fares")
    assert [read_path(text) for text in ("fares", "cost night", "", "cost fares now", "Cost")] == [()] * 5


def test_the_gate_turns_away_what_is_repeated_or_irrelevant() -> None:
    world = Interview({"about": "intents"})
    data = {"topic": "trains", "hidden": [["cost", "fares"], ["time", "night"]]}
    example = Example([Message("user", "q")], "start", data)
    text, replies = "", []
    for question in ("cost fares", "cost fares", "cost", "people staff", "time night"):
        text += f"<ask>{question}</ask>"
        replies.append(world.respond(example, text))
        text += replies[-1] or ""
    said = [str(reply).removeprefix("<information>").removesuffix("</information>") for reply in replies]
    assert said == ["noted", "asked already", "not relevant", "not relevant", "noted"]
    scores = {name: reward.function(f"{text}<answer>start</answer>", example) for name, reward in world.rewards.items()}
    assert scores == {"correct": 1.0, "hits": 1.0, "thrift": 0.4, "fresh": 0.8, "format": 1.0}
    facts = [turn.step.facts for turn in replay_episode(world, example, text).turns]
    assert [(fact["content"], fact["repeats"], fact["beside"], fact["form"]) for fact in facts][:3] == [
        (1.0, False, False, 1.0),
        (0.0, True, False, 1.0),
        (0.0, False, True, 0.5),
    ]


@pytest.mark.parametrize("about", ["stance", "intents"])
def test_it_keeps_the_contract_with_words_of_its_own(about: str) -> None:
    for check in CONTRACT:
        check(Interview({"about": about}))
    assert Interview({"about": about}).family != Interview().family == Interview({"gate": True}).family
