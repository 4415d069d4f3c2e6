"""What the site remembers of its users, beside Django's own user model."""

from __future__ import annotations

from django.conf import settings
from django.db import models


class WelcomeMail(models.Model):
    """The welcome mail was sent to this user: the fact that makes `send_welcome_mail` idempotent."""

    user = models.OneToOneField(settings.AUTH_USER_MODEL, models.CASCADE, primary_key=True)
    sent_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return f"welcome mail to {self.user}"
