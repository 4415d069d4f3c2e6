"""Registration."""

from __future__ import annotations

from django.contrib import messages
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from example_project.accounts.forms import RegistrationForm
from example_project.accounts.jobs import send_welcome_mail


def register(request: HttpRequest) -> HttpResponse:
    """Create an account, and its welcome mail's job with it: both or neither.

    Without the transaction a crash between the two lines would leave a user who never hears from us. And the job
    carries the user's id, not the user: the handler reads the row as it is when it runs.
    """
    form = RegistrationForm(request.POST or None)
    if request.method == "POST" and form.is_valid():
        with transaction.atomic():
            user = form.save()
            send_welcome_mail.enqueue(user_id=user.pk)
        messages.success(request, f"Welcome, {user}. A mail is on its way to {user.email}.")
        return redirect("home")
    return render(request, "accounts/register.html", {"form": form})
