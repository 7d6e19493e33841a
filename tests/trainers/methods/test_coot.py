"""CooT: states, the bound on what is written again, plain decoding where nothing is wrong, guidance and its hook, and two real rounds."""

import hashlib
import random
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.trainers.methods.turn_scripts import script_turns
from trainers.contract.events import Message
from trainers.methods.story_perceiver import advise_words, find_trigger, is_feasible, is_violated, label_text, list_states, says_word
from trainers.methods.worlds.coot import Config, CooT
from trainers.policies.attention_weights import read_attention
from trainers.policies.residuals import add_residual, inject_residual
from trainers.tasks.base import Example
from trainers.worlds.stories import Stories, write_prompt

PLOT = {"thing": "lamp", "at": {"Mia": "mill", "Leo": "cave"}, "holder": "", "place": "cave"}
DATA = {"genre": "merry", "plot": PLOT, "goal": ["has", "Mia"], "forbidden": "goes", "liked": [], "steps": 4}
EXAMPLE = Example([Message("user", write_prompt(DATA))], "has Mia", DATA)
TINY = {"min_tokens": 0, "consecutive": 1, "guided_tokens": 2}


def test_the_precedence_of_states():
    assert not is_feasible((0, 1, 0))
    assert is_feasible((1, -1, 1))
    feasible = [label for label in product((-1, 0, 1), repeat=3) if is_feasible(label)]
    assert all(s != 0 for s, a, _ in feasible if a == 1)
    assert all(s != 0 and a != 0 for s, a, e in feasible if e == 1)
    assert len(feasible) == 20  # of 27; three have A = 1 over S = 0, four more E = 1 over S = 0 or A = 0


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("<step>Mia", (1, 0, 0)),
        ("<step>Mia goes", (-1, 0, 0)),
        ("<step>Mia walks to the cave</step>", (1, 1, 1)),
        ("<step>Mia goes to the cave</step>", (-1, 1, 1)),
        ("<step>Mia takes the lamp</step>", (1, -1, 1)),
        ("<step>Mia flies</step>", (1, -1, -1)),
        ("<step>Mia goesx", (1, 0, 0)),
    ],
)
def test_what_the_perceiver_says_of_a_text(text, label):
    world = Stories()
    assert label_text(EXAMPLE, world.begin(EXAMPLE), world.tools, text) == label


@given(st.text(alphabet="<>/step MiaLeogoestakeslamp", max_size=60), st.sampled_from(["", "goes", "takes"]))
def test_every_state_of_the_perceiver_is_feasible(text, forbidden):
    world, example = Stories(), Example(EXAMPLE.prompt, "", {**DATA, "forbidden": forbidden})
    for end in ("", "</step>"):
        assert is_feasible(label_text(example, world.begin(example), world.tools, text + end))


def test_what_counts_as_a_violation_and_what_is_advised():
    assert is_violated((-1, 1, 1), False)
    assert not is_violated((1, -1, -1), False)
    assert is_violated((1, -1, 1), True)
    assert advise_words((-1, 0, 0), "goes", "Mia goes") == (["walks"], ["goes"])
    assert advise_words((1, -1, 1), "goes", "Mia takes the lamp") == ([], ["Mia takes the lamp"])
    assert list_states([(1, 0, 0), (1, 0, 0), (-1, 0, 0)]) == [[0, 1, 0, 0], [2, -1, 0, 0]]


def test_it_intervenes_after_violations_in_a_row():
    violated = [False, True, True, False, True, True, True, True]
    assert find_trigger(violated, 0, 3, 0) == 6
    assert find_trigger(violated, 0, 2, 0) == 2
    assert find_trigger(violated, 0, 3, 5) == 7  # the fourth place is too early to count
    assert find_trigger(violated, 5, 3, 0) is None
    assert find_trigger(violated, 0, 5, 0) is None


def make_method(session, **config):
    method = CooT(Config(**config))
    method.prepare(session.run)
    return method


def hash_weights(model):
    return hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()


def count_hooks(model):
    return sum(len(module._forward_hooks) for module in model.modules())


def play_seeded(session, method):
    torch.manual_seed(5)
    return method.rollout(session)


