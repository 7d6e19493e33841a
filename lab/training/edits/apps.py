from django.apps import AppConfig


class EditsConfig(AppConfig):
    name = "lab.training.edits"

    def ready(self) -> None:
        from lab.training.edits.chart_marks import list_edit_marks
        from lab.training.runs.run_marks import SOURCES

        SOURCES.register("edits", list_edit_marks)
