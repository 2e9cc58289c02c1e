//! `wakeset systemd`: a drop-in file, see systemd.unit(5).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use super::formats::escaped;
use super::{Preload, Variable, variables};
use crate::failure::{Failure, OWN_FAILURE};
use crate::output::print;
use crate::run::Behaviour;

/// The drop-in's name. Later names overrule it.
const FILE_NAME: &str = "50-wakeset.conf";

/// systemd.unit(5): a unit's name is no longer.
const LONGEST_NAME: usize = 255;

/// What `wakeset systemd` takes.
#[derive(clap::Args)]
#[command(after_help = "\
The drop-in has LD_PRELOAD overrule what the unit says of it: name in --preload what the service
needs. If the unit has SystemCallFilter=, which kills, it has to allow the calls that Wakeset makes,
as @system-service does. If it has ProtectHome=, RootDirectory= or RootImage=, the library must be
where the service can read it.

Exit status: 0, or 125 if the library is not there, or the drop-in cannot be written.

Environment: with --user, XDG_CONFIG_HOME, or else HOME, says where the drop-in goes.

Examples:
  wakeset systemd nginx.service
  wakeset systemd --write nginx.service")]
pub struct Options {
    /// The service; `.service` may be left out
    unit: String,
    /// Install the drop-in instead of printing it; systemctl(1) daemon-reload and restart are left
    /// to you
    #[arg(long)]
    write: bool,
    /// For a unit of this user's own manager, not of the system's
    #[arg(long)]
    user: bool,
    /// Below which directory to install it, as for systemctl(1), such as an image's root
    #[arg(long, value_name = "DIRECTORY", value_hint = clap::ValueHint::DirPath)]
    root: Option<PathBuf>,
    #[command(flatten)]
    preload: Preload,
    #[command(flatten)]
    behaviour: Behaviour,
}

/// Prints or installs the drop-in.
pub fn systemd(options: &Options) -> Result<(), Failure> {
    let unit = service(&options.unit)?;
    let text = drop_in(&unit, &variables(&options.preload, &options.behaviour, None)?);
    if !options.write {
        return print(&text, OWN_FAILURE).map(drop);
    }
    let folder = units(options)?.join(format!("{unit}.d"));
    install(&folder, &text)
        .map_err(|e| Failure::own(format!("cannot write to {}: {e}", folder.display())))?;
    let user = if options.user { " --user" } else { "" };
    eprintln!("wakeset: wrote {}", folder.join(FILE_NAME).display());
    eprintln!("wakeset: now `systemctl{user} daemon-reload && systemctl{user} restart {unit}`");
    Ok(())
}

/// The full name of a service.
fn service(name: &str) -> Result<String, Failure> {
    let full = match name.rsplit_once('.') {
        Some((_, "service")) => name.to_string(),
        Some((
            _,
            kind @ ("socket" | "timer" | "target" | "slice" | "mount" | "path" | "scope"),
        )) => {
            return Err(Failure::own(format!("{name} is a {kind}, and not a service")));
        }
        _ => format!("{name}.service"),
    };
    let is_valid = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
    let stem = full.trim_end_matches(".service");
    if stem.is_empty() || full.len() > LONGEST_NAME || !full.chars().all(is_valid) {
        return Err(Failure::own(format!("{name:?} is not the name of a unit")));
    }
    Ok(full)
}

/// Its text.
fn drop_in(unit: &str, variables: &[Variable]) -> String {
    let mut text = format!(
        "# Starts {unit} on Wakeset, see wakeset(7). Made by `wakeset systemd`.\n[Service]\n"
    );
    for (name, value) in variables {
        // systemd.exec(5): `%` begins a specifier; `$` has no meaning here.
        let value = escaped(value, &['\\', '"']).replace('%', "%%");
        text.push_str(&format!("Environment=\"{name}={value}\"\n"));
    }
    text
}

/// Where drop-ins go that an administrator, or a user, has made.
fn units(options: &Options) -> Result<PathBuf, Failure> {
    let folder = match options.user {
        false => PathBuf::from("/etc/systemd/system"),
        true => configuration()?.join("systemd/user"),
    };
    Ok(match &options.root {
        None => folder,
        Some(root) => root.join(folder.strip_prefix("/").unwrap_or(&folder)),
    })
}

/// The user's folder for configuration files.
fn configuration() -> Result<PathBuf, Failure> {
    let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_CONFIG_HOME")
        .or_else(|| Some(absolute("HOME")?.join(".config")))
        .ok_or_else(|| Failure::own("neither XDG_CONFIG_HOME nor HOME is an absolute path"))
}

/// Puts the file in place in one step: systemd never reads half of it.
fn install(folder: &Path, text: &str) -> std::io::Result<()> {
    fs::create_dir_all(folder)?;
    // systemd.unit(5): files that do not end in `.conf` are ignored.
    let fresh = folder.join(format!(".{FILE_NAME}.{}", std::process::id()));
    fs::write(&fresh, text)?;
    fs::rename(&fresh, folder.join(FILE_NAME)).inspect_err(|_| _ = fs::remove_file(&fresh))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_services_have_a_drop_in() {
        let name = |name| service(name).map_err(|failure| failure.message);
        assert_eq!(name("nginx").as_deref(), Ok("nginx.service"));
        assert_eq!(name("nginx.service").as_deref(), Ok("nginx.service"));
        assert_eq!(name("php8.2-fpm").as_deref(), Ok("php8.2-fpm.service"));
        assert_eq!(name("getty@tty1").as_deref(), Ok("getty@tty1.service"));
        let long = "a".repeat(LONGEST_NAME);
        for wrong in ["", ".service", "../x", "a/b", "a b", "a\nb", "nginx.socket", &long] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn values_are_quoted_as_systemd_unquotes_them() {
        let text = drop_in("a.service", &[("NAME", r#"/a"b%c\d$e"#.to_string())]);
        assert!(text.ends_with("[Service]\nEnvironment=\"NAME=/a\\\"b%%c\\\\d$e\"\n"), "{text}");
    }
}
