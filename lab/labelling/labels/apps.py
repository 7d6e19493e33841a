from django.apps import AppConfig


class LabelsConfig(AppConfig):
    name = "lab.labelling.labels"

    def ready(self) -> None:
        from lab.labelling.labels import departures, palette_source, queue_joining
        from lab.labelling.labels.browser_fields import register_labels_column
        from lab.labelling.labels.kept_rollouts import register_queued_rollouts

        register_labels_column()
        queue_joining.register_queue_assigning()
        departures.register_claim_freeing()
        palette_source.register_palette_source()
        register_queued_rollouts()
