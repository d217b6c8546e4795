//! What the stages of a script do per key: which timers they set and clear, and how what they ran is shown.
//!
//! ```text
//! does STAGE row:KEY CHANGE..      for each row of a key
//! does STAGE e.TAG CHANGE..        for each timer that fires; e: event time, p: processing time, l: the last of a window
//!
//! e.TAG=12    is set to 12         e.TAG+5     to 5 after what it is done for
//! e.TAG=12/7  and holds 7          e.TAG=12/-  and holds nothing; by default 12, of processing time what it is done for
//! e.TAG!      is cleared
//! ```

use bytes::Bytes;
use engine::Readied;
use model::window::IntervalWindow;
use model::windowing::WindowingStrategy;
use model::{Duration, FiredTimer, Keyed, Reader, TimeDomain, TimerChange, Timestamp, WindowCoder, pane};

use crate::rows;
use crate::setting::time;

/// Timer families by their names.
pub(crate) const FAMILIES: [&str; 3] = ["e", "p", "l"];

/// A rule of a stage.
#[derive(Clone)]
pub(crate) struct Rule {
    trigger: String,
    changes: Vec<String>,
}

impl Rule {
    pub(crate) fn new(words: &[&str]) -> Self {
        Rule { trigger: words[0].to_string(), changes: words[1..].iter().map(|word| word.to_string()).collect() }
    }
}

/// What governs a stage `keyed:SIZE:LATENESS`, followed by `:sorted` and `:last`.
pub(crate) fn keyed(windowing: WindowingStrategy, words: &str) -> Keyed {
    let last = words.ends_with(":last");
    let mut timer_families = vec![TimeDomain::Event, TimeDomain::Processing];
    timer_families.extend(last.then_some(TimeDomain::Event));
    Keyed { windowing, timer_families, expiration_family: last.then_some(2), time_sorted: words.contains(":sorted") }
}

/// A row or a timer that ran.
struct Ran {
    key: Bytes,
    window: Bytes,
    time: Timestamp,
    name: String,
    /// What rules call it.
    trigger: String,
}

fn ran(readied: &Readied) -> Vec<Ran> {
    let rows = readied.input.iter().flat_map(|batch| batch.iter()).flat_map(|row| {
        let key = rows::key_of(row.value);
        let windows = WindowCoder::Interval.windows_of(row.windows).unwrap();
        windows.into_iter().map(move |window| Ran {
            window: Bytes::copy_from_slice(window),
            time: row.timestamp,
            name: "row".to_string(),
            trigger: format!("row:{}", text(&key)),
            key: key.clone(),
        })
    });
    let timers = readied.timers.iter().map(|timer| {
        let FiredTimer { family, tag, key, window, fire, .. } = timer;
        let name = format!("{}.{}", FAMILIES[*family], String::from_utf8_lossy(tag));
        Ran { key: key.clone(), window: window.clone(), time: fire.timestamp(), trigger: name.clone(), name }
    });
    rows.chain(timers).collect()
}

/// Key and words of everything that a bundle ran, and of the pairs that ended with it.
pub(crate) fn shown(readied: &Readied) -> Vec<(String, String)> {
    let ran = ran(readied).into_iter().map(|ran| (text(&ran.key), format!("{}@{}{}", ran.name, ran.time, interval(&ran.window))));
    let expired = readied.expired.iter().map(|(key, window)| (text(key), format!("end{}", interval(window))));
    ran.chain(expired).collect()
}

/// What the bundle does to timers.
pub(crate) fn changes(rules: &[Rule], readied: &Readied) -> Vec<TimerChange> {
    let mut changes = Vec::new();
    for ran in ran(readied) {
        for rule in rules.iter().filter(|rule| rule.trigger == ran.trigger) {
            changes.extend(rule.changes.iter().map(|word| change(word, &ran)));
        }
    }
    changes
}

fn change(word: &str, ran: &Ran) -> TimerChange {
    let (family, rest) = word.split_once('.').unwrap_or_else(|| panic!("{word} names no family"));
    let family = FAMILIES.iter().position(|known| *known == family).unwrap_or_else(|| panic!("no family {family}"));
    let at = rest.find(['=', '+', '!']).unwrap_or_else(|| panic!("{word} changes nothing"));
    let tag = Bytes::copy_from_slice(&rest.as_bytes()[..at]);
    let (when, hold) = rest[at + 1..].split_once('/').map_or((&rest[at + 1..], None), |(when, hold)| (when, Some(hold)));
    let fire = match &rest[at..=at] {
        "=" => Some(time(when)),
        "+" => Some(ran.time.plus(Duration(when.parse().unwrap()))),
        _ => None,
    };
    let set = fire.map(|fire| {
        let hold = match hold {
            Some("-") => Timestamp::MAX,
            Some(hold) => time(hold),
            None if family == 1 => ran.time,
            None => fire,
        };
        (fire.into(), hold.into(), Bytes::from_static(pane::NO_FIRING))
    });
    TimerChange { family, tag, key: ran.key.clone(), window: ran.window.clone(), set }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(Reader::new(key).length_prefixed().unwrap()).into_owned()
}

fn interval(window: &[u8]) -> String {
    let window = IntervalWindow::decode(&mut Reader::new(window)).unwrap();
    format!("[{},{})", window.start, window.end)
}
