"""ReMiT on demonstrations of mixed quality (two in three are wrong or guesses), guided by the cold-started policy after 40 steps of GRPO."""

from bench.effect_cases import Case, Pairs, tiny
from trainers.attempt import train
from trainers.contract.spec import FINAL, parse_spec


def tuned(seed: int) -> str:
    """Folder of a policy after a short GRPO run; trained once."""
    folder = tiny.kept_folder(f"remit-{seed}")
    if not (folder / FINAL).is_dir():
        spec = parse_spec({**tiny.spec_of(seed, base="grpo", steps=40, heldout=0), "output": str(folder)})
        if train.run_training(spec, folder) != train.FINISHED:
            raise RuntimeError("the GRPO run did not finish")
    return str(folder / FINAL)


def measure(seed: int) -> Pairs:
    own = tiny.run_train(seed, "remit", {"model": tuned(seed)}, trainer="sft")
    parent = tiny.run_train(seed, trainer="sft")
    return tiny.accuracies(own, parent)  # on the same demonstrations, so on as many tokens


CASE = Case(
    method="remit",
    parent="sft",
    claim="fine-tuning on mixed demonstrations keeps more of the skill when an RL-tuned policy weighs the tokens",
    quantities=(tiny.ACCURACY,),
    problem="word problems, tiny policy, 40 steps on mixed demonstrations",
    measure=measure,
    seeds=3,
    launch={"trainer": "sft"},
)
