"""One of everything a team can own, each with the team's mark in every text it holds; ``addresses`` fills the project's URLs with their ids."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import numpy as np
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from lab.data.datasets.models import Dataset, Recall, RecallKind, Row, Version, VersionState
from lab.data.loop.models import Feed
from lab.data.tasks.models import Fetch, FetchState, Task, TaskVersion
from lab.labelling.labels.models import Item, ItemState, Judgement, Kind, Preference, Queue, QueueMember, Verdict
from lab.labelling.labels.new_queues import NewItem, make_queue
from lab.models.branches.models import Branch, Continuation, TokenAlternatives
from lab.models.embeddings.models import ClusterMember, Embedder, Embedding, EmbeddingJob, JobKind, JobStatus, Source
from lab.models.playground.models import Sample, Sampling, SamplingStatus, Side
from lab.models.policies.models import Alias, Proposal, Push
from lab.rollouts.annotations import verbs
from lab.rollouts.annotations.models import Comment, Tag
from lab.rollouts.backtests.comparison import compare_scores
from lab.rollouts.backtests.models import Backtest, BacktestStatus
from lab.rollouts.browse.models import SavedView
from lab.rollouts.replay.answers import summarize_replayed_members
from lab.rollouts.replay.models import FORMAT, Replay, ReplayStatus
from lab.rollouts.trajectories.models import Prompt, Rollout
from lab.supervision.supervisor.ingest import ingest_spool
from lab.teams.accounts.models import ApiToken, Invitation, JoinRequest, Membership, Project, Team, User
from lab.teams.accounts.permissions import BEARER, find_route_access
from lab.teams.audit.models import Entry
from lab.training.ablations.models import Ablation, AblationRun
from lab.training.catalog.models import SavedRecipe
from lab.training.edits.models import RunEdit
from lab.training.rewards.models import RewardFunction
from lab.training.runs.launch import launch_recipe
from lab.training.runs.models import TAG_LENGTH, Checkpoint, Run, Status
from lab.training.runs.placement import Place
from lab.training.sweeps.models import Sweep, Trial
from lab.watching.alerts.models import Delivery, Notice, Rule, Webhook
from lab.watching.reports.models import Report
from lab.watching.reports.verbs import create_report
from tests.lab.alerts.making import make_alerts
from tests.lab.policies.making import make_policies
from tests.lab.supervisor.spools import finished, measured, rollout, started, write
from trainers.contract.events import AnyEvent, Environment, Message, Package

# Every parameter of a URL is either an object of a team (how the cast finds its id) or plain (any value that opens the page).
PLAIN: dict[str, Any] = {
    "name": "grpo",
    "world": "search",
    "recipe": "grpo",
    "phase": "train",
    "step": 1,
    "attempt": 1,
    "group": 0,
    "verb": "resolve",
    "form": "jsonl",
}
PLAIN |= {"pk": 1, "session_id": 1, "provider_id": "sso", "organization_slug": "sso"}  # of accounts
OBJECTS = ("run_id", "rollout_id", "prompt_id", "comment_id", "tag_id", "replay_id", "ablation_id", "sweep_id")
OBJECTS += ("token_id", "entry_id", "membership_id", "invitation_id", "request_id")
OBJECTS += ("queue_id", "item_id", "judgement_id", "member_id", "dataset_id", "version_id", "recall_id", "feed_id")
OBJECTS += ("project_id", "checkpoint_id", "alias_id", "proposal_id", "push_id")
OBJECTS += (
    "sampling_id",
    "edit_id",
    "branch_id",
    "alternatives_id",
    "report_id",
    "clustering_id",
    "embedder_id",
    "task_id",
    "task_version_id",
    "fetch_id",
)
OBJECTS += ("reward_id", "backtest_id")
OBJECTS += ("notice_id", "rule_id", "team_rule_id", "webhook_id", "delivery_id")
KEYS = {"recipe": "saved recipe", "view": "saved view"}  # what <id:key> is, by the first word of the URL's name
PUBLIC = ("health", "metrics", "setup", "api-openapi", "client", "csp-report", "invited", "account_")  # beginnings of names that need no login
PUBLIC += ("socialaccount_", "openid_connect_", "saml_", "mfa_authenticate", "mfa_login")


@dataclass
class Cast:
    team: Team
    user: User
    mark: str
    run: Run
    rollout: Rollout
    other_rollout: Rollout
    prompt: Prompt
    comment: Comment
    tag: Tag
    recipe: SavedRecipe
    view: SavedView
    ablation: Ablation
    replay: Replay
    queue: Queue
    item: Item
    judgement: Judgement
    member: QueueMember
    dataset: Dataset
    version: Version
    recall: Recall
    feed: Feed
    token: ApiToken
    keys: dict[str, Any] = field(default_factory=dict)

    @property
    def entry(self) -> Entry:
        """An entry of the audit log: of the launch."""
        return Entry.objects.of(self.team).earliest("pk")

    @property
    def membership(self) -> Membership:
        return Membership.objects.get(team=self.team, user=self.user)

    @property
    def invitation(self) -> Invitation:
        return Invitation.objects.get(team=self.team)

    @property
    def request(self) -> JoinRequest:
        return JoinRequest.objects.get(team=self.team)

    @property
    def sweep(self) -> Sweep:
        return Sweep.objects.get(team=self.team)

    @property
    def edit(self) -> RunEdit:
        return RunEdit.objects.get(run=self.run)

    @property
    def reward(self) -> RewardFunction:
        return RewardFunction.objects.get(team=self.team)

    @property
    def backtest(self) -> Backtest:
        return Backtest.objects.get(team=self.team)

    @property
    def project(self) -> Project:
        return Project.objects.get(team=self.team)

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint.objects.get(run=self.run)

    @property
    def task(self) -> Task:
        return Task.objects.get(team=self.team)

    @property
    def task_version(self) -> TaskVersion:
        return TaskVersion.objects.get(task__team=self.team)

    @property
    def fetch(self) -> Fetch:
        return Fetch.objects.get(team=self.team)

    @property
    def alias(self) -> Alias:
        return Alias.objects.get(team=self.team)

    @property
    def proposal(self) -> Proposal:
        return Proposal.objects.get(team=self.team)

    @property
    def push(self) -> Push:
        return Push.objects.get(team=self.team)

    @property
    def sampling(self) -> Sampling:
        return Sampling.objects.get(team=self.team)

    @property
    def branch(self) -> Branch:
        return Branch.objects.get(team=self.team)

    @property
    def alternatives(self) -> TokenAlternatives:
        return TokenAlternatives.objects.get(team=self.team)

    @property
    def report(self) -> Report:
        return Report.objects.get(team=self.team)

    @property
    def clustering(self) -> EmbeddingJob:
        return EmbeddingJob.objects.get(team=self.team)

    @property
    def embedder(self) -> Embedder:
        return Embedder.objects.get(team=self.team)

    @property
    def notice(self) -> Notice:
        return Notice.objects.filter(team=self.team, user=self.user).latest("created_at")

    @property
    def rule(self) -> Rule:
        return Rule.objects.of(self.team, self.user).latest("pk")

    @property
    def team_rule(self) -> Rule:
        return Rule.objects.of(self.team, None).latest("pk")

    @property
    def webhook(self) -> Webhook:
        return Webhook.objects.filter(team=self.team).latest("pk")

    @property
    def delivery(self) -> Delivery:
        return Delivery.objects.of(self.team).latest("created_at")

    def value(self, name: str, parameter: str) -> Any:
        """For a parameter of the URL ``name``. Raises KeyError for one the cast does not know."""
        if parameter == "key":
            return {"saved recipe": self.recipe, "saved view": self.view}[KEYS[name.split("-")[0]]].pk
        if parameter in OBJECTS:
            return self.find_key(parameter.removesuffix("_id"))
        return PLAIN[parameter]

    def find_key(self, name: str) -> Any:
        """The key of what is called so, looked for once: a walk fills two thousand addresses."""
        if name not in self.keys:
            self.keys[name] = getattr(self, name).pk
        return self.keys[name]


def make_people(team: Team, user: User, mark: str) -> None:
    """Somebody who is invited, and somebody who asks to be let in."""
    until = timezone.now() + timedelta(days=7)
    Invitation.objects.create(team=team, email=f"{mark}@example.org", invited_by=user, digest=f"{mark:0<64}", expires_at=until)
    asking = User.objects.create_user(f"asking-{mark}@example.org", "correct horse battery")
    JoinRequest.objects.create(team=team, user=asking, message=f"message {mark}")


def make_cast(team: Team, user: User, mark: str, events: Sequence[AnyEvent] = ()) -> Cast:
    """``events`` happen in its run before that finishes."""
    project = Project.objects.create(team=team, created_by=user, name=f"project {mark}", about=f"about {mark}")
    [run] = launch_recipe(team, user, "grpo", name=f"run {mark}", place=Place(project))
    Run.across_teams.filter(pk=run.pk).update(status=Status.FINISHED, notes=f"notes {mark}", tags=[f"tag {mark}"[:TAG_LENGTH]])
    words = {"prompt": [Message("user", f"prompt {mark}")], "reference": f"answer {mark}", "rewards": {f"reward {mark}": 1.0}}
    texts = {"completion": f"completion {mark}", "filtered": f"reason {mark}"}
    answers = [rollout(1, 0, sample, **words, **texts, reward=float(sample)) for sample in range(2)]
    environment = Environment(packages=[Package(f"package {mark}", "1")])
    write(
        run.folder,
        [
            started(special_tokens={4: f"<{mark}>"}, environment=environment),
            *answers,
            measured(1, values={f"metric {mark}": 1.0, "reward": 0.5}),
            *events,
            finished(),
        ],
    )
    run.refresh_from_db()
    while ingest_spool(run):
        pass
    first, second = Rollout.objects.filter(run=run, step=1).order_by("sample")
    tag = Tag.across_teams.get(pk=verbs.tag_rollout(team, user, first, f"tag {mark}"[: verbs.TAG_LENGTH]).made)
    comment = Comment.across_teams.get(pk=verbs.start_comment_thread(team, user, first, f"comment {mark}", "0", "4").made)
    RunEdit.objects.create(run=run, key=f"edit-{mark}", author=user, reason=f"edited {mark}", changes={"training.learning_rate": 1e-4})
    stages = [{"title": "GRPO", "spec": {key: value for key, value in run.spec.items() if key != "output"}}]
    version, _ = SavedRecipe.objects.save_version(team, user, f"recipe {mark}", f"note {mark}", "grpo", stages)
    view = SavedView.objects.create(team=team, owner=user, name=f"view {mark}", query=f"q={mark}", shared=True)
    ablation = Ablation.objects.create(team=team, author=user, source=run, name=f"ablation {mark}", spec=run.spec, seeds=1)
    AblationRun.objects.create(ablation=ablation, run=run, variant="full", seed=0)
    space = [{"key": "training.learning_rate", "values": [1e-3, 1e-4]}]
    about = {"sampler": "grid", "metric": "reward", "most_runs": 2, "parallel": 1, "state": "stopped", "reason": f"reason {mark}"}
    sweep = Sweep.objects.create(team=team, author=user, runner=user, source=run, name=f"sweep {mark}", spec=run.spec, space=space, **about)
    Trial.objects.create(sweep=sweep, run=run, number=0, values={"training.learning_rate": 1e-3}, score=0.5)
    Trial.objects.create(sweep=sweep, number=1, values={"training.learning_rate": 1e-4}, refusal=f"refusal {mark}")
    result = {"format": FORMAT, "members": [], "methods": [], "notes": [f"note {mark}"], "scale": None, "summary": summarize_replayed_members([])}
    base = {"name": "grpo", "config": {}}
    replay = Replay.objects.create(team=team, run=run, user=user, step=1, group=0, base=base, status=ReplayStatus.FINISHED, result=result)
    make_people(team, user, mark)
    make_alerts(team, user, mark)
    make_policies(team, user, mark, run)
    make_sampling(team, user, mark, run)
    make_branches(team, user, mark, first)
    create_report(team, user, f"report {mark}", write_report_text(mark, run, first), project)
    make_clustering(team, user, mark, [first, second])
    make_rewards(team, user, mark, run)
    labelled = make_labels(team, user, mark, run, [first, second])
    token = make_token(team, user, mark)
    return Cast(team, user, mark, run, first, second, first.prompt, comment, tag, version.recipe, view, ablation, replay, *labelled, token)


def write_report_text(mark: str, run: Run, rollout: Rollout) -> str:
    """One of each block."""
    blocks = {"chart": f"runs: {run.number}\nmetric: reward", "table": f"runs: {run.number}", "runs": "search: run", "rollout": f"{rollout.pk}"}
    blocks["group"] = f"run: {run.number}\nstep: {rollout.step}\ngroup: {rollout.group}"
    return f"# text {mark}\n\n" + "\n\n".join(f"```{kind}\n{settings}\n```" for kind, settings in blocks.items())


def make_rewards(team: Team, user: User, mark: str, run: Run) -> None:
    """A function with two versions, and a finished backtest of the second."""
    function = RewardFunction.objects.create(team=team, name=f"function {mark}", created_by=user)
    source = f"def score(completion, reference, data):\n    return {mark!r}\n"
    for number in (1, 2):
        definition = {"kind": "code", "source": source * number}
        version = function.versions.create(number=number, definition=definition, note=f"note {mark}", created_by=user)
    about = {
        "version": version,
        "name": f"function {mark} v2",
        "definition": definition,
        "against": f"reward {mark}",
        "first_step": 1,
        "last_step": 1,
    }
    Backtest.objects.create(team=team, run=run, user=user, status=BacktestStatus.FINISHED, result=compare_scores([]), **about)


def make_sampling(team: Team, user: User, mark: str, run: Run) -> None:
    asked = [{"role": "user", "content": f"asked {mark}"}]
    sampling = Sampling.objects.create(team=team, user=user, prompt=asked, status=SamplingStatus.FINISHED, error=f"error {mark}")
    side = Side.objects.create(sampling=sampling, place=0, checkpoint=Checkpoint.objects.get(run=run), label=f"side {mark}")
    Sample.objects.create(side=side, number=0, text=f"sample {mark}")


def make_branches(team: Team, user: User, mark: str, rollout: Rollout) -> None:
    about = {
        "team": team,
        "user": user,
        "rollout": rollout,
        "checkpoint": Checkpoint.objects.get(run=rollout.run),
        "place": 0,
        "label": f"label {mark}",
    }
    token = {"id": 1, "text": f"token {mark}", "logprob": -1.0, "end": False}
    result = {"entropy": 1.0, "own": {**token, "rank": 1}, "tokens": [token]}
    TokenAlternatives.objects.create(**about, status=SamplingStatus.FINISHED, result=result, error=f"error {mark}")
    texts = {"chosen_text": f"chosen {mark}", "sampled_text": f"sampled {mark}", "note": f"note {mark}", "error": f"error {mark}"}
    branch = Branch.objects.create(**about, **texts, status=SamplingStatus.FINISHED, choice="token", chosen=1)
    Continuation.objects.create(branch=branch, number=0, text=f"continuation {mark}", rewards={f"reward {mark}": 1.0}, reward=1.0)


def make_clustering(team: Team, user: User, mark: str, rollouts: list[Rollout]) -> None:
    """Two rollouts with a vector each, in one cluster."""
    embedder = Embedder.objects.create(team=team, kind=Source.ENCODER, name=f"encoder {mark}", key=mark, folder=f"folder {mark}", dimension=2)
    words = [[{"word": f"word {mark}", "share": 1.0, "rest": 0.0, "z": 4.0}]]
    about = {"name": f"clusters {mark}", "query": f"q={mark}", "error": f"error {mark}", "most": 10, "sampled": 2, "selected": 2, "done": 2}
    result = {"format": 1, "silhouettes": [], "words": words, "explained": [1.0, 0.0]}
    job = EmbeddingJob.objects.create(
        team=team, user=user, kind=JobKind.CLUSTERS, embedder=embedder, status=JobStatus.FINISHED, result=result, **about
    )
    for place, one in enumerate(rollouts):
        Embedding.objects.create(rollout=one, embedder=embedder, vector=np.array([1, place], dtype="<f2").tobytes())
        ClusterMember.objects.create(job=job, rollout=one, cluster=1, distance=0.5, x=float(place), y=0.0)


def make_token(team: Team, user: User, mark: str) -> ApiToken:
    digest = hashlib.sha256(mark.encode()).hexdigest()
    return ApiToken.objects.create(team=team, user=user, name=f"token {mark}", prefix=f"lab_{digest[:8]}", digest=digest, scopes=["runs.read"])


def make_labels(
    team: Team, user: User, mark: str, run: Run, rollouts: list[Rollout]
) -> tuple[Queue, Item, Judgement, QueueMember, Dataset, Version, Recall, Feed]:
    """A pair of rollouts, judged, in a frozen version that is recalled."""
    first, second = rollouts
    queue = make_queue(
        team, user, name=f"queue {mark}", kind=Kind.PAIR, guidelines=f"guidelines {mark}", items=[NewItem(first.prompt_id, (first.pk, second.pk))]
    )
    item = queue.items.get()
    texts = {"rationale": f"rationale {mark}", "correction": f"correction {mark}"}
    judgement = Judgement.objects.create(item=item, queue=queue, user=user, key=uuid.uuid4(), verdict=Verdict.A, order=[0, 1], seconds=1.0, **texts)
    Preference.objects.create(judgement=judgement, item=item, chosen=first.pk, rejected=second.pk)
    Item.across_teams.filter(pk=item.pk).update(room=0, labels=1, state=ItemState.DONE)
    item.refresh_from_db()
    member = QueueMember.objects.create(queue=queue, user=user)
    dataset = Dataset.objects.create(team=team, name=f"dataset {mark}", created_by=user)
    dataset.queues.add(queue)
    frozen = Version.objects.create(dataset=dataset, number=1, state=VersionState.READY, notes=f"notes {mark}", created_by=user)
    answers = {name: [{"role": "assistant", "content": one.completion}] for name, one in (("chosen", first), ("rejected", second))}
    row = {"prompt": [{"role": "user", "content": f"prompt {mark}"}], **answers}
    sources = {"prompt": first.prompt_id, "rollouts": [first.pk, second.pk], "item": item.pk, "queue": queue.pk, "labellers": [user.pk]}
    Row.objects.create(version=frozen, place=0, split="train", row=row, digest="0" * 64, **sources)
    recall = Recall.objects.create(team=team, kind=RecallKind.LABELLER, labeller=user, reason=f"recall {mark}", by=user)
    feed = Feed.objects.create(team=team, run=run, queue=queue, share=0.5, created_by=user)
    make_team_task(team, user, mark)
    return queue, item, judgement, member, dataset, frozen, recall, feed


def make_team_task(team: Team, user: User, mark: str) -> None:
    """A task with a version whose file nobody asks for, and a fetch that failed."""
    task = Task.objects.create(team=team, name=f"task {mark}", created_by=user)
    reward = {
        "name": "accuracy",
        "definition": {"kind": "library", "function": "exact-match", "config": {}},
        "weight": 1.0,
        "shadow": False,
        "origin": None,
    }
    definition = {"version": 1, "name": f"task {mark}", "system": f"system {mark}", "examples": [], "rewards": [reward]}
    counts = {"train": 2, "heldout": 1, "skipped": 0, "invalid": [], "repeated": 0, "demonstrations": 0, "references": 3}
    counts["example"] = {"prompt": f"prompt {mark}", "reference": f"reference {mark}"}
    source = {"kind": "file", "name": f"{mark}.csv", "file": "none.source", "file_kind": "csv", "size": 1, "sha256": "0" * 64}
    digest = hashlib.sha256(mark.encode()).hexdigest()
    about = {"file": f"{mark}.task.jsonl", "sha256": digest, "size": 10, "note": f"note {mark}", "created_by": user}
    task.versions.create(number=1, definition=definition, plan={"prompt": f"column {mark}"}, source=source, counts=counts, **about)
    Fetch.objects.create(
        team=team, user=user, kind="hub", settings={"name": f"owner/{mark}", "rows": 5}, state=FetchState.FAILED, error=f"error {mark}"
    )


@dataclass(frozen=True)
class Address:
    """A URL of the project: its name and its parameters."""

    name: str
    parameters: tuple[str, ...]

    @property
    def public(self) -> bool:
        return self.name.startswith(PUBLIC)

    @property
    def owned(self) -> bool:
        """Whether it names an object of a team."""
        return any(parameter == "key" or parameter in OBJECTS for parameter in self.parameters)

    def unknown(self) -> list[str]:
        """Parameters for which the cast has no value."""
        known = {*PLAIN, *OBJECTS, *(["key"] if self.name.split("-")[0] in KEYS else [])}
        return [parameter for parameter in self.parameters if parameter not in known]

    def of(self, cast: Cast) -> str:
        return reverse(self.name, kwargs={parameter: cast.value(self.name, parameter) for parameter in self.parameters})


def addresses(inside: URLResolver | None = None, outer: tuple[str, ...] = ()) -> Iterator[Address]:
    """All of the project, without those that want an access token (tests/lab/api walks these); ``outer`` are the parameters of the paths around
    ``inside``.
    """
    for entry in (inside or get_resolver()).url_patterns:
        parameters = (*outer, *entry.pattern.converters)
        if isinstance(entry, URLResolver):
            if not str(entry.namespace or "").startswith(("api-", "admin")):  # /admin/ is in no team
                yield from addresses(entry, parameters)
        elif isinstance(entry, URLPattern):
            assert entry.name, f"{entry.pattern} has no name"
            asked = find_route_access(entry.name)
            if asked is None or BEARER not in (asked.read, asked.write):
                yield Address(entry.name, parameters)
