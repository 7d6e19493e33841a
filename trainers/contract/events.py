"""The typed events a run reports, one JSON object a line, and nothing about how they are stored (see ``spool``).

Every event carries the attempt that wrote it and the wall-clock time in seconds since 1970. A resumed run replays steps after its last
checkpoint: readers keep the newest attempt of a step and treat the older one as superseded.
"""

from typing import Any, Literal

import msgspec

from trainers.contract.memory import MemoryPart

COLD_START = "cold start"  # the phase in which the built-in policy is made, once on a machine


class Event(msgspec.Struct, tag_field="event", frozen=True, kw_only=True, gc=False):
    attempt: int
    time: float


class Code(msgspec.Struct, frozen=True):
    """``commit``: 40 or 64 hex digits, empty where nothing says it. ``changed``: whether files differ from it, None where nobody can tell.
    ``source``: ``git`` (a clone was asked) or ``release`` (written when the archive or the image was made)."""

    commit: str = ""
    changed: bool | None = None
    source: str = ""


class Package(msgspec.Struct, frozen=True, omit_defaults=True):
    """An installed distribution. ``url`` and ``commit``: where it came from, when not from an index (direct_url.json), without credentials;
    of one installed from a folder, the folder and the commit of the repository that tracks it."""

    name: str
    version: str
    url: str = ""
    commit: str = ""
    editable: bool = False
    changed: bool | None = None


class Hardware(msgspec.Struct, frozen=True):
    """``gpus``: names of those that torch sees. ``cuda``: the version torch was built for; ``driver``: the GPU's."""

    system: str = ""
    cpu: str = ""
    cores: int = 0
    gpus: list[str] = []
    driver: str = ""
    cuda: str = ""


class Environment(msgspec.Struct, frozen=True):
    """What the attempt's code runs in. ``task``: the distribution that the task comes from, None for built-in tasks. No environment variable
    is ever part of it."""

    code: Code = Code()
    packages: list[Package] = []
    task: Package | None = None
    hardware: Hardware = Hardware()


class AttemptStarted(Event, tag="attempt-started", frozen=True):
    """Training is about to start; ``from_step`` optimiser steps are already done (0, or the checkpoint resumed from)."""

    from_step: int
    total_steps: int
    pid: int
    host: str
    device: str
    command: list[str]
    versions: dict[str, str]
    special_tokens: dict[int, str] = {}
    parameters: int = 0
    environment: Environment | None = None


class Inputs(Event, tag="inputs", frozen=True):
    """What the attempt trains, and on what, by hash (``trainers.attempt.inputs`` says over which bytes).

    ``source``: where the rows come from: ``dataset`` (a file), ``task`` (drawn with the seed) or ``policy`` (pairs it sampled). ``revision``: the
    hub commit of the policy; ``weights``: the hash of its weights where it is not from a hub. Empty where there is none, or it was not computed.
    """

    source: Literal["dataset", "task", "policy"]
    rows: int
    sha256: str
    heldout_rows: int = 0
    heldout_sha256: str = ""
    revision: str = ""
    weights: str = ""


class Memory(Event, tag="memory", frozen=True):
    """What training is estimated to take at most, in parts with their sum last, and the ``peak`` so far, in bytes.

    ``measured`` says of what: ``cuda`` (allocated by torch on the GPU) or ``process`` (resident memory of the whole process, where there is no GPU).
    ``device_memory``: of the GPU, 0 without one. Written before the first step, after it, and when training ends; the last one holds.
    """

    parts: list[MemoryPart]
    peak: int
    measured: Literal["cuda", "process"]
    device_memory: int = 0


class Phase(Event, tag="phase", frozen=True):
    """What the trainer does now (``loading``, ``cold start``, ``sampling pairs``, ``training``, ``waiting for people``, ``evaluating``,
    ``saving``) and how far it is."""

    name: str
    done: int = 0
    total: int = 0


class Metrics(Event, tag="metrics", frozen=True):
    """Numbers at the end of optimiser step ``step`` (1-based; 0 = before training). ``nonfinite`` names values JSON has no number for."""

    step: int
    values: dict[str, float]
    nonfinite: dict[str, Literal["nan", "inf", "-inf"]] = {}
    tokens: int = 0


class Message(msgspec.Struct, frozen=True, gc=False):
    role: str
    content: str


class Turn(msgspec.Struct, frozen=True, gc=False):
    """Tokens [start, end) of a completion were written by ``role``: ``assistant`` (the policy) or ``tool`` (the environment; no loss).

    Of a rollout without token ids: code points of its completion.
    """

    role: str
    start: int
    end: int


MOST_NODE_TEXT = 2000  # characters of a node's text; a longer one ends in …


class RolloutNode(msgspec.Struct, frozen=True, omit_defaults=True):
    """A node of the tree of turns that a rollout is a path of: what one seat, or the world, adds.

    ``start``, ``end``: its tokens in the rollout, -1 where they are not in it; such a node has its ``text`` here. ``fate``: kept, cut or abandoned,
    ``why`` in words. ``finish``: why the episode ended there. ``about``: of the prompt of a side question, the node it asks about. ``facts`` and
    ``reward``: what the world said of the turn; ``notes``: numbers of a search or a method.
    """

    number: int
    by: str  # prompt, policy, world, forced
    parent: int | None = None
    seat: str = "policy"
    fate: str = "kept"
    why: str = ""
    reward: float | None = None
    finish: str = ""
    about: int | None = None
    start: int = -1
    end: int = -1
    text: str = ""
    facts: dict[str, Any] = {}
    notes: dict[str, float] = {}


