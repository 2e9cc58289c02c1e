/* wakeset.h for C++11 and later: descriptors that close themselves, errors as std::system_error.
 *
 * SPDX-License-Identifier: MIT OR Apache-2.0
 *
 *     wakeset::epoll set;
 *     wakeset::eventfd work;
 *     set.add(work, EPOLLIN, 7);
 *     work.write(1);                           // any thread
 *     epoll_event events[16];
 *     for (const epoll_event &event : set.wait(events))
 *         if (event.data.u64 == 7) work.read();
 *
 * Everything is a thin cover of the functions of wakeset.h, which say the rest: which calls may be
 * made at the same time, and from signal handlers. Nothing here allocates but an exception. A
 * moved-from object is empty: its calls throw EBADF. C++ source that uses the descriptors' numbers
 * takes them by get().
 *
 * Include it after <wakeset/epoll.h> and its kin; before them their macros break its names, and the
 * compiler says so. `using namespace wakeset` makes `eventfd` ambiguous: it is libc's function too.
 */
#ifndef WAKESET_HPP
#define WAKESET_HPP

#include <wakeset.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <system_error>

namespace wakeset {

[[noreturn]] inline void throw_errno(const char *what)
{
    throw std::system_error(errno, std::generic_category(), what);
}

/* Owns a number, of Wakeset or of the kernel, and closes it by ws_close. */
class unique_fd {
public:
    unique_fd() noexcept = default;
    explicit unique_fd(int number) noexcept : number_(number) {}
    unique_fd(unique_fd &&other) noexcept : number_(other.release()) {}
    unique_fd &operator=(unique_fd &&other) noexcept
    {
        reset(other.release());
        return *this;
    }
    unique_fd(const unique_fd &) = delete;
    unique_fd &operator=(const unique_fd &) = delete;
    ~unique_fd() { reset(); }

    int get() const noexcept { return number_; }
    explicit operator bool() const noexcept { return number_ >= 0; }
    int release() noexcept
    {
        const int number = number_;
        number_ = -1;
        return number;
    }
    void reset(int number = -1) noexcept
    {
        if (number_ >= 0) {
            /* A destructor between a failed call and the look at its error leaves that as it is. */
            const int saved = errno;
            ::ws_close(number_);
            errno = saved;
        }
        number_ = number;
    }

private:
    int number_ = -1;
};

/* What a wait has found: the first events of the array that it was given. */
class ready {
public:
    ready(epoll_event *events, std::size_t count) noexcept : events_(events), count_(count) {}
    epoll_event *begin() const noexcept { return events_; }
    epoll_event *end() const noexcept { return events_ + count_; }
    std::size_t size() const noexcept { return count_; }
    bool empty() const noexcept { return count_ == 0; }

private:
    epoll_event *events_;
    std::size_t count_;
};

/* A set: epoll(7). It does not own what it watches; close that first, or remove it. */
class epoll : unique_fd {
public:
    using unique_fd::get;
    using unique_fd::release;
    using unique_fd::operator bool;
    void reset() noexcept { unique_fd::reset(); }

    explicit epoll(int flags = EPOLL_CLOEXEC) : unique_fd(::ws_epoll_create1(flags))
    {
        if (get() < 0)
            throw_errno("ws_epoll_create1");
    }

    /* Each takes a number, or the owner of one. */
    template <typename Owner>
    auto add(const Owner &fd, std::uint32_t events, std::uint64_t data)
        -> decltype(static_cast<void>(fd.get()))
    {
        add(fd.get(), events, data);
    }
    void add(int fd, std::uint32_t events, std::uint64_t data)
    {
        control(EPOLL_CTL_ADD, fd, events, data);
    }
    template <typename Owner>
    auto modify(const Owner &fd, std::uint32_t events, std::uint64_t data)
        -> decltype(static_cast<void>(fd.get()))
    {
        modify(fd.get(), events, data);
    }
    void modify(int fd, std::uint32_t events, std::uint64_t data)
    {
        control(EPOLL_CTL_MOD, fd, events, data);
    }
    template <typename Owner>
    auto remove(const Owner &fd) -> decltype(static_cast<void>(fd.get()))
    {
        remove(fd.get());
    }
    void remove(int fd) { control(EPOLL_CTL_DEL, fd, 0, 0); }

