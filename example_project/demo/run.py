"""The demo's story, from the first migration to the last process that ends."""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import time
from collections.abc import Iterator

from django.conf import settings
from django.core.management import call_command
from django.db import DatabaseError, connection
from django.urls import reverse
from rich.console import Console

from example_project.crm.server import serving
from example_project.crm.service import FlakyCrm
from example_project.demo import flows, seeds, showing
from example_project.demo.processes import Child, DemoError, Stop, running, shown
from example_project.demo.watching import Seen, look, take_back

THREADS = 4
GRACE = 5  # seconds that the worker gives its running jobs when it is stopped
LIMIT = 45  # seconds without a job that ends: on a busy machine all of them take longer
HOST, PORTS = "127.0.0.1", range(8000, 8100)


def exit_when_done() -> int:
    """`demo --exit`: 0 when every job has ended as it should; else 1, or 128 + the signal that interrupted it."""
    out = showing.console()
    with Stop().on_signals() as stop, flow_starter(out) as browser:
        # No site, so the CRM gets a small server of its own.
        with serving(FlakyCrm()) as crm_url, steps_taken() as taken, worker(stop, out, crm_url) as child:
            steps = watch(flows.start(browser), taken, [child], stop, out)
        if stop.signal:
            say(out, "Interrupted.")
            return 128 + stop.signal
        well = judge(out, steps, child)
        tell_schedules(out)
        return 0 if well else 1


def until_stopped() -> int:
    """`demo`: the same beside the site, which then stays until a signal."""
    out = showing.console()
    with (
        Stop().on_signals() as stop,
        flow_starter(out) as browser,
        site(stop, out) as (child, address),
        steps_taken() as taken,
        worker(stop, out, f"{address}/crm/") as working,
    ):
        steps = watch(flows.start(browser), taken, [child, working], stop, out)
        if not stop.signal:
            judge(out, steps, working)
            tell_schedules(out)
            invite(out, address, steps)
        while not stop.wait(0.5):
            child.check()
            working.check()
        say(out, "Stopping.")
    return 0


@contextlib.contextmanager
def flow_starter(out: Console) -> Iterator[flows.Browser]:
    """Prepare the database, and yield the browser of a person who may do everything."""
    call_command("migrate", verbosity=0, interactive=False)
    say(out, f"Database: {connection.settings_dict['NAME']}, migrated")
    user, password = seeds.administrator()
    if password:
        say(out, f"Admin: user {user.username}, password {password} (shown only now)")
    else:
        say(out, f"Admin: user {user.username} (new password: manage.py changepassword {user.username})")
    browser = flows.Browser(user)
    try:
        yield browser
    finally:
        with contextlib.suppress(DatabaseError):  # should it be gone, that is not the trouble to tell of
            browser.close()


@contextlib.contextmanager
def worker(stop: Stop, out: Console, crm_url: str) -> Iterator[Child]:
    """A worker beside us, as in production; it is told where the CRM is."""
    command = ("run_jobs", "--threads", str(THREADS), "--grace", str(GRACE))
    with running(stop, "worker", *command, env={"CRM_URL": crm_url}, grace=GRACE) as child:
        introduce(out, child)
        yield child


@contextlib.contextmanager
def site(stop: Stop, out: Console) -> Iterator[tuple[Child, str]]:
    """The site on the first free port from 8000 on, when it answers; yields its address too."""
    port = next((port for port in PORTS if is_free(port)), None)
    if port is None:
        raise DemoError(f"No port from {PORTS.start} to {PORTS.stop - 1} is free on {HOST}.")
    with running(stop, "site", "runserver", "--noreload", f"{HOST}:{port}", env={}) as child:
        introduce(out, child)
        deadline = time.monotonic() + LIMIT
        while not answers(port) and not stop.wait(0.1):
            child.check()
            if time.monotonic() > deadline:
                raise DemoError(f"The site does not answer. The end of {shown(child.log)}:\n{child.last_lines()}")
        yield child, f"http://{HOST}:{port}"


@contextlib.contextmanager
def steps_taken() -> Iterator[list[flows.Step]]:
    """Yields a list for the steps that were started; what has not run by the end, without the worker, is taken back."""
    steps: list[flows.Step] = []
    try:
        yield steps
    finally:
        with contextlib.suppress(DatabaseError):
            take_back(steps)


def watch(
    started: Iterator[flows.Step], steps: list[flows.Step], children: list[Child], stop: Stop, out: Console
) -> list[Seen]:
    """Start the flows and show how they go; how they stand when all have ended, or none ends any more, or somebody stops us."""
    with showing.progress(out) as show:
        for step in started:
            steps.append(step)
            show(look(one) for one in steps)
            if stop.wait(0):
                return []
        deadline = time.monotonic() + LIMIT
        seen = [look(one) for one in steps]
        while True:
            before, seen = seen, [one if one.ended else look(one.step) for one in seen]
            show(seen)
            if sum(one.finished for one in seen) > sum(one.finished for one in before):
                deadline = time.monotonic() + LIMIT
            if all(one.ended for one in seen) or time.monotonic() > deadline or stop.wait(0.2):
                return seen
            for child in children:
                child.check()


def judge(out: Console, steps: list[Seen], child: Child) -> bool:
    """Say whether every job has ended as it should, and if not, which and what the worker wrote last."""
    wrong = [seen for seen in steps if seen.complaint()]
    if not wrong:
        say(out, "\nAll jobs have ended as they should.")
        return True
    say(out, "\nNot as it should be:")
    out.print(showing.complaints(wrong))
    say(out, f"The end of {shown(child.log)}:\n{child.last_lines()}")
    return False


def say(out: Console, text: str) -> None:
    """Print a text as it is: no markup, and lines as long as they are, so that addresses can be copied."""
    out.print(text, markup=False, soft_wrap=True)


def introduce(out: Console, child: Child) -> None:
    say(
        out,
        f"{child.name.capitalize()}: manage.py {' '.join(child.command)} (pid {child.pid}, log in {shown(child.log)})",
    )


def tell_schedules(out: Console) -> None:
    """What comes by itself: the worker has read the code's schedules when it started."""
    listed = io.StringIO()
    call_command("schedules", stdout=listed)
    say(out, f"\nWhat comes by itself while a worker runs (manage.py schedules):\n{listed.getvalue().rstrip()}")


def invite(out: Console, address: str, steps: list[Seen]) -> None:
    """Where to look now."""
    dead = next((seen.step.job_id for seen in steps if seen.status == "dead"), None)
    say(out, f"\nThe site:        {address}/")
    say(out, f"The admin:       {address}{reverse('admin:pgjobs_job_changelist')}")
    if dead:
        say(out, f"The dead letter: {address}{reverse('admin:pgjobs_job_change', args=[dead])}")
    say(out, f"The schedules:   {address}{reverse('admin:pgjobs_schedule_changelist')}")
    say(out, f"The mails:       {shown(settings.VAR_DIR / 'mail')}")
    say(out, "\nIt all stays until Ctrl-C.")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the site's server does
        with contextlib.suppress(OSError):
            probe.bind((HOST, port))
            return True
    return False


def answers(port: int) -> bool:
    request = http.client.HTTPConnection(HOST, port, timeout=5)
    with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(request):
        request.request("GET", "/")
        return request.getresponse().status < 500
    return False
