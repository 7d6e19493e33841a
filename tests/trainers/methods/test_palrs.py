"""PaLRS: which cell of the grid is chosen, what is measured in each, and that nothing but the vector is left of a run."""

import json
import random
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from tests.trainers.methods import pair_files
from trainers.attempt.context import BESIDE
from trainers.attempt.inputs import digest_weights
from trainers.checks.preflight import run_preflight_checks
from trainers.contract.problems import SpecError
from trainers.contract.spec import parse_spec
from trainers.data import datasets
from trainers.judges import rewards
from trainers.methods.context import RunContext
from trainers.methods.pairs.palrs import Cell, Config, PaLRS, choose_cell, find_round_alpha, space_layers
from trainers.methods.session import Session
from trainers.methods.steering_pairs import AnswerPair, compare_likelihoods, split_by_prompt
from trainers.policies import tiny
from trainers.policies.loading import load_model
from trainers.policies.steering_files import check_vector_fits, load_steering_vector
from trainers.policies.steering_vector import compute_steering_vectors
from trainers.tasks import registry

TASK = registry.get_task("mini_gsm")


def test_the_worked_example():
    cells = [Cell(0, 0.0, 0.4, 0.5, 2.0), Cell(0, 1.0, 0.6, 0.7, 2.1), Cell(1, 1.0, 0.7, 0.6, 2.4), Cell(1, 2.0, 0.9, 0.9, 3.5)]
    assert choose_cell(cells, "reward", 2.5) == cells[2]
    assert choose_cell(cells, "preference", 2.5) == cells[1]
    assert choose_cell(cells, "reward", 9.0) == cells[3]
    assert choose_cell(cells, "reward", 1.0) is None
    assert choose_cell([Cell(0, 2.0, 1, 1, 1), Cell(1, 1.0, 1, 1, 1)], "reward", 9.0).alpha == 1.0
    assert [find_round_alpha(number, 4, 3.0) for number in (1, 2, 3, 4)] == [0, 1, 2, 3]
    assert find_round_alpha(1, 1, 3.0) == 3
    assert compare_likelihoods(torch.tensor([-1.0, -2, -3]), torch.tensor([-2.0, -2, -1])) == 0.5


@given(st.integers(1, 100), st.integers(1, 8))
def test_layers_are_spread_to_the_last_one(count, wanted):
    layers = space_layers(count, wanted)
    assert len(set(layers)) == len(layers) == min(count, wanted)
    assert layers == sorted(layers)
    assert layers[0] >= 0
    assert layers[-1] == count - 1


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12), st.floats(0.01, 0.9), st.integers(0, 5))
def test_no_prompt_is_on_both_sides_and_none_is_lost(prompts, share, seed):
    pairs = [AnswerPair(prompt, ([1, place], 1), ([1, 0], 1)) for place, prompt in enumerate(prompts)]
    made, held = split_by_prompt(pairs, share, random.Random(seed))
    assert held
    assert not {pair.prompt for pair in made} & {pair.prompt for pair in held}
    assert sorted(pair.chosen[0][1] for pair in (*made, *held)) == list(range(len(prompts)))


@pytest.fixture(scope="module")
def policy(policy_cache):
    folder = tiny.ensure_untrained_policy()
    return SimpleNamespace(model=load_model(folder, torch.float32).eval(), tokenizer=AutoTokenizer.from_pretrained(folder), folder=folder)


@pytest.fixture
def prepare(policy, tmp_path):
    """The method after its ``data`` hook on so many pairs, and a function that plays a round of it."""

    def make(count=12, rows=None, **config):
        file = pair_files.write(tmp_path, rows or pair_files.rows(count))["path"]
        spec = parse_spec(
            {
                "task": {"name": "mini_gsm", "difficulty": "easy", "rewards": {"working": 1.0}},
                "training": {"trainer": "procedure", "prompts": 16, "max_completion_length": 12},
                "dataset": {"path": file},
                "output": str(tmp_path),
            }
        )
        run = RunContext(
            SimpleNamespace(
                task=TASK,
                spec=spec,
                training=spec.training,
                folder=tmp_path,
                sampling_batch=8,
                weights=rewards.weights_of(TASK, spec),
                columns=SimpleNamespace(score_rows=lambda rows, step: rewards.score_rows(TASK, rows)),
                policy=SimpleNamespace(**vars(policy), device=torch.device("cpu")),
            )
        )
        method = PaLRS(Config(**config))
        method.prepare(run)
        run.examples = method.data(datasets.examples_from_rows(datasets.read_rows(pair_files.Path(file), "procedure")), run)
        return method

    return make


