//! Programs on a runtime or library that is not ours: a page of source for each.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use tempfile::TempDir;

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
    /// C++: Asio's `post` between two `io_context`s
    Asio,
}

const JAVA: &str = include_str!("sources/Hop.java");
const NODE_METER: &str = include_str!("sources/meter.js");
const NODE_WORKER: &str = include_str!("sources/worker.js");
const NODE_STAT: &str = include_str!("sources/stat.js");
const ASYNCIO: &str = include_str!("sources/executor.py");
const ASIO: &str = include_str!("sources/post.cpp");

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
        let (there, what) = match self {
            Runtime::Java => (
                succeeds(Command::new("java").arg("-version"))
                    && succeeds(Command::new("javac").arg("-version")),
                "java with javac",
            ),
            Runtime::NodeWorker | Runtime::NodeStat => {
                (succeeds(Command::new("node").arg("--version")), "node")
            }
            Runtime::Asyncio => (
                succeeds(Command::new("python3").args(["-I", "-c", "import asyncio"])),
                "python3 with asyncio",
            ),
            Runtime::Asio => (has_asio(), "c++ with Asio's header"),
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
        Ok(match self {
            Runtime::Java => {
                let directory = compile(Command::new("javac").arg("Hop.java"), "Hop.java", JAVA)?;
                let path = directory.path().into();
                let arguments = vec!["-cp".into(), path, "Hop".into()];
                Prepared { program: "java".into(), arguments, _directory: Some(directory) }
            }
            Runtime::NodeWorker => node(NODE_WORKER),
            Runtime::NodeStat => node(NODE_STAT),
            Runtime::Asyncio => script("python3", &["-I", "-c"], ASYNCIO),
            Runtime::Asio => {
                let mut compiler = Command::new("c++");
                compiler.args(["-std=c++17", "-O2", "-pthread", "-o", "post", "post.cpp"]);
                let directory = compile(&mut compiler, "post.cpp", ASIO)?;
                let program = directory.path().join("post");
                Prepared { program, arguments: Vec::new(), _directory: Some(directory) }
            }
        })
    }
}

fn has_asio() -> bool {
    let Ok(directory) = tempfile::tempdir() else { return false };
    let check = directory.path().join("check.cpp");
    std::fs::write(&check, ASIO_CHECK).is_ok()
        && succeeds(Command::new("c++").args(["-std=c++17", "-fsyntax-only"]).arg(check))
}

/// Compiles a source of this name in a directory of its own.
fn compile(compiler: &mut Command, name: &str, source: &str) -> Result<TempDir, Failure> {
    let mut compiled = || {
        let directory = tempfile::Builder::new().prefix("wakeset-hop-").tempdir()?;
        std::fs::write(directory.path().join(name), source)?;
        let output = compiler.current_dir(directory.path()).stdin(Stdio::null()).output()?;
        if output.status.success() {
            return Ok(directory);
        }
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr)))
    };
    compiled().map_err(|why| Failure::own(format!("cannot compile {name}: {why}")))
}
