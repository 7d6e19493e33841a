"""Reads a rendered form the way a browser would send it, so that tests send what the page really holds."""

from html.parser import HTMLParser
from typing import Any

from django.test import Client


class FormReader(HTMLParser):
    """Collects the successful controls of the form that has ``marker`` among its attributes."""

    def __init__(self, marker: str) -> None:
        super().__init__()
        self.marker, self.inside, self.select, self.values = marker, False, "", dict[str, str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag == "form":
            self.inside = self.marker in given
        if not self.inside:
            return
        if tag == "input" and "name" in given and "disabled" not in given:
            if given.get("type") not in ("checkbox", "radio") or "checked" in given:
                self.values[given["name"]] = given.get("value", "")
        elif tag == "select":
            self.select = given["name"]
        elif tag == "option" and self.select:
            value = given.get("value")
            if "selected" in given or self.select not in self.values:
                self.values[self.select] = value if value is not None else "\0text"

    def handle_data(self, data: str) -> None:
        if self.select and self.values.get(self.select) == "\0text":
            self.values[self.select] = data

    def handle_endtag(self, tag: str) -> None:
        if tag == "select":
            self.select = ""
        elif tag == "form":
            self.inside = False


def form_values(html: str, marker: str) -> dict[str, str]:
    reader = FormReader(marker)
    reader.feed(html)
    assert reader.values, f"no form with {marker}"
    return reader.values


def filled(client: Client, url: str, **changes: str) -> dict[str, str]:
    """What a browser would send from the form at ``url`` after ``changes``."""
    response = client.get(url)
    assert response.status_code == 200
    return {**form_values(response.content.decode(), "data-launch"), **changes}


def send(client: Client, url: str, **changes: str) -> Any:
    return client.post(url.split("?")[0], filled(client, url, **changes))


def error_of(page: str, name: str) -> str:
    """The text shown at the input ``name``."""
    return page.split(f'data-error-for="{name}">')[1].split("</p>")[0].strip()


def texts_of(form: Any) -> dict[str, str]:
    """What a browser would send from a launch form that nobody has sent yet."""
    return {bound.html_name: bound.data for one in (form, *form.nested) for bound in one}
