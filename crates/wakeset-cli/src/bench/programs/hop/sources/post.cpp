// Round trips between two threads, each of which runs an io_context of its own with a socket. (One
// without anything to wait for sleeps on a condition variable, and not in epoll.)

#if __has_include(<asio.hpp>)
#include <asio.hpp>
#else
#include <boost/asio.hpp>
namespace asio = boost::asio;
#endif

#include <sys/resource.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

namespace {

double now() {
    auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
}

struct Used {
    double processor;
    long switches;
};

Used used() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    auto seconds = [](const timeval &time) { return time.tv_sec + time.tv_usec / 1e6; };
    return {seconds(usage.ru_utime) + seconds(usage.ru_stime), usage.ru_nvcsw + usage.ru_nivcsw};
}

struct Pair {
    asio::io_context own, other;
    asio::ip::udp::socket own_socket{own, asio::ip::udp::v4()};
    asio::ip::udp::socket other_socket{other, asio::ip::udp::v4()};
    double end = 0;
    long trips = 0;

    void ask() {
        asio::post(other, [this] { asio::post(own, [this] { answered(); }); });
    }

    void answered() {
        trips++;
        if (now() < end)
            ask();
        else
            own.stop();
    }

    void go_on(double seconds) {
        end = now() + seconds;
        trips = 0;
        own.restart();
        ask();
        own.run();
    }
};

} // namespace

int main(int, char **arguments) {
    double seconds = std::atof(arguments[1]);
    Pair pair;
    // Neither gets anything.
    pair.own_socket.async_wait(asio::socket_base::wait_read, [](auto) {});
    pair.other_socket.async_wait(asio::socket_base::wait_read, [](auto) {});
    std::thread thread([&] { pair.other.run(); });
    pair.go_on(seconds / 5);
    Used before = used();
    double begin = now();
    pair.go_on(seconds * 4 / 5);
    double elapsed = now() - begin;
    Used after = used();
    pair.other.stop();
    thread.join();
    std::printf("{\"trips\":%ld,\"seconds\":%.9f,\"processor_seconds\":%.9f,\"switches\":%ld}\n",
                pair.trips, elapsed, after.processor - before.processor,
                after.switches - before.switches);
}
