//! Scripts: a strategy, then steps, each with what must come out of it. `PURLIN_REWRITE=1` writes what did come out.
//!
//! ```text
//!   windows FixedWindows(10)                     also: trigger, lateness, mode, output_time, closing, on_time
//!   rows gathered                                a trigger that counts is asked when all of a batch is in, not after each row
//!   > rows a:1 a:2=x b:3                         one batch: key:time, and a value unless it is the time
//!   > watermark 10        > clock 5              the input watermark, processing time
//!   > status                                     holds, output watermark, what is buffered
//!   a [0,10) 1,x @9 ON_TIME 0/0 first last       panes by key and window
//!   dropped 1                                    rows that came too late, if any
//! ```
//!
//! Every script runs in several manners, which must not make a difference: see [`Manner`].

use std::path::Path;

use model::windowing::{ClosingBehavior, OnTimeBehavior, WindowingStrategy};
use model::{Duration, Timestamp};

use crate::driver::{Driver, Element, Manner};
use crate::strategy;

#[test]
fn scripts_come_out_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/grouping/scripts");
    let mut paths: Vec<_> = folder.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    let failed: Vec<_> = paths.iter().filter(|path| !check(path)).collect();
    assert!(failed.is_empty(), "differ: {failed:?}");
}

fn check(path: &Path) -> bool {
    let text = std::fs::read_to_string(path).unwrap();
    let gathered = text.lines().any(|line| line == "rows gathered");
    let plain = play(&text, Manner { gathered, ..Manner::PLAIN });
    let mut same = true;
    for limits in [Manner::PLAIN.limits, Manner::ONE_KEY] {
        for (restored, failing, frozen) in [(true, false, false), (false, true, false), (true, true, true)] {
            let manner = Manner { limits, restored, failing, frozen, asked: failing, gathered };
            let played = play(&text, manner);
            if played != plain {
                println!("{path:?}, {manner:?}:\n{played}\nbut plainly:\n{plain}");
                same = false;
            }
        }
    }
    if plain != text {
        println!("{path:?} came out as:\n{plain}");
        if std::env::var_os("PURLIN_REWRITE").is_some() {
            std::fs::write(path, &plain).unwrap();
        }
        same = false;
    }
    same
}

/// The script with what came out in place of what was to come out.
fn play(text: &str, manner: Manner) -> String {
    let mut strategy = WindowingStrategy::global();
    let mut driver: Option<Driver> = None;
    let mut played = String::new();
    for line in text.lines() {
        let Some(action) = line.strip_prefix("> ") else {
            if driver.is_none() {
                setting(&mut strategy, line);
            }
            if driver.is_none() || line.is_empty() || line.starts_with('#') {
                played += &format!("{line}\n");
            }
            continue;
        };
        let driver = driver.get_or_insert_with(|| Driver::new(&strategy, manner));
        played += &format!("{line}\n");
        for line in act(driver, action) {
            played += &format!("{line}\n");
        }
    }
    played
}

fn setting(strategy: &mut WindowingStrategy, line: &str) {
    let Some((name, value)) = line.split_once(' ').filter(|_| !line.starts_with('#')) else {
        assert!(line.is_empty() || line.starts_with('#'), "cannot read {line:?}");
        return;
    };
    match (name, value) {
        ("windows", _) => strategy::set_windows(strategy, value, 1),
        ("trigger", _) => strategy.trigger = strategy::trigger(value, 1),
        ("lateness", _) => strategy.allowed_lateness = Duration(value.parse().unwrap()),
        ("mode", _) => strategy.accumulation = strategy::accumulation(value),
        ("output_time", _) => strategy.output_time = strategy::output_time(value).unwrap(),
        ("rows", "gathered") => {}
        ("closing", "always") => strategy.closing = ClosingBehavior::Always,
        ("closing", "if_nonempty") => strategy.closing = ClosingBehavior::IfNonEmpty,
        ("on_time", "always") => strategy.on_time = OnTimeBehavior::Always,
        ("on_time", "if_nonempty") => strategy.on_time = OnTimeBehavior::IfNonEmpty,
        _ => panic!("cannot read {line:?}"),
    }
}

fn act(driver: &mut Driver, action: &str) -> Vec<String> {
    let (name, rest) = action.split_once(' ').unwrap_or((action, ""));
    let dropped = driver.dropped;
    let mut panes = match name {
        "rows" => driver.rows(&rest.split_whitespace().map(element).collect::<Vec<_>>()),
        "watermark" => driver.watermark(time(rest)),
        "clock" => driver.clock(rest.parse().unwrap()),
        "status" => return vec![status(driver)],
        other => panic!("no action {other:?}"),
    };
    panes.sort_by(|a, b| (&a.key, a.window).cmp(&(&b.key, b.window)));
    let mut lines: Vec<_> = panes.iter().map(ToString::to_string).collect();
    if driver.dropped > dropped {
        lines.push(format!("dropped {}", driver.dropped - dropped));
    }
    lines
}

fn status(driver: &Driver) -> String {
    let summary = driver.summary();
    let mut line = format!("hold {}, output watermark {}", driver.hold(), driver.clocks.output_watermark);
    line += &format!(", {} windows, {} rows", summary.windows, summary.rows);
    if let Some(time) = driver.next_processing_ms() {
        line += &format!(", clock {time}");
    }
    line
}

fn element(text: &str) -> Element {
    let (key, rest) = text.split_once(':').unwrap();
    let (time, value) = rest.split_once('=').unwrap_or((rest, rest));
    Element { key: key.into(), time: time.parse().unwrap(), value: value.into() }
}

fn time(text: &str) -> i64 {
    match text {
        "MAX" => Timestamp::MAX.millis(),
        "END" => Timestamp::GLOBAL_WINDOW_END.millis(),
        millis => millis.parse().unwrap(),
    }
}
