"""The measured tasks, for django.tasks or its backport."""

import meter

try:
    from django.tasks import task
except ImportError:
    from django_tasks import task


@task
def noop(n):
    meter.ran()


@task
def stamp(sent):
    meter.picked_up(sent)
