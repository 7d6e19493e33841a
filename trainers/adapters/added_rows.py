"""Rows beside the first one of a rollout: other branches, folded contexts and side questions, in the tensors that TRL trains on.

TRL takes one row for a prompt from its rollout function. What an episode has beyond that is added after the batch was scored: prompts, tokens and
masks, advantages, log-probabilities of the sampling policy and of its reference where TRL has computed them, and the number of loss tokens, which
is what token-normalised losses divide by. With the same advantages a rollout split into rows therefore has the gradient of the rollout in one.

Rows of zero mask fill the batch up to a multiple of the slices that TRL splits it into, the same number in every process: TRL divides by rounding
down, and would drop the rest without a word.
"""

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from trl.models.utils import disable_gradient_checkpointing
from trl.trainer.utils import use_adapter

from trainers.adapters.rollouts import GenerationBatch
from trainers.attempt import ranks
from trainers.methods.batch import RolloutBatch, RowBatch
from trainers.rollouts.compile import Row

if TYPE_CHECKING:
    from trainers.adapters.groups import GroupAdapter

Output = dict[str, Any]
ROW = "rollout_row"  # key under which a row's number travels with TRL's tensors
LOGPROBS = ("old_per_token_logps", "ref_per_token_logps", "sampling_per_token_logps")


def pad_left(values: Tensor, width: int, fill: int) -> Tensor:
    """(B, T) -> (B, width)."""
    return torch.nn.functional.pad(values, (width - values.shape[1], 0), value=fill)


def pad_right(values: Tensor, width: int, fill: float = 0) -> Tensor:
    """(B, T) -> (B, width)."""
    return torch.nn.functional.pad(values, (0, width - values.shape[1]), value=fill)


def stack_padded(rows: list[list[int]], width: int, fill: int, like: Tensor, left: bool = False) -> Tensor:
    """(n, width) with the type and device of ``like``."""
    made = like.new_full((len(rows), width), fill)
    for place, row in enumerate(rows):
        part = slice(width - len(row), width) if left else slice(0, len(row))
        made[place, part] = torch.tensor(row, dtype=like.dtype, device=like.device)
    return made


