"""Prints the reference page of the settings."""

from stoker.settings.reference import reference

print(reference(), end="")  # noqa: T201
