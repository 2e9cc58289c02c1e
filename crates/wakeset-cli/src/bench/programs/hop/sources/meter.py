# Counts what the process has used, and says what trips have cost.

import json
import resource


def used():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime, usage.ru_nvcsw + usage.ru_nivcsw


def say(trips, seconds, before):
    processor, switches = (now - then for now, then in zip(used(), before))
    sample = {"trips": trips, "seconds": seconds, "processor_seconds": processor}
    print(json.dumps({**sample, "switches": switches}), flush=True)


