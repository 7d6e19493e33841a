"""CPMobius in the world problems: a coach that is paid for the player's gain, against one that stays as it was."""

from bench.effect_cases import Case, Pairs, Quantity, tiny

STEPS = 40
TASK = {"name": "problems", "difficulty": "easy", "options": {"ask": "solve"}}


def trained(seed: int, learning_rate: float) -> tiny.Trained:
    config = {"learning_rate": learning_rate, "coach_reward": "delta", "validation": 64}
    return tiny.run_train(
        seed, "cpmobius", config, base="grpo", steps=STEPS, heldout=256, task=TASK, training__max_completion_length=48, training__prompts=1000
    )


def measure(seed: int) -> Pairs:
    own, frozen = trained(seed, 1e-4), trained(seed, 0.0)
    readable = (own.last("cpmobius/readable"), frozen.last("cpmobius/readable"))
    return tiny.budgeted_accuracies(own, frozen) | {"readable": readable}


CASE = Case(
    method="cpmobius",
    parent="grpo",
    claim="a player gains more from the problems of a coach that is paid for its gain than from those of a coach that does not learn",
    quantities=(
        tiny.ACCURACY,
        tiny.ACCURACY_AT_TOKENS,
        Quantity("readable", "share of the coach's problems that can be asked (mean of the last 5 steps)", "higher", 0.05, "a problem in twenty"),
    ),
    problem="world problems (easy, problems to solve), tiny policy, 40 steps without any reference answer; the parent has a frozen coach",
    measure=measure,
    seeds=3,
    launch={"task": TASK, "base": "grpo", "training__max_completion_length": 48, "config": {"coach_reward": "delta"}},
)
