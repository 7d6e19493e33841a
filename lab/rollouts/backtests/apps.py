from django.apps import AppConfig


class BacktestsConfig(AppConfig):
    name = "lab.rollouts.backtests"

    def ready(self) -> None:
        from lab.rollouts.backtests import palette_source, stored_rows
        from lab.rollouts.backtests.models import Backtest, BacktestStatus
        from lab.teams.people.departures import register_waiting_work

        register_waiting_work("backtest", Backtest, "backtest", queued=BacktestStatus.QUEUED, ended=BacktestStatus.FAILED, verb="dropped")
        stored_rows.register_try_rows()
        palette_source.register_backtest_palette()
