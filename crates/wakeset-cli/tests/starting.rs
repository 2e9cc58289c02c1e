//! `wakeset env`, `wakeset systemd` and `wakeset copy-library`: who does what they print gets a
//! program that has Wakeset's library.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use support::{WAKESET, have, output, scratch};

const LIBRARY: &str = "libwakeset_preload.so";

/// What `wakeset` prints.
fn printed(arguments: &[&str]) -> String {
    output(Command::new(WAKESET).args(arguments).env_remove("LD_PRELOAD"))
}

/// Demands that a program with these variables has the library, and this order.
#[track_caller]
fn demand_preloaded(variables: &[(String, String)], order: &str) {
    let mut cat = Command::new("cat");
    cat.args(["/proc/self/maps", "/proc/self/environ"]).env_clear();
    cat.envs(variables.iter().map(|(name, value)| (name, value)));
    if let Some(path) = std::env::var_os("PATH") {
        cat.env("PATH", path);
    }
    let said = output(&mut cat);
    let map = said.lines().find(|line| line.ends_with(LIBRARY));
    assert!(map.is_some(), "{variables:?}\n{said}");
    assert!(said.contains(&format!("WAKESET_ORDER={order}\0")), "{said}");
}

/// Evaluates `wakeset env` in a shell and then runs a command there.
fn in_shell(before: &str, flags: &str, command: &str) -> String {
    let script =
        format!("{before}\nlines=$(\"$0\" env {flags}) || exit\neval \"$lines\"\n{command}");
    output(Command::new("sh").args(["-c", &script, WAKESET]).env_remove("LD_PRELOAD"))
}

#[test]
fn a_shell_that_evaluates_the_lines_starts_preloaded_programs() {
    let said = in_shell("", "--order lifo", "cat /proc/self/maps; echo order=$WAKESET_ORDER");
    assert!(said.lines().any(|line| line.ends_with(LIBRARY)), "{said}");
    assert!(said.ends_with("order=lifo\n"), "{said}");
    let said = in_shell("", "--verbose --instructions kernel", "env");
    assert!(said.contains("\nWAKESET_VERBOSE=1\n"), "{said}");
    assert!(said.contains("\nWAKESET_INSTRUCTIONS=kernel\n"), "{said}");
}

/// What the shell preloads already stays, and Wakeset's library is there once.
#[test]
fn a_shell_keeps_what_it_preloads() {
    let before = "export LD_PRELOAD=libm.so.6\neval \"$(\"$0\" env)\"";
    let said = in_shell(before, "", "echo \"$LD_PRELOAD\"");
    let items: Vec<_> = said.trim().split(':').collect();
    assert_eq!((items.len(), items[0]), (2, "libm.so.6"), "{said}");
    assert!(items[1].ends_with(LIBRARY), "{said}");
}

#[test]
fn containers_start_preloaded_programs() {
    let pair = |line: &str| {
        let (name, value) = line.split_once('=').expect("a variable");
        (name.to_string(), value.to_string())
    };
    let docker = printed(&["env", "--format", "docker", "--order", "fifo"]);
    demand_preloaded(&docker.lines().map(pair).collect::<Vec<_>>(), "fifo");

    let file = printed(&["env", "--format", "dockerfile"]);
    let lines = file.lines().map(|line| {
        let (name, value) = pair(line.strip_prefix("ENV ").expect("an instruction"));
        let value = value.strip_prefix('"').and_then(|it| it.strip_suffix('"')).expect("quotes");
        (name, value.to_string())
    });
    demand_preloaded(&lines.collect::<Vec<_>>(), "auto");

    let pod = printed(&["env", "--format", "kubernetes", "--order", "turns"]);
    let entries = pod.strip_prefix("env:\n- name: ").expect("a list").split("\n- name: ");
    let entries = entries.map(|entry| {
        let (name, value) = entry.split_once("\n  value: ").expect("a value");
        (name.to_string(), serde_json::from_str(value).expect("a string"))
    });
    demand_preloaded(&entries.collect::<Vec<_>>(), "turns");
}

