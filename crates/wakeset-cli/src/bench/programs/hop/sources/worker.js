// Messages to a worker thread, which sends each of them back.

const { Worker } = require('worker_threads');

const echo = `
const { parentPort } = require('worker_threads');
parentPort.on('message', (message) => parentPort.postMessage(message));
`;
const worker = new Worker(echo, { eval: true });
worker.once('online', () => {
    const done = meter(Number(process.argv[1]), console.log);
    worker.on('message', (message) => {
        if (done()) {
            worker.terminate();
        } else {
            worker.postMessage(message);
        }
    });
    worker.postMessage(1);
});
