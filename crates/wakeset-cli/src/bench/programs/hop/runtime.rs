//! Programs on a runtime or library that is not ours: a page of source for each.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

use tempfile::TempDir;

use super::compile::{cargo, compile, compiles, flags_of, scratch};
use crate::bench::programs::child::succeeds;
use crate::failure::Failure;

/// What wakes, and what waits.
#[derive(Clone, Copy, Debug, PartialEq, clap::ValueEnum)]
pub enum Runtime {
    /// Java: `Selector.wakeup` and `Selector.select` between two threads
    Java,
    /// Node: `postMessage` to a worker thread and back
    NodeWorker,
    /// Node: `fs.promises.stat`, a call that a thread of libuv's pool makes
    NodeStat,
    /// Python: asyncio's `run_in_executor`
    Asyncio,
    /// Python: uvloop's `call_soon_threadsafe` between two loops
    Uvloop,
    /// C++: Asio's `post` between two `io_context`s, each with a socket
    Asio,
    /// C: ZeroMQ's PAIR sockets over inproc
    ZeromqPair,
    /// C: ZeroMQ's REQ and REP sockets over tcp
    ZeromqTcp,
    /// C: GLib's main contexts
    Glib,
    /// Rust: tokio's `current_thread` runtimes, where cargo has tokio
    Tokio,
}

const JAVA: &str = include_str!("sources/Hop.java");
const NODE_METER: &str = include_str!("sources/meter.js");
const NODE_WORKER: &str = include_str!("sources/worker.js");
const NODE_STAT: &str = include_str!("sources/stat.js");
const PYTHON_METER: &str = include_str!("sources/meter.py");
const ASYNCIO: &str = include_str!("sources/executor.py");
const UVLOOP: &str = include_str!("sources/loops.py");
const ASIO: &str = include_str!("sources/post.cpp");
const C_METER: &str = include_str!("sources/meter.c");
const ZEROMQ: &str = include_str!("sources/zeromq.c");
const GLIB: &str = include_str!("sources/glib.c");
const TOKIO: &str = include_str!("sources/tokio.rs");
const TOKIO_MANIFEST: &str = include_str!("sources/tokio.toml");

/// Fails to compile where there is no Asio of either kind.
const ASIO_CHECK: &str = "
#if !__has_include(<asio.hpp>) && !__has_include(<boost/asio.hpp>)
#error
#endif
";

/// A program that can be started any number of times.
pub struct Prepared {
    program: PathBuf,
    arguments: Vec<OsString>,
    /// What was compiled, deleted in the end.
    _directory: Option<TempDir>,
}

impl Prepared {
    /// A program that was compiled there.
    fn of(directory: TempDir, program: &str) -> Self {
        let program = directory.path().join(program);
        Prepared { program, arguments: Vec::new(), _directory: Some(directory) }
    }

    /// A run of so many seconds.
    pub fn command(&self, seconds: f64) -> Command {
        let mut command = Command::new(&self.program);
        command.args(&self.arguments).arg(seconds.to_string());
        command
    }
}

impl Runtime {
    /// What is missing here to run it, if anything is.
    pub fn missing(self) -> Option<&'static str> {
        let runs =
            |program: &str, arguments: &[&str]| succeeds(Command::new(program).args(arguments));
        let (there, what) = match self {
            Runtime::Java => {
                (runs("java", &["-version"]) && runs("javac", &["-version"]), "java with javac")
            }
            Runtime::NodeWorker | Runtime::NodeStat => (runs("node", &["--version"]), "node"),
            Runtime::Asyncio => {
                (runs("python3", &["-I", "-c", "import asyncio"]), "python3 with asyncio")
            }
            Runtime::Uvloop => {
                (runs("python3", &["-I", "-c", "import uvloop"]), "python3 with uvloop")
            }
            Runtime::Asio => {
                let options = ["-std=c++17", "-fsyntax-only"];
                (compiles("c++", &options, "check.cpp", ASIO_CHECK), "c++ with Asio's header")
            }
            Runtime::ZeromqPair | Runtime::ZeromqTcp => {
                let options = ["-fsyntax-only"];
                (compiles("cc", &options, "check.c", "#include <zmq.h>\n"), "cc with zmq.h")
            }
            Runtime::Glib => (
                runs("cc", &["--version"]) && runs("pkg-config", &["--exists", "glib-2.0"]),
                "cc with GLib's headers and pkg-config",
            ),
            Runtime::Tokio => {
                let platform = "--filter-platform=x86_64-unknown-linux-gnu";
                let resolves = ["metadata", "--offline", "--format-version=1", platform];
                let check = || scratch(&[("Cargo.toml", TOKIO_MANIFEST), ("src/main.rs", TOKIO)]);
                let there = check().is_ok_and(|directory| {
                    succeeds(cargo().args(resolves).current_dir(directory.path()))
                });
                (there, "cargo that has downloaded tokio with its feature net")
            }
        };
        (!there).then_some(what)
    }

    /// Compiles it, where that has to be done.
    pub fn prepare(self) -> Result<Prepared, Failure> {
        let script = |program: &str, options: &[&str], source: &str| Prepared {
            program: program.into(),
            arguments: options.iter().copied().chain([source]).map(OsString::from).collect(),
            _directory: None,
        };
        let node = |source: &str| script("node", &["-e"], &format!("{NODE_METER}{source}"));
        let python =
            |source: &str| script("python3", &["-I", "-c"], &format!("{PYTHON_METER}{source}"));
        let c = |source: &str, flags: &[String]| {
            let mut compiler = Command::new("cc");
            compiler.args(["-O2", "-pthread", "-o", "hop", "hop.c"]).args(flags);
            compile(&mut compiler, &[("hop.c", &format!("{C_METER}{source}"))])
        };
        let zeromq = |transport: &str| {
            let directory = c(ZEROMQ, &["-lzmq".to_string()])?;
            Ok(Prepared { arguments: vec![transport.into()], ..Prepared::of(directory, "hop") })
        };
        Ok(match self {
            Runtime::Java => {
                let directory =
                    compile(Command::new("javac").arg("Hop.java"), &[("Hop.java", JAVA)])?;
                let path = directory.path().into();
                let arguments = vec!["-cp".into(), path, "Hop".into()];
                Prepared { program: "java".into(), arguments, _directory: Some(directory) }
            }
            Runtime::NodeWorker => node(NODE_WORKER),
            Runtime::NodeStat => node(NODE_STAT),
            Runtime::Asyncio => python(ASYNCIO),
            Runtime::Uvloop => python(UVLOOP),
            Runtime::Asio => {
                let mut compiler = Command::new("c++");
                compiler.args(["-std=c++17", "-O2", "-pthread", "-o", "hop", "post.cpp"]);
                Prepared::of(compile(&mut compiler, &[("post.cpp", ASIO)])?, "hop")
            }
            Runtime::ZeromqPair => zeromq("inproc")?,
            Runtime::ZeromqTcp => zeromq("tcp")?,
            Runtime::Glib => Prepared::of(c(GLIB, &flags_of("glib-2.0")?)?, "hop"),
            Runtime::Tokio => {
                let mut cargo = cargo();
                cargo.args(["build", "--release", "--offline", "--target-dir", "target"]);
                let sources = [("Cargo.toml", TOKIO_MANIFEST), ("src/main.rs", TOKIO)];
                Prepared::of(compile(&mut cargo, &sources)?, "target/release/hop")
            }
        })
    }
}
