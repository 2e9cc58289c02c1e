// Calls that a thread of libuv's pool makes and reports to the event loop.

const fs = require('fs').promises;

(async () => {
    const done = meter(Number(process.argv[1]), console.log);
    do {
        await fs.stat('/');
    } while (!done());
})();
