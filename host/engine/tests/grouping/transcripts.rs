//! Beam's trigger transcripts (`apache_beam/testing/data/trigger_transcripts.yaml`, Apache-2.0, notice in the file),
//! with the rules of its `TriggerDriverTranscriptTest`.
//!
//! Times are seconds; what comes out is cut to whole seconds. Elements are their own timestamps. What is expected of a
//! pane may be a part of it. The `state` action looks at the insides of Python's driver and does nothing there either.

use std::collections::BTreeMap;

use model::Duration;
use model::pane::Timing;
use model::windowing::WindowingStrategy;
use saphyr::{LoadableYamlNode, Yaml};

use crate::driver::{Driver, Element, Manner, Pane};
use crate::strategy;

const TRANSCRIPTS: &str = include_str!("data/trigger_transcripts.yaml");

/// What the scenarios come to, in order. Those marked as broken on other runners are not marked here.
const SCENARIOS: [(&str, Outcome); 18] = [
    ("fixed_default", Outcome::Agrees),
    ("fixed_default_late_data", Outcome::Agrees),
    ("fixed_drop_late_data_after_allowed_lateness", Outcome::Agrees),
    ("timestamp_combiner_earliest", Outcome::Agrees),
    ("timestamp_combiner_latest", Outcome::Agrees),
    ("timestamp_combiner_custom_timestamping_eow", Outcome::Agrees),
    ("timestamp_combiner_custom_timestamping_earliest", Outcome::Agrees),
    ("timestamp_combiner_custom_timestamping_earliest", Outcome::NotPortable),
    ("early_late_sessions", Outcome::Agrees),
    ("discarding_early_fixed", Outcome::Agrees),
    ("garbage_collection", Outcome::Agrees),
    ("known_late_data_watermark", Outcome::Agrees),
    ("known_late_data_no_watermark_hold_possible", Outcome::Agrees),
    ("bad_output", Outcome::Fails("unmatched output")),
    ("bad_expected_values", Outcome::Fails("unmatched output")),
    ("bad_expected_window", Outcome::Fails("unmatched output")),
    ("missing_output", Outcome::Fails("unexpected output")),
    ("missing_output_at_end", Outcome::Fails("unexpected output")),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outcome {
    Agrees,
    /// The transcript is wrong on purpose, and must be found to be.
    Fails(&'static str),
    /// It needs an output time that the portable model does not have, so that no runner is ever asked for it.
    NotPortable,
}

#[test]
fn transcripts_come_out_as_beam_says() {
    // One line lacks a space that Python's reader does not miss.
    let readable = TRANSCRIPTS.replace("values:[", "values: [");
    let documents = Yaml::load_from_str(&readable).unwrap();
    assert_eq!(documents.len(), SCENARIOS.len());
    for (document, (name, outcome)) in documents.iter().zip(SCENARIOS) {
        assert_eq!(text(document, "name"), Some(name));
        let Some(strategy) = strategy_of(document) else {
            assert_eq!(outcome, Outcome::NotPortable, "{name}");
            continue;
        };
        for restored in [false, true] {
            for limits in [Manner::PLAIN.limits, Manner::ONE_KEY] {
                let played = play(document, &strategy, Manner { restored, limits, asked: restored, ..Manner::PLAIN });
                match (outcome, played) {
                    (Outcome::Agrees, played) => assert_eq!(played, Ok(()), "{name}"),
                    (Outcome::Fails(what), Err(message)) if message.starts_with(what) => {}
                    (expected, played) => panic!("{name}: {played:?} is not {expected:?}"),
                }
            }
        }
        let error = text(document, "error").map(str::to_lowercase);
        assert_eq!(error.is_some(), matches!(outcome, Outcome::Fails(what) if Some(what) == error.as_deref()), "{name}");
    }
}

fn strategy_of(document: &Yaml<'_>) -> Option<WindowingStrategy> {
    let mut strategy = strategy::python_default();
    strategy::set_windows(&mut strategy, text(document, "window_fn").unwrap_or("GlobalWindows"), 1000);
    strategy.trigger = strategy::trigger(text(document, "trigger_fn").unwrap_or("Default"), 1000);
    strategy.accumulation = strategy::accumulation(text(document, "accumulation_mode").unwrap_or("accumulating"));
    strategy.output_time = strategy::output_time(text(document, "timestamp_combiner").unwrap_or("OUTPUT_AT_EOW"))?;
    let lateness = document.as_mapping_get("allowed_lateness").map_or(0, |seconds| seconds.as_integer().unwrap());
    strategy.allowed_lateness = Duration(lateness * 1000);
    Some(strategy)
}

fn play(document: &Yaml<'_>, strategy: &WindowingStrategy, manner: Manner) -> Result<(), String> {
    let mut driver = Driver::new(strategy, manner);
    let mut output: Vec<Attributes> = Vec::new();
    for step in document.as_mapping_get("transcript").unwrap().as_sequence().unwrap() {
        let (action, argument) = step.as_mapping().unwrap().iter().next().unwrap();
        let action = action.as_str().unwrap();
        if action == "expect" {
            argument.as_sequence().unwrap().iter().try_for_each(|expected| take(&mut output, expected))?;
            continue;
        }
        if !output.is_empty() {
            return Err(format!("unexpected output: {output:?} before {action}"));
        }
        let panes = match action {
            "input" => driver.rows(&argument.as_sequence().unwrap().iter().map(element).collect::<Vec<_>>()),
            "watermark" => driver.watermark(argument.as_integer().unwrap() * 1000),
            "clock" => driver.clock(argument.as_integer().unwrap() * 1000),
            "state" => Vec::new(),
            other => panic!("no action {other}"),
        };
        output = panes.iter().map(attributes).collect();
    }
    match output.is_empty() {
        true => Ok(()),
        false => Err(format!("unexpected output: {output:?} at the end")),
    }
}

/// Removes the first pane that has all expected attributes.
fn take(output: &mut Vec<Attributes>, expected: &Yaml<'_>) -> Result<(), String> {
    let expected: Attributes = expected
        .as_mapping()
        .unwrap()
        .iter()
        .map(|(name, value)| (name.as_str().unwrap().to_string(), attribute(value)))
        .collect();
    let matches = |pane: &Attributes| expected.iter().all(|(name, value)| pane.get(name) == Some(value));
    match output.iter().position(matches) {
        Some(place) => drop(output.remove(place)),
        None => return Err(format!("unmatched output {expected:?} in {output:?}")),
    }
    Ok(())
}

type Attributes = BTreeMap<String, Vec<i64>>;

/// Numbers, lists of them and truth values, all as lists of numbers.
fn attribute(value: &Yaml<'_>) -> Vec<i64> {
    match value.as_sequence() {
        Some(values) => values.iter().flat_map(attribute).collect(),
        None => vec![value.as_integer().unwrap_or_else(|| i64::from(value.as_bool().unwrap()))],
    }
}

fn attributes(pane: &Pane) -> Attributes {
    let seconds = |millis: i64| millis.div_euclid(1000);
    let mut values: Vec<i64> = pane.values.iter().map(|value| value.parse().unwrap()).collect();
    values.sort_unstable();
    let (start, end) = pane.window;
    [
        ("window", vec![seconds(start), seconds(end - 1)]),
        ("values", values),
        ("timestamp", vec![seconds(pane.timestamp)]),
        ("index", vec![pane.info.index]),
        ("nonspeculative_index", vec![pane.info.nonspeculative_index]),
        ("early", vec![(pane.info.timing == Timing::Early).into()]),
        ("late", vec![(pane.info.timing == Timing::Late).into()]),
        ("final", vec![pane.info.is_last.into()]),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into()
}

fn element(value: &Yaml<'_>) -> Element {
    let seconds = value.as_integer().unwrap();
    Element { key: "key".into(), time: seconds * 1000, value: seconds.to_string() }
}

fn text<'a>(document: &'a Yaml<'_>, name: &str) -> Option<&'a str> {
    document.as_mapping_get(name).map(|value| value.as_str().unwrap())
}
