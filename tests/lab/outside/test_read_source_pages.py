"""Every page for reading, on a run read from each format: nothing fails, calls of tools are shown, and what the source lacks is said."""

import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from lab.rollouts.trajectories.models import Rollout
from lab.supervision.outside.received_spools import RunOpening, open_run, receive_spool_piece
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run
from tests.trainers.outside_readers.reading import FIXTURES, open_spool, verl_row, write_lines
from tests.trainers.outside_readers.test_rollout_formats import CALLED, episode, nemo_row
from trainers.contract.spool import SPOOL

ANSWER = f"<think>{'add them, ' * 80}</think>\n{CALLED}\nuser\n<tool_response>\n{'7 ' * 400}\n</tool_response>\nassistant\n<answer>7</answer>"
CHATML = "<|im_start|>user\nWhat is 3 + 4?<|im_end|>\n<|im_start|>assistant\n"
HOSTILE = "<script>alert(1)</script>"


def write_verl(folder: Path) -> None:
    write_lines(folder / "2.jsonl", verl_row(2, answer=ANSWER), verl_row(2, answer=HOSTILE, score=0.0))


def write_trl(folder: Path) -> None:
    shutil.copytree(FIXTURES / "trl", folder)


def write_prime_rl(folder: Path) -> None:
    write_lines(folder / "step_2" / "train" / "effective" / "traces.jsonl", episode("<answer>7</answer>", 1.0), episode(HOSTILE, 0.0))


def write_skyrl(folder: Path) -> None:
    row = {"input_prompt": CHATML, "output_response": ANSWER, "score": 1.0, "stop_reason": "stop"}
    write_lines(folder / "dumped_evals" / "global_step_2_evals" / "sums.jsonl", row, {**row, "output_response": HOSTILE, "score": 0.0})


def write_slime(folder: Path) -> None:
    shutil.copytree(FIXTURES / "slime", folder)


def write_nemo_rl(folder: Path) -> None:
    turns = ["What is 3 + 4?", CALLED, "7 " * 400, "<answer>7</answer>"]
    other = nemo_row(["What is 3 + 4?", HOSTILE], [1, 2, 3, 0], [0, 1, 1, 0], 0.0)
    write_lines(folder / "train_data_step2.jsonl", nemo_row(turns, [1, 2, 3, 4, 5, 0], [0, 1, 1, 0, 1, 0]), other)


def write_openrlhf(folder: Path) -> None:
    rows = [{"input": CHATML, "output": text} for text in (ANSWER, HOSTILE)]
    write_lines(folder / "iter_2.jsonl", *rows)


def write_tensorboard(folder: Path) -> None:
    shutil.copytree(FIXTURES / "tensorboard", folder)


WRITERS: dict[str, Callable[[Path], None]] = {
    "verl": write_verl,
    "trl": write_trl,
    "prime-rl": write_prime_rl,
    "skyrl": write_skyrl,
    "slime": write_slime,
    "nemo-rl": write_nemo_rl,
    "openrlhf": write_openrlhf,
    "tensorboard": write_tensorboard,
}
CALLS = {"verl", "trl", "prime-rl", "skyrl", "nemo-rl"}  # whose rollouts above have calls of tools


def receive_source(team: Team, owner: User, name: str, folder: Path) -> Run:
    """Read, sent and stored as the command does it, without the network between."""
    WRITERS[name](folder / "source")
    spool = open_spool(folder / "kept", folder / "source", name)
    spool.take_new(final=True)
    spool.finish("finished")
    spool.close()
    run, offset = open_run(team, owner, RunOpening(uuid.uuid4(), name, spool.readers[0].trainer, "", "", 0, {"framework": name}))
    receive_spool_piece(run, offset, (folder / "kept" / SPOOL).read_bytes())
    run.refresh_from_db()
    return run


