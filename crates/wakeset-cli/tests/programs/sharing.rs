//! `wakeset run --share`: counts that others read while the program runs.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::os::unix::fs::{
    DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink,
};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::compile::{Build, compile, missing};
use crate::stats::count;

/// A runtime directory of a test, in memory.
pub struct Runtime(PathBuf);

impl Runtime {
    pub fn new(name: &str) -> Self {
        let path = format!("/dev/shm/wakeset-sharing-{name}-{}", std::process::id());
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).expect("a directory");
        Runtime(path.into())
    }

    pub fn wakeset(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wakeset"));
        command.args(arguments).env("XDG_RUNTIME_DIR", &self.0).env_remove("LD_PRELOAD");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    fn output(&self, arguments: &[&str]) -> Output {
        self.wakeset(arguments).output().expect("it starts")
    }

    /// Starts a script, which says when it has come so far that its counts may be looked at, and
    /// waits for that.
    pub fn start(&self, script: &str, arguments: &[&str]) -> Running {
        let ready = self.0.join("ready");
        let mut all = vec!["run", "--share", "--", "sh", "-c", script];
        all.extend(["sh", ready.to_str().expect("a path")]);
        all.extend(arguments);
        let child = self.wakeset(&all).stdin(Stdio::piped()).spawn().expect("it starts");
        let running = Running(child);
        let end = Instant::now() + Duration::from_secs(120);
        while !ready.exists() {
            assert!(Instant::now() < end, "the script is not ready");
            std::thread::sleep(Duration::from_millis(10));
        }
        running
    }

    fn counts(&self, running: &Running) -> Value {
        let output = self.output(&["stats", "--json", &running.pid()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// The files of runs.
    pub fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join("wakeset")).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect()
    }
}

impl Runtime {
    /// The file of this run.
    fn file_of(&self, running: &Running) -> PathBuf {
        let begin = format!("run-{}-", running.pid());
        let mut files = self.files();
        files.retain(|path| path.to_string_lossy().contains(&begin));
        files.pop().expect("its file")
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A program that ends when it is let go: its script waits for the end of its standard input.
pub struct Running(Child);

impl Running {
    pub fn pid(&self) -> String {
        self.0.id().to_string()
    }

    pub fn end(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().expect("its status");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Makes eventfds in a child that ends, and waits for whoever looks.
const FORKS: &str = r#""$2" "$3" && : >"$1"; read line"#;

#[test]
fn counts_are_read_while_the_program_runs() {
    let Some(program) = compile("stress", Build::Plain, "stress_shared") else { return };
    let runtime = Runtime::new("read");
    let script = r#""$2" 4 1000 >/dev/null && { : >"$1"; read line; }"#;
    let mut running = runtime.start(script, &[program.to_str().expect("a path")]);
    let counts = runtime.counts(&running);
    assert_eq!(counts["schema"], "wakeset-stats/1");
    // It became the program, so that what the supervisor knows of it stays true.
    assert_eq!(counts["run"]["pid"].to_string(), running.pid());
    assert_eq!(count(&counts, "/processes/0/pid").to_string(), running.pid());
    assert_eq!(count(&counts, "/total/counters_made"), 4, "{counts:#}");
    assert!(count(&counts, "/total/syscalls_avoided") >= 4000, "{counts:#}");
    let live = fs::read_to_string(format!("/proc/{}/status", running.pid())).expect("its state");
    assert!(live.contains("TracerPid:\t0\n"));

    for target in [running.pid().as_str(), "sh"] {
        let output = runtime.output(&["stats", target]);
        let said = text(&output.stdout);
        assert!(said.starts_with(&format!("run {} (sh): 1 process, ", running.pid())), "{said}");
        assert!(said.contains(" ended)"), "{said}");
        let output = runtime.output(&["top", "-d", "0.1", "-n", "2", target]);
        let said = text(&output.stdout);
        assert!(output.status.success() && said.matches("per second: ").count() == 2, "{said}");
        assert!(!said.contains('\x1b'), "{said}");
    }
    running.end();
    let output = runtime.output(&["stats", &running.pid()]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("shares no counts"), "{}", text(&output.stderr));
}

/// Single sets, the last migrations with their calls, and a child by its own process id.
#[test]
fn sets_and_migrations_are_told_apart() {
    let Some(program) = compile("looked_at", Build::Plain, "looked_at") else { return };
    let runtime = Runtime::new("sets");
    // Another command after it, so that the shell stays its parent.
    let running = runtime.start(r#""$2" "$1"; true"#, &[program.to_str().expect("a path")]);
    let counts = runtime.counts(&running);
    let sets = counts["sets"].as_array().expect("sets");
    assert_eq!(sets.len(), 1, "{counts:#}");
    assert_eq!((count(&sets[0], "/waits"), count(&sets[0], "/events")), (3, 6), "{counts:#}");
    let migrations = counts["migrations"].as_array().expect("migrations");
    assert_eq!(migrations.len(), 1, "{counts:#}");
    let [object, reason, call] = ["object", "reason", "call"].map(|it| &migrations[0][it]);
    assert!(object == "eventfd" && reason == "unmodelled_call" && call == "splice", "{counts:#}");

    let pids = |counts: &Value| -> Vec<u64> {
        let processes = counts["processes"].as_array().expect("processes");
        processes.iter().map(|process| count(process, "/pid")).collect()
    };
    let child = count(&sets[0], "/pid");
    assert_eq!(pids(&counts).len(), 2, "{counts:#}");
    assert!(counts["run"]["below"].is_null());
    let output = runtime.output(&["stats", "--json", &child.to_string()]);
    let below: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(pids(&below), [child], "{below:#}");
    assert_eq!(count(&below, "/run/below"), child);
    let output = runtime.output(&["stats", &child.to_string()]);
    let said = text(&output.stdout);
    assert!(
        said.starts_with(&format!("process {child} (looked_at) and its descendants")),
        "{said}"
    );
    assert!(said.contains("unmodelled_call by splice"), "{said}");
}

/// What ends is added up by those that come after it.
#[test]
fn generations_of_workers_take_the_memory_of_few() {
    let Some(program) = compile("counted_forks", Build::Plain, "counted_forks_shared") else {
        return;
    };
    let number = std::env::var("WAKESET_PROCESSES").ok().and_then(|n| n.parse().ok());
    let number: u64 = number.unwrap_or(3000);
    let runtime = Runtime::new("generations");
    let program = program.to_str().expect("a path");
    let running = runtime.start(FORKS, &[program, &number.to_string()]);
    let counts = runtime.counts(&running);
    assert_eq!(count(&counts, "/total/counters_made"), number + 1, "{counts:#}");
    // The children, and the program that made them; a shell may fork for it.
    let ended = count(&counts, "/ended/processes");
    assert!((number + 1..number + 3).contains(&ended), "{ended}");
    assert_eq!(count(&counts, "/not_counted/processes"), 0);
    let used: u64 = runtime.files().iter().map(|file| allocated(file)).sum();
    assert!(used < 2 << 20, "{used} bytes for {number} processes");
}

/// More at one time than their parent has mapped.
#[test]
fn generations_of_many_workers_take_the_memory_of_few() {
    let Some(program) = compile("counted_forks", Build::Plain, "counted_forks_alive") else {
        return;
    };
    let runtime = Runtime::new("alive");
    let script = r#""$2" 2000 24 && : >"$1"; read line"#;
    let running = runtime.start(script, &[program.to_str().expect("a path")]);
    let counts = runtime.counts(&running);
    let ended = count(&counts, "/ended/processes");
    // The last ones may have been killed before they have counted.
    assert!((2000 - 24..2003).contains(&ended), "{ended}");
    assert_eq!(count(&counts, "/not_counted/processes"), 0);
    // A third more than the 27 at one time, and a few, of nine pages each; and the beginning.
    let used: u64 = runtime.files().iter().map(|file| allocated(file)).sum();
    assert!(used < 4096 * (33 + 9 * 42), "{used} bytes");
}

fn allocated(file: &Path) -> u64 {
    file.metadata().expect("a file").blocks() * 512
}

#[test]
fn nobody_else_can_read_or_replace_the_counts() {
    let runtime = Runtime::new("others");
    let running = runtime.start(r#": >"$1"; read line"#, &[]);
    let files = runtime.files();
    let [file] = &files[..] else { panic!("{files:?}") };
    let mode = |path: &Path| path.metadata().expect("it is there").permissions().mode() & 0o7777;
    assert_eq!((mode(file), mode(file.parent().expect("a directory"))), (0o600, 0o700));
    // SAFETY: it cannot fail.
    if unsafe { libc::geteuid() } == 0 {
        fs::set_permissions(&runtime.0, fs::Permissions::from_mode(0o755)).expect("ours");
        // To read, to alter, to make shorter, to block by a lock, to remove, to put one beside it.
        for attempt in [
            r#"cat "$1""#,
            r#"printf x >>"$1""#,
            r#": >"$1""#,
            r#"flock -n "$1" true"#,
            r#"rm -f "$1""#,
            r#"ln "$1" "$2/mine""#,
            r#": >"$(dirname "$1")/run-1-other""#,
            r#"mv "$(dirname "$1")" "$2/elsewhere""#,
        ] {
            let mut other = Command::new("sh");
            other.args(["-c", attempt, "sh"]).arg(file).arg(&runtime.0).uid(65534).gid(65534);
            let output = other.output().expect("sh");
            assert!(!output.status.success() && output.stdout.is_empty(), "{attempt}");
        }
        assert_eq!(runtime.files(), files);
        runtime.counts(&running);
    } else {
        missing("root, to be another user");
    }
    drop(running);
}

/// As one is that a service of systemd makes in a runtime directory of its own.
#[test]
fn a_run_is_found_in_its_own_runtime_directory() {
    let (runtime, elsewhere) = (Runtime::new("own"), Runtime::new("elsewhere"));
    let running = runtime.start(r#": >"$1"; read line"#, &[]);
    assert_eq!(count(&elsewhere.counts(&running), "/total/made"), 0);
    let output = elsewhere.output(&["stats"]);
    assert!(!output.status.success(), "by process id alone: {}", text(&output.stdout));
}

/// A run that has ended leaves its file to the next one, which removes it.
#[test]
fn old_files_are_removed() {
    let runtime = Runtime::new("old");
    for _ in 0..3 {
        let output = runtime.output(&["run", "--share", "--", "true"]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(runtime.files().len(), 1);
    }
    let running = runtime.start(r#": >"$1"; read line"#, &[]);
    assert_eq!(runtime.files().len(), 1);
    assert!(runtime.output(&["run", "--share", "--", "true"]).status.success());
    assert_eq!(runtime.files().len(), 2, "one that is in use stays");
    let output = runtime.output(&["run", "--share", "--", "/no/such/program"]);
    assert_eq!((output.status.code(), runtime.files().len()), (Some(127), 1));
    assert_eq!(count(&runtime.counts(&running), "/total/made"), 0);
}

/// What somebody has put into the directory is refused, in words, and blocks nothing.
#[test]
fn hostile_files_are_refused() {
    let runtime = Runtime::new("hostile");
    let running = runtime.start(r#": >"$1"; read line"#, &[]);
    let directory = runtime.0.join("wakeset");
    let victim = runtime.0.join("victim");
    fs::write(&victim, "untouched").expect("a file");
    symlink(&victim, directory.join("run-1-link")).expect("a link");
    let private = || OpenOptions::new().create(true).write(true).mode(0o600).to_owned();
    let open = |name: &str| -> File { private().open(directory.join(name)).expect("a file") };
    open("run-1-short");
    open("run-1-empty").set_len(100 << 20).expect("its size");
    let public = File::create(directory.join("run-1-public")).expect("a file");
    public.set_permissions(fs::Permissions::from_mode(0o644)).expect("ours");
    let mut mkfifo = Command::new("mkfifo");
    mkfifo.args(["-m", "600"]).arg(directory.join("run-1-fifo"));
    assert!(mkfifo.status().expect("mkfifo").success());

    let output = runtime.output(&["stats", &running.pid()]);
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    for (name, why) in [
        ("link", "Too many levels of symbolic links"),
        ("short", "it is too short"),
        ("empty", "it is none of a run"),
        ("public", "others may open it"),
        ("fifo", "it is no regular file"),
    ] {
        let told = said.lines().any(|line| line.contains(&format!("-{name} is refused: {why}")));
        assert!(told, "{name}:\n{said}");
    }
    refuse_what_belongs_to_another(&runtime, &running);
    survive_garbage(&runtime, &running);
    assert!(runtime.output(&["run", "--share", "--", "true"]).status.success());
    assert_eq!(fs::read(&victim).expect("the file"), b"untouched");
}

/// A file that another user has made, and that came here by a rename of root's.
fn refuse_what_belongs_to_another(runtime: &Runtime, running: &Running) {
    // SAFETY: it cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        missing("root, to give a file to another user");
        return;
    }
    let file = runtime.0.join("wakeset/run-1-others");
    fs::copy(runtime.file_of(running), &file).expect("a copy");
    chown(&file, Some(65534), Some(65534)).expect("root may");
    let said = text(&runtime.output(&["stats", &running.pid()]).stderr);
    assert!(said.contains("-others is refused: it belongs to user 65534"), "{said}");
    fs::remove_file(file).expect("ours");
}

/// Files that begin as one of a run does, and hold random bytes after that, whatever these say.
fn survive_garbage(runtime: &Runtime, running: &Running) {
    let good = fs::read(runtime.file_of(running)).expect("the counts");
    let garbage = runtime.0.join("wakeset/run-1-garbage");
    let mut random = fastrand::Rng::with_seed(17);
    // The first words say what it is; the next ones are about folds and slots.
    for begin in [0, 16, 64, 4096, 64 << 10] {
        let mut bytes = good[..1 << 20].to_vec();
        bytes[begin..].fill_with(|| random.u8(..));
        fs::write(&garbage, bytes).expect("a file");
        fs::set_permissions(&garbage, fs::Permissions::from_mode(0o600)).expect("ours");
        let output = runtime.output(&["stats", "--json", &running.pid()]);
        assert!(output.status.code().is_some(), "{begin}: {:?}", output.status);
        let counts: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(counts["run"]["pid"].to_string(), running.pid(), "{begin}");
        assert!(runtime.output(&["metrics"]).status.code().is_some(), "{begin}");
    }
    fs::remove_file(garbage).expect("ours");
}

/// A directory that others could look into is not used, and the program runs.
#[test]
fn an_open_directory_is_refused() {
    let runtime = Runtime::new("open");
    let directory = runtime.0.join("wakeset");
    fs::create_dir(&directory).expect("a directory");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).expect("ours");
    let output = runtime.output(&["run", "--share", "--", "sh", "-c", "echo fine"]);
    let said = text(&output.stderr);
    assert!(output.status.success() && text(&output.stdout) == "fine\n", "{said}");
    assert!(said.contains("nothing is shared: ") && said.contains("is refused"), "{said}");
    assert!(runtime.files().is_empty());

    fs::remove_dir(&directory).expect("an empty directory");
    symlink("/tmp", &directory).expect("a link");
    let output = runtime.output(&["run", "--share", "--", "sh", "-c", "echo fine"]);
    assert_eq!(text(&output.stdout), "fine\n");
    assert!(text(&output.stderr).contains("nothing is shared: "));
}
