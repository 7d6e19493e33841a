"""DSP+: lemmas and gaps, what is masked, that a sketch halves a search, and two real rounds."""

from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.move_trees import every_move, make_tree, try_every_move  # noqa: F401
from trainers.methods.worlds.dsp_plus import LEMMAS, Config, DSPPlus, Gap, Sketch, draft_lemmas, list_gaps, mask_errors, write_proof
from trainers.policies import tiny
from trainers.rollouts.engine import Engine
from trainers.rollouts.moves import force_text
from trainers.rollouts.search import search_trees
from trainers.rollouts.search_strategies import BestFirst
from trainers.rollouts.store import Store
from trainers.worlds.rewrites import Rewrites, find_way

WORLD = Rewrites()


def test_the_worked_example():
    """4 to 39 is +3 +3 *2 *2 -1: 7, 10, 20, 40."""
    way = ["+3", "+3", "*2", "*2", "-1"]
    assert draft_lemmas(4, way, 2) == [(10, 2), (20, 3)]
    assert list_gaps(4, 39, [(10, 2), (20, 3)], 5, 6) == [Gap(4, 10, 3), Gap(10, 20, 1), Gap(20, 39, 2)]
    assert list_gaps(4, 39, [], 5, 6) == [Gap(4, 39, 6)]
    assert mask_errors([(120, 1), (10, 2), (10, 3), (39, 4)], (4, 39)) == [(10, 2)]


@given(st.integers(1, 20), st.integers(1, 60), st.integers(0, 4), st.integers(0, 3))
def test_the_gaps_of_a_sketch_can_be_closed_within_the_moves_of_the_whole(start, goal, count, spare):
    way = find_way(start, goal, 5) if start != goal else None
    if not way:
        return
    lemmas = mask_errors(draft_lemmas(start, way, count), (start, goal))
    gaps = list_gaps(start, goal, lemmas, len(way), len(way) + spare)
    assert len(gaps) == min(count, len(way) - 1) + 1
    assert sum(gap.moves for gap in gaps) == len(way) + spare
    assert (gaps[0].start, gaps[-1].goal) == (start, goal)
    assert all(one.goal == other.start for one, other in pairwise(gaps))
    assert sum(len(find_way(gap.start, gap.goal, gap.moves)) for gap in gaps) == len(way)


@pytest.fixture
def engine():
    family = tiny.find_family(WORLD)
    tokenizer = tiny.build_tokenizer(family.texts, family.tags)
    run = SimpleNamespace(task=WORLD, tokenizer=tokenizer, prompt_ids=lambda prompts: [tokenizer.encode(prompts[0][-1].content)])
    return Engine(run, None, 1.0, 200, 8)


def session_of(engine, examples, learns=True):
    """A session in which every rule is tried at every position, in order."""

    def search(roots, how, expand, value, until):
        return search_trees(roots, how, lambda nodes: try_every_move(engine, nodes), value, lambda node: node.state["reached"])

    return SimpleNamespace(
        examples=examples,
        learns=learns,
        rng=None,
        run=engine.run,
        search=search,
        begin=lambda: [engine.open_episode(example, example.prompt) for example in examples],
        begin_at=lambda example, group: engine.open_episode(example, example.prompt, group),
        force=lambda node, text, whole: force_text(engine, node, text, whole=whole),
        is_right=lambda leaf: leaf.state["reached"],
        finish=lambda leaves: leaves,
    )


class NoErrors:
    def random(self):
        return 0.99


def solve(engine, lemmas, nodes, examples, store=None, learns=True, **config):
    method = DSPPlus(Config(lemmas=lemmas, nodes=nodes, **config))
    method.run = engine.run
    engine.run.store = store if store is not None else Store()
    session = session_of(engine, examples, learns)
    session.rng = NoErrors()
    return method.rollout(session), method.collect()


def test_two_lemmas_take_less_than_half_of_the_search(engine):
    examples = WORLD.examples("train", 12, 0, "hard")
    plain, before = solve(engine, 0, 400, examples)
    leaves, after = solve(engine, 2, 400, examples)
    assert before["solved"] == after["solved"] == 1.0
    assert after["expanded"] < 0.5 * before["expanded"]
    for leaf in [*plain, *leaves]:
        assert WORLD.rewards["correct"].function("".join(node.text for node in leaf.episode.context(leaf)[1:]), leaf.episode.example) == 1


