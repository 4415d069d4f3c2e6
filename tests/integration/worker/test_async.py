"""``async def`` handlers (F133)."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from pgjobs import aenqueue
from pgjobs.models import Job
from pgjobs.worker import hygiene
from tests.rows import history
from tests.testapp.jobs import scripted_async
from tests.testapp.models import Note
from tests.worker_harness import Handlers, Workers


@pytest.mark.parametrize(
    ("step", "status"),
    [(["return", 1], "done"), (["raise"], "dead"), (["fail"], "failed"), (["cancel"], "cancelled"), (["snooze", 60], "pending"),
     (["retry", 60], "dead"), (["raise", "KeyboardInterrupt"], "dead"), (["sys_exit"], "dead"), (["raise_odd", "nul"], "dead")],
    ids=lambda value: value if isinstance(value, str) else "-".join(map(str, value)),
)  # fmt: skip
def test_every_ending(workers: Workers, step: list[Any], status: str) -> None:
    job = scripted_async.using(max_attempts=1).enqueue(steps=[step])
    after = scripted_async.using(priority=-1).enqueue(steps=[["return", 2]])
    workers.drain()
    assert job.get().status == status
    assert (after.get().status, after.get().result) == ("done", 2)


def test_many_run_at_once_on_one_thread(workers: Workers, handlers: Handlers) -> None:
    threads, together = set(), []
    count = 0

    @handlers
    async def meet() -> None:
        nonlocal count
        threads.add(threading.get_ident())
        count += 1
        together.append(count)
        async with asyncio.timeout(20):
            while count < 20:
                await asyncio.sleep(0.01)

    for _ in range(20):
        meet.enqueue()
    assert workers.drain(ASYNC_CONCURRENCY=20).recorded == {"done": 20}
    assert len(threads) == 1


def test_never_more_than_asked_for(workers: Workers, handlers: Handlers) -> None:
    running = most = 0

    @handlers
    async def work() -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.01)
        running -= 1

    for _ in range(30):
        work.enqueue()
    workers.drain(ASYNC_CONCURRENCY=3)
    assert most <= 3


def test_the_orm_and_enqueueing(workers: Workers, handlers: Handlers) -> None:
    @handlers
    async def write(ctx: Any, n: int) -> int:
        await Note.objects.acreate(text=str(n), job_id=ctx.id)
        if n == 0:
            await aenqueue("write", {"n": 100})
        return await Note.objects.filter(job_id=ctx.id).acount()

    jobs = [write.enqueue(n=n) for n in range(20)]
    workers.drain()
    assert {job.get().result for job in jobs} == {1}
    assert Job.objects.get(payload={"n": 100}).parent_id == jobs[0].id


def test_a_task_that_is_left_behind_is_cancelled(workers: Workers, handlers: Handlers) -> None:
    ended = []

    async def stray() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    @handlers
    async def leave() -> None:
        task = asyncio.create_task(stray())
        await asyncio.sleep(0)
        assert not task.done()

    leave.enqueue()
    workers.drain()
    assert ended == ["cancelled"]


def test_a_time_limit(workers: Workers, handlers: Handlers) -> None:
    @handlers(timeout=0.2, max_attempts=1)
    async def hang() -> None:
        await asyncio.Event().wait()

    job = hang.enqueue()
    workers.drain(TIMEOUT_GRACE=1)
    assert job.get().status == "dead"
    assert [h["outcome"] for h in history(job.id)] == ["timeout"]


def test_a_worker_that_ends_before_its_loop_is_ready(workers: Workers, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty queue is drained sooner than the loop's thread for queries has started."""
    adopt, drained = hygiene.adopt_thread, threading.Event()

    def slowly() -> Any:
        if not threading.current_thread().name.startswith("pgjobs-"):  # the thread of asgiref
            drained.wait(0.5)
        return adopt()

    monkeypatch.setattr(hygiene, "adopt_thread", slowly)
    workers.drain()
