"""Procrastinate: one job at a time as it is, or 30."""

import os

import meter
import procrastinate

app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=os.environ["BENCH_DSN"]))


@app.task(name="noop")
async def noop(n):
    meter.ran()


@app.task(name="stamp")
async def stamp(sent):
    meter.picked_up(sent)


def setup():
    with app.open():
        app.schema_manager.apply_schema()


def bulk(count):
    with app.open():
        for first in range(0, count, 1000):
            noop.batch_defer(*({"n": n} for n in range(first, min(first + 1000, count))))


def send(times):
    with app.open():
        for sent in times:
            stamp.defer(sent=sent)


def work(setting):
    with app.open():
        app.run_worker(concurrency=30 if setting == "tuned" else 1)


if __name__ == "__main__":
    meter.main(setup=setup, bulk=bulk, send=send, work=work)