def test_without_lemmas_it_is_the_search_alone(engine):
    (example,) = WORLD.examples("train", 1, 0, "hard")
    (leaf,), logged = solve(engine, 0, 400, [example])
    (tree,) = search_trees(
        [engine.open_episode(example, example.prompt).root],
        BestFirst(400, WORLD.max_turns),
        lambda nodes: try_every_move(engine, nodes),
        lambda nodes: [0.0] * len(nodes),
        lambda node: node.state["reached"],
    )
    assert [node.text for node in leaf.episode.path(leaf)] == [node.text for node in tree.goal.episode.path(tree.goal)]
    assert logged["expanded"] == tree.expanded


def test_a_gap_that_stays_open_leaves_the_problem_unsolved(engine):
    examples = WORLD.examples("train", 6, 0, "hard")
    leaves, logged = solve(engine, 2, 3, examples)  # one expansion for each gap: those of one move are closed
    assert logged["solved"] < 1
    assert 0 < logged["gaps_closed"] < 1
    assert all(leaf.episode.turns(leaf) for leaf in leaves)
    assert logged["solved"] == sum(leaf.state["reached"] for leaf in leaves) / 6


def test_an_open_gap_is_searched_again_with_the_expansions_that_are_left(engine):
    method, asked = DSPPlus(Config(nodes=10, attempts=4)), []
    method.run = engine.run
    gaps = [Gap(4, 8, 1), Gap(8, 11, 1)]

    def search(roots, how, *rest):
        asked.append((len(roots), how.nodes))
        goal = roots[0] if len(asked) == 2 else None
        trees = [SimpleNamespace(expanded=2, goal=None) for _ in roots]
        trees[0] = make_tree(WORLD, "From 4 to 8 in 1 moves.", [["*2"]]) if goal is not None else trees[0]
        if goal is not None:
            trees[0].goal = trees[0].positions[0]
        return trees

    session = SimpleNamespace(begin_at=lambda example, group: SimpleNamespace(root=example), search=search, is_right=None)
    method.close_gaps(session, gaps, 2)
    assert asked == [(2, 5), (2, 3), (1, 1)]
    assert [gap.proof for gap in gaps] == [["<move>*2</move>"], None]


def test_lemmas_are_kept_and_used_again_and_nothing_is_kept_of_held_out_problems(engine):
    examples, store = WORLD.examples("train", 4, 0, "hard"), Store()
    solve(engine, 2, 400, examples, store, learns=False)
    assert store.size(LEMMAS) == 0
    solve(engine, 2, 400, examples, store)
    assert store.size(LEMMAS) > 4
    _, logged = solve(engine, 2, 400, examples, store)
    assert (logged["recalled"], logged["expanded"], logged["solved"]) == (1.0, 0.0, 1.0)
    _, logged = solve(engine, 2, 400, examples, store, cache=False)
    assert logged["recalled"] == 0.0


def test_a_planner_that_errs_is_masked_where_the_world_cannot_read_it(engine):
    example = WORLD.examples("train", 1, 0, "hard")[0]
    rng = SimpleNamespace(random=lambda: 0.0, randint=lambda low, high: high)
    sketch = DSPPlus(Config(errors=1.0)).draw_sketch(example, rng)
    assert (len(sketch.gaps), sketch.masked) == (1, 2)


def test_words_that_are_no_move_end_a_proof(engine):
    tree = make_tree(WORLD, "From 4 to 11 in 3 moves.", [["-1"]])
    session = session_of(engine, [])
    root = engine.open_episode(tree.root.episode.example, tree.root.episode.example.prompt).root
    leaf = write_proof(session, root, Sketch([Gap(4, 8, 1, ["nonsense"]), Gap(8, 11, 1, ["<move>+3</move>"])]))
    assert (leaf.finish, leaf.state["errors"], leaf.state["reached"]) == ("stop", 1, False)


@pytest.mark.training
def test_two_real_rounds(two_steps, every_move):  # noqa: F811
    settings = {"training__max_completion_length": 64, "training__prompts": 8, "task": {"name": "rewrites", "difficulty": "medium"}}
    trained = two_steps("dsp-plus", {"nodes": 90}, trainer="procedure", policy=every_move["policy"], **settings)
    assert [step["dsp-plus/solved"] for step in trained.steps] == [1.0, 1.0]
    assert trained.steps[0]["procedure/accuracy"] == 1.0
    assert trained.steps[0]["procedure/store"] > 0
    assert len(trained.rollouts) == 16
