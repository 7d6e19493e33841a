import tests.steady  # noqa: F401
