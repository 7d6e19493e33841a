from django.apps import AppConfig


class BacktestsConfig(AppConfig):
    name = "lab.rollouts.backtests"

    def ready(self) -> None:
        from lab.rollouts.backtests import departures, palette_source, stored_rows

        departures.register_backtest_hooks()
        stored_rows.register_try_rows()
        palette_source.register_backtest_palette()
