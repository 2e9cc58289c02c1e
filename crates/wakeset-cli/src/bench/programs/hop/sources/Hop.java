// Round trips between two threads that wait in Selector.select and are woken by Selector.wakeup.

import java.io.IOException;
import java.io.UncheckedIOException;
import java.lang.management.ManagementFactory;
import java.nio.channels.Selector;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.concurrent.atomic.AtomicLong;

public class Hop {
    /** One side: what it waits in, and how often it has been called. */
    static final class Side {
        final Selector selector;
        final AtomicLong calls = new AtomicLong();

        Side() throws IOException {
            selector = Selector.open();
        }

        void call() {
            calls.incrementAndGet();
            selector.wakeup();
        }

        void await(long count) throws IOException {
            while (calls.get() < count) {
                selector.select();
            }
        }
    }

    static long trips = 0;
    static volatile boolean over = false;

    static void goOn(Side own, Side other, double seconds) throws IOException {
        long begin = System.nanoTime();
        while (System.nanoTime() - begin < seconds * 1e9) {
            trips++;
            other.call();
            own.await(trips);
        }
    }

    static void answer(Side own, Side other) {
        try {
            for (long count = 1; ; count++) {
                own.await(count);
                if (over) {
                    return;
                }
                other.call();
            }
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    static double processorSeconds() {
        var system = ManagementFactory.getOperatingSystemMXBean();
        return ((com.sun.management.OperatingSystemMXBean) system).getProcessCpuTime() / 1e9;
    }

    /** Context switches of all threads that there are. */
    static long switches() throws IOException {
        long sum = 0;
        try (var threads = Files.newDirectoryStream(Path.of("/proc/self/task"))) {
            for (Path thread : threads) {
                for (String line : Files.readAllLines(thread.resolve("status"))) {
                    if (line.contains("ctxt_switches:")) {
                        sum += Long.parseLong(line.substring(line.indexOf(':') + 1).trim());
                    }
                }
            }
        }
        return sum;
    }

    public static void main(String[] arguments) throws Exception {
        double seconds = Double.parseDouble(arguments[0]);
        Side own = new Side();
        Side other = new Side();
        Thread thread = new Thread(() -> answer(other, own));
        thread.setDaemon(true);
        thread.start();
        goOn(own, other, seconds / 5);
        long tripsBefore = trips;
        long switchesBefore = switches();
        double processorBefore = processorSeconds();
        long begin = System.nanoTime();
        goOn(own, other, seconds * 4 / 5);
        double elapsed = (System.nanoTime() - begin) / 1e9;
        double processor = processorSeconds() - processorBefore;
        long switched = switches() - switchesBefore;
        over = true;
        other.call();
        thread.join();
        System.out.printf(
                Locale.ROOT,
                "{\"trips\":%d,\"seconds\":%.9f,\"processor_seconds\":%.9f,\"switches\":%d}%n",
                trips - tripsBefore, elapsed, processor, switched);
    }
}
