"""Background work for accounts. pgjobs imports the module `jobs` of every app when Django starts."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.core.mail import EmailMessage
from django.db import transaction
from django.template.loader import render_to_string

from example_project.accounts.models import WelcomeMail
from pgjobs import job


@job(queue="mail", max_attempts=8)
def send_welcome_mail(user_id: int) -> str:
    """Send the welcome mail of a new user, once, however often this runs.

    A job runs *at least* once: a worker that dies after sending, before it could say so, leaves the job to another
    one. So the handler asks the database whether its effect is there already. The unique row and the mail share a
    transaction:

    * when sending raises, the row is rolled back, and the next attempt sends;
    * of two runs at the same time, the second waits at the row of the first, and then finds it.

    What remains is a crash between the mail server's yes and the commit. No database can close that window; the
    Message-ID, the same in every attempt, lets the receiving side recognise the copy.
    """
    user = get_user_model().objects.filter(pk=user_id).first()
    if user is None:  # deleted while the job waited: nothing to do, and nobody to alarm
        return "the account is gone"
    with transaction.atomic():
        _, first_time = WelcomeMail.objects.get_or_create(user=user)
        if not first_time:
            return "was sent before"
        EmailMessage(
            subject="Welcome to the shop",
            body=render_to_string("accounts/welcome.txt", {"user": user}),
            to=[user.email],
            headers={"Message-ID": f"<welcome-{user.pk}@shop.example>"},
        ).send()
    return "sent"
