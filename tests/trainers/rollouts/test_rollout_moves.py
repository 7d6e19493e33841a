"""The moves on the tree of an episode, on a policy that calls tools and answers at random."""

import pytest
import torch

from trainers.contract.events import Message
from trainers.maths.weighted_sums import weighted_sum
from trainers.rollouts.compile import compile_leaves, compile_rows, complete_row
from trainers.rollouts.seats import Player
from trainers.rollouts.tree import Node, Place
from trainers.tasks.base import Example, Task
from trainers.worlds.base import replay_episode
from trainers.worlds.search import Search


def roots(session):
    return [episode.root for episode in session.begin()]


def play_all(session, seed=0, **how):
    torch.manual_seed(seed)
    return session.play(roots(session), **how)


def sampled(session, seed=0, **how):
    torch.manual_seed(seed)
    return session.complete(**how)


def test_an_episode_of_one_path_is_the_completion_that_is_sampled_today(make_session):
    session = make_session()
    whole = sampled(session)
    made = session.finish(play_all(session))
    assert made == whole  # ids, masks, turns, numbers, ends and texts
    assert {one.finish_reason for one in whole} >= {"stop"}
    assert any(len(one.turns) > 2 for one in whole)
    for one in made:
        assert len(one.ids) == len(one.mask) == len(one.logprobs) == len(one.entropies)


@pytest.mark.parametrize("room", [6, 20, 40])
def test_it_ends_where_a_completion_ends_when_room_is_short(make_session, room):
    session = make_session(max_tokens=room)
    whole = sampled(session, 1)
    assert session.finish(play_all(session, 1)) == whole
    assert any(one.finish_reason == "length" for one in whole)


def test_a_task_that_is_no_world_is_played_too(make_session):
    class Echo(Task):
        name, title, summary, difficulties, demonstrations = "echo", "Echo", "", {"easy": ""}, ""
        stop, max_turns = ("</search>",), 3
        rewards = {}

        def respond(self, example, text):
            return "<information>Eva</information>" if text.count("</search>") < 3 else None

        def examples(self, *rest):
            return [Example([Message("user", "Eva")], "Leo"), Example([Message("user", "Leo")], "Leo")]

    session = make_session(Echo())
    whole = sampled(session, 2)
    leaves = play_all(session, 2)
    assert session.finish(leaves) == whole
    assert any(len(one.turns) > 1 for one in whole)
    assert [leaf.state["text"] for leaf in leaves if leaf.finish == "stop"] == [one.text for one in whole if one.finish_reason == "stop"]


def test_states_score_as_the_replayed_texts_do(make_session):
    session = make_session()
    world = session.run.task
    for leaf in play_all(session, 3):
        text = session.text_of(leaf)
        replay = replay_episode(world, leaf.episode.example, text)
        assert leaf.state == replay.state
        assert session.outcome(leaf) == {name: reward.function(text, leaf.episode.example) for name, reward in world.rewards.items()}
        assert session.total(leaf) == pytest.approx(weighted_sum(session.outcome(leaf), session.run.attempt.weights))
        turns = leaf.episode.turns(leaf)
        assert [turn[-1].facts for turn in turns] == [turn.step.facts for turn in replay.turns]


def test_a_branch_at_the_root_is_a_new_rollout_with_the_same_randomness(make_session):
    session = make_session()
    root = roots(session)[0]
    torch.manual_seed(5)
    (plain,) = session.play([root])
    other = session.begin([0])[0].root
    torch.manual_seed(5)
    (leaf,) = session.play(session.branch(other, 1, "again"))
    assert [node.ids for node in leaf.episode.path(leaf)] == [node.ids for node in plain.episode.path(plain)]
    assert leaf.episode.path(leaf)[1].why == "again"
    assert leaf.state == plain.state


