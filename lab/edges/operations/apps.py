from django.apps import AppConfig


class OperationsConfig(AppConfig):
    name = "lab.edges.operations"

    def ready(self) -> None:
        from lab.edges.operations import audited

        audited.register_audit_links()
