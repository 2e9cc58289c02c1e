//! `wakeset env`, `wakeset systemd` and `wakeset copy-library`: what starts a program on Wakeset
//! where `wakeset run` does not stand before it.
//!
//! | file | concept |
//! |---|---|
//! | `systemd` | a drop-in for a service, and where it goes |
//! | `copy` | the library, put where another root directory has it |
//! | `formats` | the variables as shells, containers and pods read them |

mod copy;
mod formats;
mod systemd;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::failure::{Failure, OWN_FAILURE};
use crate::output::print;
use crate::run::{Behaviour, PRELOAD_VARIABLE, expressible, find_library, with_ours};
pub use copy::{CopyOptions, copy_library};
use formats::Format;
pub use systemd::{Options as SystemdOptions, systemd};

/// What `wakeset env` takes.
#[derive(clap::Args)]
#[command(after_help = "\
Nothing is looked at here that `wakeset run` looks at before it starts a program: the loader ignores
the library in static and set-user-ID programs without a word, and a seccomp filter that kills may
kill a program for a call of Wakeset's.

Exit status: 0, or 125 if the library is not there, or cannot be named in LD_PRELOAD.

Environment: LD_PRELOAD is kept in what a shell is told, with Wakeset's library behind what it has.

Examples:
  eval \"$(wakeset env)\"
  wakeset env --format docker")]
pub struct EnvOptions {
    /// Who reads it
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t = Format::Sh)]
    format: Format,
    #[command(flatten)]
    preload: Preload,
    #[command(flatten)]
    behaviour: Behaviour,
}

/// What is preloaded.
#[derive(clap::Args)]
struct Preload {
    /// Where libwakeset_preload.so is when the program starts, as in a container; without it, where
    /// it is here
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    library: Option<PathBuf>,
    /// What else is preloaded, before Wakeset's library; for a shell, without it, what LD_PRELOAD
    /// says
    #[arg(long, value_name = "LIST")]
    preload: Option<OsString>,
}

impl Preload {
    /// The list for the loader. `inherited` is in place of `--preload`.
    fn list(&self, inherited: Option<OsString>) -> Result<OsString, Failure> {
        let library = match &self.library {
            Some(library) => library.clone(),
            None => find_library()?,
        };
        // The loader looks a name without a slash up elsewhere, and one that is relative from
        // wherever each program is started.
        if !library.is_absolute() {
            return Err(Failure::own(format!("{} is not an absolute path", library.display())));
        }
        if library.file_name() != Path::new("libwakeset_preload.so").file_name() {
            let name = library.display();
            return Err(Failure::own(format!("{name} is not called libwakeset_preload.so")));
        }
        expressible(&library)?;
        Ok(with_ours(self.preload.clone().or(inherited), &library))
    }
}

/// A variable's name and value. The value is on one line.
type Variable = (&'static str, String);

/// All variables that a program gets.
fn variables(
    preload: &Preload,
    behaviour: &Behaviour,
    inherited: Option<OsString>,
) -> Result<Vec<Variable>, Failure> {
    let list = (PRELOAD_VARIABLE, preload.list(inherited)?);
    let all = std::iter::once(list).chain(behaviour.variables());
    all.map(|(name, value)| match value.into_string() {
        Ok(value) if !value.chars().any(char::is_control) => Ok((name, value)),
        Ok(value) => Err(Failure::own(format!("{name} has a control character: {value:?}"))),
        Err(value) => Err(Failure::own(format!("{name} is not UTF-8: {}", value.display()))),
    })
    .collect()
}

/// Prints the environment.
pub fn print_environment(options: &EnvOptions) -> Result<(), Failure> {
    let inherited = std::env::var_os(PRELOAD_VARIABLE).filter(|_| options.format.is_shell());
    let variables = variables(&options.preload, &options.behaviour, inherited)?;
    print(&options.format.text(&variables), OWN_FAILURE).map(drop)
}
