"""The hooks of a generation batch: which prompts, how they are answered, what the answers are worth."""

from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from trainers.adapters.rollouts import GenerationBatch, character_ends
from trainers.attempt import ranks
from trainers.contract.events import Message
from trainers.maths import advantages as group_relative
from trainers.methods.base import Method
from trainers.methods.batch import RolloutBatch, RowBatch
from trainers.methods.history import History, Visit
from trainers.methods.session import Session
from trainers.methods.stack import Stack
from trainers.policies.sampling import Completion, as_rows

if TYPE_CHECKING:
    from trainers.adapters.groups import GroupAdapter

Row = dict[str, Any]
Scale = Literal["group", "batch", "none"]


class Scoring:
    def __init__(self, trainer: "GroupAdapter", stack: Stack) -> None:
        self.trainer = trainer
        self.stack = stack
        self.run = stack.context
        self.rollout_batch: RolloutBatch | None = None
        self.token_weights: Tensor | None = None  # (B, T) of the sampled batch; a slice fills its rows in the first pass
        if stack.fills("curriculum"):
            stack.history = History(len(trainer.examples), trainer.args.max_steps)

    @property
    def step(self) -> int:
        return int(self.trainer.state.global_step) + 1

    def choose(self, inputs: list[Row]) -> list[Row]:
        """The rows to sample: prompts drawn by the curriculum, and rewritten for every member of a group."""
        rows = [dict(row) for row in inputs]
        group = self.trainer.num_generations
        self.trainer.mix.draw(rows, group, self.step)
        self.draw(rows, group)
        for method in self.stack.filling("prompts"):
            for start in range(0, len(rows), group):
                example = self.trainer.examples[rows[start]["example"]]
                prompts = method.prompts(example, group, self.step)
                for row, prompt in zip(rows[start : start + group], prompts or (), strict=False):
                    row["prompt"] = as_rows(prompt)
        return rows

    def draw(self, rows: list[Row], group: int) -> None:
        """Gives every group the example the curriculum draws."""
        drawn = self.stack.draw_examples(len(rows) // group, self.step, self.trainer._step)
        if drawn is None:
            return
        for place, row in enumerate(rows):
            number = drawn[place // group]
            row["example"] = number
            row["prompt"] = as_rows(self.trainer.examples[number].prompt)

    def prompts_of(self, rows: list[Row]) -> list[list[Message]]:
        return [[Message(message["role"], message["content"]) for message in row["prompt"]] for row in rows]

    def roll_out(self, rows: list[Row]) -> list[Completion]:
        trainer = self.trainer
        session = Session(
            run=self.run,
            model=trainer.accelerator.unwrap_model(trainer.model),
            examples=[trainer.examples[row["example"]] for row in rows],
            prompts=self.prompts_of(rows),
            group_size=trainer.num_generations,
            step=self.step,
            total_steps=trainer.args.max_steps,
            temperature=trainer.temperature,
            max_tokens=trainer.max_completion_length,
            first_row=ranks.own_share(len(rows)).start,
            rng=self.run.rng("rollout", self.step, trainer._step, *([ranks.index()] if ranks.index() else [])),
        )
        method = self.stack.one("rollout")
        made = method.rollout(session) if method else session.complete()
        if len(made) != len(rows):
            raise ValueError(f"{method.card.name if method else 'the sampler'} made {len(made)} completions of {len(rows)}")
        if method:
            self.take_over(rows, session)
        compiled = [session.compile(one) for one in made]
        self.trainer.added.own = [further for _, further in compiled]
        if any(self.trainer.added.own) and not (method and method.several_rows):
            raise ValueError(f"{method.card.name if method else 'the sampler'} made episodes of several rows and does not say so (several_rows)")
        return [first for first, _ in compiled]

    def take_over(self, rows: list[Row], session: Session) -> None:
        """What a rollout method asked in place of a row's own question, any of the run's: the row is scored and shown as that."""
        numbers = {id(example): number for number, example in enumerate(self.trainer.examples)}
        numbers |= {id(self.trainer.examples[row["example"]]): row["example"] for row in rows}
        for row, example, prompt in zip(rows, session.examples, session.prompts, strict=True):
            row["example"] = numbers[id(example)]
            row["prompt"] = as_rows(prompt)

    def apply(self, rows: list[Row], output: dict[str, Any], scores: Tensor, reported: GenerationBatch) -> Tensor:
        """(B,) or (B, T) advantages after every method; fills in what is reported about them. ``rows``, ``scores`` and what is returned are those
        of all processes, ``output`` is what TRL has of this one's share."""
        advantages = ranks.all_of_tensor(output["advantages"])
        reported.advantages = advantages.tolist()
        if not self.stack.shapes_rollouts:
            return advantages
        batch = self.rollout_batch = self.batch_of(rows, output, scores, reported)
        self.token_weights = None
        advantages = advantages_of(self.stack, batch, advantages, self.trainer.scale_rewards, reported)
        self.leave_out(batch, output)
        for method in self.stack.filling("observe"):
            method.observe(batch)
        self.remember(batch)
        return advantages

    def shape_rows(self, batch: RowBatch, advantages: Tensor, reported: GenerationBatch) -> Tensor:
        """(R, T) advantages of all rows after every method that gives turns and rows their own; fills in what is reported of the first rows."""
        rollout = batch.rollout
        count, width = rollout.ids.shape
        for method in self.stack.filling("row_advantages"):
            advantages = method.row_advantages(batch, advantages) * batch.mask
            check_finite(advantages, "an advantage", self.stack)
            first = mask_advantages(advantages[:count, :width], rollout.kept)
            reported.contributions[method.card.name] = row_means(first, rollout.mask).tolist()
            reported.advantages = reported.contributions[method.card.name]
            reported.token_advantages = first.float().cpu().numpy()
            advantages = torch.cat([torch.nn.functional.pad(first, (0, advantages.shape[1] - width)), advantages[count:]])
        return advantages

    def leave_out(self, batch: RolloutBatch, output: dict[str, Any]) -> None:
        """Takes the completions that a method leaves out from the loss: from what is summed and from what it is divided by.

        TRL's mask of tokens that the policy did not write is used: the forward pass still sees them, and their statistics are reported. Where nothing
        is left there is nothing to divide by, no gradient either way (``batch.kept``), and the means that TRL reports would be of no token at all.
        """
        out = batch.left_out
        if not out.any() or out.all():
            return
        there = output["completion_mask"]
        own = out[ranks.own_share(len(there))]
        output["tool_mask"] = output.get("tool_mask", torch.ones_like(there)) * (~own)[:, None].to(there.dtype)
        tokens = (there * output["tool_mask"]).sum()
        output["num_items_in_batch"] = self.trainer.accelerator.gather(tokens).sum()

    def batch_of(self, rows: list[Row], output: dict[str, Any], scores: Tensor, reported: GenerationBatch) -> RolloutBatch:
        trainer = self.trainer
        reward = total_rewards(scores, trainer.reward_weights.to(scores.device), trainer.num_generations)
        ids, mask = ranks.all_of_tensor(output["completion_ids"]), ranks.all_of_tensor(loss_mask(output))
        prompt_ids = [prompt[keep.bool()].tolist() for prompt, keep in zip(output["prompt_ids"], output["prompt_mask"], strict=True)]
        batch = RolloutBatch(
            examples=list(reported.examples),
            example_ids=[row["example"] for row in rows],
            prompts=[list(prompt) for prompt in reported.prompts],
            texts=list(reported.texts),
            ids=ids,
            mask=mask.float(),
            ends=character_ends(trainer.attempt.pieces, reported.ids, reported.texts),
            finished=torch.tensor([reported.has_ended(row, trainer.eos_token_ids) for row in range(len(reported.ids))], device=ids.device),
            reward_names=list(trainer.weights),
            rewards=scores,
            reward=reward,
            shaped=reward,
            group_size=trainer.num_generations,
            step=self.step,
            total_steps=trainer.args.max_steps,
            max_tokens=trainer.max_completion_length,
            seed=trainer.args.seed,
            prompt_ids=ranks.all_of_list(prompt_ids),
            notes=[episode.notes for episode in reported.episodes] if reported.episodes else [{} for _ in rows],
        )
        self.add_needs(batch, output)
        return batch

    @torch.no_grad()
    def add_needs(self, batch: RolloutBatch, output: dict[str, Any]) -> None:
        """The forward passes that methods asked for, each process over its own share."""
        needs, trainer = self.stack.needs, self.trainer
        ids = torch.cat([output["prompt_ids"], output["completion_ids"]], 1)
        there = torch.cat([output["prompt_mask"], output["completion_mask"]], 1)
        keep, mask = output["completion_ids"].shape[1], loss_mask(output).float()
        if "logprobs" in needs:
            logprobs, entropies, _ = trainer._get_per_token_logps_and_entropies(trainer.model, ids, there, keep, compute_entropy=True)
            batch.logprobs, batch.entropies = ranks.all_of_tensor(logprobs * mask), ranks.all_of_tensor(entropies * mask)
        if "reference" in needs:
            if output.get("ref_per_token_logps") is None:
                output["ref_per_token_logps"] = self.reference_logprobs(ids, there, keep) * mask  # travels to the loss with TRL's own tensors
            batch.reference_logprobs = ranks.all_of_tensor(output["ref_per_token_logps"])
        if "hidden" in needs:
            model = trainer.accelerator.unwrap_model(trainer.model)
            with trainer.accelerator.autocast():
                hidden = model(input_ids=ids, attention_mask=there, output_hidden_states=True, use_cache=False, logits_to_keep=1).hidden_states[-1]
            batch.hidden = ranks.all_of_tensor(hidden[:, -keep:].float() * mask[..., None])

    def reference_logprobs(self, ids: Tensor, there: Tensor, keep: int) -> Tensor:
        """(B, T) of the run's reference policy, at the sampling temperature."""
        with self.trainer.accelerator.autocast():
            logits = self.run.reference(input_ids=ids, attention_mask=there, logits_to_keep=keep + 1, use_cache=False).logits
        every = torch.log_softmax(logits[:, -keep - 1 : -1].float() / self.trainer.temperature, -1)
        found: Tensor = every.gather(2, ids[:, -keep:, None])[..., 0]
        return found

    def remember(self, batch: RolloutBatch) -> None:
        """Adds the batch's groups to the history that curricula look at."""
        if self.stack.history is None:
            return
        reward, accuracy = batch.grouped(batch.reward).mean(1).tolist(), batch.grouped(batch.correct.double()).mean(1).tolist()
        for place, (mean, share) in enumerate(zip(reward, accuracy, strict=True)):
            self.stack.history.add(batch.example_ids[place * batch.group_size], Visit(batch.step, mean, share))


def loss_mask(output: dict[str, Any]) -> Tensor:
    """(B, T): 1 = written by the policy."""
    there: Tensor = output["completion_mask"]
    return there * output["tool_mask"] if "tool_mask" in output else there


def advantages_of(stack: Stack, batch: RolloutBatch, plain: Tensor, scale: Scale, reported: GenerationBatch) -> Tensor:
    """(B,) or (B, T) advantages after every method: makers, then maps, then gates. ``plain`` (B,): TRL's, of the rewards before any method.

    Fills in what is reported, and ``batch.kept``. Raises ValueError for a gate that answers anything but 0 and 1, FloatingPointError for nan.
    """
    advantages = plain
    shaped = shape_rewards(stack, batch, reported)
    if not torch.equal(shaped, batch.reward):
        advantages = group_relative.compute_trl_advantages(shaped, batch.group_size, scale)
    reported.contributions["base"] = advantages.tolist()
    for method in stack.filling("advantages"):
        if method.roles.get("advantages") == "gates":
            apply_gate(method, batch, advantages)
            advantages = mask_advantages(advantages, batch.kept)
        else:
            advantages = method.advantages(batch, advantages)
        reported.contributions[method.card.name] = row_means(advantages, batch.mask).tolist()
    keep_only(batch, ~(batch.rewards.isnan().all(1) | batch.left_out))
    advantages = mask_advantages(advantages, batch.kept)
    check_finite(advantages, "an advantage", stack)
    reported.advantages = row_means(advantages, batch.mask).tolist()
    reported.filtered = batch.filtered
    if advantages.dim() == 2:
        reported.token_advantages = advantages.float().cpu().numpy()
    return advantages


def apply_gate(gate: Method, batch: RolloutBatch, advantages: Tensor) -> None:
    """Takes out of ``batch.kept`` what a gate leaves out. It sees ones, so that an advantage that happens to be 0 is no answer of its."""
    answer = gate.advantages(batch, torch.ones_like(advantages))
    if not ((answer == 0) | (answer == 1)).all():
        raise ValueError(f"{gate.card.name} gates advantages and has to answer 0 or 1: one that scales them maps")
    keep_only(batch, answer.bool())
    there = answer.bool() if answer.dim() == 1 else ((answer * batch.mask) > 0).any(1)
    batch.leave_out(~there, f"left out of the loss ({gate.card.name})")


def keep_only(batch: RolloutBatch, kept: Tensor) -> None:
    """Narrows ``batch.kept`` to (B,) or (B, T) bool; it stays None where nothing has been left out."""
    if batch.kept is None:
        batch.kept = None if kept.all() else kept
        return
    before = batch.kept
    if before.dim() != kept.dim():
        before, kept = (one if one.dim() == 2 else one[:, None] for one in (before, kept))
    batch.kept = before & kept


def mask_advantages(advantages: Tensor, kept: Tensor | None) -> Tensor:
    """(B,) or (B, T) -> the same, or (B, T) where single tokens are left out: 0 where nothing is kept."""
    if kept is None:
        return advantages
    if advantages.dim() != kept.dim():
        advantages, kept = (one if one.dim() == 2 else one[:, None] for one in (advantages, kept))
    return torch.where(kept, advantages, torch.zeros_like(advantages))


def shape_rewards(stack: Stack, batch: RolloutBatch, reported: GenerationBatch) -> Tensor:
    """(B,) reward after every method that shapes it."""
    shaped = batch.reward
    for method in stack.filling("rewards"):
        shaped = method.rewards(batch, shaped)
        reported.shaped[method.card.name] = shaped.tolist()
        method.log("reward", shaped.mean())
    check_finite(shaped, "a reward", stack)
    batch.shaped = shaped
    return shaped


def total_rewards(scores: Tensor, weights: Tensor, group_size: int) -> Tensor:
    """(B, F), (F,) -> (B,) weighted sums. A row that no function has an opinion on gets its group's mean, so that it moves no baseline."""
    total = (scores * weights).nansum(1).masked_fill(scores.isnan().all(1), float("nan"))
    means = total.view(-1, group_size).nanmean(1).nan_to_num(0.0).repeat_interleave(group_size)
    return torch.where(total.isnan(), means, total)


def row_means(advantages: Tensor, mask: Tensor) -> Tensor:
    """(B,): advantages as they are, or their mean over each row's own tokens."""
    return advantages if advantages.dim() == 1 else (advantages * mask).sum(1) / mask.sum(1).clamp(min=1.0)


def check_finite(values: Tensor, what: str, stack: Stack) -> None:
    if not torch.isfinite(values).all():
        names = ", ".join(method.card.name for method in stack.methods)
        raise FloatingPointError(f"{what} is not finite after {names}")
