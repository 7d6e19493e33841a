"""CooT: watch the text while it is written, roll back to where the policy looked sharply, and write on with guidance (arXiv 2509.23441).

A perceiver labels the running text of a turn after each token: y = (S, A, E) in {-1, 0, 1}^3, S before A before E; A = 1 only where S is decided,
E = 1 only where S and A are. Violated: S = -1 (``strict``: any of them).
    intervene  after ``consecutive`` violations in a row, and ``min_tokens`` tokens or more
    sharpness  s_t = max a_t + 1 - H(a_t) / log |a_t|,  a_t: what token t looks at, mean over the last ``layers`` layers and their heads
    roll back  to the latest local maximum of s within the last ``window`` tokens with s >= tau, else ``fallback`` tokens back;
               after ``escalation_after`` failed tries to an earlier place with s >= max(tau, ``escalation_ratio`` times s of that one)
    go on      with h <- h + beta |h| g at the last layer, for at most ``guided_tokens`` tokens;  g = mean e(advised words) - mean e(what was wrong)
No weight changes. A turn without a violation is that of plain decoding; with ``tries`` = 0 all are. Held-out prompts are watched like others.

The perceiver is a rule of the world ``stories`` in place of the same model with another prompt. S: the forbidden word has not been said. A: the
sentence could happen. E: the turn does not end the episode early, which is all that self-preservation can mean here. Skill and warning are a rule as
well: the word that says the same as the forbidden one, and the forbidden one.

A turn is written whole and looked at before the world hears it, which gives what a look after each token gives; what it wrote after the place of the
intervention is cut, and counts as written. Turns are short: for the built-in policy ``min_tokens`` is 0 and ``guided_tokens`` 1 to 3.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.maths.rollback import find_earlier_point, find_peak, measure_sharpness, step_back
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.methods.story_perceiver import Label, advise_words, find_trigger, is_violated, label_text, list_states, says_word
from trainers.policies.attention_weights import read_attention
from trainers.policies.residuals import inject_residual
from trainers.policies.sampling import Sampling
from trainers.rollouts.tree import Node, Place
from trainers.worlds.stories import Stories

if TYPE_CHECKING:
    from trainers.methods.context import RunContext
    from trainers.methods.session import Session
    from trainers.policies.sampling import Completion


@dataclass
class Draft:
    """A turn that the world has not heard. ``kept``: its tokens that an earlier try has left. ``at``: tokens when it intervenes; None: it is fine."""

    node: Node
    watch: "Watch"
    ids: list[int] = field(default_factory=list)
    labels: list[Label] = field(default_factory=list)  # K + 1
    kept: int = 0
    at: int | None = None


@dataclass
class Watch:
    """What happens in one episode. ``failures``: tries in a row that ended in a violation again."""

    interventions: int = 0
    regenerated: int = 0
    escalations: int = 0
    failures: int = 0
    given_up: int = 0


class Config(Strict):
    tau: float = param(0.1, "Sharpness of a place to roll back to, at least.", title="Least sharpness (tau)", ge=0, le=2)
    window: int = param(10, "Tokens among which a peak is looked for.", title="Window", ge=1, le=1000)
    fallback: int = param(3, "Tokens to go back where there is no peak.", title="Tokens back without a peak", ge=1, le=1000)
    consecutive: int = param(3, "Violations in a row until it intervenes.", title="Violations in a row", ge=1, le=100)
    min_tokens: int = param(8, "Tokens of an answer before it may intervene; 0 where turns are short.", title="Tokens before", ge=0, le=1000)
    beta: float = param(0.9, "Strength of the guidance, as a share of the hidden state's length; 0: none.", title="Guidance (beta)", ge=0, le=10)
    guided_tokens: int = param(20, "Tokens that are written with guidance; 1 to 3 where turns are short.", title="Guided tokens", ge=0, le=1000)
    escalation_after: int = param(2, "Failed tries before it goes further back.", title="Escalation after", ge=1, le=100)
    escalation_ratio: float = param(0.8, "Sharpness asked for further back.", title="Escalation ratio", ge=0, le=2, advanced=True)
    tries: int = param(4, "Roll-backs of a turn at most (our value); 0: plain decoding, watched.", title="Roll-backs a turn", ge=0, le=64)
    layers: int = param(4, "Last layers whose attention is looked at.", title="Layers", ge=1, le=1000, advanced=True)
    strict: bool = param(False, "Any component of the label counts, not the first alone.", title="Strict", advanced=True)


class CooT(Method):
    card = Card(
        name="coot",
        title="Cognition of thought",
        arxiv="2509.23441",
        system="CooT",
        base="procedure",
        provenance="code",
        source="github XMZhangAI/Cognition-of-Thought: coot/core attention_utils, state_system, decoder, intervention, residual_injection",
        fit="variant",
        idea="Label the text while it is written; on a violation go back to where the policy looked sharply and write on with guidance.",
        formula=(
            r"s_t = \max_j a_{t,j} + 1 - \frac{H(a_t)}{\log |a_t|}",
            r"t^* = \max \{ t > T - w : s_t \text{ is a local maximum}, s_t \ge \tau \}",
            r"h \leftarrow h + \beta \lVert h \rVert g",
        ),
        departures=(
            "The perceiver and the guidance's words are rules of the world stories; the paper asks the same model with other prompts.",
            "Roll-backs stay inside a turn, as the world has heard the turns before it, and are limited for each turn.",
            "A place where the text is in violation already is no place to roll back to; the code takes the latest peak whatever its label.",
            "Attention is read in one pass over the whole turn; the code's index leaves out the prompt, which with a cache gives it uniform weights.",
            "Guidance is made of the policy's own output embeddings and scaled to the hidden state; the code's encoder has random weights.",
            "Beta does not adapt to violations; as many are tolerated while it writes again as at first; the skill is not put into the prompt.",
            "The tokens of min_tokens are those of the answer; the code counts the prompt's as well.",
        ),
        claim=("coot/forbidden", "lower"),
        parallel=False,
    )
    Config = Config
    trains = frozenset({"procedure"})
    owns = frozenset({"rollout"})
    worlds = frozenset({"stories"})
    requires = (
        Requirement("task.options.write", "differs from", "rubric", "words are forbidden in stories alone"),
        Requirement("dataset", "equals", None, "it needs what the world knows of its own prompts"),
    )
    perceive = staticmethod(label_text)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rollout(self, session: "Session") -> "list[Completion]":
        nodes = [episode.root for episode in session.begin()]
        watches = [Watch() for _ in nodes]
        going = list(range(len(nodes)))
        while going:
            turns = self.write_turns(session, [nodes[place] for place in going], [watches[place] for place in going])
            for place, node in zip(going, turns, strict=True):
                nodes[place] = node
            going = [place for place in going if not nodes[place].finish]
        self.report(nodes, watches)
        return session.finish(nodes)

    def write_turns(self, session: "Session", nodes: Sequence[Node], watches: Sequence[Watch]) -> list[Node]:
        """The next turn of each episode, watched, and what the world says to it."""
        engine = session.engine
        how = Sampling(session.temperature, session.max_tokens, engine.width)
        drafts = [Draft(node, watch) for node, watch in zip(engine.write_turns(nodes, how), watches, strict=True)]
        written = [draft for draft in drafts if not draft.node.finish]
        for draft in written:
            self.look_at(session, draft)
        for _ in range(self.config.tries):
            flagged = [draft for draft in written if draft.at is not None]
            for start in range(0, len(flagged), engine.width):
                self.write_again(session, flagged[start : start + engine.width], how)
        ended = list[Node]()
        for draft in drafts:
            if draft.node.finish:
                ended.append(draft.node)
                continue
            draft.watch.given_up += draft.at is not None and self.config.tries > 0
            ended.append(engine.end_turn(draft.node, how))
            draft.node.facts = {**draft.node.facts, "states": list_states(draft.labels)}
        return ended

    def look_at(self, session: "Session", draft: Draft) -> None:
        """Labels the turn as it stands after each of its tokens."""
        episode = draft.node.episode
        draft.ids = [id_ for node in episode.turn(draft.node) for id_ in node.ids]
        texts = [session.engine.decode(draft.ids[:count]) for count in range(draft.kept, len(draft.ids) + 1)]
        new = [self.perceive(episode.example, draft.node.state, Stories.tools, text) for text in texts]
        draft.labels = [*draft.labels[: draft.kept], *new]
        before = len(episode.context_ids(draft.node)[1]) - len(draft.ids)
        draft.at = find_trigger(self.mark_violations(draft), draft.kept, self.config.consecutive, self.config.min_tokens - before)

    def mark_violations(self, draft: Draft) -> list[bool]:
        return [is_violated(label, self.config.strict) for label in draft.labels]

    def write_again(self, session: "Session", drafts: Sequence[Draft], how: Sampling) -> None:
        """Rolls each draft back and writes it on with guidance, all in one batch."""
        engine = session.engine
        contexts = [draft.node.episode.context_ids(draft.node) for draft in drafts]
        attention = read_attention(self.run, [[*prompt, *rest] for prompt, rest in contexts], self.config.layers, session.model)
        guidance = torch.stack([self.make_guidance(session, draft) for draft in drafts])
        starts = [self.roll_back(session, draft, weights) for draft, weights in zip(drafts, attention, strict=True)]
        with inject_residual(session.model, guidance, self.config.beta, self.config.guided_tokens):
            written = engine.write_turns(starts, how)
        for draft, node in zip(drafts, written, strict=True):
            draft.node = node
            draft.watch.regenerated += len(node.ids)
            self.look_at(session, draft)
            draft.watch.failures = draft.watch.failures + 1 if draft.at is not None else 0

    def roll_back(self, session: "Session", draft: Draft, attention: Tensor) -> Node:
        """Cuts the turn; returns the node to go on from. ``attention`` (T, T): of the context, whose last tokens are the turn's."""
        assert draft.at is not None
        first = len(attention) - len(draft.ids)
        sharpness = [measure_sharpness(attention[first + place, : first + place + 1]) for place in range(draft.at)]
        clean = [not violated for violated in self.mark_violations(draft)[: draft.at + 1]]
        kept, how = self.choose_point(sharpness, clean, draft.watch.failures)
        draft.watch.interventions += 1
        draft.watch.escalations += how == "escalated"
        draft.node.facts = {
            "state": list(draft.labels[draft.at]),
            "states": list_states(draft.labels[: draft.at + 1]),
            "rolled back": f"from token {draft.at} to {kept} ({how})",
            "sharpness": [round(value, 3) for value in sharpness],
        }
        draft.kept = kept
        return session.cut(draft.node, Place(-1, kept), f"violation at token {draft.at}, {how}")

    def choose_point(self, sharpness: Sequence[float], clean: Sequence[bool], failures: int) -> tuple[int, str]:
        """How many of the K tokens to keep, fewer than K, and by which rule."""
        peak = find_peak(sharpness, clean, self.config.tau, self.config.window)
        kept, how = (step_back(clean, self.config.fallback), "fallback") if peak is None else (peak, "peak")
        if failures >= self.config.escalation_after:
            earlier = find_earlier_point(sharpness, clean, kept, self.config.tau, self.config.escalation_ratio)
            return (earlier, "escalated") if earlier < kept else (kept, how)
        return kept, how

    def make_guidance(self, session: "Session", draft: Draft) -> Tensor:
        """(D,) a unit vector, or 0 where there is nothing to say."""
        assert draft.at is not None
        wrong = session.engine.decode(draft.ids[max(draft.kept, draft.at - self.config.fallback) : draft.at])
        advised, warned = advise_words(draft.labels[draft.at], draft.node.episode.example.data.get("forbidden", ""), wrong)
        table = session.model.get_output_embeddings().weight  # (V, D)

        def embed(words: Sequence[str]) -> Tensor:
            ids = [id_ for word in words for id_ in session.engine.encode(f" {word.strip()}")]
            return table[ids].detach().float().mean(0) if ids else table.new_zeros(table.shape[1]).float()

        return torch.nn.functional.normalize(embed(advised) - embed(warned), dim=0)

    def report(self, leaves: Sequence[Node], watches: Sequence[Watch]) -> None:
        for name in ("interventions", "regenerated", "escalations", "given_up"):
            self.log(name, sum(getattr(watch, name) for watch in watches) / len(watches))
        asked = [leaf for leaf in leaves if leaf.episode.example.data.get("forbidden")]
        if asked:
            self.log("forbidden", sum(has_forbidden_word(leaf) for leaf in asked) / len(asked))

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Answers with the forbidden word, of those that are forbidden one",
                (Series(f"{name}/forbidden", "in a round"), Series(f"heldout/{name}/forbidden", "held out", dashed=True)),
            ),
            Panel(
                "Roll-backs of an answer",
                (
                    Series(f"{name}/interventions", "all"),
                    Series(f"{name}/escalations", "escalated"),
                    Series(f"{name}/given_up", "turns given up", dashed=True),
                ),
            ),
            Panel("Tokens written again, of an answer", (Series(f"{name}/regenerated", "mean"),)),
        )


def has_forbidden_word(leaf: Node) -> bool:
    texts = ["".join(node.text for node in turn) for turn in leaf.episode.turns(leaf)]
    return any(says_word(text, leaf.episode.example.data["forbidden"]) for text in texts)
