"""Which values a sweep tries next. They follow from its rows and its seed alone, so any process may ask, and asking again changes nothing.

Optuna keeps nothing: its study is rebuilt in memory from the trials. It is imported where it is asked, not when a process starts.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from lab.training.ablations.variants import first_seed
from lab.training.sweeps.models import Direction, Sampler, Sweep, Trial
from lab.training.sweeps.space import SEED, Axis, read_axes

if TYPE_CHECKING:
    import optuna

Values = dict[str, Any]


def suggest_values(sweep: Sweep, trials: Sequence[Trial]) -> Values:
    """The values of the trial after ``trials``, all of the sweep so far in their order."""
    number = len(trials)
    if sweep.sampler == Sampler.SEEDS:
        return {SEED: first_seed(sweep.spec) + number}
    axes = read_axes(sweep.space)
    if sweep.sampler == Sampler.GRID:
        chosen = next(itertools.islice(itertools.product(*(axis.values for axis in axes)), number, None))
        return {axis.key: value for axis, value in zip(axes, chosen, strict=True)}
    study = build_study(sweep, trials)
    study.sampler = make_sampler(sweep, number)
    return dict(study.ask(make_distributions(axes)).params)


def make_sampler(sweep: Sweep, number: int) -> optuna.samplers.BaseSampler:
    """With a seed for each trial: one that is made anew must not draw its first numbers again."""
    import optuna

    seed = int.from_bytes(blake2b(f"{sweep.seed}/{number}".encode(), digest_size=4).digest(), "big")
    if sweep.sampler == Sampler.RANDOM:
        return optuna.samplers.RandomSampler(seed=seed)
    if sweep.sampler == Sampler.MUTATIONS:
        from lab.training.sweeps.mutation_sampler import MutationSampler

        return MutationSampler(make_distributions(read_axes(sweep.space)), seed)
    return optuna.samplers.TPESampler(multivariate=True, constant_liar=True, seed=seed)


def build_study(sweep: Sweep, trials: Sequence[Trial]) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(direction="maximize" if sweep.direction == Direction.MAXIMIZE else "minimize")
    distributions = make_distributions(read_axes(sweep.space))
    study.add_trials([freeze_trial(sweep, trial, distributions) for trial in trials])
    return study


def make_distributions(axes: Sequence[Axis]) -> dict[str, optuna.distributions.BaseDistribution]:
    from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution

    def distribution(axis: Axis) -> BaseDistribution:
        if not axis.is_range:
            return CategoricalDistribution(axis.values)
        kind = FloatDistribution if isinstance(axis.low, float) or isinstance(axis.high, float) else IntDistribution
        return kind(axis.low, axis.high, log=axis.log)

    return {axis.key: distribution(axis) for axis in axes}


def freeze_trial(sweep: Sweep, trial: Trial, distributions: dict[str, Any]) -> optuna.trial.FrozenTrial:
    """A trial as Optuna knows it. One paused at a rung counts with what it had reached there."""
    from optuna.trial import TrialState, create_trial

    reached = {step: score for step, score in zip(sweep.rungs, trial.rung_scores, strict=False) if score is not None}
    if trial.score is not None:
        state = TrialState.COMPLETE
    elif trial.has_failed:
        state = TrialState.FAIL
    else:
        state = TrialState.PRUNED if trial.status == "paused" and reached else TrialState.RUNNING
    return create_trial(state=state, value=trial.score, params=trial.values, distributions=distributions, intermediate_values=reached)
