// The headers in C++, with the names of <wakeset/epoll.h> too.
#include <fstream>
#include <iostream>
#include <sstream>
#include <vector>

#include <wakeset/epoll.h>

namespace {

struct Ready {
    uint32_t now = 0;
    ws_source *source = nullptr;
};

extern "C" uint32_t ready_poll(void *context)
{
    return static_cast<Ready *>(context)->now;
}

// An address of one of the names is Wakeset's function too.
ssize_t through_pointer(int fd, uint64_t &value)
{
    ssize_t (*function)(int, void *, size_t) = read;
    return function(fd, &value, sizeof value);
}

}

int main()
{
    const int set = epoll_create1(EPOLL_CLOEXEC);
    const int counter = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = counter;
    uint64_t one = 1, value = 0;
    bool ok = set >= 0 && counter >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, counter, &event) == 0;
    ok = ok && write(counter, &one, sizeof one) == sizeof one;
    std::vector<epoll_event> events(4);
    ok = ok && epoll_wait(set, events.data(), static_cast<int>(events.size()), -1) == 1 && events[0].data.fd == counter;
    ok = ok && through_pointer(counter, value) == sizeof value && value == 1;

    Ready ready;
    ws_source_ops ops{};
    ops.on_poll = ready_poll;
    ready.source = ws_source_create(&ops, &ready);
    ok = ok && ready.source != nullptr && ws_epoll_ctl_source(set, EPOLL_CTL_ADD, ready.source, &event) == 0;
    ready.now = EPOLLIN;
    ws_source_wake(ready.source, EPOLLIN);
    ok = ok && epoll_wait(set, events.data(), 4, -1) == 1;
    ws_source_close(ready.source);
    ok = ok && close(counter) == 0 && close(set) == 0;
    std::cout << (ok ? "C++: ok" : "C++: wrong") << std::endl;
    return ok ? 0 : 1;
}
