"""Zero-shot CTS: which node a walk goes to, which questions it skips, and that it answers with nodes of the graph only."""

import random
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trainers.contract.events import Message
from trainers.methods.worlds.zero_shot_cts import Config, ZeroShotCTS, get_dialogue_graph, read_words
from trainers.rollouts.engine import Engine
from trainers.tasks.base import Example
from trainers.worlds.interview import Interview
from trainers.worlds.interview_dialogue import GRAPH, Dialogue, DialogueGraph

TASK = {"name": "interview", "options": {"about": "dialogue"}}
FACTS = {"need": "fares", "vehicle": "train", "class": "second"}
WORDS = {"need": "fares", "vehicle": "rail", "class": "economy"}


def make_example(told=(), words=WORDS):
    said = ", ".join(words[asked] for asked in told)
    return Example([Message("user", f"Please help me. {said}. Trip 5.")], "full", {"facts": FACTS, "words": words, "told": list(told)})


@pytest.fixture
def walk_graph(make_session, monkeypatch):
    """Walks of given examples: completions, the method, and the turns that were ranked. ``likely``: turn -> log-probability of each of its tokens."""

    def walk(examples, likely=None, graph=GRAPH, **config):
        world, ranked = Interview({"about": "dialogue"}), []
        world.subject = Dialogue(graph)
        session = make_session(world)
        session.examples, session.prompts = list(examples), [list(example.prompt) for example in examples]

        def score_texts(self: Engine, at: Sequence, texts: Sequence[str], temperature: float = 1.0):
            assert likely is not None, "a random walk asked the policy"
            ranked.append(list(texts))
            return [[likely(text) / 2] * 2 for text in texts]

        monkeypatch.setattr(Engine, "score_texts", score_texts)
        method = ZeroShotCTS(Config(**config))
        method.prepare(session.run)
        return method.rollout(session), method, ranked

    return walk


def test_the_worked_example(walk_graph):
    """The need is told and skipped, ``rail`` and ``economy`` are words that no edge has: the policy says what they mean."""
    likely = {
        "<ask>class</ask>": -1.0,
        "<ask>owner</ask>": -3.0,
        "<ask>consent</ask>": -2.0,
        "<answer>half</answer>": -4.0,
        "<answer>full</answer>": -0.5,
    }
    (made,), method, ranked = walk_graph([make_example(["need"])], likely.__getitem__)
    assert made.text == ("<ask>vehicle</ask><information>rail</information><ask>class</ask><information>economy</information><answer>full</answer>")
    assert ranked == [["<ask>class</ask>", "<ask>owner</ask>", "<ask>consent</ask>"], ["<answer>half</answer>", "<answer>full</answer>"]]
    logged = method.collect()
    assert {name: logged[name] for name in ("success", "turns", "ranked")} == {"success": 1, "turns": 3, "ranked": 2}
    assert logged["skipped"] == pytest.approx(1 / 3)
    assert logged["margin"] == pytest.approx((1.0 + 3.5) / 2)
    assert (made.row.leaf.facts["asked"], made.row.leaf.facts["skipped"]) == (["vehicle", "class"], ["need"])
    assert made.finish_reason == "stop"


def test_without_pruning_every_question_is_asked_and_every_choice_is_ranked(walk_graph):
    (made,), method, ranked = walk_graph([make_example(["need"])], lambda text: -float(len(text)), prune=False)
    logged = method.collect()
    assert made.row.leaf.facts["asked"][0] == "need"
    assert (logged["skipped"], logged["ranked"]) == (0, len(ranked))
    assert len(ranked[0]) == 3


def test_a_reply_in_the_words_of_an_edge_leaves_nothing_to_rank(walk_graph):
    (made,), method, ranked = walk_graph([make_example(words=FACTS)], lambda text: 0.0)
    assert ranked == []
    assert made.row.leaf.facts["asked"] == list(FACTS)
    assert method.collect()["success"] == 1


def test_all_that_is_told_in_the_words_of_the_graph_is_skipped(walk_graph):
    (made,), method, ranked = walk_graph([make_example(list(FACTS), FACTS)], lambda text: 0.0)
    assert (made.text, ranked) == ("<answer>full</answer>", [])
    assert method.collect()["skipped"] == 1


def test_a_question_with_one_child_is_skipped_only_where_it_was_answered(walk_graph):
    facts = {"need": "meals", "length": "long", "company": "alone"}
    told = [
        Example([Message("user", f"Please. {', '.join(said)}.")], "rate", {"facts": facts, "words": facts, "told": []}) for said in ([], ["long"])
    ]
    made, _, ranked = walk_graph(told, lambda text: 0.0)
    assert [one.row.leaf.facts["asked"] for one in made] == [["need", "length", "company"], ["need", "company"]]
    assert ranked == []


def test_of_equally_likely_nodes_the_first_is_taken(walk_graph):
    (made,), _, _ = walk_graph([make_example()], lambda text: -1.0)
    assert made.text.endswith("<answer>half</answer>")


