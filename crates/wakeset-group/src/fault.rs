//! Threads that serve one userfaultfd: one fault wakes one of them.