@pytest.fixture
def story_session(make_session):
    """Four members on one prompt that forbids "goes"."""

    def make(**more):
        session = make_session(Stories(), **more)
        session.examples, session.prompts = [EXAMPLE] * 4, [list(EXAMPLE.prompt)] * 4
        return session

    return make


def test_without_a_violation_it_is_plain_decoding_to_the_token(story_session):
    torch.manual_seed(5)
    plain = story_session().complete()
    for config, perceive in (({}, lambda *told: (1, 1, 1)), ({"tries": 0, **TINY}, lambda *told: (-1, -1, -1))):
        session = story_session()
        method = make_method(session, **config)
        method.perceive = perceive
        made = play_seeded(session, method)
        assert [one.ids for one in made] == [one.ids for one in plain]
        assert [one.text for one in made] == [one.text for one in plain]
        assert [one.logprobs for one in made] == [one.logprobs for one in plain]
        assert method.collect()["regenerated"] == 0


@pytest.mark.parametrize(("beta", "strict"), [(0.0, False), (0.9, True)])
def test_what_is_written_again_is_bounded_for_every_perceiver_and_nothing_stays_behind(story_session, beta, strict):
    dice = random.Random(3)
    perceivers = [
        lambda *told: (-1, -1, -1),
        lambda *told: (dice.choice((-1, 1)), 0, 0),
        lambda example, state, tools, text: (1, -(len(text) % 2), 0),
    ]
    for tries, perceive in zip((1, 3, 2), perceivers, strict=True):
        session = story_session(max_tokens=32)
        read_attention(session.run, [[1, 2]], 1, session.model)  # transformers keeps hooks of its own to collect attention
        before, hooks, how = hash_weights(session.model), count_hooks(session.model), session.model.config._attn_implementation
        method = make_method(session, tries=tries, beta=beta, strict=strict, **TINY)
        method.perceive = perceive
        made = play_seeded(session, method)
        logged = method.collect()
        turns = sum(len(one.row.episode.turns(one.row.leaf)) for one in made) / len(made)
        assert logged["interventions"] <= tries * turns
        assert logged["regenerated"] <= logged["interventions"] * session.run.task.max_turn_tokens
        assert all(len(one.ids) <= 32 for one in made)
        assert (hash_weights(session.model), count_hooks(session.model), session.model.config._attn_implementation) == (before, hooks, how)


def test_a_roll_back_is_told_on_the_cut_node_and_the_turn_goes_on(story_session, monkeypatch):
    session = story_session()
    session.examples, session.prompts = [EXAMPLE], [list(EXAMPLE.prompt)]
    told = iter(["<step>Mia goes to the cave</step>", " walks to the cave</step>", "<step>Leo flies</step>"])
    script_turns(monkeypatch, lambda number, text: next(told))
    back = len(session.engine.encode(" goes"))
    method = make_method(session, **TINY, tau=2.0, fallback=back)  # no peak is as sharp
    (made,) = method.rollout(session)
    assert made.text.startswith("<step>Mia walks to the cave</step><information>and?</information><step>Leo flies</step>")
    episode = made.row.episode
    (cut,) = [node for node in episode.nodes if node.fate == "cut"]
    assert cut.text == " goes to the cave</step>"
    assert cut.facts["state"] == [-1, 0, 0]
    assert cut.facts["rolled back"].endswith("(fallback)")
    assert len(cut.facts["sharpness"]) == cut.facts["states"][-1][0]
    assert episode.turns(made.row.leaf)[0][-1].facts["states"][-1][1:] == [1, 1, 1]
    logged = method.collect()
    assert (logged["interventions"], logged["forbidden"], logged["given_up"], logged["escalations"]) == (1, 0, 0, 0)
    assert logged["regenerated"] == len(session.engine.encode(" walks to the cave</step>"))