def list_pages(run: Run, rollouts: list[Rollout]) -> list[str]:
    one, last = rollouts[0], rollouts[-1]
    where = f"phase={one.phase}&step={one.step}"
    own = f"/runs/{run.pk}"
    return [
        f"{own}/",
        f"{own}/rollouts/?{where}",
        *(f"{own}/rollouts/?{where}&sort={order}&layout={layout}" for order, layout in (("longest", "cards"), ("uncertain", "list"))),
        f"{own}/steps.json?phase={one.phase}",
        f"{own}/tokens.json?ids={one.pk},{last.pk}",
        f"{own}/groups/?{where}",
        *(f"{own}/groups/{one.phase}/{one.step}/{one.group}/?view={view}" for view in ("", "diff", "entropy")),
        f"/rollouts/?run={run.number}",
        f"/rollouts/?run={run.number}&sort=-length",
        f"/rollouts/?run={run.number}&f=length:ge:1",
        f"/rollouts/?run={run.number}&f=finish:is:stop",
        f"/rollouts/histograms/?run={run.number}",
        f"/rollouts/preview/{one.pk}/",
        f"/rollouts/export/jsonl/?run={run.number}",
        f"/rollouts/export/parquet/?run={run.number}",
        *(f"/rollouts/{row.pk}/" for row in rollouts),
        f"/rollouts/{one.pk}/packed/",
        f"/rollouts/{one.pk}/tokens/",
        f"/rollouts/{one.pk}/tokens/?part=card",
        f"/rollouts/{one.pk}/annotations/",
        "/prompts/",
        f"/prompts/{one.prompt_id}/",
        *(f"{own}/atlas/?phase={one.phase}&of={of}&field={field}" for of, field in (("entropy", "reward"), ("logprob", "length"))),
        *(f"{own}/atlas/{part}?phase={one.phase}&field=length" for part in ("grid.json", "values.json")),
        f"{own}/config/",
        f"{own}/doctor/",
        f"{own}/what-if/?step={one.step}",
        f"/compare/?runs={run.number},{run.number}",
        f"/compare/rollouts/?a={one.pk}&b={last.pk}",
        f"/compare/rollouts/?a={one.pk}",
        f"/rollouts/{one.pk}/similar/",
    ]


@pytest.mark.django_db
@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.feature(33)
def test_every_page_for_reading_shows_a_run_of_another_framework(name: str, team: Team, owner: User, as_owner: Client, tmp_path: Path) -> None:
    run = receive_source(team, owner, name, tmp_path)
    rollouts = list(Rollout.objects.filter(run=run).order_by("step", "group", "sample"))
    assert len(rollouts) >= 2
    for address in list_pages(run, rollouts):
        response = as_owner.get(address)
        assert response.status_code == 200, (address, response.status_code)
        body = b"".join(response.streaming_content) if response.streaming else response.content
        assert HOSTILE.encode() not in body or not response["Content-Type"].startswith("text/html"), address
    assert all(row.length != 0 and row.mean_entropy != 0 for row in rollouts)
    if name in CALLS:
        assert_calls_are_shown(as_owner, rollouts)


@pytest.mark.django_db
def test_what_a_dump_does_not_say_is_no_number_and_no_default(team: Team, owner: User, as_owner: Client, tmp_path: Path) -> None:
    run = receive_source(team, owner, "verl", tmp_path)
    page, config = (as_owner.get(f"/runs/{run.pk}/{tab}").content.decode() for tab in ("", "config/"))
    assert 'hidden data-live-row="tokens"' in page
    assert 'hidden data-live-row="total_steps"' in page
    assert "dapo" not in page + config  # TRL's default base, of a run that TRL did not train
    assert "Trained elsewhere and sent since" in config
    assert "max_steps</dt>" not in config
    step = as_owner.get(f"/runs/{run.pk}/rollouts/?phase=train&step=2").content.decode()
    assert "<dt>cut off</dt><dd>–</dd>" in step


def assert_calls_are_shown(client: Client, rollouts: list[Rollout]) -> None:
    shown = client.get(f"/rollouts/{rollouts[0].pk}/").content.decode()
    header: dict[str, Any] = read_packed_header(client.get(f"/rollouts/{rollouts[0].pk}/packed/").content)
    kinds = [(kind, label) for kind, label, _, _ in header["blocks"]]
    assert ("call", "add") in kinds
    assert ("environment", "tool") in kinds
    assert header["error"] == "this rollout came without tokens"
    assert 'title="tool call: add"' in shown
    if len(rollouts[0].completion) > 1200:
        assert "<summary>tool, " in shown  # a long result is folded, as long thinking is


def read_packed_header(body: bytes) -> dict[str, Any]:
    import json

    size = int.from_bytes(body[:4], "little")
    return dict(json.loads(body[4 : 4 + size]))


@pytest.mark.django_db
def test_what_is_not_recorded_is_said(team: Team, owner: User, as_owner: Client, tmp_path: Path) -> None:
    run = receive_source(team, owner, "verl", tmp_path)
    one = Rollout.objects.filter(run=run).earliest("pk")
    page = as_owner.get(f"/rollouts/{one.pk}/").content.decode()
    assert '<span class="muted">length</span> not recorded' in page
    assert "None" not in page
    what_if = as_owner.get(f"/runs/{run.pk}/what-if/?step=2").content.decode()
    assert "Token ids were not recorded" in what_if
