"""Celery on Redis, results ignored: as it is (processes), or threads that prefetch."""

import os

import meter
from celery import Celery

app = Celery("bench", broker=os.environ["BENCH_REDIS"])
app.conf.update(task_ignore_result=True, broker_connection_retry_on_startup=True, worker_hijack_root_logger=False)

WORKERS = {
    "default": [],
    "tuned": ["--pool", "threads", "--concurrency", "8", "--prefetch-multiplier", "100"],
}


@app.task(name="noop")
def noop(n):
    meter.ran()


@app.task(name="stamp")
def stamp(sent):
    meter.picked_up(sent)


def setup():
    import redis

    redis.Redis.from_url(os.environ["BENCH_REDIS"]).flushall()


def bulk(count):
    with app.producer_or_acquire() as producer:
        for n in range(count):
            noop.apply_async((n,), producer=producer)


def send(times):
    for sent in times:
        stamp.delay(sent)


def work(setting):
    app.worker_main(["--quiet", "worker", "--loglevel", "ERROR", *WORKERS[setting]])


if __name__ == "__main__":
    meter.main(setup=setup, bulk=bulk, send=send, work=work)
