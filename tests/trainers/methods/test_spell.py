"""SPELL: what three seats are paid, which questions are asked, and with whom each row is compared."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.turn_scripts import script_turns
from trainers.adapters.added_rows import build_row_batch, spread_members
from trainers.maths.votes import find_majority, is_worth_training, reward_responder, reward_votes
from trainers.methods.worlds.spell import BAD_FORMAT, BAD_GROUND, QUESTIONER, REWARD, VERIFIER, Config, Spell, read_vote, reward_questioner
from trainers.policies.sampling import Sampler
from trainers.worlds.graph_questions import GraphQuestions

OPTIONS = {"ask": "answer", "in_context": True}


def test_the_worked_example():
    assert reward_questioner(0.5, "gaussian") == 1
    assert reward_questioner(0.25, "gaussian") == reward_questioner(0.75, "gaussian") == pytest.approx(0.3247, abs=1e-4)
    assert reward_questioner(1.0, "gaussian") == reward_questioner(0.0, "gaussian") == 0
    assert (reward_questioner(0.25, "reverse"), reward_questioner(0.25, "distance")) == (0.75, 0.5)
    votes = [1, 1, 1, 0, 1, -1, 1, 1]
    assert find_majority(votes) == 1
    assert reward_votes(votes) == [1, 1, 1, 0, 1, -1, 1, 1]
    assert is_worth_training(votes, True)
    assert not is_worth_training(votes, False)
    assert not is_worth_training([1] * 8, True)
    assert not is_worth_training([1, 0], True)


def test_a_majority_can_save_an_answer_and_never_spoil_it():
    assert [reward_responder(rule, majority) for rule, majority in ((False, 1), (True, 0), (False, 0), (True, -1), (False, -1))] == [1, 1, 0, 1, 0]


@given(st.floats(0, 1), st.sampled_from(["gaussian", "reverse", "distance"]))
def test_questions_that_are_asked_pay_more_than_those_that_are_not(success, kind):
    assert BAD_FORMAT < BAD_GROUND < 0 <= reward_questioner(success, kind) <= 1


@given(st.lists(st.sampled_from([-1, 0, 1]), max_size=8))
def test_the_majority_is_as_frequent_as_any_vote(votes):
    assert all(votes.count(find_majority(votes)) >= votes.count(vote) for vote in votes)
    assert all(reward == (-1 if vote == -1 else vote == find_majority(votes)) for vote, reward in zip(votes, reward_votes(votes), strict=True))


def test_votes_are_read_by_their_words():
    assert [read_vote(text) for text in ("<answer>yes</answer>", "<answer>no</answer>", "yes", "")] == [1, 0, -1, -1]


def play_batch(make_session, monkeypatch, write_question, vote=lambda number: "yes", **config):
    """Two groups of four: of every four attempts of a responder the first two say the reference. Questions are ``write_question(facts)``."""
    session = make_session(GraphQuestions(OPTIONS), max_tokens=160)
    method = Spell(Config(**config))
    method.prepare(session.run)
    slots = {id(example): slot for example, slot in zip(session.examples, method.data(session.examples, session.run), strict=True)}
    session.examples = [slots[id(example)] for example in session.examples]
    counts = dict.fromkeys(("write", "blind", "answer", "vote"), 0)

    def answer(prompt):
        kind = "write" if prompt.startswith("Ask.") else "vote" if prompt.startswith("Same:") else "answer" if "?" in prompt[:-1] else "blind"
        number = counts[kind]
        counts[kind] += 1
        if kind == "write":
            return write_question(prompt.split("? ")[-1].removeprefix("Ask. "))
        if kind == "vote":
            return vote(number)
        return session.examples[number % 8].reference if kind == "answer" and number % 4 < 2 else "none"

    def sample_turn(self, made):
        for completion in made:
            prompt = self.tokenizer.decode(completion.prompt_ids).split("user\n")[1].split("<|im_end|>")[0]
            ids = [*self.tokenizer.encode(f"<answer>{answer(prompt)}</answer>", add_special_tokens=False), self.tokenizer.eos_token_id]
            completion.add("assistant", ids, [-0.5] * len(ids), [0.5] * len(ids))

    monkeypatch.setattr(Sampler, "sample_turn", sample_turn)
    return session, method, method.rollout(session), counts


def ask_simply(facts):
    """About the first feature among the facts."""
    value, relation, who = next(fact.split() for fact in facts.rstrip(".").split(". ") if fact.split()[1] in ("houses", "employs"))
    return f"What is the {'city' if relation == 'houses' else 'job'} of {who}? {value}"


def compile_rows_of(session, episodes):
    compiled = [session.compile(one) for one in episodes]
    firsts, added = [first.row for first, _ in compiled], [(place, row) for place, (_, further) in enumerate(compiled) for row in further]
    width = max(len(row.ids) for row in firsts)
    mask = torch.tensor([row.mask + [0] * (width - len(row.mask)) for row in firsts], dtype=torch.float32)
    more = {"ids": torch.zeros_like(mask, dtype=torch.long), "texts": ["x" * width] * len(firsts), "notes": [dict(one.notes) for one, _ in compiled]}
    batch = rollout_batch([0.0] * len(firsts), session.group_size, mask=mask, **more)
    return batch, build_row_batch(batch, firsts, added)


def test_three_seats_have_rows_of_their_own(make_session, monkeypatch):
    def vote(number):
        return "yes" if number % 4 else "no"

    session, method, episodes, counts = play_batch(make_session, monkeypatch, ask_simply, vote=vote, votes=4, verifier_share=0.5)
    logged = method.collect()
    assert (counts["write"], counts["blind"], counts["answer"], counts["vote"]) == (2, 2, 8, 32)
    assert (logged["valid"], logged["needed"], logged["reference_right"], logged["success"]) == (1, 1, 1, 1)  # votes say yes to all
    batch, rows = compile_rows_of(session, episodes)
    assert sorted(rows.seats[8:]) == [QUESTIONER] * 2 + [VERIFIER] * 4  # of one answer the votes
    assert method.rewards(batch, torch.zeros(8)).tolist() == [1] * 8
    made = method.row_advantages(rows, spread_members(torch.arange(8.0), rows))
    assert torch.equal(made[:8], spread_members(torch.arange(8.0), rows)[:8])
    for place in range(8, len(rows.rows)):
        own = made[place][rows.mask[place] > 0].unique()
        assert len(own) == 1
        if rows.seats[place] == QUESTIONER:
            assert own.item() == 0  # all questions of the batch earn the same
    votes = [(rows.rows[place].leaf.notes[REWARD], made[place].abs().max() * made[place].sum().sign()) for place in range(8, len(rows.rows))]
    votes = sorted(pair for place, pair in enumerate(votes, 8) if rows.seats[place] == VERIFIER)
    assert all((one[0] < other[0] and one[1] < other[1]) or one[0] == other[0] for one, other in pairwise(votes))
    given_up = [node for episode in episodes for node in episode.nodes if node.seat == VERIFIER and node.fate == "abandoned"]
    assert len(given_up) == 28 + 7


def test_a_question_that_needs_no_facts_or_cannot_be_read_is_tried_again(make_session, monkeypatch):
    tries = iter(["no question at all", None, None, None])

    def write_question(facts):
        return next(tries) or ask_simply(facts)

    session, method, episodes, counts = play_batch(make_session, monkeypatch, write_question, votes=1)
    logged = method.collect()
    assert counts["write"] == 3
    assert (logged["valid"], logged["bad_format"], logged["bad_ground"]) == pytest.approx((2 / 3, 1 / 3, 0))
    _, rows = compile_rows_of(session, episodes)
    rewards = [row.leaf.notes[REWARD] for row in rows.rows if row.seat == QUESTIONER]
    assert sorted(rewards) == [BAD_FORMAT, 0, 0]
    made = method.row_advantages(rows, spread_members(torch.zeros(8), rows))
    questioners = [made[place].sum().item() for place, row in enumerate(rows.rows) if row.seat == QUESTIONER]
    assert sum(value > 0 for value in questioners) == 2


def test_without_any_question_nothing_is_trained(make_session, monkeypatch):
    session, method, episodes, counts = play_batch(make_session, monkeypatch, lambda facts: "nothing", tries=2)
    assert (counts["write"], counts["vote"]) == (4, 0)
    assert all(episode.notes["filtered"] for episode in episodes)
    batch, rows = compile_rows_of(session, episodes)
    assert rows.seats == ["policy"] * 8
    assert method.rewards(batch, torch.ones(8)).tolist() == [0] * 8


def test_an_answer_known_without_the_facts_is_no_question(make_session, monkeypatch):
    monkeypatch.setattr(Spell, "answer_without_facts", lambda self, session, asked: {id(one) for one in asked})
    _, method, episodes, _ = play_batch(make_session, monkeypatch, ask_simply, tries=1)
    assert method.collect()["bad_ground"] == 1
    assert all(episode.notes["filtered"] for episode in episodes)


def test_solved_questions_are_remembered_with_their_facts_and_these_grow(make_session, monkeypatch):
    session, method, _, _ = play_batch(make_session, monkeypatch, ask_simply, votes=1, memory=2)
    before = method.collect()["documents"]
    for _ in range(3):
        method.rollout(session)
    names = [name for name in session.store.lists if name.startswith("spell/")]
    assert len(names) == 2
    assert all(session.store.size(name) == 2 for name in names)
    request = method.build_request(session, session.examples[0])
    assert request.prompt[0].content.count("Not: ") == 2
    assert method.collect()["documents"] > before


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    def write(number, text):
        return ("<answer>What is the city of Mia? Rome</answer>", "<answer>yes</answer>", "<answer>Rome</answer>", "<answer>no</answer>")[number % 4]

    script_turns(monkeypatch, write)
    monkeypatch.setattr(Spell, "answer_without_facts", lambda self, session, asked: set())
    options = {"policy": {"kind": "tiny", "cold_start": False}, "training__max_completion_length": 64, "training__prompts": 8}
    task = {"name": "graph_questions", "difficulty": "easy", "options": OPTIONS}
    trained = two_steps("spell", {"votes": 4}, base="dapo", task=task, **options)
    assert any(step.get("rollouts/tokens/questioner", 0) > 0 for step in trained.steps)
    assert all("spell/valid" in step for step in trained.steps)
