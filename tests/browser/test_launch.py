"""The launch form in a browser: arithmetic and problems while typing, the check, one launch, nothing lost."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from lab.training.workers.models import Worker
from tests.trainers.hub_of_models import QWEN


@pytest.fixture
def launch_form(page: Page, owner: User, sign_in: Callable[[User], None]) -> Page:
    sign_in(owner)
    page.goto("/launch/")
    page.get_by_role("link", name="GRPO on word problems").click()
    expect(page.get_by_text("Ready to launch")).to_be_visible()
    return page


@pytest.mark.feature(1)
def test_errors_show_at_the_field_and_a_good_form_queues_a_run(launch_form: Page, team: Team) -> None:
    page = launch_form
    page.get_by_label("Name", exact=True).fill("from the browser")
    group = page.get_by_label("Group size")
    group.fill("7")
    expect(page.locator("[data-arithmetic]")).to_have_text("64 completions cannot be split into groups of 7.")
    expect(page.locator('[data-error-for="stages.0.training.num_generations"]')).to_contain_text("Does not divide the generation batch of 64")
    expect(group).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Launch", exact=True).click()
    expect(page.get_by_text("Nothing was launched.")).to_be_visible()
    expect(page.get_by_label("Group size")).to_have_value("7")
    expect(page.get_by_label("Group size")).to_be_focused()
    expect(page.get_by_label("Name", exact=True)).to_have_value("from the browser")
    assert Run.across_teams.count() == 0

    page.get_by_label("Group size").fill("16")
    expect(page.locator("[data-arithmetic]")).to_contain_text("64 completions a step = 4 prompts × groups of 16")
    page.get_by_label("Steps", exact=True).fill("20")
    expect(page.get_by_text("Ready to launch")).to_be_visible()
    expect(page.locator("#launch-command")).to_contain_text("--set training.num_generations=16")
    expect(page.locator("#preflight")).to_contain_text("1\u202f280")  # rollouts in 20 steps of 64
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url("**/runs/*-*/")
    run = Run.across_teams.get()
    assert (run.name, run.status, run.total_steps, run.spec["training"]["num_generations"]) == ("from the browser", Status.QUEUED, 20, 16)
    page.goto("/runs/")
    expect(page.get_by_role("row", name="from the browser")).to_contain_text("queued")


def test_a_bound_is_checked_before_anything_is_sent(launch_form: Page) -> None:
    page = launch_form
    page.get_by_label("Temperature").first.fill("0")
    page.get_by_role("button", name="Launch", exact=True).click()
    expect(page.locator('[data-error-for="stages.0.training.temperature"]')).to_contain_text("must be more than 0")
    expect(page.get_by_label("Temperature").first).to_be_focused()
    page.get_by_text("Advanced training settings").click()
    page.get_by_label("Weight decay").fill("")
    page.get_by_text("Advanced training settings").click()
    page.get_by_label("Temperature").first.fill("1")
    page.get_by_role("button", name="Launch", exact=True).click()
    expect(page.get_by_label("Weight decay")).to_be_focused()  # its fold opens again
    assert Run.across_teams.count() == 0


def test_a_double_click_launches_once(launch_form: Page) -> None:
    launch_form.get_by_role("button", name="Launch", exact=True).dblclick()
    launch_form.wait_for_url("**/runs/*-*/")
    assert Run.across_teams.count() == 1


def test_going_back_and_sending_again_launches_no_second_run(launch_form: Page) -> None:
    page = launch_form
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url("**/runs/*-*/")
    first = page.url
    page.go_back()
    expect(page.get_by_role("button", name="Launch", exact=True)).to_be_visible()
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url("**/runs/*-*/")
    assert page.url == first or Run.across_teams.count() == 2  # a form loaded anew is a new launch, the same form is not
    assert Run.across_teams.count() <= 2


def test_changes_are_not_lost_by_a_stray_click(context: BrowserContext, owner: User, sign_in: Callable[[User], None]) -> None:
    sign_in(owner)
    page = context.new_page()
    asked: list[str] = []
    page.on("dialog", lambda dialog: (asked.append(dialog.type), dialog.dismiss()))
    page.goto("/launch/grpo/")
    page.get_by_label("Steps", exact=True).click()
    page.keyboard.type("1")
    page.get_by_role("link", name="Workers", exact=True).click()
    expect(page.get_by_label("Steps", exact=True)).to_have_value("1501")
    assert asked == ["beforeunload"]
    page.close()


def test_choosing_a_policy_opens_what_it_needs(launch_form: Page) -> None:
    page = launch_form
    expect(page.get_by_label("Hub id")).to_be_hidden()
    page.get_by_label("Model hub").check()
    page.get_by_label("Hub id").fill("not an id")
    expect(page.locator('[data-error-for="policy.hub"]')).not_to_be_empty()
    page.get_by_label("Tiny, untrained").check()
    expect(page.get_by_label("Hub id")).to_be_hidden()
    expect(page.locator("#preflight")).to_contain_text("The weights are random")


def test_a_value_that_suits_a_model_of_the_hub_is_taken_with_one_press(launch_form: Page) -> None:
    page = launch_form
    page.get_by_label("Model hub").check()
    page.get_by_label("Hub id").fill("team/never-downloaded")
    expect(page.locator("#preflight")).to_contain_text("The config of team/never-downloaded could not be resolved from here")
    page.get_by_role("button", name="Use 1e-06").click()
    expect(page.get_by_label("Learning rate")).to_have_value("1e-06")
    expect(page.get_by_role("button", name="Use 1e-06")).to_have_count(0)
    expect(page.get_by_role("button", name="Use 512")).to_be_visible()


@pytest.mark.parametrize("key", ["Enter", "Control+Enter"])
def test_the_keyboard_alone_launches(launch_form: Page, team: Team, key: str) -> None:
    page = launch_form
    page.get_by_label("Name", exact=True).focus()
    page.keyboard.type("by keyboard")
    if key != "Enter":
        page.locator("[data-add]").first.focus()  # where Enter alone adds a method
    page.keyboard.press(key)
    page.wait_for_url("**/runs/*-*/")
    assert Run.objects.of(team).get().name == "by keyboard"


def test_it_launches_without_scripts(without_scripts: Page, team: Team) -> None:
    page = without_scripts
    page.goto("/launch/grpo/")
    page.get_by_label("Weekdays").check()
    page.get_by_label("Steps", exact=True).fill("11")
    page.get_by_role("button", name="Launch", exact=True).click()
    run = Run.objects.of(team).get()
    assert (run.task, run.total_steps) == ("calendar", 11)


@pytest.fixture
def large_model(settings: Any) -> Iterator[str]:
    """The name of a folder with the configuration of a model of 0.6 billion parameters; that its weights are not there is another problem."""
    folder = Path(settings.POLICIES_ROOT) / "large"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(QWEN))
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    yield folder.name
    shutil.rmtree(folder)


def test_one_button_takes_what_makes_a_model_fit(page: Page, owner: User, sign_in: Callable[[User], None], large_model: str) -> None:
    Worker.objects.create(name="small", host="h", pid=1, queues=["gpu"], gpu="NVIDIA L4", gpu_memory=8 * 2**30)
    sign_in(owner)
    page.goto("/launch/grpo/")
    page.locator('[name="policy"][value="folder"]').check()
    page.locator('[name="policy.folder"]').select_option(large_model)
    model = page.locator("[data-model]")
    expect(model).to_contain_text("apache-2.0")
    page.get_by_role("button", name="Use LoRA r=16 with gradient checkpointing").click()
    expect(page.locator('[name="lora"]')).to_be_checked()
    expect(page.locator('[name="stages.0.training.gradient_checkpointing"]')).to_be_checked()
    expect(page.locator('[name="stages.0.training.learning_rate"]')).to_have_value("1e-05")
    expect(page.get_by_role("button", name="Use LoRA r=16 with gradient checkpointing")).to_have_count(0)
    page.get_by_role("button", name=re.compile("Use all . suggested values")).click()
    expect(page.locator('[name="stages.0.training.per_device_train_batch_size"]')).to_have_value("8")
    expect(page.locator('[name="stages.0.training.max_completion_length"]')).to_have_value("512")
    expect(page.get_by_role("button", name=re.compile("^Use "))).to_have_count(0)