    /* Waits for at most that long; without a limit for a negative one. A wait that a signal handler
     * has interrupted finds nothing. */
    template <std::size_t N>
    ready wait(epoll_event (&events)[N],
               std::chrono::milliseconds limit = std::chrono::milliseconds(-1))
    {
        return wait(events, N, limit);
    }
    ready wait(epoll_event *events, std::size_t capacity,
               std::chrono::milliseconds limit = std::chrono::milliseconds(-1))
    {
        /* More than the kernel takes is EINVAL. */
        const std::size_t most = std::size_t(1) << 26;
        const std::chrono::milliseconds longest(0x7fffffff);
        const std::chrono::milliseconds shorter = limit < longest ? limit : longest;
        const int milliseconds = limit.count() < 0 ? -1 : static_cast<int>(shorter.count());
        const int room = static_cast<int>(capacity < most ? capacity : most);
        const int n = ::ws_epoll_wait(get(), events, room, milliseconds);
        if (n < 0 && errno != EINTR)
            throw_errno("ws_epoll_wait");
        return ready(events, n < 0 ? 0 : static_cast<std::size_t>(n));
    }

private:
    void control(int op, int fd, std::uint32_t events, std::uint64_t data)
    {
        epoll_event event = epoll_event();
        event.events = events;
        event.data.u64 = data;
        if (::ws_epoll_ctl(get(), op, fd, &event) < 0)
            throw_errno("ws_epoll_ctl");
    }
};

/* A counter: eventfd(2), without blocking unless the flags say so. With flags that block, a
 * signal handler that interrupts a call makes it throw EINTR. */
class eventfd : unique_fd {
public:
    using unique_fd::get;
    using unique_fd::release;
    using unique_fd::operator bool;
    void reset() noexcept { unique_fd::reset(); }

    explicit eventfd(unsigned value = 0, int flags = EFD_CLOEXEC | EFD_NONBLOCK)
        : unique_fd(::ws_eventfd(value, flags))
    {
        if (get() < 0)
            throw_errno("ws_eventfd");
    }

    /* Adds; false where it is full. */
    bool write(std::uint64_t value = 1)
    {
        if (::ws_eventfd_write(get(), value) == 0)
            return true;
        if (errno != EAGAIN)
            throw_errno("ws_eventfd_write");
        return false;
    }

    /* Takes the count; 0 where there is none. */
    std::uint64_t read()
    {
        eventfd_t value = 0;
        if (::ws_eventfd_read(get(), &value) < 0 && errno != EAGAIN)
            throw_errno("ws_eventfd_read");
        return value;
    }
};

/* A timer: timerfd_create(2), without blocking unless the flags say so. With flags that block, a
 * signal handler that interrupts a call makes it throw EINTR. */
class timerfd : unique_fd {
public:
    using unique_fd::get;
    using unique_fd::release;
    using unique_fd::operator bool;
    void reset() noexcept { unique_fd::reset(); }

    explicit timerfd(int clock = CLOCK_MONOTONIC, int flags = TFD_CLOEXEC | TFD_NONBLOCK)
        : unique_fd(::ws_timerfd_create(clock, flags))
    {
        if (get() < 0)
            throw_errno("ws_timerfd_create");
    }

    /* Expires after `first`, then every `interval`, if that is not 0. A `first` of 0 stops it. */
    void set(std::chrono::nanoseconds first,
             std::chrono::nanoseconds interval = std::chrono::nanoseconds(0))
    {
        itimerspec value = itimerspec();
        value.it_value = timespec_of(first);
        value.it_interval = timespec_of(interval);
        if (::ws_timerfd_settime(get(), 0, &value, nullptr) < 0)
            throw_errno("ws_timerfd_settime");
    }

    /* How often it has expired since the last read; 0 where it has not. */
    std::uint64_t read()
    {
        std::uint64_t count = 0;
        if (::ws_read(get(), &count, sizeof count) < 0 && errno != EAGAIN)
            throw_errno("ws_read");
        return count;
    }

private:
    static timespec timespec_of(std::chrono::nanoseconds time)
    {
        timespec spec = timespec();
        spec.tv_sec = static_cast<time_t>(time.count() / 1000000000);
        spec.tv_nsec = static_cast<long>(time.count() % 1000000000);
        return spec;
    }
};

} // namespace wakeset

#endif
