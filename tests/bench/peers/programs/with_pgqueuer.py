"""PGQueuer: asyncpg, ``batch_size`` as it is (10) or 500."""

import asyncio
import os

import asyncpg
import meter
from pgqueuer import AsyncpgDriver, PgQueuer, Queries


async def driver():
    return AsyncpgDriver(await asyncpg.connect(os.environ["BENCH_DSN"]))


async def setup():
    await Queries(await driver()).install()


async def bulk(count):
    queries = Queries(await driver())
    for first in range(0, count, 1000):
        some = range(first, min(first + 1000, count))
        await queries.enqueue(["noop"] * len(some), [b'{"n": %d}' % n for n in some], [0] * len(some))


async def send(times):
    queries = Queries(await driver())
    for sent in times:
        await queries.enqueue("stamp", str(sent).encode())


async def work(setting):
    app = PgQueuer(await driver())

    @app.entrypoint("noop")
    async def noop(job):
        meter.ran()

    @app.entrypoint("stamp")
    async def stamp(job):
        meter.picked_up(float(job.payload))

    await app.run(**({"batch_size": 500} if setting == "tuned" else {}))


if __name__ == "__main__":
    meter.main(
        setup=lambda: asyncio.run(setup()),
        bulk=lambda count: asyncio.run(bulk(count)),
        send=lambda times: asyncio.run(send(times)),
        work=lambda setting: asyncio.run(work(setting)),
    )
