"""BatCoder: what documents and rebuilds are paid, and which are compared with which."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from trainers.adapters.added_rows import build_row_batch, spread_members
from trainers.methods.worlds.batcoder import AGREEMENT, IMPLEMENTER, BatCoder, Config, copies_code, grade_structure, reward_document
from trainers.policies.sampling import Sampler
from trainers.worlds.list_programs import OPERATIONS, draw_program, write_document, write_program
from trainers.worlds.programs import Programs, read_stored_program

OPTIONS = {"write": "both"}


def test_the_worked_example():
    rewards = torch.tensor([reward_document(grade, [value]) for value, grade in zip([0.8, 0.8, 0.3, 0.6], [1, 0.5, 1, 0], strict=True)])
    assert rewards.tolist() == pytest.approx([0.8, 0.4, 0.3, 0])
    advantages = (rewards - rewards.mean()) / rewards.std(correction=0)
    assert advantages.tolist() == pytest.approx([1.4853, 0.0874, -0.2621, -1.3106], abs=1e-4)
    assert reward_document(1, []) == 0


@pytest.mark.parametrize(
    ("words", "grade"),
    [
        ("turn round, then 3 more each", 1),
        ("turn round, then something", 0.5),
        ("something", 0),
        ("reverse", 0),
        ("turn round, then reverse", 0),
        ("", 0),
        (None, 0),
    ],
)
def test_a_document_is_sound_where_its_parts_tell_something(words, grade):
    assert grade_structure(words) == grade


@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_right_words_are_sound_and_code_is_not(rng, count):
    program = draw_program(rng, list(OPERATIONS), count)
    assert grade_structure(write_document(program)) == 1
    assert copies_code(write_program(program))
    assert grade_structure(write_program(program)) == 0


def play_group(make_session, monkeypatch, documents, rebuild, **config):
    """A batch of two programs, four documents each; ``rebuild(number, example)`` is a rebuild's text."""
    world = Programs(OPTIONS)
    session = make_session(world)
    method = BatCoder(Config(rebuilds=2, **config))
    method.prepare(session.run)
    session.examples = method.data(session.examples, session.run)
    session.prompts = [list(example.prompt) for example in session.examples]
    counts = {"document": 0, "rebuild": 0}

    def sample_turn(self, made):
        for completion in made:
            is_rebuild = "Code for" in self.tokenizer.decode(completion.prompt_ids)
            number = counts["rebuild" if is_rebuild else "document"]
            counts["rebuild" if is_rebuild else "document"] += 1
            text = rebuild(number) if is_rebuild else documents(session.examples[number], number)
            ids = self.tokenizer.encode(text, add_special_tokens=False) + [self.tokenizer.eos_token_id] * (not text.endswith("</code>"))
            completion.add("assistant", ids, [-0.5] * len(ids), [0.5] * len(ids))

    monkeypatch.setattr(Sampler, "sample_turn", sample_turn)
    episodes = method.rollout(session)
    compiled = [session.compile(one) for one in episodes]
    firsts, added = [first.row for first, _ in compiled], [(place, row) for place, (_, further) in enumerate(compiled) for row in further]
    width = max(len(row.ids) for row in firsts)
    mask = torch.tensor([row.mask + [0] * (width - len(row.mask)) for row in firsts], dtype=torch.float32)
    notes = [dict(first.notes) for first, _ in compiled]
    batch = rollout_batch([0.0] * 8, 4, mask=mask, ids=torch.zeros_like(mask, dtype=torch.long), texts=["x" * width] * 8, notes=notes)
    return session, method, batch, build_row_batch(batch, firsts, added)


def write_words(example, number):
    """The second document of a group copies the code, the others are right."""
    program = read_stored_program(example)
    return f"<answer>{write_program(program) if number % 4 == 1 else write_document(program)}</answer>"


