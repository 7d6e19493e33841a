from django.apps import AppConfig


class BranchesConfig(AppConfig):
    name = "lab.models.branches"

    def ready(self) -> None:
        from lab.models.branches.kept_rollouts import register_branched_rollouts
        from lab.models.branches.provenance import register_branch_provenance
        from lab.models.branches.room import register_branch_room

        register_branch_provenance()
        register_branch_room()
        register_branched_rollouts()
