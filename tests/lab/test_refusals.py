"""A refusal reads the same wherever it is answered: page, JSON, form or API."""

import json

import pytest
from django import forms
from django.http import HttpResponse
from django.test import RequestFactory

from lab.edges.api.problems import of_refusal
from lab.lib.refusal_answers import RefusalMiddleware, note_refusal
from lab.lib.refusals import InputRefusal, Problem, Refusal

PROBLEMS = [Problem("name", "is taken", "choose another"), Problem("about", "is too long")]


class NameForm(forms.Form):
    name = forms.CharField()


def answer(refusal: Exception, **request: str) -> HttpResponse | None:
    return RefusalMiddleware(lambda _: HttpResponse()).process_exception(RequestFactory().post("/", "{}", **request), refusal)  # type: ignore[arg-type, return-value]


@pytest.mark.parametrize("status", [409, 410, 422])
def test_a_refusal_that_no_view_caught_is_a_page_with_its_words(status: int) -> None:
    found = answer(Refusal("No <b>.", "Do so.", status=status), content_type="text/plain")
    assert found is not None
    assert found.status_code == status
    assert "No &lt;b&gt;. Do so." in found.content.decode()


def test_to_a_script_it_is_json() -> None:
    found = answer(Refusal("No.", "Do so.", code="gone", status=410), content_type="application/json")
    assert found is not None
    assert (found.status_code, json.loads(found.content)) == (410, {"message": "No.", "fix": "Do so.", "error": "gone"})
    found = answer(InputRefusal(PROBLEMS), content_type="application/json")
    assert found is not None
    assert found.status_code == 422
    assert json.loads(found.content)["problems"][0] == {"field": "name", "message": "is taken", "fix": "choose another"}


def test_other_exceptions_are_left_alone() -> None:
    assert answer(ValueError("No."), content_type="application/json") is None


@pytest.mark.parametrize(("field", "place"), [("name", "name"), ("other", "__all__"), ("", "__all__")])
def test_in_a_form_it_stands_beside_its_input(field: str, place: str) -> None:
    form = NameForm({"name": "x"})
    assert form.is_valid()
    with note_refusal(form):
        raise Refusal("No.", "Do so.", field)
    assert form.errors == {place: ["No. Do so."]}


@pytest.mark.parametrize(("status", "kind"), [(401, "token"), (403, "permission"), (404, "missing"), (409, "conflict"), (410, "conflict")])
def test_the_api_says_its_kind(status: int, kind: str) -> None:
    found = of_refusal(Refusal("No.", "Do so.", status=status))
    assert (found.kind, found.detail, found.errors) == (kind, "No. Do so.", [])


def test_the_api_names_every_input_where_it_stands_in_the_body() -> None:
    class RuleRefusal(InputRefusal):
        location = "rule"

    found = of_refusal(RuleRefusal(PROBLEMS))
    assert (found.kind, [one.field for one in found.errors]) == ("validation", ["rule.name", "rule.about"])
    found = of_refusal(Refusal("No.", "Do so.", "body", status=422))
    assert [(one.field, one.message, one.fix) for one in found.errors] == [("body", "No.", "Do so.")]
