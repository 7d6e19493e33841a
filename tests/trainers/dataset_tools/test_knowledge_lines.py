"""Sentences of commonsense before the question, by rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainers.contract.dataset_tools.application import apply_tool, load_tool
from trainers.contract.dataset_tools.knowledge_lines import WORDS
from trainers.contract.problems import SpecError
from trainers.tasks.mini_gsm import GAINS, LOSSES

STORY = "Mia has 3 apples, buys 5, gives away 1, buys 2. How many?"


def made_from(prompt, **config):
    (outcome,) = apply_tool(load_tool("fin-ally", config), [{"prompt": prompt, "completion": "x", "extra": 1}], "completion", 0)
    return outcome.made[0].row["prompt"] if outcome.made else None, outcome


def test_the_words_of_a_story_bring_their_sentences_once_and_in_the_order_of_the_rules():
    prompt, outcome = made_from(STORY)
    assert prompt == f"What is bought is added to what was there. What is given away is taken from what was there.\n{STORY}"
    assert outcome.made[0].row | {"prompt": STORY} == {"prompt": STORY, "completion": "x", "extra": 1}
    assert set(WORDS) == {*GAINS, *LOSSES}


def test_the_last_message_of_the_user_is_the_question():
    before = [{"role": "system", "content": "It rains."}, {"role": "user", "content": "It rains."}, {"role": "user", "content": "Will it RAIN?"}]
    prompt, _ = made_from([*before, {"role": "tool", "content": "rain"}], rules=["rain: Take a coat."])
    assert [message["content"] for message in prompt] == ["It rains.", "It rains.", "Take a coat.\nWill it RAIN?", "rain"]
    assert before[2]["content"] == "Will it RAIN?"


@given(st.text(max_size=40), st.text(alphabet="ab.*+[(\\ ", min_size=1, max_size=6).filter(str.strip))
def test_a_word_is_a_word_and_no_pattern(question, word):
    prompt, _ = made_from(f"{question} {word.strip()} ", rules=[f"{word}: Known."])
    assert prompt.startswith("Known.\n")
    untouched, outcome = made_from("nothing", rules=[f"{word}: Known."])
    assert untouched == "nothing"
    assert outcome.made[0].note == "no rule applies: left as it is"


def test_a_word_inside_another_is_not_meant():
    assert made_from("brainy trains", rules=["rain: Known."], keep_others=False)[1].dropped == "prompts with none of the words"


@pytest.mark.parametrize("prompt", [[], [{"role": "system", "content": "buys"}], [{"role": "user", "content": None}], None, 3])
def test_prompts_without_a_question_are_dropped(prompt):
    assert made_from(prompt)[1].dropped == "prompts without a question of the user"


@pytest.mark.parametrize("rules", [["no colon"], [": sentence"], ["word: "], [], ["a: b"] * 101])
def test_rules_that_cannot_be_read_are_refused(rules):
    with pytest.raises(SpecError) as refused:
        load_tool("fin-ally", {"rules": rules})
    assert refused.value.problems[0].field.startswith("config.rules")
