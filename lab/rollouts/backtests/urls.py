"""Reward functions scored on stored rollouts."""

from django.urls import path

from lab.rollouts.backtests import pages

urlpatterns = [
    path("backtests/", pages.list_backtests, name="backtests"),
    path("backtests/new/", pages.create_backtest, name="backtest-new"),
    path("backtests/<uuid:backtest_id>/", pages.show_backtest, name="backtest"),
    path("backtests/<uuid:backtest_id>/again/", pages.retry_backtest, name="backtest-again"),
]
