"""What the tasks write."""

from django.db import models


class Note(models.Model):
    """A line of text that a task, or a request, left behind."""

    text: "models.CharField[str, str]" = models.CharField(max_length=200)

    class Meta:
        app_label = "orders"

    def __str__(self) -> str:
        return self.text
