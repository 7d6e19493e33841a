"""Passwords of the cast: hashed as in the lab but with one round, so that a web process verifies them and tests do not wait for them."""

from django.contrib.auth.hashers import PBKDF2PasswordHasher


class QuickHasher(PBKDF2PasswordHasher):
    iterations = 1
