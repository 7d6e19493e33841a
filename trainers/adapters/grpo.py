"""GRPO on TRL's GRPOTrainer; what it shares with other trainers of groups is in ``groups.py``."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from trl import GRPOConfig, GRPOTrainer

from trainers.adapters.groups import GroupAdapter, build_group_arguments
from trainers.adapters.micro_batch import MicroBatch
from trainers.adapters.passes import last_planes
from trainers.adapters.sampler import hear_sampler
from trainers.adapters.tool_templates import check_tool_descriptions, prepare_tool_calls
from trainers.adapters.trl_episodes import HeldOutSampled, TRLEpisodes, replace_surrogates, watch_rollout_function
from trainers.attempt.context import Attempt
from trainers.attempt.evaluate import HeldOut
from trainers.methods.stack import Stack
from trainers.policies.sampling import as_rows
from trainers.tasks.base import Example
from trainers.tasks.trl_rollouts import TRLRollouts


class GRPOAdapter(GroupAdapter, GRPOTrainer):  # type: ignore[misc]
    trl_episodes: TRLEpisodes | None = None  # of a task that TRL answers

    def __init__(self, attempt: Attempt, examples: Sequence[Example], heldout: HeldOut | None, stack: Stack) -> None:
        if (rollouts := attempt.task.trl) is not None:
            self.build_for_trl(rollouts, attempt, examples, heldout, stack)
            return
        own_rollouts = attempt.task.max_turns > 1 or stack.fills("rollout")
        self.build(attempt, examples, heldout, stack, grpo_config(attempt, stack), rollout_func=self.roll_out if own_rollouts else None)

    def build_for_trl(self, rollouts: TRLRollouts, attempt: Attempt, examples: Sequence[Example], heldout: HeldOut | None, stack: Stack) -> None:
        """For a task that brings its own way of several turns (``Task.trl``). Raises SpecError where the policy or the data does not go with it."""
        play = None if rollouts.rollout_func is None else watch_rollout_function(rollouts.rollout_func)
        config = grpo_config(attempt, stack)
        if rollouts.calls_tools:
            prepare_tool_calls(attempt)
            config.max_tool_calling_iterations = attempt.task.max_turns - 1
        arguments = {"tools": list(rollouts.tools) or None, "environment_factory": rollouts.environment_factory, "rollout_func": play}
        self.build(attempt, examples, heldout, stack, config, **arguments)
        check_tool_descriptions(attempt.task.name, self.tools)
        self.trl_episodes = TRLEpisodes(self, rollouts)
        if heldout is not None:
            heldout.sampled_by = self.trl_episodes.complete_heldout

    def rows_for_trl(self, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return rows if self.trl_episodes is None else self.trl_episodes.rows_for_trl(rows)

    def _generate(self, prompts: Any) -> Any:
        made = super()._generate(prompts)
        if self.trl_episodes is None:
            return made
        episodes, made = self.trl_episodes.collect_episodes(prompts, made)
        if self.trl_episodes.is_measuring:
            self.trl_episodes.sampled = episodes
            raise HeldOutSampled
        self.episodes = episodes
        for row, episode in zip(self.rows, episodes, strict=True):  # shown and scored as TRL asked it
            row["prompt"] = as_rows(episode.asked or ())
        return made

    def _tokenize_prompts(self, prompts: list[Any]) -> Any:
        return super()._tokenize_prompts(
            [[replace_surrogates(message) for message in prompt] for prompt in prompts] if self.trl_episodes else prompts
        )

    def _get_tool_suffix_ids(self, tool_messages: list[dict[str, Any]]) -> Any:
        return super()._get_tool_suffix_ids([replace_surrogates(message) for message in tool_messages])

    def roll_out(self, prompts: list[Any], trainer: Any) -> dict[str, Any]:
        """TRL's rollout function: several turns, or a method's way of generating; the world's tokens masked out of the loss."""
        self.episodes = self.scoring.roll_out(self.rows)
        told = self.hears_sampler and not self.stack.fills("rollout")  # a method may put together what it did not sample
        return {
            "prompt_ids": [episode.prompt_ids for episode in self.episodes],
            "completion_ids": [episode.ids for episode in self.episodes],
            "logprobs": [episode.sampled_logprobs for episode in self.episodes] if told else None,
            "env_mask": [episode.mask for episode in self.episodes],
        }

    def _generate_single_turn(self, prompt_ids: Any, *args: Any, **rest: Any) -> Any:
        """Completion ids and, from vLLM or where they are to be stored, the sampler's log-probabilities of them."""
        if self.use_vllm or not self.hears_sampler or (self.trl_episodes is not None and self.trl_episodes.is_measuring):
            return super()._generate_single_turn(prompt_ids, *args, **rest)
        with hear_sampler(self.accelerator.unwrap_model(self.model_wrapped), self.temperature) as heard:
            ids, _ = super()._generate_single_turn(prompt_ids, *args, **rest)
        return ids, [row[: len(own)] for row, own in zip(heard[0].tolist(), ids, strict=True)]

    @contextmanager
    def reference_kept(self) -> Iterator[None]:
        """TRL leaves the reference's log-probabilities out while beta is 0, and an edit may raise it before the batch is used up."""
        beta = self.beta
        self.beta = beta or self.args.beta
        try:
            yield
        finally:
            self.beta = beta

    @property
    def scores_what_it_sampled(self) -> bool:
        """Whether TRL computes the log-probabilities of a batch right after sampling it: ``_generate_and_score_completions`` decides so."""
        return bool(self.args.gradient_accumulation_steps % self.generate_every != 0) or self.corrects_sampler

    @property
    def corrects_sampler(self) -> bool:
        return bool(self.use_vllm and self.vllm_importance_sampling_correction)

    def last_planes(self, micro: MicroBatch) -> dict[str, Tensor]:
        return last_planes(micro, (self.epsilon_low, self.epsilon_high), self.loss_type, self.importance_sampling_level)


def grpo_config(attempt: Attempt, stack: Stack) -> GRPOConfig:
    return GRPOConfig(**build_group_arguments(attempt) | stack.base.arguments())
