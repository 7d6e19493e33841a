from django.apps import AppConfig


class TasksConfig(AppConfig):
    name = "lab.data.tasks"

    def ready(self) -> None:
        from lab.data.tasks import palette_source, run_tasks, usage

        palette_source.register_task_palette()
        run_tasks.register_run_tasks()
        usage.register_reward_uses()