def test_branches_share_their_prefix_and_train_it_once(make_session):
    session = make_session()
    leaf = next(leaf for leaf in play_all(session, 6) if len(leaf.episode.turns(leaf)) > 1)
    episode = leaf.episode
    world_node = next(node for node in episode.path(leaf) if node.by == "world")
    torch.manual_seed(7)
    leaves = [leaf, *session.play(session.branch(world_node, 3, "entropy +0.31"))]
    assert episode.leaves() == leaves
    assert all(world_node in episode.path(leaf) for leaf in leaves)
    first, *rest = compile_rows(episode)
    shared = len([id_ for node in episode.context(world_node)[1:] for id_ in node.ids])
    for row in rest:
        assert row.ids[:shared] == first.ids[:shared]
        assert not any(row.mask[:shared])
    assert_each_token_is_trained_once(episode.nodes, [first, *rest])
    every = compile_rows(episode, "every")
    assert [row.mask[:shared] for row in every] == [first.mask[:shared]] * 4


def assert_each_token_is_trained_once(nodes: list[Node], rows) -> None:
    counts = {node.number: [0] * len(node.ids) for node in nodes}
    for row in rows:
        before, start = None, 0
        for place, (number, kept) in enumerate(zip(row.nodes, row.mask, strict=True)):
            start = place if number != before else start
            before = number
            counts[number][place - start] += kept
    for node in nodes:
        wanted = int(node.by == "policy" and node.fate == "kept")
        assert counts[node.number] == [wanted] * len(node.ids), node


def test_every_row_holds_what_was_generated_whatever_was_done_to_the_tree(make_session):
    session = make_session()
    leaves = play_all(session, 8)
    episode = next(leaf.episode for leaf in leaves if len(leaf.episode.turns(leaf)) > 2)
    (leaf,) = episode.leaves()
    before = [id_ for node in episode.path(leaf)[1:] for id_ in node.ids]
    torch.manual_seed(9)
    first = episode.turns(leaf)[0][0]
    session.play(session.branch(first, 2, token=1))
    session.play([session.fold(next(node for node in episode.path(leaf) if node.by == "world"), [Message("user", "Eva")])])
    session.ask("policy", [leaf], [[Message("user", "good or bad")]], 2, max_tokens=5)
    assert [id_ for node in episode.path(leaf)[1:] for id_ in node.ids] == before  # splitting a node changes nothing that was seen
    rows = compile_rows(episode)
    assert_each_token_is_trained_once(episode.nodes, rows)
    assert rows[0].ids == before
    assert len(rows) == 1 + 2 + 1 + 2
    for row in rows:
        context = row.leaf.episode.context(row.leaf)
        assert row.prompt_ids == context[0].ids
        assert row.ids == [id_ for node in context[1:] for id_ in node.ids]


@pytest.mark.parametrize("token", [0, 1, 2])
def test_cut_and_the_same_text_again_is_no_cut(make_session, token):
    session = make_session()
    leaf = next(leaf for leaf in play_all(session, 10) if len(leaf.episode.turns(leaf)) > 1)
    plain = complete_row(compile_leaves([leaf], keep_all=True)[0], "")
    episode = leaf.episode
    gone = [node.text for node in episode.path(leaf)]
    at = session.cut(leaf, Place(turn=1, token=token), "first flawed step")
    assert [node.why for node in episode.nodes if node.why] == ["first flawed step"]
    cut = [node for node in episode.nodes if node.fate == "cut"]
    assert sum(len(node.ids) for node in cut) == sum(len(node.ids) for turn in episode.turns(leaf)[1:] for node in turn) + sum(
        len(node.ids) for node in cut if node.by == "world"
    ) - (token if token else 0)
    again = force_what_was_cut(session, at, leaf)
    assert complete_row(compile_leaves([again], keep_all=True)[0], "").ids == plain.ids
    assert again.state == leaf.state
    assert again.finish == leaf.finish
    assert gone[0] == episode.root.text
    assert [one.leaf for one in compile_rows(episode)] == [again]