/// The library in an image is elsewhere than here.
#[test]
fn the_library_may_be_elsewhere() {
    let place = "/usr/lib/wakeset/libwakeset_preload.so";
    let arguments = ["env", "--format", "docker", "--library", place, "--preload", "libj.so"];
    let said = printed(&arguments);
    assert!(said.starts_with(&format!("LD_PRELOAD=libj.so:{place}\n")), "{said}");
    for wrong in ["lib/libwakeset_preload.so", "/a b/libwakeset_preload.so", "/a/libother.so"] {
        let output = Command::new(WAKESET).args(["env", "--library", wrong]).output();
        assert_eq!(output.expect("wakeset runs").status.code(), Some(125), "{wrong}");
    }
}

/// The variables of a drop-in, as systemd unquotes them.
fn environment(drop_in: &str) -> Vec<(String, String)> {
    let (_, section) = drop_in.split_once("\n[Service]\n").expect("a section");
    let lines = section.lines().map(|line| {
        let value = line.strip_prefix("Environment=\"").and_then(|it| it.strip_suffix('"'));
        let (name, value) = value.and_then(|it| it.split_once('=')).expect("a variable");
        assert!(!value.contains(['\\', '%']), "nothing here needs an escape: {line}");
        (name.to_string(), value.to_string())
    });
    lines.collect()
}

#[test]
fn a_service_is_started_preloaded() {
    let drop_in = printed(&["systemd", "demo", "--order", "fifo", "--preload", "libm.so.6"]);
    let variables = environment(&drop_in);
    assert!(variables[0].1.starts_with("libm.so.6:/"), "{variables:?}");
    demand_preloaded(&variables, "fifo");
}

#[test]
fn a_drop_in_is_installed() {
    let root = scratch("systemd-root");
    let place = root.to_str().expect("UTF-8");
    let write = |more: &[&str]| {
        let mut wakeset = Command::new(WAKESET);
        wakeset.args(["systemd", "--write", "demo.service", "--root", place]).args(more);
        output(wakeset.env("XDG_CONFIG_HOME", "/home/me/.config"));
    };
    write(&["--order", "lifo"]);
    // Once more, with another order: there is one file, of the later call.
    write(&[]);
    write(&["--user"]);
    let expected = printed(&["systemd", "demo"]);
    for folder in ["etc/systemd/system", "home/me/.config/systemd/user"] {
        let folder = root.join(folder).join("demo.service.d");
        let names: Vec<_> = fs::read_dir(&folder).expect("a folder").collect();
        assert_eq!(names.len(), 1, "{names:?}");
        let text = fs::read_to_string(folder.join("50-wakeset.conf")).expect("the drop-in");
        assert_eq!(text, expected);
    }
}

/// systemd itself has nothing against the drop-in, and has something against a spoilt one.
#[test]
fn systemd_accepts_the_drop_in() {
    if !have("systemd-analyze") {
        return;
    }
    let units = scratch("systemd-units");
    let folder = units.join("wakeset-demo.service.d");
    fs::create_dir(&folder).expect("a folder");
    let unit = units.join("wakeset-demo.service");
    fs::write(&unit, "[Service]\nExecStart=/bin/true\n").expect("a unit");
    let verify = |drop_in: &str| {
        fs::write(folder.join("50-wakeset.conf"), drop_in).expect("a drop-in");
        verified(&unit)
    };
    let drop_in = printed(&["systemd", "wakeset-demo"]);
    let complaint = |said: &str| said.contains("50-wakeset.conf");
    let spoilt = verify(&drop_in.replace("Environment=\"", "Environment=\"\\q"));
    assert!(complaint(&spoilt), "systemd does not read the drop-in: {spoilt}");
    let said = verify(&drop_in);
    assert!(!complaint(&said), "{said}");
}

