"""The backends of django.tasks, by ``manage.py`` commands of theirs: as they are, or polling each 0.05 s on kept connections."""

import os
import sys

import meter

os.environ["DJANGO_SETTINGS_MODULE"] = "django_settings"

WORKERS = {
    ("django_tasks_db", "default"): ["db_worker"],
    ("django_tasks_db", "tuned"): ["db_worker", "--interval", "0.05", "--no-startup-delay"],
    ("django_ox", "default"): ["ox_worker"],
    ("django_ox", "tuned"): ["ox_worker", "--processes", "2", "--concurrency", "8", "--interval", "0.05"],
}


def command(*args):
    from django.core.management import execute_from_command_line

    execute_from_command_line(["manage.py", *args])


def setup():
    command("migrate", "-v0")


def bulk(count):
    import django

    django.setup()
    from django_jobs import noop

    for n in range(count):
        noop.enqueue(n=n)


def send(times):
    import django

    django.setup()
    from django_jobs import stamp

    for sent in times:
        stamp.enqueue(sent=sent)


def work(setting):
    sys.argv = ["manage.py"]
    command(*WORKERS[os.environ["BENCH_BACKEND"], setting])


if __name__ == "__main__":
    meter.main(setup=setup, bulk=bulk, send=send, work=work)
