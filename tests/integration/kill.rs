//! A durable server is killed again and again while a word count runs; every restart resumes and the counts are exact.

use std::io::Write;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::server::{Server, free_port, given, output, root};
use crate::words;

/// Kills per run.
const KILLS: u32 = 20;
/// The longest pause before a kill.
const PAUSE_MS_MAX: u64 = 1_500;
/// The job must end within this time once nobody kills any more.
const END: Duration = Duration::from_secs(240);
/// The characters of words in Beam's example.
const WORD: &str = "A-Za-z0-9_'";

#[test]
fn word_count_survives_kills() {
    let seed = std::process::id() as u64 * 2_654_435_761 + 1;
    println!("seed {seed}");
    let folder = tempfile::tempdir().unwrap();
    let book = ten_megabytes(folder.path());
    let (data, log, port) = (folder.path().join("data"), folder.path().join("server.log"), free_port());
    let arguments = [format!("--data-dir={}", data.display())];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut server = Server::start_on(port, &log, &arguments);
    let mut client = submit(port, &book, &folder.path().join("counts"));
    let job = wait_for_job(&server);
    let mut random = seed;
    let mut alive_kills = 0;
    for _ in 0..KILLS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_millis((random >> 33) % PAUSE_MS_MAX));
        alive_kills += u32::from(state(&server, &job) == "RUNNING");
        server.kill();
        server = Server::start_on(port, &log, &arguments);
    }
    // The client has lost its streams with the first kill; the job has not.
    let _ = client.kill();
    let _ = client.wait();
    assert!(alive_kills >= KILLS / 2, "the job was over before most kills: {alive_kills} of {KILLS}");
    let started = Instant::now();
    while state(&server, &job) == "RUNNING" {
        assert!(started.elapsed() < END, "the job does not end:\n{}", server.log());
        std::thread::sleep(Duration::from_millis(200));
    }
    assert_eq!(state(&server, &job), "DONE", "{}", server.log());
    words::assert_equal(&words::in_folder(folder.path(), "counts"), &words::by_coreutils(&book, WORD));
}

/// The book, as often as makes ten megabytes.
fn ten_megabytes(folder: &std::path::Path) -> std::path::PathBuf {
    let text = std::fs::read(root().join("examples/data/kjv.txt")).unwrap();
    let path = folder.join("book.txt");
    let mut file = std::fs::File::create(&path).unwrap();
    for _ in 0..10_000_000usize.div_ceil(text.len()) {
        file.write_all(&text).unwrap();
    }
    path
}

fn submit(port: u16, book: &std::path::Path, out: &std::path::Path) -> Child {
    let venv = given("PURLIN_PYTHON").parent().unwrap().parent().unwrap().to_path_buf();
    let worker = root().join("examples/boot/python.sh");
    let mut python = Command::new(given("PURLIN_PYTHON"));
    python.args(["-m", "apache_beam.examples.wordcount", "--runner=PortableRunner", "--environment_type=PROCESS"]);
    python.arg(format!("--job_endpoint=localhost:{port}"));
    python.arg(format!("--environment_options=process_command={}", worker.display()));
    python.arg(format!("--environment_options=process_variables=VIRTUAL_ENV={}", venv.display()));
    python.arg("--input").arg(book).arg("--output").arg(out);
    python.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn jobs(server: &Server, words: &[&str]) -> String {
    output(Command::new(given("PURLIN_BINARY")).arg("jobs").args(words).arg(format!("--endpoint={}", server.endpoint())))
}

fn wait_for_job(server: &Server) -> String {
    let started = Instant::now();
    loop {
        let list = jobs(server, &["list"]);
        if let Some(line) = list.lines().find(|line| line.contains("RUNNING")) {
            return line.split_whitespace().next().unwrap().to_string();
        }
        assert!(started.elapsed() < Duration::from_secs(60), "no job runs:\n{list}\n{}", server.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn state(server: &Server, job: &str) -> String {
    let list = jobs(server, &["list"]);
    let line = list.lines().find(|line| line.split_whitespace().next() == Some(job));
    let line = line.unwrap_or_else(|| panic!("{job} is gone:\n{list}\n{}", server.log()));
    ["STARTING", "RUNNING", "DONE", "FAILED", "CANCELLED"]
        .into_iter()
        .find(|state| line.contains(state))
        .map(|state| if state == "STARTING" { "RUNNING" } else { state }.to_string())
        .unwrap_or_else(|| panic!("no state in: {line}"))
}
