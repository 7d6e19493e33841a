from django.apps import AppConfig


class DatasetsConfig(AppConfig):
    name = "lab.data.datasets"

    def ready(self) -> None:
        from lab.data.datasets import departures, palette_source
        from lab.data.datasets.kept_rollouts import register_frozen_rollouts
        from lab.data.datasets.system_places import register_tool_places

        departures.register_folder_clearer()
        palette_source.register_palette_source()
        register_frozen_rollouts()
        register_tool_places()
