// Begins after a fifth of the time, and says when it is over: `done()` is called for each trip.

function meter(seconds, print) {
    const now = () => Number(process.hrtime.bigint()) / 1e9;
    const used = () => {
        const usage = process.resourceUsage();
        return {
            processor: (usage.userCPUTime + usage.systemCPUTime) / 1e6,
            switches: usage.voluntaryContextSwitches + usage.involuntaryContextSwitches,
        };
    };
    const start = now();
    let trips = 0;
    let begin;
    let before;
    return function done() {
        const time = now();
        if (begin === undefined) {
            if (time - start >= seconds / 5) {
                begin = time;
                before = used();
            }
            return false;
        }
        trips += 1;
        if (time - start < seconds) {
            return false;
        }
        const after = used();
        print(JSON.stringify({
            trips,
            seconds: time - begin,
            processor_seconds: after.processor - before.processor,
            switches: after.switches - before.switches,
        }));
        return true;
    };
}
