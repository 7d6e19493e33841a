"""PNS: plausible negative samples (arXiv 2602.03516). A second policy is trained with a reversed reward to write well-formed, coherent completions
that are wrong. Its best ones become the rejected side of preference pairs, which are harder and more informative than completions that are wrong by
chance.

On the grpo trainer (the negative generator) the reward is replaced: R = -1 without the required format, 0 for a correct completion, and 1 + w_rm q_rm
+ w_cot q_cot for a wrong one. On the dpo trainer, each rejected answer is replaced by the generator's wrong candidate with the highest R; if there is
none, the pair keeps its own. The loss is the base's. This is our interpretation of an abstract and second-hand notes: how the three parts combine,
and both weights, are our choices. Instead of the paper's reward model, RM is the logit of the geometric mean of the answer's token probabilities
under the policy the run started from, so q_rm = sigmoid(RM) is that mean. Instead of the judge's four dimensions, a rule that never sees the gold
answer scores structure (the reasoning ends with the answer), coherence (each line continues the one before), notation (the reasoning consists of
equations) and plausibility (the arithmetic is correct); texts without such a chain get 0. A candidate is wrong if its answer differs from that of the
chosen side, which is assumed to be correct. The plausibility gap of a pair is RM(chosen) - RM(rejected). It differs from the base only in rewards, or
in rejected answers. On grpo it acts before methods that shape rewards, and it needs a forward pass of the reference.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.contract.events import Message
from trainers.contract.hyperparameters import Strict, param
from trainers.maths.reduce import masked_row_mean
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Series
from trainers.tasks.answers import worked_answer
from trainers.tasks.base import Example
from trainers.tasks.mini_gsm import EQUATION
from trainers.texts.chains import chain_of, score_coherence, score_soundness
from trainers.texts.spans import extract_answer

if TYPE_CHECKING:
    from trainers.methods.batch import PairBatch, RolloutBatch
    from trainers.methods.context import RunContext

LEAST = 1e-6  # of a probability in a logit


def reverse_reward(formed: Tensor, right: Tensor, model: Tensor, reasoning: Tensor, w_model: float, w_reasoning: float) -> Tensor:
    """(B,) bool, (B,) bool, (B,) in [0, 1], (B,) in [0, 1] -> (B,)."""
    wrong = 1 + w_model * model + w_reasoning * reasoning
    return torch.where(formed, torch.where(right, torch.zeros_like(wrong), wrong), -torch.ones_like(wrong))


def compute_mean_likelihood(logprobs: Tensor, mask: Tensor) -> Tensor:
    """(B, T), (B, T) -> (B,) in [0, 1]: geometric mean of the token probabilities; 0 for a row without tokens."""
    return masked_row_mean(logprobs, mask).exp().clamp(max=1.0) * (mask.sum(1) > 0)


def compute_plausibility(model: Tensor) -> Tensor:
    """(B,) in [0, 1] -> (B,): RM, the logit of the mean likelihood."""
    return torch.logit(model, eps=LEAST)


def reasoning_quality(text: str) -> float:
    """Mean of structure, coherence, notation and plausibility, each in [0, 1]; uses only the text."""
    parts, found = worked_answer(text), chain_of(text)
    words = parts[0].split() if parts else []
    notation = sum(EQUATION.fullmatch(word) is not None for word in words) / len(words) if words else 0.0
    structure = float(bool(found and found[0]) and str(found[0][-1].after) == found[1]) if found else 0.0
    return (structure + score_coherence(text) + notation + score_soundness(text)) / 4


class Config(Strict):
    w_rm: float = param(0.5, "Weight of the completion's likelihood (our value).", title="Likelihood weight", ge=0, le=10)
    w_cot: float = param(0.5, "Weight of the reasoning quality (our value).", title="Reasoning weight", ge=0, le=10)
    generator: str = param("", "DPO: folder of the negative generator's policy; empty = the policy itself.", title="Negative generator")
    candidates: int = param(4, "DPO: answers sampled for each pair; the best wrong one is kept.", title="Candidates", ge=1, le=256)
    temperature: float = param(1.0, "DPO: sampling temperature of the candidates.", title="Temperature", gt=0, le=10, advanced=True)


class PNS(Method):
    card = Card(
        name="pns",
        title="Plausible negative samples",
        arxiv="2602.03516",
        system="PNS",
        base="dpo",
        provenance="abstract",
        source="abstract and an excerpt; two third-party notes",
        fit="core",
        idea="Learn from wrong answers that look right: train a policy to write them, and prefer the correct answer over them.",
        formula=(
            r"R_{neg}(y) = 1 + w_{rm}\, \sigma(RM(x, y)) + w_{cot}\, q_{cot}(y) \quad (y\ \mathrm{formed,\ wrong})",
            r"y^- = \mathrm{arg}\max_{y \sim \nu} R_{neg}(y)",
            r"L = -\log \sigma\left(\beta \left[\log\frac{\pi(y^+|x)}{\pi_{ref}(y^+|x)} - \log\frac{\pi(y^-|x)}{\pi_{ref}(y^-|x)}\right]\right)",
        ),
        reading="how the parts of the reward combine, their weights, and the rules that replace the reward model and the judge",
        departures=("A rule replaces the judge of the reasoning, and a likelihood replaces the reward model.",),
        claim=("heldout/accuracy", "higher"),
    )
    Config = Config
    roles = {"data": "makes", "rewards": "makes", "pair_loss": "reads"}
    trains = frozenset({"grpo", "dpo"})
    needs = frozenset({"reference"})

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        assert batch.reference_logprobs is not None
        model = compute_mean_likelihood(batch.reference_logprobs, batch.mask)
        reasoning = torch.tensor([reasoning_quality(text) for text in batch.texts]).to(rewards)
        formed = torch.tensor([extract_answer(text) is not None for text in batch.texts], device=rewards.device)
        if "format" in batch.reward_names:
            formed = batch.rewards[:, batch.reward_names.index("format")].nan_to_num(0.0) > 0.5
        wrong = formed & ~batch.correct
        self.log("formed", formed.float().mean())
        self.log("wrong", wrong.float().mean())
        for name, chosen in (("right", batch.correct), ("wrong", wrong)):
            if chosen.any():
                self.log(f"plausibility_{name}", compute_plausibility(model[chosen]).mean())
        self.log("reasoning", reasoning.mean())
        return reverse_reward(formed, batch.correct, model.to(rewards), reasoning, self.config.w_rm, self.config.w_cot)

    def data(self, rows: list[Any], run: "RunContext") -> list[Any]:
        if run.attempt.spec.training.trainer != "dpo":
            return rows
        known = self.examples(run)
        examples = [known.get(read_last_message(row["prompt"]), Example([Message(**message) for message in row["prompt"]], "")) for row in rows]
        places = [i for i, example in enumerate(examples) if example.data or run.task.max_turns == 1]  # a world needs to know what to answer
        asked = [place for place in places for _ in range(self.config.candidates)]
        model = run.frozen(self.config.generator) if self.config.generator else None
        texts = [one.text for one in run.sample([examples[i] for i in asked], self.config.temperature, "pns", model)] if asked else []
        made = list(rows)
        for place, text, worth in zip(asked, texts, self.worths(asked, texts, rows, run), strict=True):
            if worth > made[place].get("worth", 0.0):
                message = {"role": "assistant", "content": text}
                made[place] = {**rows[place], "rejected": [message], "negative": "plausible", "worth": worth}
        self.log("replaced", sum("worth" in row for row in made) / len(made))
        gaps = self.gaps(made, run)
        self.log_histogram("gap_of_pairs", torch.tensor(gaps), -8.0, 8.0)
        return [{"negative": "own", **row, "gap": gap} for row, gap in zip(made, gaps, strict=True)]

    def examples(self, run: "RunContext") -> dict[str, Example]:
        """The task's own examples by question, if the pairs were sampled from them."""
        spec = run.attempt.spec
        if spec.dataset:
            return {}
        return {
            example.prompt[-1].content: example
            for example in run.task.examples("pairs", run.training.sampled_prompts, spec.seed, spec.task.difficulty)
        }

    def worths(self, places: Sequence[int], texts: Sequence[str], rows: Sequence[Any], run: "RunContext") -> list[float]:
        """R of every candidate; 0 or less for one that is not wrong and well-formed."""
        wanted = [extract_answer(read_last_message(rows[place]["chosen"])) for place in places]
        right = [answer == extract_answer(text) for answer, text in zip(wanted, texts, strict=True)]
        formed = torch.tensor([extract_answer(text) is not None for text in texts], dtype=torch.bool)
        model = compute_text_likelihoods([rows[place]["prompt"] for place in places], texts, run)
        reasoning = torch.tensor([reasoning_quality(text) for text in texts])
        worth: list[float] = reverse_reward(
            formed, torch.tensor(right, dtype=torch.bool), model, reasoning, self.config.w_rm, self.config.w_cot
        ).tolist()
        return worth

    def gaps(self, rows: Sequence[Any], run: "RunContext") -> list[float]:
        prompts = [row["prompt"] for row in rows]
        chosen, rejected = (compute_text_likelihoods(prompts, [read_last_message(row[side]) for row in rows], run) for side in ("chosen", "rejected"))
        return [float(gap) for gap in compute_plausibility(chosen) - compute_plausibility(rejected)]

    def pair_loss(self, batch: "PairBatch", score: Tensor, base: Any) -> Tensor:
        """The base's loss; logs which kinds of pairs it is computed on."""
        self.log("gap", sum(batch.column("gap", 0.0)) / len(batch.rows))
        for name in ("plausible", "own"):
            own = torch.tensor([kind == name for kind in batch.column("negative", "own")], device=score.device)
            if own.any():
                self.log(f"accuracy/{name}", (score.detach()[own] > 0).float().mean())
        losses: Tensor = base(score)
        return losses

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        return (
            Panel(
                "Well-formed and wrong completions",
                (
                    Series("pns/formed", "well-formed"),
                    Series("pns/wrong", "well-formed and wrong"),
                    Series("pns/reasoning", "reasoning", dashed=True),
                ),
                help="For the negative generator: accuracy falls while the format stays correct.",
            ),
            Panel("Plausibility (RM)", (Series("pns/plausibility_right", "correct answers"), Series("pns/plausibility_wrong", "wrong answers"))),
            Panel("Plausibility gap of the pairs", (Series("pns/gap_of_pairs"),), "histogram", low=-8.0, high=8.0),
            Panel("Pair accuracy", (Series("pns/accuracy/plausible", "plausible negatives"), Series("pns/accuracy/own", "other negatives"))),
        )


def read_last_message(messages: Sequence[dict[str, str]]) -> str:
    return messages[-1]["content"]


@torch.no_grad()
def compute_text_likelihoods(prompts: Sequence[Any], texts: Sequence[str], run: "RunContext") -> Tensor:
    """(B,): likelihood of each text after its prompt, under the policy the run started from."""
    asked = run.prompt_ids([[Message(**message) for message in prompt] for prompt in prompts]) if prompts else []
    answers, size = [run.completion_ids(text) for text in texts], run.attempt.sampling_batch
    found = [torch.zeros(0)]
    for start in range(0, len(asked), size):
        found.append(compute_mean_likelihood(*run.logprobs(asked[start : start + size], answers[start : start + size])).cpu())
    return torch.cat(found)
