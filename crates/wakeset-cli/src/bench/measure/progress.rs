//! The progress bar of a benchmark.

use indicatif::{ProgressBar, ProgressStyle};

/// A bar of so many steps. It hides itself where stderr is no terminal.
pub fn progress_bar(steps: u64) -> ProgressBar {
    let progress = ProgressBar::new(steps);
    if let Ok(style) = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg}") {
        progress.set_style(style);
    }
    progress
}
