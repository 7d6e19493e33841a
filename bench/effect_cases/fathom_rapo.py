"""Look-ups from nearly solved to nearly hopeless, epoch after epoch: how many groups are without a signal?"""

import torch

from bench.effect_cases import Case
from trainers.advantages import z_score
from trainers.methods.group.fathom_rapo import Config, draw_weights, informative_scale

PROMPTS, KEYS, GROUP, BATCH, STEPS, LAST, LEARNING_RATE = 64, 16, 5, 8, 240, 80, 2.0


def measure(seed: int) -> tuple[float, float]:
    return silent_groups(seed, Config()), silent_groups(seed, Config(prune=False, scale=False, replay=False))


def silent_groups(seed: int, config: Config) -> float:
    """Share of groups without spread in their reward, over the last steps. Key 0 of each prompt is right, and is what a replay puts in."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.zeros(PROMPTS, KEYS)
    logits[:, 0] = torch.linspace(-4, 6, PROMPTS)
    visits, accuracy, known, silent = [0] * PROMPTS, [0.0] * PROMPTS, set[int](), list[float]()
    for _ in range(STEPS):
        weights = draw_weights(visits, accuracy if config.prune else [0.0] * PROMPTS, config.solved)
        weights = weights if weights.sum() > 0 else torch.ones(PROMPTS)
        few = int((weights > 0).sum()) < BATCH  # then a run draws some of them twice
        asked = torch.multinomial(weights, BATCH, replacement=few, generator=generator)
        probabilities = torch.softmax(logits[asked], 1)
        chosen = torch.multinomial(probabilities, GROUP, replacement=True, generator=generator)  # (BATCH, GROUP)
        for row, prompt in enumerate(asked.tolist()):
            visits[prompt] += 1
            if (chosen[row] == 0).any():
                known.add(prompt)
            elif config.replay and prompt in known:
                chosen[row, int(torch.randint(GROUP, (), generator=generator))] = 0
            accuracy[prompt] = float((chosen[row] == 0).float().mean())
        rewards = (chosen == 0).float()
        silent.append(float((rewards.amax(1) == rewards.amin(1)).float().mean()))
        scale = informative_scale(rewards.flatten(), GROUP) if config.scale else 1.0
        advantage = scale * z_score(rewards.flatten(), GROUP).view(BATCH, GROUP)
        gradient = torch.zeros(BATCH, KEYS).scatter_add_(1, chosen, advantage) - probabilities * advantage.sum(1, keepdim=True)
        logits.index_add_(0, asked, LEARNING_RATE * gradient / (BATCH * GROUP))
    return sum(silent[-LAST:]) / LAST


CASE = Case(
    method="fathom-rapo",
    parent="grpo",
    claim="fewer groups have rewards without any spread",
    quantity="share of groups without spread in the reward, last 80 steps",
    direction="lower",
    problem="64 look-ups of 16 keys from hard to nearly solved, 240 updates, 30 epochs",
    measure=measure,
    launch={"base": "grpo"},
)