def test_rebuilds_are_further_rows_compared_within_their_document(make_session, monkeypatch):
    session, method, batch, rows = play_group(
        make_session, monkeypatch, write_words, lambda number: "<code>head</code>" if number % 2 else "<code>nothing</code>"
    )
    assert rows.seats == ["policy"] * 8 + [IMPLEMENTER] * 12
    assert rows.members.tolist()[8:] == [member for member in range(8) if member % 4 != 1 for _ in range(2)]
    scores = [row.leaf.notes[AGREEMENT] for row in rows.rows[8:]]
    assert scores[::2] == [0.0] * 6
    made = method.row_advantages(rows, spread_members(torch.arange(8.0), rows))
    assert torch.equal(made[:8], spread_members(torch.arange(8.0), rows)[:8])
    for place in range(8, 20, 2):
        worse, better = (made[at][rows.mask[at] > 0].unique().tolist() for at in (place, place + 1))
        assert (worse, better) == ([0], [0]) if scores[place - 7] == 0 else worse[0] == -better[0] < 0
    rewards = method.rewards(batch, torch.full((8,), 9.0))
    assert rewards[1] == rewards[5] == 0
    assert rewards[0] == pytest.approx(scores[1] / 2)
    assert method.collect()["copied"] == 0.25
    assert all(prompt[0].content.startswith("Words for ") for prompt in session.prompts)
    alone = BatCoder(Config(documenter=False)).row_advantages(rows, spread_members(torch.arange(8.0), rows))
    assert (alone[:8] == 0).all()
    assert torch.equal(alone[8:], made[8:])


def test_a_rebuild_from_right_words_agrees_and_an_unsound_batch_has_no_rebuilds(make_session, monkeypatch):
    programs = []

    def remember(example, number):
        programs.append(read_stored_program(example))
        return write_words(example, 0)

    def rebuild(number):
        return f"<code>{write_program(programs[number // 2])}</code>"

    _, method, batch, _ = play_group(make_session, monkeypatch, remember, rebuild)
    assert method.rewards(batch, batch.reward).tolist() == [1] * 8
    _, method, batch, rows = play_group(make_session, monkeypatch, lambda example, number: "<answer>what</answer>", rebuild)
    assert method.rewards(batch, batch.reward).tolist() == [0] * 8
    assert len(rows.rows) == 8
    assert "agreement" not in method.collect()


def test_both_kinds_of_prompts_earn_what_they_ask_for():
    world = Programs(OPTIONS)
    found = world.examples("train", 60, 0, "easy")
    asked = [example for example in found if world.is_documentation(example)]
    assert 15 < len(asked) < 45
    for example in found:
        assert world.rewards["correct"].function(world.gold(example), example) == 1
        assert example.prompt[0].content.startswith("Words for " if example in asked else "Code for ")
    plain = Programs().examples("train", 20, 0, "easy")
    assert not any("writes" in example.data for example in plain)


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    def sample_turn(self, made):
        for place, completion in enumerate(made):
            is_rebuild = "Code for" in self.tokenizer.decode(completion.prompt_ids)
            text = ("<code>head</code>" if place % 2 else "<code>last</code>") if is_rebuild else "<answer>keep the front one</answer>"
            ids = self.tokenizer.encode(text, add_special_tokens=False) + [self.tokenizer.eos_token_id] * (not is_rebuild)
            completion.add("assistant", ids, [-0.5] * len(ids), [0.5] * len(ids))

    monkeypatch.setattr(Sampler, "sample_turn", sample_turn)
    options = {"policy": {"kind": "tiny", "cold_start": False}, "training__max_completion_length": 40, "training__prompts": 8}
    trained = two_steps("batcoder", {"rebuilds": 2}, base="dapo", task={"name": "programs", "difficulty": "easy", "options": OPTIONS}, **options)
    assert all(step["rollouts/rows"] == 3 for step in trained.steps)
    assert all(0 <= step["batcoder/agreement"] <= 1 for step in trained.steps)
