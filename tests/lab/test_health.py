import pytest
from django.test import Client


@pytest.mark.django_db
def test_health_answers_without_a_login(client: Client) -> None:
    assert client.get("/health/").json() == {"status": "ok"}
