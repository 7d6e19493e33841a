"""HierSearch: a planner over frozen search agents, each of a corpus of its own (arXiv 2508.08088).

R = 0                                        for broken form, or an episode that is too long
R = F1(answer, gold)                         where that is above 0
R = 0.1 |tools used and allowed| / |allowed| else: a wrong answer is worth more after asking everybody

Then GRPO on the planner; what the agents return is masked out of the loss. It differs from GRPO on the same world in the reward of a wrong answer;
with ``tool_share`` 0 it is GRPO for answers of one word. The hierarchy itself is the option ``agents`` of the world ``two_corpora``: without it the
policy searches both corpora itself, which is the flat agent that the paper compares with.

In the paper each agent is a language model trained on its tools by GRPO and then frozen, a third tool asks both, and the evidence that an agent did
not use is refined by embeddings. Here an agent is a rule of the world that follows the chain of a question and searches again where a search was
noise, there are two tools, and similarities are cosines of the counts of words.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from trainers.contract.hyperparameters import Strict, param
from trainers.methods.base import Method
from trainers.methods.card import Card, Panel, Requirement, Series
from trainers.texts.token_overlap import compute_f1, split_answer_words
from trainers.worlds.replays import count_calls, read_final_answer, replay_texts
from trainers.worlds.two_corpora import TwoCorpora

if TYPE_CHECKING:
    from trainers.methods.batch import RolloutBatch
    from trainers.methods.context import RunContext


def score_planner(answer: str | None, gold: str, used: int, allowed: int, tool_share: float) -> float:
    """``answer`` None: broken form. ``used`` of ``allowed`` tools."""
    if answer is None:
        return 0.0
    f1 = compute_f1(split_answer_words(answer, articles=False), split_answer_words(gold, articles=False))
    return f1 or tool_share * used / allowed


class Config(Strict):
    tool_share: float = param(0.1, "Reward of a wrong answer after all tools were used.", title="Reward of asking everybody", ge=0, le=1)


class HierSearch(Method):
    card = Card(
        name="hiersearch",
        title="A planner over search agents",
        arxiv="2508.08088",
        system="HierSearch",
        base="grpo",
        provenance="code",
        source="github plageon/HierSearch: src/verl/utils/reward_score/hier_search.py, agentic_rag/serve_search_agent.py",
        fit="needs-environment",
        idea="Let frozen agents search one corpus each, and train a planner that asks them; even a wrong answer pays a little if all were asked.",
        formula=(
            r"R = \begin{cases} 0 & \text{broken form} \\ F_1 & F_1 > 0 \\"
            r" 0.1\, \frac{|\text{used} \cap \text{allowed}|}{|\text{allowed}|} & \text{else} \end{cases}",
        ),
        departures=(
            "The agents are rules of the world two_corpora, in place of models trained on their tools.",
            "There are two tools; a third that asks both agents is left out.",
            "Evidence is refined by cosines of the counts of words, in place of embeddings.",
        ),
    )
    Config = Config
    roles = {"rewards": "makes"}
    worlds = frozenset({"two_corpora"})
    requires = (Requirement("task.options.agents", "equals", True, "without agents the policy searches itself: there is no hierarchy"),)

    def prepare(self, run: "RunContext") -> None:
        self.run = run

    def rewards(self, batch: "RolloutBatch", rewards: Tensor) -> Tensor:
        replays = replay_texts(self.run.task, batch.examples, batch.texts)
        used = [replay.state["tools"] for replay in replays]
        made = [
            score_planner(read_final_answer(replay), example.reference, len(tools), len(TwoCorpora.tools), self.config.tool_share)
            for replay, example, tools in zip(replays, batch.examples, used, strict=True)
        ]
        for tool in TwoCorpora.tools:
            self.log(f"asked/{tool.name}", sum(tool.name in tools for tools in used) / len(used))
        self.log("calls", sum(map(count_calls, replays)) / len(replays))
        searches = [turn.step.facts.get("searches", 0) for replay in replays for turn in replay.turns]
        self.log("agent_searches", sum(searches) / len(replays))
        return torch.tensor(made, dtype=rewards.dtype, device=rewards.device)

    @classmethod
    def panels(cls) -> tuple[Panel, ...]:
        name = cls.card.name
        return (
            Panel(
                "Who is asked",
                (Series(f"{name}/asked/local", "local agent"), Series(f"{name}/asked/web", "web agent")),
                help="Share of the episodes in which the planner asks each agent.",
            ),
            Panel("Calls per episode", (Series(f"{name}/calls", "of the planner"), Series(f"{name}/agent_searches", "of its agents", dashed=True))),
        )
