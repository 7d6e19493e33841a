"""ASearcher in the world search: rollouts up to 4 updates old, the decoupled ratio against the plain one to the weights that sampled."""

from bench.effect_cases import Case, Pairs, tiny

STEPS = 40
TASK = {"name": "search", "difficulty": "easy"}


def trained(seed: int, ratio: str) -> tiny.Trained:
    return tiny.run_train(
        seed,
        "asearcher",
        {"delay": 4, "ratio": ratio},
        steps=STEPS,
        task=TASK,
        training__max_completion_length=96,
        training__epsilon=0.4,
        training__learning_rate=1e-3,
    )


def measure(seed: int) -> Pairs:
    return tiny.budgeted_accuracies(trained(seed, "decoupled"), trained(seed, "plain"))


CASE = Case(
    method="asearcher",
    parent="grpo",
    claim="with rollouts up to 4 updates old the decoupled ratio reaches a higher accuracy than the plain ratio to the weights that sampled",
    quantities=(tiny.ACCURACY, tiny.ACCURACY_AT_TOKENS),
    problem="world search (easy), tiny policy, 40 steps at a learning rate of 1e-3; both arms sample with the same old weights",
    measure=measure,
    seeds=3,
    launch={"task": TASK, "training__max_completion_length": 96},
)
