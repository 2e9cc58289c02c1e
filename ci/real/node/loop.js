// Worker threads with shared memory, a net server, the thread pool, child processes and timers,
// all on one loop. Prints nothing that differs between two runs.
"use strict";
const { Worker, isMainThread, parentPort, workerData } = require("node:worker_threads");
const { createHash, pbkdf2 } = require("node:crypto");
const { spawn, fork } = require("node:child_process");
const { once } = require("node:events");
const fs = require("node:fs");
const net = require("node:net");
const os = require("node:os");
const path = require("node:path");
const { promisify } = require("node:util");

const digest = (data) => createHash("sha256").update(data).digest("hex").slice(0, 16);

async function workers() {
  const shared = new SharedArrayBuffer(8);
  const counter = new Int32Array(shared);
  const sums = await Promise.all(
    [1, 2, 3, 4].map(async (n) => {
      const worker = new Worker(__filename, { workerData: { shared, n } });
      let sum = 0;
      worker.on("message", (value) => {
        sum += value;
        if (value % 100 === 0) worker.postMessage(value);
      });
      const [code] = await once(worker, "exit");
      return [n, sum, code];
    }),
  );
  console.log("workers", JSON.stringify(sums), "atomic", Atomics.load(counter, 0));
}

function work() {
  const { shared, n } = workerData;
  const counter = new Int32Array(shared);
  let answers = 0;
  parentPort.on("message", () => {
    if (++answers === 10) parentPort.close();
  });
  for (let k = 1; k <= 1000; k++) {
    Atomics.add(counter, 0, n);
    parentPort.postMessage(k);
  }
}

async function server() {
  const echo = net.createServer((socket) => socket.pipe(socket));
  await new Promise((done) => echo.listen(0, "127.0.0.1", done));
  const port = echo.address().port;
  const results = await Promise.all(
    Array.from({ length: 40 }, async (_, n) => {
      const socket = net.connect(port, "127.0.0.1");
      const hash = createHash("sha256");
      socket.on("data", (chunk) => hash.update(chunk));
      const payload = Buffer.alloc(200000, `client ${n} `);
      socket.end(payload);
      await once(socket, "close");
      return hash.digest("hex").slice(0, 16) === digest(payload);
    }),
  );
  echo.close();
  console.log("echoed", results.every(Boolean), results.length);
}

async function files() {
  const room = await fs.promises.mkdtemp(path.join(os.tmpdir(), "wakeset-node-"));
  try {
    const hashes = await Promise.all(
      Array.from({ length: 60 }, async (_, n) => {
        const file = path.join(room, String(n));
        await fs.promises.writeFile(file, Buffer.alloc(10000 + n, n));
        const { size } = await fs.promises.stat(file);
        return [size, digest(await fs.promises.readFile(file))];
      }),
    );
    console.log("files", digest(JSON.stringify(hashes)));
  } finally {
    await fs.promises.rm(room, { recursive: true });
  }
}

async function pool() {
  const keys = await Promise.all(
    Array.from({ length: 24 }, (_, n) =>
      promisify(pbkdf2)("secret", `salt ${n}`, 2000, 32, "sha256"),
    ),
  );
  console.log("pool", digest(Buffer.concat(keys)));
}

async function children() {
  const outputs = await Promise.all(
    Array.from({ length: 8 }, async (_, n) => {
      const child = spawn("cat");
      let out = "";
      child.stdout.on("data", (data) => (out += data));
      child.stdin.end(`child ${n}`);
      const [code] = await once(child, "close");
      return `${out}:${code}`;
    }),
  );
  console.log("children", outputs.join(" "));
  const child = fork(__filename, ["child"]);
  const got = [];
  child.on("message", (message) => {
    got.push(message);
    if (got.length === 50) child.disconnect();
  });
  for (let n = 0; n < 50; n++) child.send(n);
  const [code] = await once(child, "exit");
  console.log("forked", got.join(), code);
}

async function timers() {
  const order = [];
  await Promise.all(
    [50, 10, 40, 20, 30].map(
      (ms) => new Promise((done) => setTimeout(() => done(order.push(ms)), ms)),
    ),
  );
  console.log("timers", order.join());
  process.once("SIGUSR2", () => console.log("signalled"));
  process.kill(process.pid, "SIGUSR2");
  await new Promise((done) => setTimeout(done, 50));
}

async function main() {
  for (const part of [workers, server, files, pool, children, timers]) await part();
}

if (!isMainThread) work();
else if (process.argv[2] === "child") process.on("message", (n) => process.send(n * 2));
else main();
