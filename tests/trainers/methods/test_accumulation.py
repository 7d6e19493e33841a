"""How a sampled batch is cut into micro-batches changes no gradient: 1 micro-batch of 8 completions and 4 of 2, of very different lengths.

For every method that brings its own policy loss or adds to the loss, and for the loss of a base with completions left out. Nothing hangs on what is
sampled: lengths, advantages and the update between two passes are given.
"""

import copy

import pytest
import torch

from tests.trainers.conftest import make_spec
from trainers.adapters.groups import ROW
from trainers.attempt import train
from trainers.attempt.context import Attempt
from trainers.attempt.report import Reporter
from trainers.attempt.stop import StopRequest
from trainers.contract.spool import SPOOL, SpoolWriter
from trainers.methods import registry
from trainers.methods import stack as stacks
from trainers.methods.base import hooks_of
from trainers.policies import loading as policies
from trainers.policies import tiny
from trainers.tasks import registry as tasks

LENGTHS = (1, 12, 2, 9, 12, 1, 3, 5)
ADVANTAGES = (1.0, -0.5, 2.0, -1.0, 0.25, -2.0, 0.5, 1.5)
OTHERS = {  # parameters under which the term counts at once
    "cmdp-distill": {"constraint": "soft"},
    "siren": {"weight": 50.0},
    "farl": {"weight": 10.0},
    "evol-rl": {"entropy_weight": 1.0},
    "clpo": {"kl": 10.0},
}
HOOKS = {"policy_loss", "loss", "token_weights", "log_ratios"}
# One loss moves a controller and no weight of the policy, one is of another kind of policy: their own tests split batches.
OWN_MODEL = {"fr-ponder", "remedi"}
WANTED = {kind.card.name for _, kind in registry.built_in() if HOOKS & set(hooks_of(kind)) and "grpo" in kind.trains} - OWN_MODEL
METHODS = [kind for _, kind in registry.built_in() if kind.card.name in WANTED]


def adapter_of(folder, method="", base="grpo", config=None, task="mini_gsm"):
    """A trainer of the untrained built-in policy that has sampled 2 prompts x 4 completions, and what TRL made of them."""
    chosen = [{"name": method, "config": config or {}}] if method else []
    training = {"num_iterations": 2, "max_completion_length": 12, "prompts": 8, "max_steps": 4}
    given = {f"training__{name}": value for name, value in training.items()}
    spec = make_spec(folder, base={"name": base}, methods=chosen, policy={"kind": "tiny", "cold_start": False}, task={"name": task}, **given)
    known = tasks.get_task(task)
    policy, reporter = policies.load_policy(tiny.ensure_untrained_policy(known), spec), Reporter(SpoolWriter(folder / SPOOL), 1)
    attempt = Attempt(spec, folder, known, policy, reporter, StopRequest(folder, None))
    stack = stacks.of_attempt(attempt)
    trainer = train.build_trainer_adapter(attempt, stack.data(train.read_data(attempt)), None, stack)
    trainer.current_gradient_accumulation_steps = 1
    trainer.model.train()
    rows = [row for place in (0, 1) for row in [dict(trainer.train_dataset[place])] * 4]
    return trainer, rows


def sampled(trainer, rows, lengths=LENGTHS):
    """TRL's tensors of the rows; each completion counts as long as ``lengths`` says."""
    output = trainer._generate_and_score_completions(rows)
    there = output["completion_mask"]
    ragged = (torch.arange(there.shape[1]) < torch.tensor(lengths)[:, None]).to(there.dtype)
    output["completion_mask"], output["tool_mask"] = torch.ones_like(there), ragged
    output["num_items_in_batch"], output["advantages"] = ragged.sum(), torch.tensor(ADVANTAGES)
    batch = trainer.scoring.rollout_batch
    batch.mask, batch.filtered, batch.kept = ragged.float(), [], None
    output.setdefault("old_per_token_logps", torch.full(there.shape, -3.0))
    return output


def gradients(trainer, output, order, slices, before):
    """The gradient of the second pass over a batch in so many micro-batches, after an update that is the same for all."""
    for method, values in zip(trainer.stack.methods, before, strict=True):
        vars(method).clear()
        vars(method).update(copy.copy(values))
    trainer.args.steps_per_generation = trainer.current_gradient_accumulation_steps = slices
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    generator = torch.Generator().manual_seed(0)
    for update in (0, 1):
        trainer.state.global_step = update
        trainer.model.zero_grad()
        for place, rows in enumerate(order.chunk(slices)):
            trainer._step = update * slices + place
            part = {name: value[rows] if value.dim() else value for name, value in output.items()}
            trainer._compute_loss(trainer.model, part).backward()
        if not update:
            with torch.no_grad():
                for parameter in trainer.model.parameters():
                    parameter.add_(0.02 * torch.randn(parameter.shape, generator=generator))
    found = torch.cat([p.grad.flatten() if p.grad is not None else torch.zeros(p.numel()) for p in trainer.model.parameters()])
    trainer.model.load_state_dict(weights)
    return found


def heat(method):
    """Annealed RLVR in its burst, on one stored completion."""
    method.started, method.heated, method.solutions = 1, [0], {0: "<answer>1</answer>"}


def compare(trainer, output):
    order = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    assert output[ROW].tolist() == list(range(8))
    before = [copy.copy(vars(method)) for method in trainer.stack.methods]
    whole, cut = (gradients(trainer, output, order, slices, before) for slices in (1, 4))
    assert whole.norm() > 0
    assert torch.allclose(whole, cut, atol=1e-4 * float(whole.abs().max()), rtol=1e-3), float((whole - cut).norm() / whole.norm())
    return whole


@pytest.mark.parametrize("kind", METHODS, ids=lambda kind: kind.card.name)
def test_the_gradient_is_that_of_the_whole_batch(tmp_path, kind):
    name = kind.card.name
    base = kind.card.base if kind.card.base in ("grpo", "dapo", "dr-grpo") else "grpo"
    trainer, rows = adapter_of(tmp_path, name, base, OTHERS.get(name), min(kind.worlds, default="mini_gsm"))
    output = sampled(trainer, rows)
    if name == "annealed-rlvr":
        heat(trainer.stack.methods[1])
    compare(trainer, output)


@pytest.mark.parametrize("base", ["grpo", "dapo"])
def test_completions_that_were_cut_off_leave_the_mean_too(tmp_path, base):
    """Critique-Coder's mask of overlong answers with the mean over what is left, as in the authors' code: the rest alone gives the same gradient."""
    trainer, rows = adapter_of(tmp_path, "critique-coder", base)
    output, batch = sampled(trainer, rows), trainer.scoring.rollout_batch
    left = torch.tensor([0, 2, 3, 4, 5, 7])
    batch.finished = torch.isin(torch.arange(8), left)
    trainer.stack.methods[1].advantages(batch, torch.ones(8))
    trainer.scoring.leave_out(batch, output)
    tokens = sum(LENGTHS[row] for row in left.tolist())
    assert output["num_items_in_batch"].item() == tokens
    found = compare(trainer, output)
    batch.filtered = []
    rest = {name: value[left] if value.dim() else value for name, value in output.items()}
    alone = gradients(trainer, rest, torch.arange(6), 1, [vars(method) for method in trainer.stack.methods])
    assert torch.allclose(found, alone, atol=1e-4 * float(alone.abs().max()), rtol=1e-3)