def force_what_was_cut(session, at, leaf):
    """Writes the turns that were cut once more, as given words."""
    texts = ["".join(node.text for node in turn if node.fate == "cut") for turn in leaf.episode.turns(leaf)]
    for text in filter(None, texts):
        at = session.force(at, text, whole="</answer>" in text)
    return at


def test_cut_by_characters_keeps_whole_tokens_before_the_place(make_session):
    session = make_session()
    leaf = play_all(session, 11)[0]
    at = session.cut(leaf, Place(turn=0, characters=len("<search>") + 1))
    assert at.text == leaf.episode.turns(leaf)[0][0].text
    assert len(at.ids) == 1


def test_likelihood_is_what_playing_says_of_the_same_tokens(make_session):
    session = make_session()
    for leaf in play_all(session, 12):
        path = leaf.episode.path(leaf)
        asked = [(path[place - 1], node) for place, node in enumerate(path) if node.by == "policy"]
        found = session.likelihood([before for before, _ in asked], [node.ids for _, node in asked])
        for (_, node), logprobs in zip(asked, found, strict=True):
            assert logprobs == pytest.approx(node.logprobs, abs=1e-4)


def test_a_turn_pauses_at_a_stop_text_and_goes_on(make_session):
    session = make_session()
    paused = play_all(session, 13, turns=1, stop=("<search>", "<answer>"))
    assert {node.text for node in paused} <= {"<search>", "<answer>"}
    assert not any(node.closed or node.finish for node in paused)
    (leaf,) = session.play([paused[0]])
    assert leaf.finish
    (turn, *_) = complete_row(compile_leaves([leaf])[0], "").turns
    assert turn.role == "assistant"
    assert turn.end - turn.start > 1  # of one turn, though it was written in two pieces


def test_a_turn_pauses_after_so_many_tokens_and_goes_on(make_session):
    session = make_session()
    paused = play_all(session, 13, turns=1, pause=2)
    assert all(len(node.ids) == 2 and not (node.closed or node.finish) for node in paused)
    pieces = session.play(paused, turns=1, pause=2)
    for node, piece in zip(paused, pieces, strict=True):
        path = piece.episode.path(piece)
        assert path[1] is node
        assert [len(one.ids) for one in path if one.by == "policy"] in ([2, 1], [2, 2])
    (leaf,) = session.play([paused[0]])
    first, *_ = complete_row(compile_leaves([leaf])[0], "").turns
    assert first.end - first.start > 2  # of one turn, though it was written in two pieces


def test_a_pause_that_no_turn_reaches_changes_nothing_and_a_full_context_is_no_pause(make_session):
    session = make_session()
    assert session.finish(play_all(session, 13, pause=96)) == session.finish(play_all(session, 13))
    short = make_session(max_tokens=2)
    assert {node.finish for node in play_all(short, 13, pause=2)} == {"length"}


def test_a_right_answer_succeeds_and_nothing_of_it_is_trained(make_session):
    session = make_session()
    first, second = roots(session)[:2]
    (over,) = session.play([second])
    example = first.episode.example
    assert session.success([first], 3, force=f"<answer>{example.reference}</answer>") == [1.0]
    share, certain = session.success([first, over], 4)
    assert share in (0, 0.25, 0.5, 0.75, 1)
    assert certain == session.is_right(over)
    assert {node.fate for node in first.episode.nodes[1:]} == {"abandoned"}
    assert first.episode.leaves() == [first]


def test_a_rule_plays_a_seat_and_is_not_trained(make_session):
    def answer(example, state, rng):
        return f"<answer>{example.reference}</answer>"

    session = make_session(players={"policy": Player("rule", rule=answer, trained=False)})
    for leaf in session.play(roots(session)):
        assert session.is_right(leaf)
        (row,) = compile_rows(leaf.episode)
        assert not row.is_trained


