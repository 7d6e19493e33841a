"""Rollouts and their tokens. Rows are written by the supervisor's ingest with COPY; everything else only reads them."""

from __future__ import annotations

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVectorField
from django.db import models
from django.db.models.functions import Cast
from django.db.models.lookups import Exact

from lab.rollouts.trajectories.plain_json import PlainJSONField
from lab.teams.accounts.models import Team
from lab.teams.accounts.scope import TeamManager, TeamOwned, TeamQuerySet
from lab.training.runs.models import Run


class Prompt(TeamOwned):
    """A prompt with the reference answer it is scored against, once per team however many rollouts answer it."""

    team = models.ForeignKey(Team, models.CASCADE, related_name="prompts")
    digest = models.BinaryField(max_length=16)
    messages = models.JSONField()  # [[role, content], …]
    text = models.TextField()  # the last user message, or the last one, for lists
    reference = models.TextField(blank=True)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["team", "digest"], name="prompt_once")]

    def __str__(self) -> str:
        return self.text[:80]


HAS_NO_TREE = Exact(Cast("nodes", models.TextField()), "[]")


class RolloutQuerySet(TeamQuerySet["Rollout"]):
    def current(self) -> RolloutQuerySet:
        """Without the steps that a resumed attempt has replayed."""
        return self.filter(superseded=False)

    def with_trees(self) -> RolloutQuerySet:
        """Those made as trees of turns."""
        return self.exclude(HAS_NO_TREE)


class Rollout(TeamOwned):
    """One completion. The database does not check ``run`` and ``prompt`` row by row, which takes a third of the ingest's speed away:
    every batch locks its run's row and its prompts in the transaction that adds the rollouts.
    """

    team_path = "run__team"
    binned_path = "run__binned_at"

    id = models.BigAutoField(primary_key=True)
    run = models.ForeignKey(Run, models.CASCADE, related_name="samples", db_index=False, db_constraint=False)
    prompt = models.ForeignKey(Prompt, models.PROTECT, related_name="rollouts", db_index=False, db_constraint=False)
    attempt = models.PositiveSmallIntegerField()
    step = models.PositiveIntegerField()
    phase = models.CharField(max_length=8)  # train, heldout, sampled
    group = models.PositiveIntegerField(db_column="group_index")  # which prompt of the step
    sample = models.PositiveSmallIntegerField()  # which answer to it
    completion = models.TextField()
    turns = models.JSONField(default=list)  # [[role, start, end], …] in tokens; of a rollout without token ids in code points
    nodes = PlainJSONField(default=list)  # of an episode made as a tree of turns, ``events.RolloutNode`` each; [] for most
    rewards = models.JSONField(default=dict)
    reward = models.FloatField(null=True)
    contributions = models.JSONField(default=dict)  # method -> the advantage after it, and "base" -> before all of them
    shaped = models.JSONField(default=dict)  # method -> the reward after it
    advantage = models.FloatField(null=True)
    length = models.PositiveIntegerField(null=True)  # tokens sampled by the policy; None: not recorded
    mean_entropy = models.FloatField(null=True)
    max_entropy = models.FloatField(null=True)
    finish_reason = models.CharField(max_length=10)  # empty: not recorded
    filtered = models.TextField(blank=True)
    superseded = models.BooleanField(default=False)
    spool_end = models.BigIntegerField()  # the spool offset after its event: what "everything after my cursor" means
    created_at = models.DateTimeField()

    objects = TeamManager.from_queryset(RolloutQuerySet)()  # type: ignore[misc,assignment]
    across_teams = TeamManager.from_queryset(RolloutQuerySet)()  # type: ignore[misc,assignment]

    class Meta:
        indexes = [
            # With everything lists sort and filter by: a page, a histogram or a rare match reads the index of one run, never its texts.
            models.Index(
                fields=["run", "step", "group", "sample"],
                # Texts last: PostgreSQL finds what stands before them by counting bytes, in two thirds of the time.
                include=["id", "prompt", "length", "superseded", "reward", "advantage", "mean_entropy", "max_entropy", "phase", "finish_reason"],
                name="rollout_listed",
            ),
            models.Index(fields=["prompt", "run", "step"], name="rollout_prompt"),
            models.Index(fields=["run"], condition=~models.Q(filtered=""), name="rollout_filtered"),
            models.Index(fields=["run"], condition=models.Q(superseded=True), name="rollout_superseded"),
        ]

    def __str__(self) -> str:
        return f"step {self.step}, group {self.group}, sample {self.sample}"


class RolloutTokens(TeamOwned):
    """Packed arrays of one rollout (``trainers.contract.arrays``), apart from the row because lists never read them.

    Added with its rollout in one transaction and by nothing else, so the database does not check that either.
    """

    team_path = "rollout__run__team"

    rollout = models.OneToOneField(Rollout, models.CASCADE, primary_key=True, related_name="tokens", db_constraint=False)
    ids = models.BinaryField()
    lengths = models.BinaryField()
    logprobs = models.BinaryField()
    entropies = models.BinaryField()
    mask = models.BinaryField()
    token_advantages = models.BinaryField(default=b"")  # empty: every token has the rollout's advantage
    weights = models.BinaryField(default=b"")  # empty: all ones
    reference_logprobs = models.BinaryField(default=b"")  # empty: the run has no reference policy
    ratios = models.BinaryField(default=b"")  # importance ratio in the last pass; empty: all ones
    clipped = models.BinaryField(default=b"")  # 1 where the clip took the gradient away; empty: nowhere
    sampler_logprobs = models.BinaryField(default=b"")  # as the sampler reported them; empty: not recorded, as are the four below
    ranks = models.BinaryField(default=b"")  # of the sampled token by probability, 1: the likeliest, 0: not known
    alternative_ids = models.BinaryField(default=b"")  # k for each token, likeliest first
    alternative_logprobs = models.BinaryField(default=b"")
    alternative_texts = models.BinaryField(default=b"")  # of the different ids, ascending

    def __str__(self) -> str:
        return f"tokens of rollout {self.rollout_id}"


class RolloutWords(TeamOwned):
    """The words of a completion for full-text search, added behind the ingest (``Run.searchable_to`` says how far).

    Besides the words it has lexemes no text can have, so that one GIN scan narrows by them: its run's and its block's
    (``lab.rollouts.browse.words``).
    """

    team_path = "rollout__run__team"

    rollout = models.OneToOneField(Rollout, models.CASCADE, primary_key=True, related_name="words", db_constraint=False)
    words = SearchVectorField()

    class Meta:
        indexes = [GinIndex(fields=["words"], name="rollout_words")]

    def __str__(self) -> str:
        return f"words of rollout {self.rollout_id}"


class DroppedRollouts(TeamOwned):
    """What the team's retention rule (``lab.watching.retention``) has dropped of a run, and how far it has come.

    Rows are counted with those of replayed steps; ``tokens`` are rollouts that lost their token arrays alone.
    """

    team_path = "run__team"

    run = models.OneToOneField(Run, models.CASCADE, related_name="dropped")
    rollouts = models.PositiveBigIntegerField(default=0)
    tokens = models.PositiveBigIntegerField(default=0)
    dropped_at = models.DateTimeField(null=True)
    looked_at = models.DateTimeField(null=True)  # when all of the run had been looked at last
    reached = models.PositiveIntegerField(default=0)  # the step at which the next piece begins

    def __str__(self) -> str:
        return f"{self.rollouts} rollouts dropped of run {self.run_id}"
