//! The first minute: build, start the server, count the words of a book in Python and again in WebAssembly, and check both
//! against a count by coreutils.

use std::collections::BTreeMap;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::steps::{command, output, root, target};

/// The server must accept connections within this time.
const START_SECONDS: u64 = 30;

type Counts = BTreeMap<String, u64>;

/// The demo.
pub(crate) fn run() -> Result<()> {
    crate::setup::toolchain()?;
    let python = crate::setup::python()?.join("bin/python");
    crate::test::build()?;
    crate::component::build_all()?;
    let book = root().join("examples/data/kjv.txt");
    let expected = count_by_coreutils(&book)?;
    let folder = target().join("demo");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;
    let server = Server::start()?;

    let mut plain = Command::new(&python);
    plain.args(["-m", "apache_beam.examples.wordcount"]);
    let in_python = count(&server, plain, &book, &folder.join("python"), "Python over LOOPBACK", &expected)?;

    let mut mixed = Command::new(&python);
    mixed.arg(root().join("examples/wordcount/wordcount.py"));
    mixed.arg("--component").arg(crate::component::folder().join("wordcount.wasm"));
    mixed.env("PYTHONPATH", root().join("guest-sdk/python"));
    let in_wasm = count(&server, mixed, &book, &folder.join("wasm"), "DoFns in WebAssembly", &expected)?;

    println!("   identical to coreutils: {} words. {}", expected.len(), most_frequent(&expected));
    println!("   {in_python:.1} s in Python, {in_wasm:.1} s with splitting and formatting in WebAssembly");
    println!("   output: {}   next: README.md, section 2", folder.display());
    Ok(())
}

/// Runs one pipeline, shows the server's progress while it runs, and checks its output.
fn count(server: &Server, mut pipeline: Command, book: &Path, out: &Path, name: &str, expected: &Counts) -> Result<f64> {
    println!(" ▸ word count, {name}");
    std::fs::create_dir_all(out)?;
    pipeline.arg("--input").arg(book).arg("--output").arg(out.join("counts"));
    pipeline.args(["--runner=PortableRunner", "--environment_type=LOOPBACK"]);
    pipeline.arg(format!("--job_endpoint=localhost:{}", server.port)).env("GRPC_VERBOSITY", "NONE");
    let started = Instant::now();
    output(&mut pipeline)?;
    let seconds = started.elapsed().as_secs_f64();
    let counted = read_counts(out)?;
    ensure!(counted == *expected, "the counts in {} differ from those of coreutils", out.display());
    let megabytes = std::fs::metadata(book)?.len() as f64 / 1e6;
    println!(" ✓ {name:<24} {megabytes:.1} MB   {seconds:.1} s   {:.2} MB/s", megabytes / seconds);
    Ok(seconds)
}

/// Words are runs of letters, digits, underscores and apostrophes, as in Beam's example.
fn count_by_coreutils(book: &Path) -> Result<Counts> {
    let script = r#"LC_ALL=C grep -oE "[A-Za-z0-9_']+" "$1" | LC_ALL=C sort | uniq -c"#;
    let lines = output(command("sh", &["-c", script, "sh"]).arg(book))?;
    lines.lines().map(|line| parse(line.trim().split_once(' ').map(|(count, word)| (word, count)), line)).collect()
}

/// Lines `word: count` in all shards of the output.
fn read_counts(folder: &Path) -> Result<Counts> {
    let mut counts = Counts::new();
    for entry in std::fs::read_dir(folder)? {
        for line in std::fs::read_to_string(entry?.path())?.lines() {
            let (word, count) = parse(line.rsplit_once(": "), line)?;
            ensure!(counts.insert(word.clone(), count).is_none(), "{word} was counted twice");
        }
    }
    Ok(counts)
}

fn parse(pair: Option<(&str, &str)>, line: &str) -> Result<(String, u64)> {
    let (word, count) = pair.with_context(|| format!("not a count: {line}"))?;
    Ok((word.to_string(), count.parse().with_context(|| format!("not a count: {line}"))?))
}

fn most_frequent(counts: &Counts) -> String {
    let mut words: Vec<_> = counts.iter().collect();
    words.sort_by_key(|(word, count)| (std::cmp::Reverse(**count), word.as_str()));
    words.iter().take(5).map(|(word, count)| format!("{word} {count}")).collect::<Vec<_>>().join("  ")
}

/// A server of our own, ended with the demo.
struct Server {
    process: Child,
    port: u16,
}

impl Server {
    fn start() -> Result<Server> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let binary: PathBuf = target().join("release/purlin");
        let mut command = Command::new(&binary);
        command.args(["serve", "--log_kind=dev", "--serve_http=false"]).arg(format!("--job_port={port}")).stdin(Stdio::null());
        let process = command.spawn().with_context(|| format!("start {}", binary.display()))?;
        let mut server = Server { process, port };
        let deadline = Instant::now() + Duration::from_secs(START_SECONDS);
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Some(status) = server.process.try_wait()? {
                bail!("the server ended with {status}");
            }
            ensure!(Instant::now() < deadline, "the server did not accept connections within {START_SECONDS} s");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