def test_side_questions_are_asked_in_contexts_of_their_own(make_session):
    session = make_session(players={"judge": Player(prompt="You judge.")})
    leaves = play_all(session, 14)
    answers = session.ask("judge", leaves[:2], [[Message("user", "Leo")], [Message("user", "Max")]], 3, max_tokens=4)
    assert [len(found) for found in answers] == [3, 3]
    for leaf, found in zip(leaves, answers, strict=False):
        for node in found:
            prompt, written = leaf.episode.path(node)
            assert prompt.about == leaf.number
            assert prompt.text.startswith("You judge.")
            assert written.finish in ("stop", "length")
            assert 0 < len(written.ids) <= 4
        assert leaf.episode.leaves() == [leaf]
        rows = compile_rows(leaf.episode)
        assert [row.seat for row in rows] == ["policy", "judge", "judge", "judge"]
        assert {row.peers for row in rows} == {f"{leaf.episode.group}/policy", f"{leaf.episode.group}/judge"}


def test_answers_aside_can_begin_with_given_words(make_session):
    session = make_session(players={"judge": Player(trained=False)})
    leaves = play_all(session, 16)[:2]
    torch.manual_seed(17)
    answers = session.ask("judge", leaves, [[Message("user", "Leo")]] * 2, 2, begin=["<answer>", "<search>Eva</search><answer>"])
    for leaf, words, found in zip(leaves, ("<answer>", "<search>Eva</search><answer>"), answers, strict=True):
        prompts = set()
        for node in found:
            prompt, given, written = leaf.episode.path(node)
            prompts.add(prompt.number)
            assert (given.by, given.text, written.by, written.about) == ("forced", words, "policy", None)
            assert not given.trained
            assert not written.trained
            assert written.finish in ("stop", "length")
        assert len(prompts) == 1
        assert leaf.episode.leaves() == [leaf]
    (full,), _ = session.ask("judge", leaves, [[Message("user", "Leo")]] * 2, begin=["Eva " * 50 + "<answer>", "<answer>"], max_tokens=20)
    assert (full.by, full.finish) == ("forced", "length")


def test_a_fold_goes_on_in_a_new_context_with_the_same_world(make_session):
    session = make_session()
    leaf = next(leaf for leaf in play_all(session, 15) if len(leaf.episode.turns(leaf)) > 1)
    world_node = next(node for node in leaf.episode.path(leaf) if node.by == "world")
    session.cut(leaf, Place(turn=1))
    folded = session.fold(world_node, [Message("user", "What was found")])
    assert folded.state == world_node.state
    (end,) = session.play([folded])
    first, second = compile_rows(leaf.episode)
    assert first.ids == world_node.episode.context_ids(world_node)[1]
    assert (first.leaf, second.leaf, first.place, second.place) == (end, end, 0, 1)
    assert second.prompt_ids == folded.ids
    assert end.state["queries"][:1] == world_node.state["queries"]


def test_what_is_over_is_neither_played_nor_branched(make_session):
    session = make_session()
    leaf = play_all(session, 16)[0]
    assert session.play([leaf]) == [leaf]
    with pytest.raises(ValueError, match="ends"):
        session.branch(leaf, 2)
    with pytest.raises(ValueError, match="over"):
        session.fold(leaf, [Message("user", "more")])
    with pytest.raises(IndexError):
        session.cut(leaf, Place(turn=99))


def test_a_session_outside_training_leaves_the_global_randomness_alone(make_session):
    run = make_session().run
    examples = Search().examples("train", 2, 0, "easy")
    torch.manual_seed(17)
    before = torch.get_rng_state()
    texts = []
    for _ in range(2):
        session = run.session(examples, "warm", group_size=3, max_tokens=60)
        texts.append([session.text_of(leaf) for leaf in session.play(roots(session))])
    assert torch.equal(torch.get_rng_state(), before)
    assert texts[0] == texts[1]
    assert len(texts[0]) == 6


def test_a_blank_branch_is_filled_once(make_session):
    session = make_session()
    root = roots(session)[0]
    (blank,) = session.branch(root, 1)
    torch.manual_seed(18)
    one, other = session.play([blank, blank], turns=1)
    assert blank.ids
    assert one is not other
    assert len(root.episode.children(root)) == 2