/// What `systemd-analyze verify` says of a unit.
fn verified(unit: &Path) -> String {
    let mut analyze = Command::new("systemd-analyze");
    let output = analyze.arg("verify").arg(unit).output().expect("systemd-analyze runs");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The library in a directory that another container would have.
#[test]
fn a_copied_library_serves_a_program() {
    let folder = scratch("copy-library");
    let copy = folder.join(LIBRARY);
    // Once more over a copy that is in use: a file of its own takes its place.
    for round in 0..2 {
        let umask = format!("umask 077; exec \"$0\" copy-library {}", folder.display());
        let mut shell = Command::new("sh");
        let said = output(shell.args(["-c", &umask, WAKESET]).env_remove("LD_PRELOAD"));
        let variable = format!("LD_PRELOAD={}", copy.display());
        assert!(said.contains(&variable), "{said}");
        let mode = fs::metadata(&copy).expect("the copy").permissions().mode();
        assert_eq!(mode & 0o7777, 0o755, "round {round}");
        let left = fs::read_dir(&folder).expect("the folder").count();
        assert_eq!(left, 1, "nothing is left beside it");
    }
    let printed = printed(&["env", "--format", "docker", "--library", &copy.to_string_lossy()]);
    let pairs = printed.lines().map(|line| line.split_once('=').expect("a variable"));
    let variables: Vec<_> = pairs.map(|(name, value)| (name.into(), value.into())).collect();
    demand_preloaded(&variables, "auto");
}

#[test]
fn what_cannot_be_copied_is_said() {
    let folder = scratch("copy-library-wrong");
    fs::create_dir(folder.join("with space")).expect("a folder");
    fs::write(folder.join("file"), "").expect("a file");
    for (place, reason) in
        [("missing", "No such file"), ("file", "Not a directory"), ("with space", "a space")]
    {
        let mut copy = Command::new(WAKESET);
        copy.arg("copy-library").arg(folder.join(place)).env_remove("LD_PRELOAD");
        let said = copy.output().expect("wakeset runs");
        let text = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(125), "{place}: {text}");
        assert!(text.contains(reason) && text.contains(place), "{place}: {text}");
    }
    assert_eq!(fs::read_dir(folder.join("with space")).expect("a folder").count(), 0);
}

/// What others may write to is not loaded, wherever `wakeset` has found it.
#[test]
fn a_library_that_every_user_may_replace_is_refused() {
    let folder = scratch("open");
    fs::copy(WAKESET, folder.join("wakeset")).expect("a copy");
    printed(&["copy-library", &folder.to_string_lossy()]);
    let run = |mode: u32| {
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).expect("ours");
        let mut command = Command::new(folder.join("wakeset"));
        command.args(["run", "--", "true"]).env_remove("LD_PRELOAD").output().expect("it starts")
    };
    assert!(run(0o755).status.success());
    let refused = run(0o777);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(!refused.status.success(), "{said}");
    assert!(said.contains("every user may write to"), "{said}");
    fs::remove_dir_all(&folder).expect("it goes");
}

/// A flag that does not exist is no program, and what is wrong on the command line has the status
/// that env(1) and timeout(1) give it.
#[test]
fn a_wrong_flag_of_run_is_refused() {
    let run = |arguments: &[&str]| {
        let output = Command::new(WAKESET).arg("run").args(arguments).output().expect("it runs");
        let [said, wrong] =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (output.status.code(), said, wrong)
    };
    for flags in [&["--stat"][..], &["-x"], &["--order", "bogus"], &["--stats", "--share"], &[]] {
        let program: &[&str] = if flags.is_empty() { &[] } else { &["--", "echo", "ran"] };
        let (status, said, wrong) = run(&[flags, program].concat());
        assert_eq!((status, &said[..]), (Some(125), ""), "{flags:?}: {wrong}");
        assert!(wrong.starts_with("error: "), "{flags:?}: {wrong}");
    }
    // Behind the program, and behind `--`, everything is the program's.
    for words in [&["echo", "--stat", "--", "-x"][..], &["--", "echo", "--stat", "--", "-x"]] {
        let (status, said, wrong) = run(words);
        assert_eq!((status, &said[..]), (Some(0), "--stat -- -x\n"), "{words:?}: {wrong}");
    }
    assert_eq!(run(&["--", "--stat"]).0, Some(127));
    assert_eq!(run(&["--help"]).0, Some(0));
}
