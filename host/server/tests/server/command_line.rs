//! `purlin jobs` against a running server, and the binary as launchers start it.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

use clap::Parser;
use model::{ShardId, Timestamp};
use prost::Message;
use server::args::{Cli, Command as Parsed};
use server::config::Config;
use server::run::{End, Hold, Importance, Metrics, StageStatus};

use crate::metrics::counter;
use crate::rig::*;

/// What a command line prints, or its error.
async fn purlin(rig: &Rig, line: &str) -> String {
    let line = format!("purlin jobs --endpoint {} {line}", rig.endpoint());
    let Parsed::Jobs(arguments) = Cli::parse_from(line.split_whitespace()).command else { panic!("{line}") };
    let mut out = Vec::new();
    match within(server::cli::jobs::jobs(&arguments, &mut out)).await {
        Ok(()) => String::from_utf8(out).unwrap(),
        Err(error) => format!("error: {error:#}\n"),
    }
}

/// Texts whose digits may differ are compared without them.
fn without_digits(text: &str) -> String {
    text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_listed_described_and_told() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    assert_eq!(purlin(&rig, "list").await, "no jobs so far\n");
    let (job, started) = rig.submit("clicks").await;
    started.observer.running();
    started.observer.message(Importance::Basic, "fine");
    started.observer.message(Importance::Warning, "slow\ndisk");
    started.figures.lock().unwrap().stages =
        vec![stage(0, "Read", 1_234, 0, ""), stage(1, "Sum\n▸ Write", 7, 1_204, "timer 'quiet'")];
    until(|| async { purlin(&rig, "list").await.contains("1,204") }).await;

    let list = purlin(&rig, "list").await;
    let mut lines = list.lines();
    assert_eq!(lines.next().unwrap(), " ID               NAME    STATE      AGE  ELEMENTS/S  WATERMARK DELAY  BACKLOG");
    let row: Vec<_> = lines.next().unwrap().split_whitespace().collect();
    assert_eq!((row[0], row[1], row[2], *row.last().unwrap()), (job.as_str(), "clicks", "RUNNING", "1,204"));

    let description = purlin(&rig, &format!("describe {}", &job[..8])).await;
    let lines: Vec<_> = description.lines().collect();
    assert!(lines[0].starts_with(&format!("{job}  clicks  RUNNING  ")) && lines[0].ends_with("shards 1"), "{description}");
    let table = lines[1..4].iter().map(|line| line.replace("00:13", "00:12").replace("00:14", "00:12")).collect::<Vec<_>>();
    assert_eq!(table[0], " stage             in  in/s    out  out/s  backlog  input wm  output wm            since  held by");
    assert_eq!(table[1], " 0 Read         1,234     0  2,468      0        0  end       1970-01-01 00:00:00  00:12");
    assert_eq!(
        table[2],
        " 1 Sum ▸ Write      7     0     14      0    1,204  end       1970-01-01 00:00:00  00:12  timer 'quiet'"
    );
    assert!(lines[4].ends_with("WARNING  slow") && lines[5] == "disk", "{description}");

    let logs = without_digits(&purlin(&rig, &format!("logs {job}")).await);
    let time = "0000-00-00T00:00:00.000000+00:00";
    assert_eq!(logs, format!("{time} BASIC    fine\n{time} WARNING  slow\ndisk\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_holds_on_several_shards_and_what_is_counted_is_described() {
    let mut rig = Rig::with(Behaviour::Obedient, Config { shards: 3, ..Config::default() }).await;
    let (job, started) = rig.submit("clicks").await;
    let now_ms = server::clock::now_ms();
    let hold = |shard, minutes: i64, held_by: &str| Hold {
        shard: ShardId(shard),
        output_watermark: Timestamp::from_millis(60_000),
        since_ms: now_ms - 60_000 * minutes - 500,
        held_by: held_by.into(),
    };
    let read = StageStatus {
        slowest: ShardId(1),
        since_ms: now_ms - 3_600_500,
        holds: vec![hold(1, 60, "a poll"), hold(2, 7, "a bundle")],
        ..stage(0, "Read", 9, 1, "a poll")
    };
    let sum = StageStatus { output_watermark: Timestamp::MAX, ..stage(1, "Sum", 9, 0, "") };
    *started.figures.lock().unwrap() = Figures {
        metrics: Metrics { attempted: vec![counter("t1", 3)], committed: vec![counter("t1", 2)] },
        stages: vec![read, sum],
    };
    until(|| async { purlin(&rig, "describe clicks").await.contains("poll") }).await;
    let description = purlin(&rig, &format!("describe {job}")).await;
    let expected = [
        " stage   in  in/s  out  out/s  backlog  input wm  output wm               since  held by",
        " 0 Read   9     0   18      0        1  end       1970-01-01 00:00:00  01:00:00  shard 1: a poll",
        " 1 Sum    9     0   18      0        0  end       end                         -",
        "",
        " stage   shard  output wm            since  also held by",
        " 0 Read      2  1970-01-01 00:01:00  07:00  a bundle",
        "",
        " step  metric  committed  attempted",
        " Work  n:c             2          3",
    ];
    assert_eq!(description.lines().skip(1).collect::<Vec<_>>(), expected, "{description}");
}

#[tokio::test(flavor = "multi_thread")]
async fn jobs_are_cancelled_drained_and_followed() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let (job, started) = rig.submit("one").await;
    started.observer.message(Importance::Error, "boom");
    assert_eq!(purlin(&rig, "cancel one").await, format!("{job}  CANCELLED\n"));
    let followed = without_digits(&purlin(&rig, "logs --follow one").await);
    assert_eq!(
        followed,
        "-- STOPPED\n-- STARTING\n0000-00-00T00:00:00.000000+00:00 ERROR    boom\n-- CANCELLING\n-- CANCELLED\n"
    );

    let (job, _started) = rig.submit("two").await;
    until(|| async { purlin(&rig, "drain two").await == format!("{job}  DRAINED\n") }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_command_line_are_sentences() {
    let mut rig = Rig::start(Behaviour::Obedient).await;
    let endpoint = rig.endpoint();
    let expected = format!("error: there is no job \"x\" here\nlist all with: purlin jobs list --endpoint {endpoint}\n");
    for action in ["describe x", "logs x", "logs -f x", "cancel x", "drain x"] {
        assert_eq!(purlin(&rig, action).await, expected, "{action}");
    }
    for _ in 0..2 {
        let (_, started) = rig.submit("same").await;
        started.finish(End::Done);
    }
    let several = purlin(&rig, "describe same").await;
    assert!(several.starts_with("error: several jobs begin with \"same\", among them same-"), "{several}");

    rig.tell_to_stop();
    let port = rig.address.port();
    within(&mut rig.served).await.unwrap().unwrap();
    let expected = format!(
        "error: no server listens on 127.0.0.1:{port}\nstart one with: purlin serve --job-port {port}\nor name another with: --endpoint HOST:PORT\n"
    );
    assert_eq!(purlin(&rig, "list").await, expected);
}

fn binary(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_purlin"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

#[test]
fn the_configuration_is_printed_whole() {
    let output = binary(&["--job_port", "9", "-idle_shutdown_timeout=2s", "--print-config"]).output().unwrap();
    assert!(output.status.success());
    let printed: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&printed["job_port"], &printed["idle_shutdown_ms"], &printed["bind"]),
        (&9.into(), &2_000.into(), &"127.0.0.1".into())
    );
}

#[test]
fn help_teaches() {
    let output = binary(&["--help"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for part in ["purlin serve", "--job_endpoint=localhost:8073", "jobs", "explain"] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    assert!(!binary(&["--no-such-flag"]).output().unwrap().status.success());
}

#[test]
fn a_plan_is_explained() {
    let folder = tempfile::tempdir().unwrap();
    let explain = |bytes: Vec<u8>| {
        let file = folder.path().join("pipeline");
        std::fs::write(&file, bytes).unwrap();
        let output = binary(&["explain", file.to_str().unwrap()]).output().unwrap();
        (output.status.success(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    let (ok, text) = explain(pipeline(vec![]).encode_to_vec());
    assert!(ok && text.contains("Work"), "{text}");
    assert_eq!(explain(request("x", pipeline(vec![])).encode_to_vec()), (ok, text), "of a request");
    let (ok, text) = explain(b"nonsense".to_vec());
    assert!(!ok && text.contains("is no serialized Pipeline or PrepareJobRequest"), "{text}");
}

/// Started as Python's launcher does it; logs are objects with the keys that it parses, and the server ends when it is idle.
#[test]
fn a_launcher_of_prism_can_start_it() {
    // Of its own: what killed servers have left in the usual one would be reported first.
    let folder = tempfile::tempdir().unwrap();
    let mut server = binary(&[
        "--job_port",
        "0",
        "--log_level",
        "info",
        "--log_kind",
        "json",
        "--serve_http=false",
        "-idle_shutdown_timeout=1ms",
    ])
    .env("TMPDIR", folder.path())
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(server.stderr.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    let first: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&first["level"], &first["msg"]), (&"INFO".into(), &"taking jobs".into()));
    assert!(first["time"].as_str().unwrap().ends_with("+00:00"));
    assert!(first["source"]["function"].is_string() && first["source"]["file"].is_string() && first["source"]["line"].is_u64());
    assert!(first["endpoint"].as_str().unwrap().starts_with("localhost:"));
    lines.read_to_string(&mut line).unwrap();
    assert!(server.wait().unwrap().success());
}

#[test]
fn a_taken_port_is_reported_at_once() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = binary(&["--job_port", &port]).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && text.contains(&format!("listen on 127.0.0.1:{port}; choose another port")), "{text}");
}