def play(method, step, rounds, learns=True, seed=0):
    examples = TASK.examples("train", 3, 7, "easy")
    rows = [example for example in examples for _ in range(2)]
    prompts = [list(example.prompt) for example in rows]
    session = Session(method.run, method.run.model, rows, prompts, 2, step, rounds, 1.0, 12, random.Random(0), learns=learns)
    torch.manual_seed(seed)
    return session, method.rollout(session)


def test_vectors_are_of_the_pairs_that_are_not_held_out(prepare, policy):
    method = prepare(rows=pair_files.rows(12), held_out=0.25)
    assert (len(method.made), len(method.held), method.layers) == (9, 3, [0, 1])
    sides = [[pair.chosen for pair in method.made], [pair.rejected for pair in method.made]]
    pad = policy.tokenizer.pad_token_id
    torch.testing.assert_close(
        method.vectors, compute_steering_vectors(policy.model, *sides, [0, 1], pad=pad, size=1, positions="last"), atol=1e-5, rtol=1e-4
    )
    for pair in (*method.made, *method.held):
        ids, begin = pair.chosen
        assert policy.tokenizer.decode(ids[:begin]).endswith("assistant\n")
        assert policy.tokenizer.decode(ids[begin:], skip_special_tokens=True).strip().startswith("<think>")
        assert pair.rejected[0][:begin] == ids[:begin]


def test_the_first_round_is_the_frozen_policy(prepare):
    method = prepare()
    session, made = play(method, 1, 3)
    examples = [example for example in method.run.examples[:3] for _ in range(2)]
    assert session.examples == examples
    method.vectors[:] = float("nan")
    again = play(method, 1, 3, seed=5)[1]  # the same random numbers, whatever the global ones are
    assert [one.ids for one in again] == [one.ids for one in made]
    assert [one.logprobs for one in again] == [one.logprobs for one in made]
    assert method.cells[0].log_perplexity == method.unsteered.log_perplexity


def test_a_round_measures_every_layer_and_held_out_answers_use_the_chosen_cell(prepare, monkeypatch):
    method = prepare(most=2.0, drift=100.0)
    for step in (1, 2, 3):
        play(method, step, 3)
    assert [(cell.place, cell.alpha) for cell in method.cells] == [(0, 0.0), (0, 1.0), (1, 1.0), (0, 2.0), (1, 2.0)]
    logged = method.collect()
    assert {"reward/1", "reward/2", "preference/2", "log_perplexity/1", "alpha", "chosen_layer", "chosen_alpha"} <= logged.keys()
    method.cells = [Cell(1, 2.0, 9.0, 1.0, 0.0)]
    held_out = [one.ids for one in play(method, 3, 3, learns=False)[1]]
    method.cells = [Cell(0, 0.0, 9.0, 1.0, 0.0)]
    plain = [one.ids for one in play(method, 3, 3, learns=False)[1]]
    method.vectors[1] = 0.0
    method.cells = [Cell(1, 2.0, 9.0, 1.0, 0.0)]
    assert [one.ids for one in play(method, 3, 3, learns=False)[1]] == plain != held_out
    assert len(method.cells) == 1  # nothing is learnt from them


def test_held_out_pairs_are_measured_as_their_answers_would_be_written(prepare, policy):
    """Against one forward pass for each answer, with the vector added by hand from the last token of the prompt on."""
    method, alpha = prepare(12), 0.5
    found = method.measure_held_pairs(1, alpha)
    layer, total, tokens, right = policy.model.get_decoder().layers[1], 0.0, 0, 0.0
    for pair in method.held:
        means = []
        for ids, begin in (pair.chosen, pair.rejected):

            def add(module, inputs, output, begin=begin):
                output = output.clone()
                output[:, begin - 1 :] += alpha * method.vectors[1]
                return output

            hook = layer.register_forward_hook(add)
            with torch.no_grad():
                logprobs = policy.model(input_ids=torch.tensor([ids])).logits.log_softmax(-1)[0, begin - 1 : -1]
            hook.remove()
            means.append(logprobs[range(len(ids) - begin), ids[begin:]].mean().item())
        total, tokens = total - means[0] * (len(pair.chosen[0]) - pair.chosen[1]), tokens + len(pair.chosen[0]) - pair.chosen[1]
        right += means[0] > means[1]
    assert found.log_perplexity == pytest.approx(total / tokens, abs=1e-4)
    assert found.preference == pytest.approx(right / len(method.held))
    assert found != method.unsteered


