"""``path("jobs/", include("pgjobs.urls"))``: schedules that a platform's cron triggers by calling a URL."""

from django.urls import path

from . import views

app_name = "pgjobs"
urlpatterns = [path("trigger/<path:schedule>/", views.trigger, name="trigger")]
