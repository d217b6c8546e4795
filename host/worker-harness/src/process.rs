//! Harnesses that are started as local processes: `beam:env:process:v1`.
//!
//! The command is a boot program: it is given its id and endpoints as flags, fetches the rest from the provision service and
//! becomes, or starts, the SDK's harness. All that it starts stays in its process group, which ends as a whole.

use std::collections::{BTreeMap, VecDeque};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use worker::Error;

use crate::LogEntry;
use crate::harness::{Harness, locked};

/// Printed lines that are kept to say why a process ended.
const LAST_LINES: usize = 20;
/// A printed line that is longer is cut here.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// After a process has ended, its children may hold its output open; they are not waited for longer than this.
const OUTPUT_GRACE: Duration = Duration::from_millis(200);

/// How to start a harness.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) command: String,
    pub(crate) env: BTreeMap<String, String>,
}

/// A running process and its group. Dropping it kills the group.
pub(crate) struct Process {
    group: Pid,
    ended: watch::Receiver<bool>,
}

type LastLines = Arc<Mutex<VecDeque<String>>>;

impl Program {
    /// Starts the program for `harness`. When it ends, the harness fails, with what it printed last.
    pub(crate) fn start(&self, harness: &Arc<Harness>, host: &str) -> Result<Process, Error> {
        let failed = |error: std::io::Error| Error::Infrastructure(format!("cannot start {:?}: {error}", self.command));
        let endpoint = |name: &str| format!("--{name}_endpoint={host}");
        let mut child = Command::new(&self.command)
            .arg(format!("--id={}", harness.id))
            .args(["provision", "logging", "artifact", "control"].map(endpoint))
            .envs(&self.env)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let group = child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let group = group.ok_or_else(|| failed(std::io::Error::other("it has no process id")))?;
        let lines = LastLines::default();
        let printing = [
            child.stdout.take().map(|pipe| tokio::spawn(print(pipe, harness.clone(), lines.clone()))),
            child.stderr.take().map(|pipe| tokio::spawn(print(pipe, harness.clone(), lines.clone()))),
        ];
        let (end, ended) = watch::channel(false);
        let harness = harness.clone();
        tokio::spawn(async move {
            let status = watch_child(child, printing).await;
            harness.fail(describe(status, &locked(&lines)));
            end.send_replace(true);
        });
        Ok(Process { group, ended })
    }
}

async fn watch_child(mut child: Child, printing: [Option<JoinHandle<()>>; 2]) -> std::io::Result<ExitStatus> {
    let status = child.wait().await;
    let printed = async {
        for task in printing.into_iter().flatten() {
            let _ = task.await;
        }
    };
    let _ = tokio::time::timeout(OUTPUT_GRACE, printed).await;
    status
}

fn describe(status: std::io::Result<ExitStatus>, lines: &VecDeque<String>) -> String {
    let status = match status {
        Ok(status) => status.to_string(),
        Err(error) => format!("unknown status: {error}"),
    };
    let mut what = format!("ended with {status}");
    if !lines.is_empty() {
        what.push_str("; it printed last:");
        lines.iter().for_each(|line| what.extend(["\n  ", line]));
    }
    what
}

/// Passes on every line, cut to a bounded length.
async fn print(pipe: impl AsyncRead + Unpin, harness: Arc<Harness>, lines: LastLines) {
    let mut pipe = BufReader::new(pipe);
    let mut line = Vec::new();
    loop {
        line.clear();
        let read = (&mut pipe).take(LINE_BYTES_MAX).read_until(b'\n', &mut line).await;
        if !matches!(read, Ok(1..)) {
            return;
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        let mut last = locked(&lines);
        if last.len() == LAST_LINES {
            last.pop_front();
        }
        last.push_back(text.clone());
        drop(last);
        harness.log.log(LogEntry::printed(&harness.id, text));
    }
}

impl Process {
    /// Waits for the process to end by itself, then asks it to, then makes it. Afterwards its group is gone.
    pub(crate) async fn stop(mut self, grace: Duration) {
        for signal in [None, Some(Signal::TERM)] {
            if let Some(signal) = signal {
                self.signal(signal);
            }
            if tokio::time::timeout(grace, self.ended.wait_for(|ended| *ended)).await.is_ok() {
                break;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        // There may be nothing left to signal.
        let _ = kill_process_group(self.group, signal);
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}
