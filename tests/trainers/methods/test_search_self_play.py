"""Search self-play: what both seats are paid, which questions enter, and whose tokens are trained with what."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.batches import rollout_batch
from tests.trainers.methods.turn_scripts import script_turns
from trainers.adapters.added_rows import build_row_batch, spread_members
from trainers.methods.question_slots import QuestionSlot
from trainers.methods.worlds.search_self_play import PROPOSER, QUESTIONS, REWARD, Config, SearchSelfPlay, reward_proposer
from trainers.rollouts.adoption import adopt_episode
from trainers.worlds.graph_questions import GraphQuestions

WORLD = {"ask": "answer"}


def test_the_worked_example():
    assert reward_proposer(3 / 5, "failure") == pytest.approx(0.4)
    assert reward_proposer(3 / 5, "intermediate") == pytest.approx(0.96)
    assert reward_proposer(1.0, "intermediate") == reward_proposer(0.0, "intermediate") == 0


@given(st.floats(0, 1))
def test_harder_questions_never_pay_less_and_rewards_stay_in_bounds(success):
    assert 0 <= reward_proposer(success, "intermediate") <= 1
    assert reward_proposer(success, "failure") == 1 - success >= reward_proposer(1.0, "failure")


def ask_well(text):
    """The question of no edges that a request's facts answer."""
    answer = text.split("Ask for ")[1].split(".")[0]
    _, relation, who = next(one.rstrip(".").split() for one in text.split(". ")[1:] if one.startswith(f"{answer} "))
    return f"What is the {'city' if relation == 'houses' else 'job'} of {who}?"


def play_session(make_session, monkeypatch, write_question, config=None):
    """One batch of two groups: the proposer writes ``write_question(request)``, every other attempt of a solver is right."""
    session = make_session(GraphQuestions(WORLD))
    method = SearchSelfPlay(Config(**(config or {})))
    method.prepare(session.run)
    slots = {id(example): slot for example, slot in zip(session.examples, method.data(session.examples, session.run), strict=True)}
    session.examples = [slots[id(example)] for example in session.examples]
    monkeypatch.setattr("trainers.policies.sampling.Sampler.sample_turn", write_turns_of(session, write_question))
    return session, method, method.rollout(session)


def write_turns_of(session, write_question):
    """A proposer is recognised by its prompt; solvers answer with the reference of their row, or not."""
    seen = [0]

    def sample_turn(self, made):
        for completion in made:
            prompt = self.tokenizer.decode(completion.prompt_ids)
            if "Ask for" in prompt:
                text = f"<answer>{write_question(prompt.split('user')[1].split('<|im_end|>')[0].strip())}</answer>"
            else:
                slot = session.examples[seen[0] % len(session.examples)]
                text = f"<answer>{slot.reference if seen[0] % 2 else 'none'}</answer>"
                seen[0] += 1
            ids = [*self.tokenizer.encode(text, add_special_tokens=False), self.tokenizer.eos_token_id]
            completion.add("assistant", ids, [-0.5] * len(ids), [0.5] * len(ids))

    return sample_turn


def compile_batch(session, episodes):
    compiled = [session.compile(one) for one in episodes]
    firsts, added = [first.row for first, _ in compiled], [(place, row) for place, (_, further) in enumerate(compiled) for row in further]
    width = max(len(row.ids) for row in firsts)
    mask = torch.tensor([row.mask + [0] * (width - len(row.mask)) for row in firsts], dtype=torch.float32)
    scores = [first.scores["correct"] for first, _ in compiled]
    rollout = rollout_batch(scores, session.group_size, mask=mask, ids=torch.zeros_like(mask, dtype=torch.long), texts=["x" * width] * len(firsts))
    return rollout, build_row_batch(rollout, firsts, added)