def test_the_vector_is_saved_with_what_it_is_of(prepare, policy, tmp_path):
    method = prepare(most=1.0, drift=0.0, select="preference")
    for step in (1, 2):
        play(method, step, 2)
    vector, facts = load_steering_vector(tmp_path / BESIDE)
    assert torch.equal(vector, method.vectors[method.chosen.place])
    assert (facts.layer, facts.alpha, facts.pairs, facts.layers) == (method.layers[method.chosen.place], method.chosen.alpha, len(method.made), 2)
    assert facts.weights == digest_weights(policy.folder)
    assert len(facts.dataset) == 64
    check_vector_fits(facts, policy.model, policy.folder)


def test_a_resumed_run_has_measured_the_same_cells(prepare):
    method, later = prepare(), prepare()
    play(method, 1, 3)
    play(method, 2, 3)
    later.restore(method.state())
    play(method, 3, 3)
    play(later, 3, 3)
    assert later.cells == method.cells
    assert later.chosen == method.chosen


def test_pairs_of_one_prompt_are_refused(prepare):
    with pytest.raises(SpecError, match="two prompts at least"):
        prepare(rows=pair_files.rows(1))


def test_a_procedure_reads_pairs_with_and_without_references(tmp_path):
    both = [*pair_files.rows(2), *pair_files.rows(1, reference=lambda place: "7")]
    rows = datasets.read_rows(pair_files.Path(pair_files.write(tmp_path, both)["path"]), "procedure")
    first, _, last = datasets.examples_from_rows(rows)
    assert (first.reference, last.reference) == ("", "7")
    assert first.data == {"pair": {side: both[0][side] for side in ("chosen", "rejected")}}
    assert datasets.is_bare_pair(first)
    assert not datasets.is_bare_pair(last)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rejected": [{"role": "assistant", "content": "same"}], "chosen": [{"role": "assistant", "content": "same"}]}, "are the same"),
        ({"tools": [{"name": "look"}]}, "calls of tools"),
        ({"prompt": None}, "prompt"),
        ({"chosen": 3}, "chosen"),
    ],
)
def test_broken_pairs_are_named(tmp_path, change, words):
    file = tmp_path / "pairs.jsonl"
    file.write_text(json.dumps({**pair_files.rows(1)[0], **change}))
    with pytest.raises(SpecError, match=words):
        datasets.read_rows(file, "procedure")


def preflight(tmp_path, rows, methods=({"name": "palrs"},)):
    data = {"task": {"name": "mini_gsm"}, "training": {"trainer": "procedure"}, "methods": list(methods), "output": str(tmp_path)}
    if rows is not None:
        data["dataset"] = pair_files.write(tmp_path, rows)
    return run_preflight_checks(parse_spec(data))


def test_the_preflight_knows_what_rows_it_needs(tmp_path):
    report = preflight(tmp_path, pair_files.rows(4))
    assert not report.problems
    assert report.batch["prompts"] == parse_spec({"task": {"name": "mini_gsm"}, "training": {"trainer": "procedure"}, "output": "x"}).training.prompts
    assert "needs preference pairs" in preflight(tmp_path, None).problems[0].message
    prompts = [{"prompt": "2+2?", "reference": "4"}] * 70
    assert "have no chosen and rejected answer" in preflight(tmp_path, prompts).problems[0].message
    assert not preflight(tmp_path, prompts, ()).problems
    assert "which this procedure does not read" in preflight(tmp_path, pair_files.rows(70), ()).problems[0].message


@pytest.mark.training
def test_two_real_rounds(two_steps, tmp_path):
    dataset = pair_files.write(tmp_path, pair_files.rows(16))
    settings = {"policy": {"kind": "tiny", "cold_start": False}, "training__max_completion_length": 12, "evaluation": {"prompts": 4, "every": 0}}
    trained = two_steps("palrs", {"most": 1.0, "drift": 100.0}, trainer="procedure", dataset=dataset, **settings)
    assert [step["palrs/alpha"] for step in trained.steps] == [0, 1]
    assert trained.steps[0]["palrs/reward/1"] == trained.steps[0]["palrs/reward/2"] == trained.steps[0]["reward"]
    assert len(trained.rollouts) == 16
    vector, facts = load_steering_vector(trained.folder / "final")
    assert facts.weights == digest_weights(trained.folder / "final")  # as the policy that it was made from
    assert vector.shape == (128,)
