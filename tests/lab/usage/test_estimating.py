"""What a launch would take, by finished runs like it: how long, how much GPU time, and whether the month's quota has that."""

from typing import Any
from uuid import uuid4

import pytest
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from lab.teams.accounts.models import Team
from lab.training.runs.models import Attempt, Run, Status
from lab.watching.usage.estimates import DurationRange, estimate_launch
from lab.watching.usage.models import Lease, Quota
from lab.watching.usage.months import Month
from lab.watching.usage.similar_runs import is_matching_device
from tests.lab.html_forms import form_values
from tests.lab.supervisor.spools import make_run
from tests.lab.usage.conftest import MakeLease, MakeWorker
from trainers.contract.spec import RunSpec, parse_spec

TINY = {"kind": "tiny", "cold_start": True}
HUB = {"kind": "hub", "name": "Qwen/Qwen3-0.6B"}
H200, CPU = "cuda (NVIDIA H200), bf16", "cpu (x86_64, 2 threads), fp32"


def spec(trainer: str = "grpo", policy: dict[str, Any] = TINY, task: str = "mini_gsm", steps: int = 100, **fields: Any) -> RunSpec:
    training = {"trainer": trainer, "max_steps": steps}
    return parse_spec({"task": {"name": task}, "training": training, "policy": policy, "output": "new", **fields})


def of_run(run: Run) -> dict[str, Any]:
    return {"kind": "run", "folder": str(run.folder), "checkpoint": "final"}


@pytest.fixture
def finished(team: Team, make_lease: MakeLease) -> Any:
    """A run that finished ``steps`` steps, with the seconds its worker held it for, on a device."""

    def make(
        seconds: float, device: str = H200, steps: int = 100, policy: Any = TINY, of: Team = team, lora: Any = None, human: Any = None, **fields: Any
    ) -> Run:
        values = {"status": Status.FINISHED, "step": steps, "total_steps": steps, "spec": {"policy": policy, "lora": lora, "human": human}, **fields}
        run = make_run(of, **values)
        Attempt.objects.create(run=run, number=1, from_step=0, host="h", device=device, started_at=timezone.now())
        make_lease(Month.now().before.start, seconds / 3600, gpus=int(device.startswith("cuda")), run=run, team=of)
        return run

    return make


def test_the_least_and_the_most_of_seconds_a_step_times_steps(team: Team, finished: Any) -> None:
    for took, steps in ((60, 100), (100, 50), (80, 100)):
        finished(took, steps=steps)
    found = estimate_launch(team, "gpu", [spec(steps=200)])
    assert found.unknown == []
    assert (found.whole.low, found.whole.high) == (pytest.approx(120), pytest.approx(400))
    assert found.gpu_time == DurationRange(pytest.approx(120), pytest.approx(400))
    assert found.stages[0].pace == "0.600 to 2 s"


def test_without_a_finished_run_like_it_nothing_is_said(team: Team, finished: Any) -> None:
    finished(60, trainer="dpo")
    finished(60, policy=HUB)
    finished(60, lora={"r": 16})
    finished(60, human={"share": 0.5})  # it waited for people
    finished(60, status=Status.STOPPED)
    finished(60, of=Team.objects.create(name="Other", slug="other"))
    finished(60, outside=True)
    finished(60, step=0)
    finished(60, spec={"recipe": "of an older version"})
    assert [stage.trainer for stage in estimate_launch(team, "gpu", [spec()]).unknown] == ["grpo"]
    finished(60)
    assert estimate_launch(team, "gpu", [spec()]).unknown == []


def test_all_that_a_run_took_counts_and_of_runs_the_newest(team: Team, finished: Any, make_lease: MakeLease) -> None:
    run = finished(60)
    make_lease(Month.now().start, 40 / 3600, run=run)  # it was resumed on another worker
    assert estimate_launch(team, "gpu", [spec()]).whole.high == pytest.approx(100)
    for _ in range(12):
        finished(50)
    assert estimate_launch(team, "gpu", [spec()]).whole == DurationRange(pytest.approx(50), pytest.approx(50))
    Lease.across_teams.all().delete()
    assert estimate_launch(team, "gpu", [spec()]).unknown


def test_the_cold_start_of_the_policy_counts_for_no_later_run(team: Team, finished: Any) -> None:
    finished(400, latest={"cold_start_seconds": 300.0})
    found = estimate_launch(team, "gpu", [spec()])
    assert (found.whole.low, found.gpu_time) == (pytest.approx(100), DurationRange(pytest.approx(100), pytest.approx(100)))


def test_of_five_and_more_the_fastest_and_the_slowest_are_left_out(team: Team, finished: Any) -> None:
    for took in (50, 6000, 60, 70):
        finished(took)
    assert estimate_launch(team, "gpu", [spec()]).whole.high == pytest.approx(6000)
    finished(5)
    assert estimate_launch(team, "gpu", [spec()]).whole == DurationRange(pytest.approx(50), pytest.approx(70))


def test_of_the_same_task_where_there_are_any(team: Team, finished: Any) -> None:
    finished(60, task="kb")
    [stage] = estimate_launch(team, "gpu", [spec()]).stages
    assert (stage.time.high, stage.same_task) == (pytest.approx(60), False)
    finished(90)
    [stage] = estimate_launch(team, "gpu", [spec()]).stages
    assert (stage.time.low, stage.same_task) == (pytest.approx(90), True)


