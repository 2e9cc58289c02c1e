// <wakeset/wakeset.hpp>: each class, what its errors are, and that everything is closed. With
// PORTED, as in source that has been ported: below the header that gives epoll's names to Wakeset.
#include <cerrno>
#include <cstdio>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <dirent.h>

#ifdef PORTED
#include <wakeset/epoll.h>
#include <wakeset/eventfd.h>
#include <wakeset/timerfd.h>
#endif
#include <wakeset/wakeset.hpp>

namespace {

static_assert(!std::is_assignable<wakeset::eventfd &, wakeset::epoll>::value
                  && !std::is_convertible<wakeset::eventfd &, wakeset::unique_fd &>::value,
              "an eventfd owns eventfds only");

int wrong;

void demand(bool holds, const char *what)
{
    if (!holds) {
        std::printf("wrong: %s\n", what);
        wrong++;
    }
}

int descriptors()
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (folder && readdir(folder))
        count++;
    if (folder)
        closedir(folder);
    return count;
}

void use()
{
    wakeset::epoll set;
    wakeset::eventfd work;
    wakeset::timerfd timer;
    set.add(work, EPOLLIN, 7);
    set.add(timer, EPOLLIN, 8);
    epoll_event events[4];
    demand(set.wait(events, std::chrono::milliseconds(0)).empty(), "nothing is ready");
    demand(work.read() == 0 && timer.read() == 0, "nothing to read");

    std::thread other([&work] { work.write(3); });
    std::uint64_t data = 0;
    for (const epoll_event &event : set.wait(events))
        data = event.data.u64;
    other.join();
    demand(data == 7 && work.read() == 3, "a thread's write is reported");

    timer.set(std::chrono::milliseconds(1), std::chrono::milliseconds(1));
    std::vector<epoll_event> more(2);
    const wakeset::ready found = set.wait(more.data(), more.size());
    demand(found.size() == 1 && found.begin()->data.u64 == 8 && timer.read() >= 1, "a timer");
    timer.set(std::chrono::nanoseconds(0));

    wakeset::eventfd moved(std::move(work));
    demand(!work && moved, "the number moves");
    set.modify(moved.get(), EPOLLOUT, 9);
    demand(set.wait(events).begin()->data.u64 == 9, "a watch is modified");
    set.remove(moved.get());
    demand(set.wait(events, std::chrono::milliseconds(0)).empty(), "a watch is removed");
    set.add(moved.get(), EPOLLIN, 10);
    set.modify(moved, EPOLLOUT, 11);
    demand(set.wait(events).begin()->data.u64 == 11, "a watch is modified by its owner");
    set.remove(moved);
    demand(set.wait(events, std::chrono::milliseconds(0)).empty(), "and removed");
    const wakeset::unique_fd owner(moved.release());
    set.add(owner, EPOLLOUT, 12);
    demand(set.wait(events).begin()->data.u64 == 12, "any owner will do");
    set.remove(owner);

    int code = 0;
    try {
        set.remove(owner);
    } catch (const std::system_error &error) {
        code = error.code().value();
    }
    demand(code == ENOENT, "an error is thrown");
    demand(!wakeset::eventfd(0).read() && wakeset::eventfd(5).read() == 5, "a first value");
    wakeset::eventfd full;
    demand(full.write(0xfffffffffffffffe) && !full.write(), "it is full");
    full.reset();
    demand(!full && full.get() == -1, "it is closed early");

    {
        const wakeset::unique_fd closed(1 << 20);
        errno = ERANGE;
    }
    demand(errno == ERANGE, "a destructor leaves errno alone");
}

}

int main()
{
    const int before = descriptors();
    use();
    demand(descriptors() == before, "everything is closed");
    std::puts(wrong ? "C++ owners: wrong" : "C++ owners: ok");
    return wrong ? 1 : 0;
}