class Rollout(Event, tag="rollout", frozen=True):
    """One completion and everything known about it. T tokens, policy and environment together; arrays are packed by ``trainers.contract.arrays``.

    ``completion`` is the text the reward functions saw (special tokens left out). ``lengths[i]`` is how many code points of it token i adds:
    0 for a special token and for the first bytes of a character that a later token completes.
    """

    step: int
    phase: Literal["train", "heldout", "sampled", "play"]
    group: int
    sample: int
    prompt: list[Message]
    completion: str
    rewards: dict[str, float | None]
    reward: float | None
    finish_reason: Literal["stop", "length", "turns", ""]  # empty: not recorded
    reference: str = ""
    advantage: float | None = None
    length: int | None = 0  # tokens sampled by the policy; None: not recorded
    mean_entropy: float | None = None  # nats, over the policy's tokens
    max_entropy: float | None = None
    turns: list[Turn] = []
    nodes: list[RolloutNode] = []  # of an episode that was made as a tree of turns: those of its path first, then what was cut or asked beside it
    filtered: str = ""  # why the sample was left out of the loss; empty when it was not
    ids: bytes = b""  # (T,) token ids
    lengths: bytes = b""  # (T,) code points
    logprobs: bytes = b""  # (T,) log-probability of the sampled token, nats
    entropies: bytes = b""  # (T,) nats
    mask: bytes = b""  # (T,) 1 = in the loss; empty = all ones
    contributions: dict[str, float] = {}  # method -> the advantage after it (its mean over tokens); "base" is the base's own
    shaped: dict[str, float] = {}  # method -> the reward after it, for methods that shape rewards
    token_advantages: bytes = b""  # (T,) where a method gives tokens advantages of their own
    weights: bytes = b""  # (T,) the methods' multiplier on the policy gradient; empty = all ones
    reference_logprobs: bytes = b""  # (T,) log-probability under the reference policy, nats; empty = the run has none
    ratios: bytes = b""  # (T,) importance ratio in the last pass over the batch; empty = all ones
    clipped: bytes = b""  # (T,) 1 = the clip took the token's gradient away in that pass; empty = nowhere
    sampler_logprobs: bytes = b""  # (T,) log-probability that the engine which sampled reported, nats; empty = not recorded
    ranks: bytes = b""  # (T,) place of the sampled token among all by probability, 1 = the likeliest, 0 = not known; empty = not recorded
    alternative_ids: bytes = b""  # (T, k) in one row after another: the k likeliest tokens, likeliest first; empty = not recorded
    alternative_logprobs: bytes = b""  # (T, k) nats, of the distribution of ``logprobs``; NaN = not known at this token
    alternative_texts: bytes = b""  # texts of the different ids in ``alternative_ids``, ascending by id (``arrays.pack_texts``)


class ShadowRewards(Event, tag="shadow-rewards", frozen=True):
    """What shadow columns say of rollouts that were reported before; nothing was trained on it.

    ``name``: the column's, with ``reward_definitions.SHADOW``. ``scores``: (group, sample, score) of rollouts of ``step`` in phase ``train``, of
    this attempt. ``values``: numbers of that step for charts, that replace those of an earlier event.
    """

    step: int
    name: str
    scores: list[tuple[int, int, float | None]] = []
    values: dict[str, float] = {}


class Asked(Event, tag="asked", frozen=True):
    """Which of these completions do people prefer? The trainer waits for an answer to ``key`` until ``deadline`` (seconds since 1970).

    ``completions`` are the different ones of the group; ``group`` is the number it will have as rollouts, which come once the step is trained.
    """

    key: str
    step: int
    group: int
    prompt: list[Message]
    completions: list[str]
    deadline: float
    reference: str = ""


class Checkpoint(Event, tag="checkpoint", frozen=True):
    """``path`` (relative to the run folder) holds everything that resuming after ``step`` needs."""

    step: int
    path: str
    bytes: int


class Saved(Event, tag="saved", frozen=True):
    """The policy at ``step`` was exported (safetensors and tokenizer) to ``path``, relative to the run folder."""

    step: int
    path: str
    bytes: int


class Edited(Event, tag="edited", frozen=True):
    """From optimiser step ``step`` on the run trains with ``changes`` (setting -> value), which were ``before``. ``key`` is the request's.

    A request whose settings hold from different boundaries makes several events. With ``refused`` nothing of it holds, and that says why.
    """

    key: str
    step: int
    changes: dict[str, float] = {}
    before: dict[str, float] = {}
    refused: str = ""


class Warned(Event, tag="warning", frozen=True):
    """Something the person who launched the run should know; training goes on."""

    message: str
    step: int = 0


class AttemptFinished(Event, tag="attempt-finished", frozen=True):
    """The last event of an attempt that ended by itself. ``error`` is one readable line; the traceback is in the log."""

    outcome: Literal["finished", "stopped", "failed"]
    step: int
    error: str = ""


AnyEvent = (
    AttemptStarted | Inputs | Memory | Phase | Metrics | Rollout | ShadowRewards | Asked | Checkpoint | Saved | Edited | Warned | AttemptFinished
)