def test_a_valid_question_is_asked_of_the_group_and_its_failure_is_paid(make_session, monkeypatch):
    session, method, episodes = play_session(make_session, monkeypatch, ask_well)
    logged = method.collect()
    assert (logged["valid"], logged["success"], logged["hops"], logged["reused"]) == (1, 0.5, 0, 0)
    assert session.store.size(QUESTIONS) == 2
    rollout, batch = compile_batch(session, episodes)
    assert batch.seats == ["policy"] * 8 + [PROPOSER] * 2
    assert batch.members.tolist() == [*range(8), 0, 4]
    made = method.row_advantages(batch, spread_members(torch.arange(8.0), batch))
    for place in (8, 9):
        assert made[place][batch.mask[place] > 0].unique().tolist() == [0.5]
        assert (made[place][batch.mask[place] == 0] == 0).all()
    assert torch.equal(made[:8], spread_members(torch.arange(8.0), batch)[:8])
    assert torch.equal(method.rewards(rollout, torch.full((8,), 7.0)), rollout.correct.float())
    for episode, (slot, prompt) in zip(episodes, zip(session.examples, session.prompts, strict=True), strict=True):
        assert isinstance(slot, QuestionSlot)
        assert episode.example is slot
        assert slot.prompt == prompt
        assert prompt[0].content.startswith("What is the ")


def test_an_unanswerable_question_is_replaced_by_a_stored_one_or_its_group_left_out(make_session, monkeypatch):
    session, method, episodes = play_session(make_session, monkeypatch, lambda request: "Where is Rome?")
    assert all(episode.notes.get("filtered") for episode in episodes)
    assert method.collect()["fault/no_question"] == 1
    world = GraphQuestions({"ask": "write"})
    request = world.examples("train", 1, 0, "easy")[0]
    kept = {"nodes": request.data["nodes"], "question": request.data["gold"], "answer": request.data["answer"]}
    session.store.add(QUESTIONS, kept)
    episodes = method.rollout(session)
    assert not any(episode.notes.get("filtered") for episode in episodes)
    assert {episode.example.prompt[0].content for episode in episodes} == {request.data["gold"]}
    rows = [row for episode in episodes for row in session.compile(episode)[1]]
    assert [row.leaf.notes[REWARD] for row in rows] == [0, 0]
    session.step = 10
    method.rollout(session)
    assert session.store.size(QUESTIONS) == 0


def test_without_the_filter_what_nobody_can_answer_is_asked_and_paid(make_session, monkeypatch):
    written = []

    def ask_beside(request):
        """About the same person and another feature, so that the given answer is wrong."""
        good = ask_well(request)
        written.append(good.replace("city", "job") if "city" in good else good.replace("job", "city"))
        return written[-1]

    _, method, episodes = play_session(make_session, monkeypatch, ask_beside, {"filter": False})
    logged = method.collect()
    assert (logged["valid"], logged["unanswerable"]) == (0, 1)
    assert {episode.example.prompt[0].content for episode in episodes} == set(written)


def test_an_adopted_episode_is_a_side_question_with_its_own_tokens(make_session):
    session = make_session()
    torch.manual_seed(0)
    host, guest = session.begin([0])[0], session.begin_at(session.examples[4])
    leaf, other = session.play([host.root, guest.root])
    before = ([list(node.ids) for node in host.nodes], [list(node.ids) for node in guest.nodes])
    prompt, path = guest.root, guest.path(other)
    adopt_episode(host, guest, host.root, PROPOSER)
    assert [list(node.ids) for node in host.nodes] == [*before[0], *before[1]]
    assert [node.number for node in host.nodes] == list(range(len(host.nodes)))
    assert host.path(other) == path
    assert (prompt.about, host.leaves(), host.side_leaves()) == (host.root.number, [leaf], [other])
    first, (further,) = session.compile(host)
    assert (first.row.leaf, further.leaf, further.seat) == (leaf, other, PROPOSER)


@pytest.mark.training
def test_two_real_steps(two_steps, monkeypatch):
    def write(number, text):
        return "<answer>Rome</answer>" if number % 2 else "<answer>What is the city of Mia?</answer>"

    script_turns(monkeypatch, write)
    options = {"policy": {"kind": "tiny", "cold_start": False}, "training__max_completion_length": 64, "training__prompts": 8}
    task = {"name": "graph_questions", "difficulty": "easy", "options": WORLD}
    trained = two_steps("search-self-play", {"filter": False}, base="dapo", task=task, **options)
    assert all(step["rollouts/rows"] == 1.25 for step in trained.steps)
    assert all(step["rollouts/tokens/proposer"] > 0 for step in trained.steps)
    assert "search-self-play/fault/no_question" in trained.steps[0]