@st.composite
def graphs_and_users(draw):
    """Graphs of up to four questions in a row whose edges share nodes, and users who say some of it, words of others' ways included."""
    size = draw(st.integers(1, 4))
    questions = {}
    for level in range(size):
        later = [f"q{number}" for number in range(level + 1, size)] + ["end", "stop", "last"]
        edges = draw(st.lists(st.sampled_from(later), min_size=1, max_size=3))
        questions[f"q{level}"] = {f"v{draw(st.integers(0, 5))}": child for child in edges}
    graph = DialogueGraph("q0", questions)
    users = []
    for _ in range(draw(st.integers(1, 3))):
        facts, answer = graph.draw_facts(random.Random(draw(st.integers(0, 99))))
        words = {asked: draw(st.sampled_from([value, "other", "v9"])) for asked, value in facts.items()}
        said = draw(st.lists(st.sampled_from([f"v{number}" for number in range(6)]), max_size=3))
        users.append(Example([Message("user", " ".join(["Please.", *said]))], answer, {"facts": facts, "words": words, "told": []}))
    return graph, users


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(graphs_and_users(), st.booleans(), st.sampled_from(["likelihood", "random"]), st.integers(0, 9))
def test_answers_always_come_from_the_graph(walk_graph, drawn, prune, kind, seed):
    graph, users = drawn
    noise = random.Random(seed)
    made, method, _ = walk_graph(users, lambda text: noise.uniform(-5, 0), graph, prune=prune, walk=kind)
    for one in made:
        leaf = one.row.leaf
        assert leaf.state["answer"] in graph.list_answers()
        assert leaf.state["errors"] == 0
        assert set(leaf.facts["asked"] + leaf.facts["skipped"]) <= set(graph.questions)
        assert len(set(leaf.facts["asked"] + leaf.facts["skipped"])) == len(leaf.facts["asked"] + leaf.facts["skipped"])
        assert prune or not leaf.facts["skipped"]
    assert 0 <= method.collect()["skipped"] <= 1


def walk_alone(graph, examples, rng, prune):
    """Nodes visited by random walks of graph and user alone, level by level, as a session draws them."""
    nodes, said = [graph.start] * len(examples), [read_words(example.prompt[0].content) for example in examples]
    paths = [[graph.start] for _ in examples]
    while any(not graph.is_answer(node) for node in nodes):
        for place, (node, example) in enumerate(zip(nodes, examples, strict=True)):
            if graph.is_answer(node):
                continue
            if not prune or not graph.is_answered(node, said[place]):
                said[place] |= {example.data["words"].get(node, "")}
            children = graph.list_children(node, said[place] if prune else ())
            nodes[place] = rng.choice(children) if len(children) > 1 else children[0]
            paths[place].append(nodes[place])
    return paths


@pytest.mark.parametrize("prune", [True, False])
def test_a_random_walk_is_one_that_asks_the_policy_nothing(walk_graph, prune):
    examples = Interview({"about": "dialogue"}).examples("train", 12, 3, "medium")
    made, _, ranked = walk_graph(examples, None, walk="random", prune=prune)
    paths = walk_alone(GRAPH, examples, random.Random(0), prune)
    assert [one.row.leaf.state["answer"] for one in made] == [path[-1] for path in paths]
    assert [{*one.row.leaf.facts["asked"], *one.row.leaf.facts["skipped"]} for one in made] == [set(path[:-1]) for path in paths]
    assert ranked == []


def test_the_ranking_is_by_the_policys_own_log_probabilities_and_leaves_it_as_it_was(make_session):
    session = make_session(Interview({"about": "dialogue"}))
    example = make_example(["need"])
    session.examples, session.prompts = [example], [list(example.prompt)]
    method = ZeroShotCTS(Config())
    method.prepare(session.run)
    before = {name: value.clone() for name, value in session.model.state_dict().items()}
    (made,) = method.rollout(session)
    assert all(value.equal(before[name]) for name, value in session.model.state_dict().items())
    question, reply = made.row.episode.nodes[1:3]
    context, sums = [*made.prompt_ids, *question.ids, *reply.ids], {}
    for node in GRAPH.list_children("vehicle"):
        ids = session.run.tokenizer.encode(f"<ask>{node}</ask>", add_special_tokens=False)
        logprobs, _ = session.run.logprobs([context], [ids], model=session.model)
        sums[node] = float(logprobs.detach().sum())
    assert made.row.leaf.facts["asked"][1] == max(sums, key=sums.__getitem__)
    best, second = sorted(sums.values(), reverse=True)[:2]
    assert reply.notes["margin"] == pytest.approx(best - second, abs=1e-3)
    assert session.run.written_tokens == 0


def test_a_dialogue_that_does_not_fit_ends_without_an_answer(make_session):
    session = make_session(Interview({"about": "dialogue"}), max_tokens=8)
    method = ZeroShotCTS(Config(walk="random"))
    method.prepare(session.run)
    made = method.rollout(session)
    assert all(one.row.leaf.state["answer"] is None for one in made if one.finish_reason == "length")
    assert any(one.finish_reason == "length" for one in made)


def test_a_task_without_a_graph_is_refused():
    for task in (Interview(), Interview({"about": "intents"})):
        with pytest.raises(TypeError, match="no dialogue graph"):
            get_dialogue_graph(task)


@pytest.mark.training
def test_two_real_rounds(two_steps):
    cold = {"kind": "tiny", "cold_start": False}
    trained = two_steps("zero-shot-cts", trainer="procedure", task=TASK, policy=cold, training__max_completion_length=64, training__prompts=8)
    for step in trained.steps:
        assert {"zero-shot-cts/success", "zero-shot-cts/turns", "zero-shot-cts/skipped", "zero-shot-cts/margin"} <= step.keys()
        assert step["procedure/tokens"] == 0
        assert step["zero-shot-cts/success"] == step["procedure/accuracy"]
    answers = {rollout.completion.rpartition("<answer>")[2].removesuffix("</answer>") for rollout in trained.rollouts}
    assert len(trained.rollouts) == 16
    assert answers <= set(GRAPH.list_answers())
