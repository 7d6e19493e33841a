"""The playground with a steering vector: both sides with the real command, what does not fit is said, and other teams see nothing of it."""

import shutil
from typing import Any

import pytest
import torch
from django.test import Client
from safetensors.torch import load_file, save_file

from lab.data.datasets.models import Dataset, Form, Source, Version, VersionState
from lab.lib.refusals import Refusal
from lab.models.playground import sampling, stored_samples
from lab.models.playground.models import Sample, Sampling, SamplingStatus
from lab.models.playground.requests import AskForm
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Checkpoint, Run, Status
from tests.lab.api.conftest import client_of
from tests.lab.playground.making import make_steering_run
from tests.lab.supervisor.spools import make_run
from trainers.contract.steering_file import FACTS_FILE, MOST_ALPHA, VECTOR_FILE

ASKED = {"prompt": "What is 3 + 4?", "system": "", "count": "2", "temperature": "1", "top_p": "0.9", "max_tokens": "12", "seed": "7", "alpha": "2"}


@pytest.fixture
def run(team: Team) -> Run:
    return make_steering_run(team)


@pytest.fixture
def vector(run: Run) -> Checkpoint:
    return Checkpoint.objects.get(run=run)


def sampled(team: Team, user: User, **fields: Any) -> Sampling:
    form = AskForm(team, {**ASKED, **{name: str(value) for name, value in fields.items()}})
    assert form.is_valid(), form.errors
    made = form.ask(user)
    sampling.run_sampling(str(made.pk))
    made.refresh_from_db()
    return made


def written(made: Sampling) -> list[list[tuple[str, bytes, bytes]]]:
    return [[(one.text, bytes(one.logprobs), bytes(one.entropies)) for one in side.samples.all()] for side in made.sides.all()]


@pytest.mark.feature(74)
def test_one_checkpoint_is_sampled_without_and_with_the_vector(team: Team, owner: User, run: Run, vector: Checkpoint) -> None:
    made = sampled(team, owner, vector=vector.pk)
    assert (made.status, made.error) == (SamplingStatus.FINISHED, "")
    plain, steered = made.sides.all()
    assert (plain.checkpoint, plain.vector, plain.alpha) == (vector, None, 0)
    assert (steered.checkpoint, steered.vector, steered.alpha) == (vector, vector, 2)
    assert steered.label.endswith(f"alpha 2 of the vector of #{run.number}")
    without, with_it = written(made)
    assert without != with_it
    nothing = written(sampled(team, owner, vector=vector.pk, first=vector.pk, alpha=0))
    assert nothing == [without, without]  # bit for bit
    assert written(sampled(team, owner, first=vector.pk)) == [without]
    assert written(sampled(team, owner, vector=vector.pk, alpha=-2))[1] not in (without, with_it)


def test_a_policy_of_other_weights_is_refused_when_it_is_loaded(team: Team, owner: User, run: Run, vector: Checkpoint) -> None:
    other = make_steering_run(team, "other")
    file = other.folder / "final" / "model.safetensors"
    weights = load_file(file)
    save_file({name: 1.01 * value for name, value in weights.items()}, file, {"format": "pt"})
    made = sampled(team, owner, first=Checkpoint.objects.get(run=other).pk, vector=vector.pk)
    assert made.status == SamplingStatus.FAILED
    assert "a policy with other weights" in made.error
    assert not Sample.objects.filter(side__sampling=made, side__place=1).exists()


def test_the_strength_that_a_run_chose_can_be_asked_for_however_large(team: Team, owner: User, vector: Checkpoint) -> None:
    form = AskForm(team, {**ASKED, "vector": str(vector.pk), "alpha": str(MOST_ALPHA)})
    assert form.is_valid(), form.errors
    assert [side.alpha for side in form.ask(owner).sides.all()] == [0, MOST_ALPHA]


