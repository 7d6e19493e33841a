"""The length cap among the password validators: hashing a book costs the server, not the attacker."""

from django.core.exceptions import ValidationError


class MaximumLengthValidator:
    def __init__(self, max_length: int = 128) -> None:
        self.max_length = max_length

    def validate(self, password: str, user: object = None) -> None:
        if len(password) > self.max_length:
            raise ValidationError(f"This password is too long: at most {self.max_length} characters.", code="password_too_long")

    def get_help_text(self) -> str:
        return f"Your password can have at most {self.max_length} characters."
