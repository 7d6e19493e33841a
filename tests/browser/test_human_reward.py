"""A trainer asks while a person waits: the question appears by itself, is ranked by keyboard alone, and the answer reaches the run folder."""

import json
import time

import pytest
from playwright.sync_api import expect

from lab.data.loop import human_reward
from lab.teams.accounts.models import Team, User
from lab.training.runs.models import Status
from tests.browser.test_labelling import Visit, ann, press, shown, visit  # noqa: F401 fixtures among them
from tests.lab.supervisor.spools import make_run, started, store
from trainers.contract.events import Asked, Message
from trainers.contract.spec import ANSWERS


def asked(step: int) -> Asked:
    prompt = [Message("user", f"What is {step} + 1?")]
    deadline = time.time() + 300
    return Asked(
        attempt=1, time=time.time(), key=f"1-{step}-0", step=step, group=0, prompt=prompt, completions=["one", "two", "three"], deadline=deadline
    )


@pytest.mark.feature(101)
def test_a_question_appears_while_people_wait(visit: Visit, team: Team, ann: User) -> None:  # noqa: F811
    run = make_run(team, spec={"recipe": "grpo", "human": {"share": 1.0, "seconds": 300}}, status=Status.RUNNING)
    store(run, started(), asked(1))
    queue = human_reward.find_reward_queue(run)
    assert queue is not None
    page = visit(ann, queue)
    for step in (1, 2):
        item = shown(page)
        expect(page.locator("#labelling")).to_contain_text(f"What is {step} + 1?")
        press(page, "1", "j", "2", "j", "3", "Enter")
        expect(page.locator('[data-state="done"]')).to_be_visible()
        assert human_reward.sync_reward_answers(run) == 1
        said = queue.items.get(pk=item).judgements.get()
        assert json.loads((run.folder / ANSWERS).read_text().splitlines()[-1]) == {"key": f"1-{step}-0", "tiers": said.tiers}
        if step == 1:
            store(run, asked(2))  # and nobody touches the page
            expect(page.locator("[data-stage] .item")).to_be_visible(timeout=20_000)
