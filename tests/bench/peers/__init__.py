"""pgjobs beside other queues, where they install from PyPI or npm: drain of no-op jobs, and pick-up on idle workers.

Each is installed in a directory of its own (versions are pinned) and gets an empty database on the same server; the runs are
taken in turns. *Default* is as its documentation starts it; *tuned* uses the options that its setting names. A drain
counts from the first job that ran to the last that ran: when a peer recorded the end of the last ones is left out, in its
favour. pgjobs counts to the last recorded end. Slow ones get fewer jobs. What cannot be installed is skipped, and said.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..drain import drain as drain_pgjobs
from ..pickup import Size as PickupSize
from ..pickup import of_pgjobs as pickup_pgjobs
from ..results import Bar, Row, Series, percentile
from ..rig import Rig
from .peer import Peer, Session, Setting, Unavailable, drain, interpreters, pickup, redis_server

TITLE = "Beside other queues"


@dataclass(frozen=True)
class Size:
    jobs: int = 50_000
    samples: int = 100
    pause_ms: int = 50


QUICK = Size(jobs=300, samples=5, pause_ms=20)

DJANGO = (
    "Django==6.1.*; python_version >= '3.12'",
    "Django==5.2.*; python_version < '3.12'",
    "psycopg[binary,pool]==3.3.*",
)

FEWEST = 50
"""Jobs of a drain, however slow the queue."""

PEERS = (
    Peer(
        "graphile-worker",
        ("graphile-worker@0.17.3",),
        "with_graphile.mjs",
        (
            Setting("default", "default", share=0.1),
            Setting("one process, local queue 500, batched completion", "tuned", bar=Bar(0.75, aim=1.5)),
            Setting(
                "two processes, local queue 500, batched completion",
                "tuned",
                processes=2,
                against=2,
                note="the aim is 1.00; it deletes finished jobs",
                pickup=False,
            ),
        ),
    ),
    Peer(
        "PGQueuer",
        ("pgqueuer==1.6.0", "asyncpg==0.31.0"),
        "with_pgqueuer.py",
        (
            Setting("default (batch 10)", "default", share=0.2, bar=Bar(3.0)),
            Setting("two processes, batch 500", "tuned", processes=2, against=2, bar=Bar(1.3)),
        ),
    ),
    Peer(
        "django-tasks-db",
        ("django-tasks-db==0.13.0", *DJANGO, "django-tasks; python_version < '3.12'"),
        "with_django.py",
        (
            Setting("default", "default", share=0.02, bar=Bar(100)),
            Setting("two processes, poll 0.05 s, kept connections", "tuned", processes=2, share=0.02, against=2),
        ),
        env={"BENCH_BACKEND": "django_tasks_db"},
    ),
    Peer(
        "Celery on Redis",
        ("celery[redis]==5.7.0",),
        "with_celery.py",
        (
            Setting("default", "default", share=0.1, against=2),
            Setting("8 threads, prefetch", "tuned", share=0.1),
        ),
        redis=True,
    ),
    Peer(
        "Procrastinate",
        ("procrastinate==3.10.0", "psycopg[binary,pool]==3.3.*"),
        "with_procrastinate.py",
        (
            Setting("default", "default", share=0.04),
            Setting("two processes, concurrency 30", "tuned", processes=2, share=0.04, against=2),
        ),
    ),
    Peer(
        "django-ox",
        ("django-ox==1.9.1", *DJANGO),
        "with_django.py",
        (
            Setting("default", "default", share=0.02),
            Setting("2 processes × 8 threads, poll 0.05 s, kept connections", "tuned", share=0.04, against=2),
        ),
        env={"BENCH_BACKEND": "django_ox"},
    ),
)


def measure(rig: Rig, size: Size, only: Sequence[str] = ()) -> list[Row]:
    peers = []
    for peer in PEERS:
        if only and peer.name not in only:
            continue
        try:
            rig.say(f"installing {peer.pinned}")
            peer.install(rig.place)
            peers.append(peer)
        except Unavailable as e:
            rig.skipped.append(f"{peer.pinned}: {e}")
    rig.beside = interpreters()
    with redis_server(rig.place) as redis:
        return _measure(rig, size, [(peer, setting) for peer in peers for setting in peer.settings], redis)


def _measure(rig: Rig, size: Size, settings: list[tuple[Peer, Setting]], redis: str) -> list[Row]:
    """All of them in turns, pgjobs first in each."""
    drained: dict[tuple[str, str], list[float]] = {}
    picked: dict[tuple[str, str], list[list[float]]] = {}
    ours: dict[int, list[float]] = {1: [], 2: []}
    our_pickups: list[list[float]] = []
    for run in range(1, rig.runs + 1):
        for processes, rates in ours.items():
            rates.append(drain_pgjobs(rig, size.jobs, "--processes", processes))
        our_pickups.append(pickup_pgjobs(rig, PickupSize(size.samples, size.pause_ms)))
        rig.say(f"run {run} of {rig.runs}: pgjobs {ours[1][-1]:,.0f} and {ours[2][-1]:,.0f} jobs/s")
        for peer, setting in list(settings):
            name = (peer.name, setting.name)
            try:
                jobs = max(FEWEST, round(size.jobs * setting.share))
                rate = drain(Session(rig, peer, setting, redis), rig, jobs)
                times = []
                if setting.pickup:
                    times = pickup(Session(rig, peer, setting, redis), size.samples, size.pause_ms / 1000)
            except Unavailable as e:
                rig.skipped.append(f"{peer.pinned}, {setting.name}: {e}")
                settings.remove((peer, setting))
                continue
            drained.setdefault(name, []).append(rate)
            if times:
                picked.setdefault(name, []).append(times)
            p50 = f", pick-up {percentile(times, 50):.1f} ms" if times else ""
            rig.say(f"run {run} of {rig.runs}: {peer.name}, {setting.name}: {rate:,.0f} jobs/s{p50}")
    drains, pickups = [], []
    for peer, setting in settings:
        name, what = (peer.name, setting.name), f"{peer.pinned}, {setting.name}"
        mine = Series(
            f"pgjobs, {setting.against} process{'es' * (setting.against > 1)}", "jobs/s", ours[setting.against]
        )
        drains.append(Row("drain", mine, Series(what, "jobs/s", drained[name]), setting.bar, setting.note))
        pickups += [
            Row(
                f"pick-up p{percent}",
                Series("pgjobs", "ms", [percentile(one, percent) for one in our_pickups]),
                Series(what, "ms", [percentile(one, percent) for one in picked[name]]),
            )
            for percent in (50, 95)
            if name in picked
        ]
    return drains + pickups
