//! The machine that was measured on, in one line.

use std::ffi::CStr;

use procfs::Current;

/// The processor, how many of them, and the kernel.
pub fn machine() -> String {
    let processors = procfs::CpuInfo::current().ok();
    let model = processors.as_ref().and_then(|info| info.model_name(0));
    let model = model.unwrap_or(std::env::consts::ARCH);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = match cores {
        1 => "1 core".to_string(),
        n => format!("{n} cores"),
    };
    format!("{model}, {cores}, Linux {}", kernel_release())
}

/// From uname(2), which needs no /proc: `bench inversion` may be all that runs on a machine.
fn kernel_release() -> String {
    // SAFETY: a structure of byte arrays.
    let mut names: libc::utsname = unsafe { std::mem::zeroed() };
    // SAFETY: room for the answer.
    if unsafe { libc::uname(&mut names) } != 0 {
        return String::new();
    }
    let bytes = names.release.map(|c| c as u8);
    CStr::from_bytes_until_nul(&bytes).unwrap_or_default().to_string_lossy().into_owned()
}
