//! `wakeset man` and `wakeset completions`: what is made from the definitions that `--help` is made
//! from, so that it is in step with them.

mod man;

use clap::Command;

use crate::failure::{Failure, OWN_FAILURE};
use crate::output::print;
pub use man::write as write_man;

/// What `wakeset man` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0, or 125 if the pages cannot be written.

Environment: no variable is read.

Examples:
  wakeset man /usr/local/share/man")]
pub struct ManOptions {
    /// Where to: the pages go into DIRECTORY/man1 and DIRECTORY/man7, which are made
    #[arg(value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath)]
    pub directory: std::path::PathBuf,
}

/// What `wakeset completions` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Exit status: 0, or 125 if they cannot be printed.

Environment: no variable is read.

Examples:
  wakeset completions bash
  source <(wakeset completions bash)")]
pub struct CompletionsOptions {
    /// Which shell's
    #[arg(value_enum)]
    pub shell: Shell,
}

/// The shells.
#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Shell {
    /// For `bash-completion/completions/wakeset`, or to be read by `source`
    Bash,
    /// For `site-functions/_wakeset`
    Zsh,
    /// For `vendor_completions.d/wakeset.fish`
    Fish,
}

/// Prints the completions of a program, without its hidden subcommands.
pub fn print_completions(command: &Command, shell: Shell) -> Result<(), Failure> {
    let mut command = without_hidden(command);
    let shell = match shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut command, "wakeset", &mut text);
    print(&String::from_utf8_lossy(&text), OWN_FAILURE).map(drop)
}

/// The same program without the subcommands that are not for its users.
fn without_hidden(command: &Command) -> Command {
    let visible = command.get_subcommands().filter(|it| !it.is_hide_set()).cloned();
    let mut fresh = Command::new("wakeset").subcommand_required(true).subcommands(visible);
    fresh = fresh.version(env!("CARGO_PKG_VERSION"));
    if let Some(about) = command.get_about() {
        fresh = fresh.about(about.clone());
    }
    match command.get_after_help() {
        Some(text) => fresh.after_help(text.clone()),
        None => fresh,
    }
}
