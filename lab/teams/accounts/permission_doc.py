"""The permission table as Markdown: with its addresses for the terminal, without them for docs/security.md, which would change with each page."""

from __future__ import annotations

from lab.teams.accounts.models import Role
from lab.teams.accounts.permissions import ACCOUNT, BEARER, PREFIXES, PUBLIC, ROUTES, STAFF, TABLE

BEGIN, END = "<!-- permissions: written by manage.py permissions --write -->", "<!-- end of permissions -->"
ORDER = (Role.VIEWER, Role.ANNOTATOR, Role.RESEARCHER, Role.ADMIN, Role.OWNER)
OTHERS = {
    PUBLIC: "anyone; the page itself requires a password, an e-mailed link or nothing",
    ACCOUNT: "anyone signed in, for their own account",
    STAFF: "operators of the installation",
    BEARER: "an access token; each operation of the API asks for a line of the table above",
}


def render_permission_doc() -> str:
    return f"{render_role_table()}\n\n{render_address_table()}\n"


def render_role_table() -> str:
    head = ["permission", "what it allows", *(role.value for role in ORDER)]
    rows = [
        [f"`{permission.name}`", permission.words, *("yes" if role in permission.roles else "" for role in ORDER)] for permission in TABLE.values()
    ]
    return render_markdown_table(head, rows)


def render_address_table() -> str:
    """Which names of addresses (and beginnings of names, with a star) ask for what."""
    entries = {**ROUTES, **{f"{beginning}*": access for beginning, access in PREFIXES.items()}}
    rows = []
    for permission in (*TABLE, *OTHERS):
        reading, writing = ([name for name, access in entries.items() if getattr(access, side) == permission] for side in ("read", "write"))
        if reading or writing:
            rows.append([f"`{permission}`" if permission in TABLE else OTHERS[permission], format_route_names(reading), format_route_names(writing)])
    return render_markdown_table(["asks for", "to read", "to change"], rows)


def format_route_names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))


def render_markdown_table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows])


def insert_permission_table(text: str) -> str:
    """``text`` with the table as it is now between its two marks. Raises ValueError without them."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the marks {BEGIN} and {END} are missing")
    return f"{before}{BEGIN}\n{render_role_table()}\n{END}{after}"