def build_row_batch(rollout: RolloutBatch, first: list[Row | None], added: list[tuple[int, Row]]) -> RowBatch:
    """``rollout`` and ``first`` are of the B members of all processes, ``added`` (member, row) of the others."""
    count, extra = len(rollout.ids), [row for _, row in added]
    width = max([rollout.ids.shape[1], *(len(row.ids) for row in extra)])
    like = rollout.ids
    ids = torch.cat([pad_right(rollout.ids, width), stack_padded([row.ids for row in extra], width, 0, like)])
    mask = torch.cat([pad_right(rollout.mask, width), stack_padded([row.mask for row in extra], width, 0, rollout.mask)])
    members = [*range(count), *(member for member, _ in added)]
    rows = [*first, *extra]
    keys: dict[tuple[int, int], int] = {}
    nodes = like.new_full(ids.shape, -1)
    for place, row in enumerate(rows):
        if row is not None:
            numbers = [keys.setdefault((id(row.episode), number), len(keys)) for number in row.nodes]
            nodes[place, : len(numbers)] = torch.tensor(numbers, dtype=torch.long, device=like.device)
    group = rollout.group_size
    peers = [row.peers if row is not None else str(member // group) for row, member in zip(rows, members, strict=True)]
    return RowBatch(rollout=rollout, rows=rows, members=torch.tensor(members, device=like.device), ids=ids, mask=mask, nodes=nodes, peers=peers)


def spread_members(advantages: Tensor, batch: RowBatch) -> Tensor:
    """(B,) or (B, T) advantages of members -> (R, T) of their rows, 0 where masked: a further row has its member's, times its weight."""
    rollout, count = batch.rollout, len(batch.rollout.ids)
    own = advantages if advantages.dim() == 2 else advantages[:, None].expand(rollout.ids.shape)
    means = advantages if advantages.dim() == 1 else (advantages * rollout.mask).sum(1) / rollout.mask.sum(1).clamp(min=1.0)
    weights = means.new_tensor([row.weight if row is not None else 1.0 for row in batch.rows[count:]])
    further = (means[batch.members[count:]] * weights)[:, None].expand(len(weights), batch.ids.shape[1])
    return torch.cat([pad_right(own, batch.ids.shape[1]), further]) * batch.mask


class AddedRows:
    def __init__(self, trainer: "GroupAdapter") -> None:
        self.trainer = trainer
        self.own: list[list[Row]] = []  # of each member of this process, beside its first row
        self.count = 0  # of the last batch, in all processes

    def gather(self, size: int) -> list[tuple[int, Row]]:
        """(member, row) of all processes, ``size`` members in each."""
        start = ranks.own_share(size).start
        return ranks.all_of_list([(start + place, row) for place, rows in enumerate(self.own) for row in rows])

    def apply(self, output: Output, advantages: Tensor, reported: GenerationBatch) -> None:
        """``advantages`` (B,) or (B, T) of all processes; ``output`` is what TRL has of this one's share and is extended in place."""
        size = len(output["completion_ids"])
        added = self.gather(size)
        self.count = len(added)
        scoring = self.trainer.scoring
        methods = scoring.stack.filling("row_advantages")
        if not added and not methods:
            return
        assert scoring.rollout_batch is not None
        rollout = scoring.rollout_batch
        firsts: list[Row | None] = [episode.row for episode in reported.episodes] if reported.episodes else [None] * len(rollout.ids)
        batch = build_row_batch(rollout, firsts, added)
        self.leave_out(batch, rollout)
        values = scoring.shape_rows(batch, spread_members(advantages, batch), reported)
        count = len(rollout.ids)
        output["advantages"] = values[:count][ranks.own_share(size)]
        if added:
            self.extend(output, batch, values, added)
            self.measure(batch, added)

    def leave_out(self, batch: RowBatch, rollout: RolloutBatch) -> None:
        """What a gate left out is out with all of its rows."""
        count = len(rollout.ids)
        out = rollout.left_out
        if rollout.kept is not None:
            out = out | ~(rollout.kept if rollout.kept.dim() == 1 else (rollout.kept & (rollout.mask > 0)).any(1))
        further = out[batch.members[count:]]
        batch.mask[count:] = batch.mask[count:] * (~further)[:, None].to(batch.mask.dtype)

    def extend(self, output: Output, batch: RowBatch, values: Tensor, added: list[tuple[int, Row]]) -> None:
        """The rows of this process, and rows of zero mask up to the count that all processes have."""
        trainer, size, count = self.trainer, len(output["completion_ids"]), len(batch.rollout.ids)
        share = ranks.own_share(size)
        mine = [place for place, (member, _) in enumerate(added) if share.start <= member < share.stop]
        most = max(sum(here.start <= member < here.stop for member, _ in added) for here in ranks.list_shares(size))
        slices = trainer.args.steps_per_generation
        empty = -(-(size + most) // slices) * slices - size - len(mine)
        pad = trainer.attempt.policy.tokenizer.pad_token_id
        rows = [added[place][1] for place in mine]
        filler = [[pad, pad]] * empty  # a forward pass wants a token to look at
        prompts = [row.prompt_ids for row in rows] + filler
        width, before = batch.ids.shape[1], max([output["prompt_ids"].shape[1], *map(len, prompts)])
        like = output["prompt_ids"]
        there = output["completion_mask"]
        own_mask = batch.mask[[count + place for place in mine]].to(there.dtype)
        new = {
            "prompt_ids": stack_padded(prompts, before, pad, like, left=True),
            "prompt_mask": stack_padded([[1] * len(prompt) for prompt in prompts], before, 0, output["prompt_mask"], left=True),
            "completion_ids": stack_padded([row.ids for row in rows] + [[pad]] * empty, width, pad, like),
            "completion_mask": stack_padded([[1] * len(row.ids) for row in rows] + [[1]] * empty, width, 0, there),
            "tool_mask": torch.cat([own_mask, there.new_zeros(empty, width)]),
            "advantages": torch.cat([values[[count + place for place in mine]], values.new_zeros(empty, width)]),
        }
        self.add_logprobs(output, new)
        output.setdefault("tool_mask", torch.ones_like(there))
        for name in ("prompt_ids", "prompt_mask"):
            output[name] = torch.cat([pad_left(output[name], before, pad if name == "prompt_ids" else 0), new[name]])
        for name in ("completion_ids", "completion_mask", "tool_mask"):
            fill = {"completion_ids": pad, "tool_mask": 1}.get(name, 0)
            output[name] = torch.cat([pad_right(output[name], width, fill), new[name]])
        output["advantages"] = torch.cat([pad_right(output["advantages"], width), new["advantages"]])
        output[ROW] = torch.tensor([*range(share.start, share.stop), *(count + place for place in mine), *[count + len(added)] * empty])
        tokens = (output["completion_mask"] * output["tool_mask"]).sum()
        output["num_items_in_batch"] = trainer.accelerator.gather(tokens).sum()

    @torch.no_grad()
    def add_logprobs(self, output: Output, new: Output) -> None:
        """Those of the sampling policy and its reference, where TRL has them of the first rows; passes as TRL runs them."""
        trainer = self.trainer
        width = new["completion_ids"].shape[1]
        ids, there = (torch.cat([new[f"prompt_{part}"], new[f"completion_{part}"]], 1) for part in ("ids", "mask"))
        size = trainer.args.per_device_train_batch_size
        for name in LOGPROBS:
            if output.get(name) is None:
                continue
            if name == "sampling_per_token_logps":
                found = output[name].new_full(new["completion_ids"].shape, float("nan"))
            else:
                with disable_gradient_checkpointing(trainer.model, trainer.args.gradient_checkpointing_kwargs):
                    if name == "old_per_token_logps":
                        found = trainer._get_per_token_logps_and_entropies(trainer.model, ids, there, width, batch_size=size)[0]
                    else:
                        found = self.pass_reference(ids, there, width, size)
            output[name] = torch.cat([pad_right(output[name], width), found])

    def pass_reference(self, ids: Tensor, there: Tensor, width: int, size: int) -> Tensor:
        """(n, T): by TRL's reference model, by the policy without its adapters, or by the run's own copy where only a method asked for one."""
        trainer = self.trainer
        model = trainer.accelerator.unwrap_model(trainer.model)
        if trainer.ref_model is None and not hasattr(model, "peft_config"):
            return trainer.scoring.reference_logprobs(ids, there, width)
        within: Any = nullcontext()
        if trainer.ref_model is None:
            within = use_adapter(model, adapter_name="ref" if "ref" in model.peft_config else None)
        with within:
            found: Tensor = trainer._get_per_token_logps_and_entropies(trainer.ref_model or trainer.model, ids, there, width, batch_size=size)[0]
        return found

    def measure(self, batch: RowBatch, added: list[tuple[int, Row]]) -> None:
        """Rows of a rollout, and the share of the loss tokens that they hold beside the first: more of either is another diet for the optimiser."""
        metrics, count, state = self.trainer._metrics["train"], len(batch.rollout.ids), self.trainer.state
        state.num_input_tokens_seen += sum(len(row.prompt_ids) + sum(row.mask) for _, row in added)  # as TRL counts those of the first rows
        metrics["num_tokens"] = [state.num_input_tokens_seen]
        metrics["rollouts/rows"].append(1 + len(added) / count)
        metrics["rollouts/further_tokens"].append(float(batch.mask[count:].sum() / batch.mask.sum().clamp(min=1.0)))
        seats: dict[str, float] = {}
        for place, row in enumerate(batch.rows):
            seat = row.seat if row is not None else "policy"
            seats[seat] = seats.get(seat, 0.0) + float(batch.mask[place].sum())
        if len(seats) > 1:
            for seat, tokens in seats.items():
                metrics[f"rollouts/tokens/{seat}"].append(tokens / count)
