//! Event bits and errnos by name.

/// The bits of an event mask that are counted, by name. Bit 27 has no name on every kernel.
pub(super) const BITS: [(u32, &str); 17] = [
    (0, "IN"),
    (1, "PRI"),
    (2, "OUT"),
    (3, "ERR"),
    (4, "HUP"),
    (5, "NVAL"),
    (6, "RDNORM"),
    (7, "RDBAND"),
    (8, "WRNORM"),
    (9, "WRBAND"),
    (10, "MSG"),
    (13, "RDHUP"),
    (27, UNNAMED),
    (28, "EXCLUSIVE"),
    (29, "WAKEUP"),
    (30, "ONESHOT"),
    (31, "ET"),
];

const UNNAMED: &str = "(bit 27)";

/// The bits of an event mask by name, as a Rust expression.
pub(super) fn bit_names(bits: u32) -> String {
    let mut known = 0;
    let mut names: Vec<String> = Vec::new();
    for (bit, name) in BITS {
        if name != UNNAMED && bits & 1 << bit != 0 {
            known |= 1 << bit;
            names.push(name.to_string());
        }
    }
    if bits & !known != 0 {
        names.push(format!("{:#x}", bits & !known));
    }
    if names.is_empty() { "0".to_string() } else { names.join(" | ") }
}

/// An errno by name.
pub(super) fn errno_name(errno: i32) -> String {
    match syscalls::Errno::new(errno).name() {
        Some(name) => name.to_string(),
        None => format!("errno {errno}"),
    }
}
