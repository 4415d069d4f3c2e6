// graphile-worker: as it is, or with a local queue of 500 jobs and completions in batches. The same commands as meter.py's main().
import { appendFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";

// The packages lie where they were installed, not beside this file.
const require = createRequire(join(process.env.BENCH_PACKAGES, "package.json"));
const { makeWorkerUtils, Logger, run } = require("graphile-worker");
const { Pool } = require("pg");

const place = process.env.BENCH_METER;
const pgPool = new Pool({
  host: process.env.BENCH_HOST,
  port: 5432,
  user: "postgres",
  database: process.env.BENCH_DATABASE,
  max: 10,
});
const logger = new Logger(() => () => {});
const now = () => Number(process.hrtime.bigint()) / 1e9; // CLOCK_MONOTONIC, as Python's time.monotonic()
const sleep = (seconds) => new Promise((resolve) => setTimeout(resolve, seconds * 1000));

let count = 0;
let first = 0;
let told = 0;

const taskList = {
  noop: () => {
    if (count++ === 0) first = now();
  },
  stamp: ({ sent }) => {
    appendFileSync(join(place, "pickups"), `${sent} ${now()}\n`);
  },
};

async function work(setting) {
  const tuned = {
    concurrentJobs: Number(process.env.BENCH_CONCURRENCY ?? 24),
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  };
  await run({ pgPool, taskList, logger, preset: { worker: setting === "tuned" ? tuned : {} } });
  setInterval(() => {
    if (count !== told) {
      appendFileSync(join(place, `ran-${process.pid}`), `${first} ${count} ${now()}\n`);
      told = count;
    }
  }, 10);
}

async function main([command, argument, pause]) {
  if (command === "work") return work(argument);
  const utils = await makeWorkerUtils({ pgPool, logger });
  if (command === "setup") await utils.migrate();
  if (command === "bulk") {
    for (let n = 0; n < Number(argument); n += 1000) {
      const some = Math.min(1000, Number(argument) - n);
      await utils.addJobs(Array.from({ length: some }, (_, k) => ({ identifier: "noop", payload: { n: n + k } })));
    }
  }
  if (command === "send") {
    for (let n = 0; n < Number(argument); n++) {
      await utils.addJob("stamp", { sent: now() });
      await sleep(Number(pause));
    }
  }
  await utils.release();
  await pgPool.end();
}

await main(process.argv.slice(2));