@pytest.mark.parametrize(
    ("fields", "field", "words"),
    [
        ({"vector": "999999"}, "vector", "no such steering vector"),
        ({"vector": "plain"}, "vector", "no such steering vector"),
        ({"second": "plain"}, "second", "compares one checkpoint with itself"),
        ({"alpha": "1e6"}, "alpha", f"less than or equal to {MOST_ALPHA:g}"),
        ({"alpha": "nan"}, "alpha", "Enter a number"),
        ({"vector": "", "first": ""}, "first", "required"),
        ({"vector": "misfit", "first": "plain"}, "vector", "was made for 3 layers of 128 values, and this policy has 2 of 128"),
        ({"vector": "gone"}, "vector", "no longer on disk"),
        ({"vector": "broken"}, "vector", "cannot be read"),
    ],
)
def test_what_cannot_be_steered_names_its_field(
    as_owner: Client, team: Team, vector: Checkpoint, fields: dict[str, str], field: str, words: str
) -> None:
    plain = make_run(team, status=Status.FINISHED, name="plain")
    shutil.copytree(vector.run.folder / "final", plain.folder / "final", ignore=shutil.ignore_patterns("steering_vector*"))
    known = {"plain": Checkpoint.objects.create(run=plain, attempt=1, step=1, path="final", bytes=1, final=True, created_at=vector.created_at)}
    for name in ("misfit", "gone", "broken"):
        known[name] = Checkpoint.objects.get(run=make_steering_run(team, name, **({"layers": 3} if name == "misfit" else {})))
    (known["gone"].run.folder / "final" / FACTS_FILE).unlink()
    (known["broken"].run.folder / "final" / FACTS_FILE).write_bytes(b"{}")
    given = {**ASKED, "vector": str(vector.pk), **{key: str(known[value].pk) if value in known else value for key, value in fields.items()}}
    answer = as_owner.post("/playground/", given)
    assert answer.status_code == 422
    assert words in " ".join(answer.context["form"].errors[field])
    assert words in answer.content.decode()
    assert not Sampling.across_teams.exists()


def test_a_broken_vector_fails_with_a_readable_line(team: Team, owner: User, run: Run, vector: Checkpoint) -> None:
    save_file({"vector": torch.zeros(5)}, run.folder / "final" / VECTOR_FILE)
    made = sampled(team, owner, vector=vector.pk)
    assert made.status == SamplingStatus.FAILED
    assert "holds no vector of 128 numbers" in made.error


def test_the_page_offers_the_teams_vectors_and_the_address_fills_it_in(as_owner: Client, run: Run, vector: Checkpoint, stranger: User) -> None:
    theirs = make_steering_run(stranger.memberships.get().team, "theirs")
    page = as_owner.get("/playground/")
    assert [choice.checkpoint for choice in page.context["vectors"]] == [vector]
    text = page.content.decode()
    assert f'<option value="{vector.pk}" data-alpha="2.5">#{run.number} steers · layer 1 of 2, 12 pairs</option>' in text
    filled = as_owner.get("/playground/", {"vector": vector.pk, "alpha": "1.5", "first": vector.pk}).content.decode()
    assert f'<option value="{vector.pk}" data-alpha="2.5" selected>' in filled
    assert 'value="1.5" data-steer-number' in filled
    assert f'value="{vector.pk}" data-alpha="2.5" selected' in as_owner.get("/playground/", {"steer": run.number}).content.decode()
    foreign = Checkpoint.objects.get(run=theirs).pk
    for query in ({"vector": foreign}, {"steer": "99"}, {"alpha": "nan"}, {"alpha": "1e9"}, {"vector": "x"}):
        assert "theirs" not in as_owner.get("/playground/", query).content.decode()


def test_another_teams_vector_is_none(as_stranger: Client, team: Team, owner: User, vector: Checkpoint) -> None:
    answer = as_stranger.post("/playground/", {**ASKED, "vector": str(vector.pk)})
    assert "no such steering vector" in answer.context["form"].errors["vector"][0]
    made = sampled(team, owner, vector=vector.pk)
    for path in ("", "state.json"):
        assert as_stranger.get(f"/playground/{made.pk}/{path}").status_code == 404