def test_the_forbidden_word_gets_rarer_and_a_turn_is_given_up_after_its_tries(story_session, monkeypatch):
    def measure(tries, share):
        session, dice = story_session(), random.Random(1)

        def write(number, text):
            begun = text.rpartition("</information>")[2]
            turn = f"<step>Mia {'goes' if dice.random() < share else 'walks'} to the {dice.choice(['cave', 'mill'])}</step>"
            return turn.removeprefix(begun) if turn.startswith(begun) else "</step>"

        script_turns(monkeypatch, write)
        method = make_method(session, tries=tries, **TINY)
        method.rollout(session)
        return method.collect()

    plain, watched, hopeless = measure(0, 0.5), measure(12, 0.5), measure(3, 1.0)
    assert plain["forbidden"] >= 0.75
    assert watched["forbidden"] == 0.0
    assert (hopeless["forbidden"], hopeless["interventions"]) == (1.0, 3 * hopeless["given_up"])


def test_failed_tries_go_further_back(story_session):
    method = make_method(story_session(), escalation_after=2)
    sharpness, clean = [0.9, 0.2, 0.95, 0.3], [True] * 4 + [False]
    assert method.choose_point(sharpness, clean, 1) == (3, "peak")
    assert method.choose_point(sharpness, clean, 2) == (1, "escalated")
    assert method.choose_point([0.1, 0.2, 0.95, 0.3], clean, 2) == (3, "peak")  # nothing earlier is as sharp


def test_guidance_makes_the_advised_word_likelier_for_as_many_tokens_as_it_lasts(story_session):
    session = story_session()
    model, encode = session.model, session.engine.encode
    (advised,), (warned,) = encode("Leo"), encode("Max")
    table = model.get_output_embeddings().weight
    residual = torch.nn.functional.normalize(table[[advised]].detach() - table[[warned]].detach(), dim=-1)
    ids = torch.tensor([encode("<step>Mia")])

    def read_gap():
        logits = model(input_ids=ids, use_cache=False).logits[0, -1]
        return float(logits[advised] - logits[warned])

    with torch.no_grad():
        plain = read_gap()
        with inject_residual(model, residual, 0.9, 2):
            gaps = [read_gap() for _ in range(3)]
        assert gaps[0] == gaps[1] > plain
        assert gaps[2] == read_gap() == plain
    hidden = torch.tensor([[3.0, 4.0]])
    assert add_residual(hidden, torch.tensor([[1.0, 0.0]]), 0.5).tolist() == [[5.5, 4.0]]


def test_a_hook_is_removed_when_writing_fails(story_session):
    session = story_session()
    hooks = count_hooks(session.model)
    with pytest.raises(RuntimeError), inject_residual(session.model, torch.zeros(1, 128), 0.9, 2):
        raise RuntimeError
    assert count_hooks(session.model) == hooks


def test_attention_of_ragged_rows_is_that_of_each_row_alone(story_session):
    session = story_session()
    rows = [session.engine.encode("<step>Mia walks to the cave</step>"), session.engine.encode("<step>Leo")]
    both = read_attention(session.run, rows, 4, session.model)
    for row, weights in zip(rows, both, strict=True):
        (alone,) = read_attention(session.run, [row], 4, session.model)
        assert torch.allclose(weights, alone, atol=1e-5)
        assert torch.allclose(weights.sum(-1), torch.ones(len(row)), atol=1e-4)
        assert weights.triu(1).abs().max() == 0


def test_words_are_whole():
    assert says_word("Mia goes.", "goes")
    assert not says_word("Mia forgoes", "goes")
    assert not says_word("Mia", "")


@pytest.mark.training
def test_two_real_rounds(two_steps):
    settings = {"task": {"name": "stories", "options": {"forbidden": 1.0}}, "policy": {"kind": "tiny", "cold_start": False}}
    trained = two_steps("coot", TINY, trainer="procedure", training__max_completion_length=64, training__prompts=8, **settings)
    for step in trained.steps:
        assert {"coot/interventions", "coot/regenerated", "coot/escalations", "coot/forbidden"} <= step.keys()
    assert len(trained.rollouts) == 16
    watched = [node for rollout in trained.rollouts for node in rollout.nodes if node.by == "policy" and node.fate == "kept" and node.facts]
    assert len(watched) >= len(trained.rollouts)
    assert all("states" in node.facts for node in watched)
