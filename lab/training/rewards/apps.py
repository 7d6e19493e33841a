from django.apps import AppConfig


class RewardsConfig(AppConfig):
    name = "lab.training.rewards"

    def ready(self) -> None:
        from lab.training.rewards import choices, palette_source

        choices.register_team_choices()
        palette_source.register_reward_palette()
