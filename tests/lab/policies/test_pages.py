"""The list and the page of a policy: what they show, in what order, what is gone, and what of it can be downloaded."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from django.test import Client
from safetensors.numpy import load

from lab.models.policies import download, measures, promotion
from lab.models.policies.model_card import render_policy_card
from lab.teams.accounts.models import Role, Team, User
from lab.teams.audit.models import Entry
from lab.training.runs.models import Checkpoint, Run
from lab.training.runs.stored_checkpoints import find_local_folder
from tests.conftest import make_member
from tests.hostile import PAYLOADS
from tests.lab.loop.making import heldout
from tests.lab.policies.making import at, final_of, matched, trained, vote, write_policy


@pytest.fixture
def run(team: Team, owner: User) -> Run:
    return trained(team, owner, *heldout(60, ["a"]), steps=(50, 100))


def rows(client: Client, query: str = "") -> list[str]:
    """ "#1 … · step 50" of each row."""
    page = client.get(f"/policies/{query}").content.decode()
    return [part.split("</a>")[0].split(" · ")[-1] for part in page.split('<th scope="row" class="c-name">')[1:]]


def unpacked(response: Any) -> dict[str, bytes]:
    body = b"".join(response.streaming_content)
    assert len(body) == int(response["Content-Length"])
    with tarfile.open(fileobj=io.BytesIO(body)) as found:
        members = found.getmembers()
        return {one.name: found.extractfile(one).read() for one in members}  # type: ignore[union-attr]


@pytest.mark.feature(73)
def test_every_policy_once_sorted_and_filtered_by_the_address(as_owner: Client, team: Team, owner: User, run: Run) -> None:
    assert rows(as_owner) == ["final policy", "step 50"]  # what one resumes from at the last step is the final policy again
    assert sorted(rows(as_owner, "?twins=1")) == ["final policy", "step 100", "step 50"]
    assert rows(as_owner, "?sort=step") == ["step 50", "final policy"]
    assert rows(as_owner, "?sort=-reward") == ["final policy", "step 50"]
    assert rows(as_owner, "?kind=checkpoint&sort=reward&twins=1") == ["step 50", "step 100"]
    assert rows(as_owner, f"?run={run.number}&kind=final") == ["final policy"]
    assert rows(as_owner, "?run=77") == []
    assert rows(as_owner, "?votes=1") == []
    promotion.assign_alias(team, owner, at(run, 100), "candidate")
    assert rows(as_owner, "?alias=candidate") == ["step 100"]
    page = as_owner.get("/policies/?sort=user__password&kind=x&run=%00&project=zz&page=99999999999999999999").content.decode()
    assert "cannot be sorted by" in page
    assert "Unknown kind" in page


def test_metrics_are_those_at_the_checkpoints_step(run: Run) -> None:
    found = measures.at_steps([at(run, 50), final_of(run)], ["reward", "heldout/reward", "no such"])
    assert {name: (one.value, one.step) for name, one in found[at(run, 50).pk].items()} == {"reward": (0.5, 50)}
    assert {name: (one.value, one.step) for name, one in found[final_of(run).pk].items()} == {"reward": (1.0, 100), "heldout/reward": (0.5, 60)}


def test_what_is_gone_is_said_and_can_be_shown(as_owner: Client, run: Run) -> None:
    folder = find_local_folder(at(run, 50))
    assert folder is not None
    folder.rename(folder.with_name("elsewhere"))
    assert rows(as_owner) == ["final policy"]
    assert sorted(rows(as_owner, "?gone=1")) == ["final policy", "step 50"]
    page = as_owner.get(f"/policies/{at(run, 50).pk}/").content.decode()
    assert "no longer on disk" in page
    assert "Download" not in page
    assert "no longer on disk" in as_owner.get(f"/policies/{at(run, 50).pk}/download/", follow=True).content.decode()


def test_win_rates_stand_in_the_list_and_on_the_page(as_owner: Client, team: Team, owner: User) -> None:
    run, match = matched(team, owner, prompts=12)
    vote(match, owner, 9, 3)
    assert rows(as_owner, "?votes=1&sort=-win")[0] == "final policy"
    assert "75\u202f%" in as_owner.get("/policies/").content.decode()
    page = as_owner.get(f"/policies/{final_of(run).pk}/").content.decode()
    assert "12 votes on 12 of 12 prompts" in page


def test_so_few_votes_are_no_rate_wherever_it_would_stand(as_owner: Client, team: Team, owner: User) -> None:
    run, match = matched(team, owner, prompts=6)
    vote(match, owner, 4, 2)
    checkpoint = final_of(run)
    listed, page, wins = (
        as_owner.get(address).content.decode() for address in ("/policies/", f"/policies/{checkpoint.pk}/", f"/runs/{run.pk}/wins/")
    )
    for text in (listed, wins):
        assert "6 votes: not enough votes" in text
    assert "Not enough votes" in page
    for text in (listed, page, wins, render_policy_card(checkpoint)):
        assert "67\u202f%" not in text
        assert "66.7%" not in text


def test_the_list_says_which_number_of_a_curve_it_shows(as_owner: Client, run: Run) -> None:
    page = " ".join(as_owner.get("/policies/").content.decode().split())
    assert "<small>last evaluation by its step</small>" in page
    assert '0.500<small class="muted"> at 60</small>' in page  # measured before the policy of step 100 was saved


def test_a_download_holds_the_policy_and_nothing_of_the_trainer(as_owner: Client, run: Run) -> None:
    response = as_owner.get(f"/policies/{at(run, 50).pk}/download/")
    assert response["Content-Disposition"] == f'attachment; filename="run-{run.number}-step-50.tar"'
    assert response["X-Content-Type-Options"] == "nosniff"
    files = unpacked(response)
    top = f"run-{run.number}-step-50"
    names = {name.removeprefix(f"{top}/") for name in files}
    assert names == {"model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "SHA256SUMS"}
    assert np.array_equal(load(files[f"{top}/model.safetensors"])["weight"], np.arange(12, dtype=np.float32).reshape(3, 4))
    for line in files[f"{top}/SHA256SUMS"].decode().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256(files[f"{top}/{name}"]).hexdigest() == digest
    entry = Entry.across_teams.get(action="policy.download")
    assert (entry.object_id, entry.details["files"]) == (str(at(run, 50).pk), 5)


def test_adapters_leave_without_the_paths_of_this_machine(as_owner: Client, run: Run) -> None:
    folder = find_local_folder(at(run, 50))
    assert folder is not None
    (folder / "config.json").unlink()
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "/srv/secret/place", "r": 8}))
    files = unpacked(as_owner.get(f"/policies/{at(run, 50).pk}/download/"))
    config = json.loads(files[f"run-{run.number}-step-50/adapter_config.json"])
    assert config == {"base_model_name_or_path": run.policy, "r": 8}
    assert "/srv/secret" not in as_owner.get(f"/policies/{at(run, 50).pk}/").content.decode()


def test_a_file_that_shrinks_while_it_is_read_ends_the_download(run: Run) -> None:
    checkpoint = at(run, 50)
    parts = download.parts_of(checkpoint)
    folder = find_local_folder(checkpoint)
    assert folder is not None
    pieces = download.stream_policy_archive(checkpoint, parts)
    next(pieces)
    for file in folder.iterdir():
        file.write_bytes(b"")
    with pytest.raises(download.FilesMissing, match="changed while"):
        list(pieces)


def test_who_may_see_may_not_always_download(client: Client, team: Team, run: Run) -> None:
    client.force_login(make_member("v@example.org", team, Role.VIEWER))
    assert client.get(f"/policies/{at(run, 50).pk}/").status_code == 200
    assert client.get(f"/policies/{at(run, 50).pk}/download/").status_code == 403
    client.force_login(make_member("a@example.org", team, Role.ANNOTATOR))
    assert client.get("/policies/").status_code in (302, 403)


@pytest.mark.parametrize("number", [0, 2**63, 10**30])
def test_an_id_no_row_can_have_is_not_found(as_owner: Client, number: int) -> None:
    for path in (f"{number}/", f"{number}/download/", f"{number}/files/", f"proposals/{number}/", f"pushes/{number}/"):
        assert as_owner.get(f"/policies/{path}").status_code == 404


def test_a_new_team_is_told_what_to_do(as_owner: Client) -> None:
    page = as_owner.get("/policies/").content.decode()
    assert "No models yet" in page
    assert "Launch a run" in page


def test_policies_of_the_operator_are_listed_with_what_is_wrong(as_owner: Client, settings: Any, tmp_path: Path) -> None:
    settings.POLICIES_ROOT = tmp_path / "policies"
    write_policy(tmp_path / "policies" / "good", trainer=False)
    write_policy(tmp_path / "policies" / "coded", trainer=False, auto_map={"AutoModelForCausalLM": "evil.Model"})
    page = as_owner.get("/policies/").content.decode()
    assert "ready" in page
    assert "config.json has an auto_map" in page


@pytest.mark.parametrize("text", PAYLOADS[:12])
def test_hostile_names_and_reasons_are_text(as_owner: Client, team: Team, owner: User, run: Run, text: str) -> None:
    Run.across_teams.filter(pk=run.pk).update(name=text.replace("\0", "")[:100])
    as_owner.post(f"/policies/{at(run, 50).pk}/propose/", {"name": "candidate", "reason": text})
    Checkpoint.objects.filter(run=run).update(bytes=1)
    for path in ("", f"{at(run, 50).pk}/", "aliases/", "retention/"):
        page = as_owner.get(f"/policies/{path}").content.decode()
        assert "<script>alert" not in page
        assert "<img src=x" not in page
