"""What the palette (Ctrl+K) asks for while somebody types."""

from dataclasses import asdict

from django.http import JsonResponse
from django.views.decorators.http import require_safe

from lab.teams.accounts.requests import LabRequest
from lab.teams.accounts.roles import role_of
from lab.training.runs.palette import find_palette_entries


@require_safe
def find_by_words(request: LabRequest) -> JsonResponse:
    found = find_palette_entries(request.team, request.user, role_of(request), request.GET.get("q", ""))
    return JsonResponse({"found": [asdict(entry) for entry in found]}, headers={"Cache-Control": "no-store"})
