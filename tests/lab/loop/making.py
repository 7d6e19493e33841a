"""A finished run with policies on the disk, labels on its rollouts, and a version frozen from them through the product."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

from lab.data.datasets.freezing import build_version, freeze_next_version
from lab.data.datasets.models import Dataset, Form, Version, VersionState
from lab.data.datasets.rules import DatasetRule
from lab.labelling.labels.models import Item, ItemState, Judgement, Kind, Preference, Queue, Verdict
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.rollouts.trajectories.models import Rollout
from lab.teams.accounts.models import Team, User
from lab.training.runs.launch import launch_run
from lab.training.runs.models import Checkpoint, Run, Status
from tests.lab.supervisor.spools import measured, rollout, started, store
from trainers.contract.events import AnyEvent, Message

SPEC: dict[str, Any] = {
    "recipe": "grpo",
    "policy": {"kind": "tiny"},
    "task": {"name": "mini_gsm", "difficulty": "easy"},
    "training": {"trainer": "grpo", "max_steps": 100},
}


def prompt(number: int) -> list[Message]:
    return [Message("user", f"Question {number}?")]


def sampled(first: int, last: int, groups: int = 4, seed: int = 0) -> list[AnyEvent]:
    """Two different answers to each of ``groups`` prompts a step."""
    texts = (f"<answer>good {seed}</answer>", f"<answer>poor {seed}</answer>")
    return [
        rollout(step, group, sample, prompt=prompt(1000 * step + group), reference="7", completion=f"{texts[sample]} {step} {group}")
        for step in range(first, last + 1)
        for group in range(groups)
        for sample in range(2)
    ]


def heldout(step: int, texts: list[str], mark: str = "") -> list[AnyEvent]:
    """One answer to each held-out prompt, and the measurement."""
    answers = [
        rollout(step, group, 0, phase="heldout", prompt=[Message("user", f"Held out {group}{mark}?")], reference="7", completion=text)
        for group, text in enumerate(texts)
    ]
    return [*answers, measured(step, values={"heldout/reward": 0.5})]


def finished_run(team: Team, user: User | None = None, *events: AnyEvent, step: int = 100, kept: tuple[int, ...] = (50,), **spec: Any) -> Run:
    """A run that trained ``step`` steps: its checkpoints and its final policy are folders."""
    run = launch_run(team, user, {**SPEC, **spec}, "source")
    store(run, started(total_steps=step), *events)
    (run.folder / "run.json").write_text(json.dumps(run.spec))
    for number in kept:
        place(run, number, f"checkpoints/checkpoint-{number}")
    place(run, step, "final", final=True)
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED, step=step)
    run.refresh_from_db()
    return run


def place(run: Run, step: int, path: str, final: bool = False) -> None:
    """A folder that looks like a policy from outside, and the row that says it is there."""
    place_folder(run.folder / path)
    Checkpoint.objects.create(run=run, attempt=1, step=step, path=path, bytes=2, final=final, created_at=run.created_at)


def place_folder(folder: Path) -> None:
    """A folder that looks like a policy from outside."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {"architectures": ["LlamaForCausalLM"], "max_position_embeddings": 256}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "chat_template.jinja").write_text("{{ messages }}")
    (folder / "model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")


def judge(item: Item, user: User, verdict: str = "a", **fields: Any) -> Judgement:
    """A judgement with its preference, as the engine leaves them."""
    made = Judgement.objects.create(item=item, queue=item.queue, user=user, key=uuid.uuid4(), verdict=verdict, order=[0, 1], seconds=3.0, **fields)
    if verdict in ("a", "b"):
        chosen, rejected = item.rollouts if verdict == "a" else item.rollouts[::-1]
        Preference.objects.create(judgement=made, item=item, chosen=chosen, rejected=rejected)
    count = item.judgements.counting().exclude(verdict=Verdict.SKIP).count()
    state = ItemState.DONE if count >= item.queue.overlap else ItemState.OPEN
    Item.across_teams.filter(pk=item.pk).update(labels=count, room=max(0, item.queue.overlap - count), state=state)
    item.refresh_from_db()
    return made


def labelled_queue(team: Team, user: User, run: Run, phase: str = "train", **settings: Any) -> Queue:
    """Every two answers to a prompt of a step, the first judged better."""
    answers = Rollout.objects.filter(run=run, phase=phase).order_by("step", "group", "sample")
    pairs: dict[tuple[int, int], list[Rollout]] = {}
    for one in answers:
        pairs.setdefault((one.step, one.group), []).append(one)
    items = [NewItem(pair[0].prompt_id, tuple(one.pk for one in pair)) for pair in pairs.values()]
    queue = make_queue(team, user, name="Pairs", kind=Kind.PAIR, items=items, **settings)
    for item in queue.items.all():
        judge(item, user)
    return queue


def frozen(team: Team, user: User, *queues: Queue, name: str = "Preferences", form: Form = Form.PREFERENCE, **rule: Any) -> Version:
    dataset = Dataset.objects.create(team=team, name=name, form=form, created_by=user)
    dataset.queues.set(queues)
    return frozen_again(dataset, user, **rule)


def frozen_again(dataset: Dataset, user: User, **rule: Any) -> Version:
    version = freeze_next_version(
        dataset, user, DatasetRule(queues=tuple(dataset.queues.values_list("pk", flat=True)), **{"test_share": 0.0, **rule})
    )
    build_version(version.pk)
    version.refresh_from_db()
    assert version.state == VersionState.READY, version.error
    return version