def test_a_policy_of_a_run_is_like_the_model_it_came_from(team: Team, finished: Any) -> None:
    first = finished(60, trainer="sft")
    second = finished(70, policy=of_run(first), trainer="sft")
    finished(80, policy=of_run(second))
    assert estimate_launch(team, "gpu", [spec(policy=of_run(second))]).whole.high == pytest.approx(80)
    assert estimate_launch(team, "gpu", [spec()]).whole.high == pytest.approx(80)
    deleted = {"kind": "run", "folder": f"/runs/{uuid4()}", "checkpoint": "final"}
    assert estimate_launch(team, "gpu", [spec(policy=deleted)]).unknown
    Run.across_teams.filter(pk=first.pk).update(spec={"policy": of_run(second)})  # no such circle can be launched; reading one ends
    assert len(estimate_launch(team, "gpu", [spec(policy=of_run(first))]).stages) == 1


@pytest.mark.parametrize(("device", "wanted", "gpus", "expected"), [
    (H200, "auto", {"NVIDIA H200"}, True),
    (H200, "auto", {"NVIDIA A100"}, False),
    (H200, "auto", {""}, False),
    (CPU, "auto", {""}, True),
    (CPU, "auto", {"", "NVIDIA H200"}, True),
    (CPU, "auto", {"NVIDIA H200"}, False),
    (CPU, "cpu", {"NVIDIA H200"}, True),
    (H200, "cpu", {"NVIDIA H200"}, False),
    (CPU, "cuda", set(), False),
    (H200, "auto", set(), True),
    ("", "auto", set(), False),
])  # fmt: skip
def test_the_device_is_the_one_of_the_workers_of_the_queue(device: str, wanted: str, gpus: set[str], expected: bool) -> None:
    assert is_matching_device(device, wanted, gpus) is expected


def test_the_workers_of_the_queue_say_which_device(team: Team, finished: Any, make_worker: MakeWorker) -> None:
    finished(60)
    finished(600, device=CPU)
    make_worker("a:1", gpu="NVIDIA H200, 139 GiB")
    make_worker("b:1", gpu="", queues=("small",))
    assert estimate_launch(team, "gpu", [spec()]).whole.high == pytest.approx(60)
    small = estimate_launch(team, "small", [spec()])
    assert (small.whole.low, small.gpu_time.high) == (pytest.approx(600), 0)


def test_a_chain_takes_what_its_stages_take_and_is_unknown_where_one_is(team: Team, finished: Any) -> None:
    finished(60, trainer="sft")
    before = {"kind": "run", "folder": "the previous stage", "checkpoint": "final"}
    chain = [spec("sft"), spec("grpo", before)]
    assert [stage.trainer for stage in estimate_launch(team, "gpu", chain).unknown] == ["grpo"]
    finished(80)
    finished(100)
    found = estimate_launch(team, "gpu", chain)
    assert (found.whole.low, found.whole.high) == (pytest.approx(140), pytest.approx(160))


def test_a_time_limit_bounds_it(team: Team, finished: Any) -> None:
    finished(600)
    found = estimate_launch(team, "gpu", [spec(limits={"minutes": 5})])
    assert (found.whole.high, found.gpu_time.high) == (pytest.approx(300), pytest.approx(300))


@pytest.mark.parametrize(("limit", "runs", "expected"), [(10, 1, ""), (5, 1, "may pass"), (4.5, 1, "passes"), (10, 8, "passes"), (None, 40, "")])
def test_the_months_quota(team: Team, finished: Any, make_lease: MakeLease, limit: float | None, runs: int, expected: str) -> None:
    Quota.objects.create(team=team, gpu_hours=limit)
    make_lease(Month.now().start, 4)
    finished(3000)
    finished(5000)
    assert estimate_launch(team, "gpu", [spec()], runs).passes == expected


def test_gpu_hours_do_not_matter_without_a_gpu(team: Team, finished: Any) -> None:
    Quota.objects.create(team=team, gpu_hours=0)
    finished(3000, device=CPU)
    assert estimate_launch(team, "gpu", [spec()]).passes == ""


def test_the_launch_form_says_it_beside_its_check(as_owner: Client, team: Team, finished: Any) -> None:
    page = as_owner.get("/launch/grpo/").content.decode()
    filled = form_values(page, "data-launch") | {"stages.0.training.max_steps": "300", "task": "mini_gsm", "policy": "tiny"}

    def ask() -> str:
        return " ".join(as_owner.post(reverse("launch-preflight"), filled).content.decode().split())

    assert "No similar finished run yet: GRPO with this policy on this device." in ask()
    finished(60)
    finished(90)
    Quota.objects.create(team=team, gpu_hours=0.06)
    said = ask()
    assert "about 3 min to 4 min 30 s" in said
    assert "It may pass the month's GPU-hours." in said
    assert "300 steps at 0.600 to 0.900 s, as 2 recent runs of your team took with this policy, task and device." in said
    filled["stages.0.training.max_steps"] = "-1"
    assert "Estimated time" not in ask()
