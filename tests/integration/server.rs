//! A server under test: started on a free port, its output kept, ended with the test.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// The server must accept connections within this time.
const START: Duration = Duration::from_secs(30);

/// A running binary.
pub(crate) struct Server {
    process: Child,
    /// The port of its Job API.
    pub port: u16,
    log: PathBuf,
    _folder: Option<tempfile::TempDir>,
}

/// What `cargo xtask test` has built or brought.
pub(crate) fn given(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set: run `cargo xtask test`"));
    PathBuf::from(path)
}

/// The root of the checkout.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_path_buf()
}

/// A port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

impl Server {
    /// Starts the binary with more arguments.
    pub(crate) fn start(arguments: &[&str]) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("server.log");
        let mut server = Server::start_on(free_port(), &log, arguments);
        server._folder = Some(folder);
        server
    }

    /// Starts the binary on a port, appending its output to `log`.
    pub(crate) fn start_on(port: u16, log: &Path, arguments: &[&str]) -> Server {
        let output = File::options().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(given("PURLIN_BINARY"));
        command.args(["serve", "--serve_http=false", "--log_kind=text"]).arg(format!("--job_port={port}")).args(arguments);
        command.stdin(Stdio::null()).stdout(output.try_clone().unwrap()).stderr(output);
        let process = command.spawn().expect("start the binary");
        let mut server = Server { process, port, log: log.to_path_buf(), _folder: None };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = server.process.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended with {ended:?}:\n{}", server.log());
            assert!(started.elapsed() < START, "the server did not start:\n{}", server.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// `localhost:PORT`.
    pub(crate) fn endpoint(&self) -> String {
        format!("localhost:{}", self.port)
    }

    /// All that the server has printed.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// The process id.
    pub(crate) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills the server at once, as a crash would.
    pub(crate) fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let ended = self.process.try_wait().unwrap();
        // It may have been killed by the test.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = self.log();
            let lines: Vec<&str> = log.lines().collect();
            eprintln!("the server's last lines (ended: {ended:?}):\n{}", lines[lines.len().saturating_sub(60)..].join("\n"));
        } else {
            assert!(!self.log().contains("panicked at"), "the server panicked:\n{}", self.log());
        }
    }
}

/// Runs a command to its end and returns its output; panics with it on failure.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("start {command:?}: {error}"));
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?} ended with {}:\n{text}", output.status);
    text
}
