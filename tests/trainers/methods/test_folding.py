"""Folding: what a new context holds, where it stands in the tree, and that every token is trained once."""

import pytest

from tests.trainers.methods.reading_scripts import OPTIONS, read_to_the_end, script_reading
from trainers.adapters.sft import build_demonstrations
from trainers.methods import folding
from trainers.worlds.reader import Reader


@pytest.fixture
def session(make_session, monkeypatch):
    script_reading(monkeypatch, read_to_the_end)
    return make_session(Reader(OPTIONS), max_tokens=600)


def play(session, decide):
    return folding.play_with_folds(session, [episode.root for episode in session.begin()], decide)


def test_a_context_that_stays_is_the_whole_episode(session):
    whole = session.play([episode.root for episode in session.begin()])
    stays = play(session, lambda node: "stay")
    assert [session.text_of(leaf) for leaf in stays] == [session.text_of(leaf) for leaf in whole]
    assert [leaf.episode.context_ids(leaf) for leaf in stays] == [leaf.episode.context_ids(leaf) for leaf in whole]
    assert {folding.count_contexts(leaf) for leaf in stays} == {1}


def test_a_folded_context_holds_the_question_the_memory_and_the_chunk(session):
    world = session.run.task
    for leaf in play(session, lambda node: "fold"):
        path, example = leaf.episode.path(leaf), leaf.episode.example
        prompts = [node for node in path if node.by == "prompt"]
        assert folding.count_contexts(leaf) == len(prompts) == 4
        for number, prompt in enumerate(prompts[1:], 1):
            memory = prompt.state["memory"]
            part = f"Part {number + 1} of 3: {example.data['chunks'][number]}" if number < 3 else "That is all."
            assert prompt.text == f"{example.data['question']} <memory>{memory}</memory> {part}"
            assert prompt.ids == session.run.prompt_ids([world.write_window(example, prompt.state)])[0]
        assert [node for node in path if node.by == "world"] == []
        folded = [node for node in leaf.episode.nodes if node.by == "world"]
        assert {(node.fate, node.why) for node in folded} == {("abandoned", "folded")}
        assert leaf.episode.leaves() == [leaf]
        assert folding.measure_contexts(leaf)[-1] == folding.measure_context(leaf)


def test_each_token_of_the_policy_is_trained_in_one_row(session):
    for leaf in play(session, lambda node: "fold"):
        first, further = session.compile(leaf.episode)
        rows = [first.row, *further]
        assert [row.place for row in rows] == [0, 1, 2, 3]
        written = [node for node in leaf.episode.path(leaf) if node.by == "policy"]
        assert [row.ids for row in rows] == [node.ids for node in written]
        assert all(all(row.mask) for row in rows)
        assert first.scores == session.outcome(leaf)


def test_an_episode_can_be_ended(session):
    for leaf in play(session, lambda node: "end"):
        assert (leaf.by, leaf.finish, leaf.fate) == ("world", "length", "kept")
        assert not session.is_right(leaf)


def test_demonstrations_are_rows_of_one_context_each_and_as_many_as_were_wanted(session):
    rows = build_demonstrations(session.run.task, 40, 0, "medium", session.run.tokenizer)
    assert len(rows) == 40
    windows = [row for row in rows if "<memory>" in row["prompt"][-1]["content"]]
    assert 10 < len(windows) < 40
    for row in windows:
        trained = [id_ for id_, mine in zip(row["input_ids"], row["completion_mask"], strict=True) if mine]
        assert session.run.tokenizer.decode(trained, skip_special_tokens=True) == row["completion"][0]["content"]
    assert build_demonstrations(session.run.task, 40, 0, "medium", session.run.tokenizer) == rows