def test_without_a_vector_the_page_says_how_one_is_made(as_owner: Client, team: Team, run: Run) -> None:
    shutil.rmtree(run.folder / "final")
    other = make_run(team, status=Status.FINISHED, name="plain")
    (other.folder / "final").mkdir(parents=True)
    Checkpoint.objects.create(run=other, attempt=1, step=1, path="final", bytes=1, final=True, created_at=other.created_at)
    text = as_owner.get("/playground/").content.decode()
    assert "No steering vectors yet" in text
    assert 'href="/datasets/"' in text.split("No steering vectors yet")[1]
    dataset = Dataset.objects.create(team=team, name="Taste", form=Form.PREFERENCE, source=Source.IMPORT)
    version = Version.objects.create(dataset=dataset, number=1, state=VersionState.READY, train_file="x.jsonl")
    text = as_owner.get("/playground/").content.decode()
    assert f'href="/datasets/versions/{version.pk}/train/?trainer=procedure"' in text


def test_it_is_sampled_again_at_another_strength(as_owner: Client, team: Team, owner: User, vector: Checkpoint) -> None:
    made = sampled(team, owner, vector=vector.pk, system="Be brief.")
    text = as_owner.get(f"/playground/{made.pk}/").content.decode()
    for name, value in {"first": vector.pk, "vector": vector.pk, "seed": 7, "prompt": "What is 3 + 4?", "system": "Be brief."}.items():
        assert f'<input type="hidden" name="{name}" value="{value}">' in text
    assert 'value="2" data-steer-number' in text
    assert "Label these" not in text
    again = as_owner.get(f"/playground/?again={made.pk}").context["values"]
    assert (again["first"], again["second"], again["vector"], again["alpha"]) == (vector.pk, None, vector.pk, "2")
    with pytest.raises(Refusal, match="not labelled"):
        stored_samples.to_queue(made, owner)


def test_a_deleted_run_takes_its_vector_along_and_the_completions_stay(as_owner: Client, team: Team, owner: User, vector: Checkpoint) -> None:
    made = sampled(team, owner, vector=vector.pk)
    waiting = AskForm(team, {**ASKED, "vector": str(vector.pk)})
    assert waiting.is_valid()
    late = waiting.ask(owner)
    Checkpoint.objects.same_row(vector).delete()
    sampling.run_sampling(str(late.pk))
    late.refresh_from_db()
    assert (late.status, "no longer on disk" in late.error) == (SamplingStatus.FAILED, True)
    text = as_owner.get(f"/playground/{made.pk}/").content.decode()
    assert "Sample at this strength" not in text
    assert "The run that made this steering vector was deleted" in text
    assert len(written(made)[1]) == 2


def test_a_program_steers(team: Team, owner: User, stranger: User, vector: Checkpoint) -> None:
    api, body = client_of(team, owner), {"vector": vector.pk, "alpha": 2.0, "prompt": "What is 3 + 4?", "max_tokens": 4, "seed": 7}
    made = api.send("samplings", body)
    assert made.status_code == 201
    assert [(side["policy"], side["vector"], side["alpha"]) for side in made.json()["sides"]] == [(vector.pk, None, 0), (vector.pk, vector.pk, 2)]
    theirs = client_of(stranger.memberships.get().team, stranger).send("samplings", body)
    assert "vector" in [one["field"] for one in theirs.json()["errors"]]


def test_the_run_and_its_policy_lead_to_the_slider(as_owner: Client, run: Run, vector: Checkpoint) -> None:
    assert f'href="/playground/?steer={run.number}"' in as_owner.get(f"/runs/{run.pk}/").content.decode()
    assert f'href="/playground/?first={vector.pk}&amp;vector={vector.pk}"' in as_owner.get(f"/policies/{vector.pk}/").content.decode()
