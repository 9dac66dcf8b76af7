// GroupMQ under measurement: fills its queue, drains it, records each task as ours does.
//
// The one argument is JSON: see tests/verification/bench/peers.py. `node` is the folder with
// node_modules in it.
import { createRequire } from "node:module";
import { renameSync, writeFileSync } from "node:fs";

const spec = JSON.parse(process.argv[2]);
const require = createRequire(`${spec.node}/package.json`);
const { Queue, Worker } = require("groupmq");
const Redis = require("ioredis");

const connect = () => new Redis(spec.url, { maxRetriesPerRequest: null });
const now = () => process.hrtime.bigint(); // CLOCK_MONOTONIC, as Python's monotonic_ns
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

const { tasks, groups, hot, handler_ms: handlerMs } = spec.load;
const records = new BigInt64Array(3 * (tasks + 1000) * 2);
let recorded = 0;

function write() {
  const part = `${spec.records}.part`;
  writeFileSync(part, Buffer.from(records.buffer, 0, recorded * 24));
  renameSync(part, spec.records);
}

// The same numbers, groups and bodies as load.py gives.
function groupOf(number) {
  const before = Math.floor(number * hot);
  return Math.floor((number + 1) * hot) > before ? 999999 : (number - before) % groups;
}

function bodyOf(number, group) {
  const body = { n: number, entity: `g${group}`, pad: "" };
  body.pad = "x".repeat(spec.load.body - JSON.stringify(body).length);
  return body;
}

function queueOn(redis, autoBatch) {
  return new Queue({ redis, namespace: "bench", jobTimeoutMs: 30_000, autoBatch });
}

async function fill() {
  const redis = connect();
  const queue = queueOn(redis, { size: 100, maxWaitMs: 1 });
  for (let first = 0; first < tasks; first += 1000) {
    const adding = [];
    for (let n = first; n < Math.min(first + 1000, tasks); n++) {
      const group = groupOf(n);
      adding.push(queue.add({ groupId: `g${group}`, data: bodyOf(n, group), orderMs: n + 1 }));
    }
    await Promise.all(adding);
  }
  await queue.close();
  redis.disconnect();
}

let finished;
const finish = new Promise((resolve) => (finished = resolve));

async function handler(job) {
  const start = now();
  if (handlerMs) await sleep(handlerMs);
  records[recorded * 3] = BigInt(job.data.n);
  records[recorded * 3 + 1] = start;
  records[recorded * 3 + 2] = now();
  recorded += 1;
  if (recorded >= tasks) finished();
}

async function main() {
  await fill();
  const redis = connect();
  const worker = new Worker({
    queue: queueOn(redis),
    concurrency: spec.workers,
    handler,
    onError: (error) => console.error(String(error)),
  });
  worker.run();
  const deadline = setTimeout(finished, spec.seconds * 1000);
  await finish;
  clearTimeout(deadline);
  write();
  process.exit(0);
}

main();
