"""Own questions become a task in the browser, and a model of another family trains on it, with a real worker and a real trainer."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from playwright.sync_api import Page, expect

from lab.data.tasks.models import TaskVersion
from lab.lib.processes import ManagedProcess
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Run, Status
from tests.browser.training import wait_for_status

TRAINING_MS = 240_000
FOLDER = "random-qwen3"
QUESTIONS = "".join(["question,answer\n", *(f"What is {number} + {number}?,{2 * number}\n" for number in range(200))])


@pytest.fixture
def qwen(web: Any) -> Iterator[str]:
    """The folder of a Qwen3 with random weights, where the lab's policies are."""
    from transformers import GenerationConfig, Qwen3Config, Qwen3ForCausalLM

    from trainers.policies.tiny import build_tokenizer

    tokenizer = build_tokenizer(QUESTIONS.splitlines())
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id}
    sizes = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "head_dim": 16}
    model = Qwen3ForCausalLM(Qwen3Config(**sizes, vocab_size=len(tokenizer), max_position_embeddings=512, **ends))
    model.generation_config = GenerationConfig(**ends)
    folder = Path(settings.POLICIES_ROOT) / FOLDER
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    yield FOLDER
    shutil.rmtree(folder)


def add_reward(page: Page, key: str, column: str, weight: str) -> None:
    page.get_by_label("Add a reward function").select_option(key)
    page.locator("#reward-add").click()
    box = page.locator(".task-reward").last
    expect(box.locator(f"input[value='{key}']").first).to_be_attached()
    box.get_by_label("Column").fill(column)
    box.get_by_label("Weight").fill(weight)


def make_task(page: Page) -> None:
    page.goto("/tasks/")
    page.keyboard.press("n")
    page.get_by_label("File", exact=True).set_input_files({"name": "questions.csv", "mimeType": "text/csv", "buffer": QUESTIONS.encode()})
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("combobox", name="Prompt", exact=True)).to_have_value("question")
    expect(page.get_by_label("Reference answer")).to_have_value("answer")
    page.get_by_label("System prompt").fill("Write the number between <answer> and </answer>.")
    add_reward(page, "library:math-verify", "accuracy", "1")
    add_reward(page, "library:tags", "form", "0.2")
    page.locator(".task-reward").first.get_by_label("Only where").select_option("1")
    expect(page.get_by_label("System prompt")).to_have_value("Write the number between <answer> and </answer>.")


def preview_task(page: Page) -> None:
    page.get_by_label("Model", exact=True).select_option(f"folder:{FOLDER}")
    page.get_by_text("Score answers of your own").click()
    page.get_by_label("Another answer").fill("<answer>0</answer>")
    page.get_by_role("button", name="Show preview").click()
    row = page.get_by_label("Row 1", exact=True)
    expect(row.locator(".task-tokens")).to_contain_text("What is 0 + 0?", timeout=90_000)
    expect(row.locator(".task-tokens .special").first).to_have_text("<|im_start|>")
    expect(row.get_by_role("row", name="empty")).to_contain_text("0")


@pytest.mark.training
@pytest.mark.timeout(600)
def test_two_hundred_own_questions_become_a_task_and_train_an_own_model(
    page: Page, sign_in: Callable[[User], None], owner: User, team: Team, qwen: str, start_process: Callable[..., ManagedProcess]
) -> None:
    start_process("worker", "manage.py", "worker")
    sign_in(owner)
    make_task(page)
    preview_task(page)
    page.get_by_role("button", name="Create task").click()
    expect(page.get_by_role("heading", name="questions v1")).to_be_visible()
    version = TaskVersion.across_teams.get()
    assert version.counts["rows"] == 200

    page.get_by_role("link", name="Launch a run on this task").click()
    page.get_by_role("link", name="GRPO on word problems").click()
    expect(page.get_by_role("radio", name="questions v1")).to_be_checked()
    page.get_by_role("radio", name="Folder").check()
    page.locator("[name='policy.folder']").select_option(qwen)
    page.get_by_text("LoRA adapters", exact=True).click()
    page.get_by_label("Train low-rank adapters instead of all weights").check()
    page.get_by_label("Steps", exact=True).fill("2")
    page.get_by_label("Per-device batch size").fill("8")
    page.get_by_label("Group size").fill("4")
    page.get_by_label("Max completion tokens").first.fill("16")
    page.get_by_text("Held-out evaluation", exact=True).click()
    page.get_by_label("Held-out prompts").fill("4")
    expect(page.get_by_text("Ready to launch")).to_be_visible()
    page.get_by_role("button", name="Launch", exact=True).click()
    page.wait_for_url("**/runs/*-*/")
    run = Run.across_teams.get()
    assert run.spec["task"]["file"]["sha256"] == version.sha256
    assert run.spec["lora"]
    wait_for_status(page, Status.FINISHED, TRAINING_MS)
    expect(page.get_by_role("link", name="questions v1")).to_be_visible()
    trained = Rollout.objects.current().filter(run=run, phase="train")
    assert trained.count() == 16
    assert set(trained.first().rewards) == {"accuracy", "form"}  # type: ignore[union-attr]
    assert Rollout.objects.current().filter(run=run, phase="heldout").exists()
    page.get_by_role("link", name="questions v1").click()
    expect(page.get_by_text(f"#{run.number}")).to_be_visible()
