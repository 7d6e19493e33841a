"""Recipes in the worlds whose reward is the point of them. Data only, as all recipes."""

from trainers.contract.recipe_parts import COLD_STARTED, Recipe, RecipeStage

WORLD_RECIPES = (
    Recipe(
        "evidence",
        "GRPO with checked evidence",
        "Right answers count in full when what was found is enough to give them again, on the base DAPO. For all worlds that have evidence to find.",
        3,
        (
            RecipeStage(
                "GRPO",
                {
                    "policy": COLD_STARTED,
                    "task": {"name": "search", "difficulty": "medium", "options": {"distractors": 1}},
                    "methods": [{"name": "timesearch-r"}],
                    "training": {"trainer": "grpo", "max_steps": 80, "max_completion_length": 96, "lr_scheduler_type": "linear"},
                    "evaluation": {"every": 20},
                },
            ),
        ),
    ),
    # The sum of these terms is the R of arXiv 2509.24961 but for a constant; caught at 0 takes as much for a missed attack as for a false alarm.
    Recipe(
        "semanticshield",
        "Audit of fake users",
        "Tells fake users from real ones by six named rewards, on the base GRPO. A missed attack costs more than a false alarm.",
        2,
        (
            RecipeStage(
                "GRPO",
                {
                    "policy": COLD_STARTED,
                    "task": {
                        "name": "shield",
                        "difficulty": "easy",
                        "rewards": {
                            "correct": 2.0,
                            "caught": 0.25,
                            "format": 0.5,
                            "list": 0.25,
                            "length": 0.25,
                            "consistent": 0.5,
                            "words": 0.5,
                        },
                    },
                    "base": {"name": "grpo"},
                    "training": {"trainer": "grpo", "max_steps": 80, "max_completion_length": 72, "lr_scheduler_type": "linear"},
                    "evaluation": {"every": 20},
                },
            ),
        ),
    ),
    # Pairs are of right and wrong answers, and what cannot be read as boxes is never right: it always loses.
    Recipe(
        "ui-ug",
        "Boxes by their overlap, then pairs",
        "Pays boxes by their best matching with the true ones, on the base GRPO; then DPO on its own answers, of which invalid ones always lose.",
        4,
        (
            RecipeStage(
                "GRPO",
                {
                    "policy": COLD_STARTED,
                    "task": {"name": "boxes", "difficulty": "easy", "rewards": {"correct": 0.0, "loose": 1.0, "format": 0.2}},
                    "base": {"name": "grpo"},
                    "training": {"trainer": "grpo", "max_steps": 80, "max_completion_length": 48, "lr_scheduler_type": "linear"},
                    "evaluation": {"every": 20},
                },
            ),
            RecipeStage(
                "DPO",
                {
                    "task": {"name": "boxes", "difficulty": "easy", "rewards": {"correct": 0.0, "loose": 1.0, "format": 0.2}},
                    "training": {
                        "trainer": "dpo",
                        "max_steps": 60,
                        "max_completion_length": 48,
                        "learning_rate": 1e-5,
                        "lr_scheduler_type": "linear",
                    },
                    "evaluation": {"every": 20},
                },
            ),
        ),
    ),
)
