//! Pipeline options that this runner interprets, as announced to SDKs and as read from a submission.
//!
//! Options come as a `Struct` with keys `beam:option:<name>:v1`; numbers come as numbers (Java) or as decimal text (Python),
//! and Go puts all of its own into one nested map. Options that are not ours are never looked at and never fail a job.

use std::fmt;

use prost_types::value::Kind;
use prost_types::{Struct, Value};
use proto::job::{PipelineOptionDescriptor, pipeline_option_type};

use crate::config::Config;
use crate::run::Settings;

/// Most shards of a job.
pub const SHARDS_MAX: u32 = 1_024;
/// Most retries of a bundle.
pub const RETRIES_MAX: u32 = 1_000;
/// Most harness processes per environment.
pub const HARNESSES_MAX: u32 = 256;

/// What the label PTRANSFORM of metrics holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepNames {
    /// Transform ids of the submitted pipeline.
    Id,
    /// The user's names, as in-process runners have them: `query` of Python and Java matches a step by a part of its path.
    #[default]
    UniqueName,
}

/// Options of one submission.
#[derive(Clone, Copy)]
pub struct Options<'a>(pub &'a Struct);

impl<'a> Options<'a> {
    /// An option by its plain name.
    pub fn get(&self, name: &str) -> Option<&'a Kind> {
        let value = self.0.fields.get(&format!("beam:option:{name}:v1")).or_else(|| self.of_go()?.fields.get(name))?;
        value.kind.as_ref().filter(|kind| !matches!(kind, Kind::NullValue(_)))
    }

    /// The map in which Go's SDK puts its command line.
    fn of_go(&self) -> Option<&'a Struct> {
        let nested = |value: &'a Value| match &value.kind {
            Some(Kind::StructValue(nested)) => Some(nested),
            _ => None,
        };
        nested(nested(self.0.fields.get("beam:option:go_options:v1")?)?.fields.get("options")?)
    }

    /// A text option that is not empty.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        match self.get(name)? {
            Kind::StringValue(text) if !text.is_empty() => Some(text),
            _ => None,
        }
    }

    /// Whether a switch is on.
    pub fn switch(&self, name: &str) -> bool {
        match self.get(name) {
            Some(Kind::BoolValue(on)) => *on,
            Some(Kind::StringValue(text)) => text.eq_ignore_ascii_case("true"),
            _ => false,
        }
    }

    /// A list of texts; a single text is a list of one, or of what its commas separate, as Go sends it.
    pub fn list(&self, name: &str) -> Vec<String> {
        match self.get(name) {
            Some(Kind::StringValue(text)) => text.split(',').filter(|one| !one.is_empty()).map(str::to_string).collect(),
            Some(Kind::ListValue(list)) => list
                .values
                .iter()
                .filter_map(|value| match &value.kind {
                    Some(Kind::StringValue(text)) => Some(text.clone()),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// A whole number, if the option is given. The error says what is wrong with it.
    fn number(&self, name: &str, least: u32, greatest: u32) -> Result<Option<u32>, String> {
        let Some(kind) = self.get(name) else { return Ok(None) };
        let number = match kind {
            Kind::NumberValue(number) if number.fract() == 0.0 => Some(*number),
            Kind::StringValue(text) => text.trim().parse::<u32>().ok().map(f64::from),
            _ => None,
        };
        match number {
            Some(number) if (f64::from(least)..=f64::from(greatest)).contains(&number) => Ok(Some(number as u32)),
            _ => Err(format!("option {name} is {}; it must be a whole number from {least} to {greatest}", Shown(kind))),
        }
    }
}

/// Settings of a job, or everything that is wrong with its options.
pub fn settings(options: &Struct, config: &Config) -> Result<(Settings, StepNames), Vec<String>> {
    let options = Options(options);
    let mut problems = Vec::new();
    let mut number = |name: &str, least, greatest, default| {
        options.number(name, least, greatest).map(|given| given.unwrap_or(default)).unwrap_or_else(|problem| {
            problems.push(problem);
            default
        })
    };
    let settings = Settings {
        shards: number("shards", 1, SHARDS_MAX, config.shards),
        retries: number("retries", 0, RETRIES_MAX, config.retries),
        harnesses: number("sdk_worker_parallelism", 0, HARNESSES_MAX, 0),
        experiments: options.list("experiments"),
        streaming: options.switch("streaming"),
    };
    let step_names = match options.get("metrics_step_names") {
        None => StepNames::default(),
        Some(Kind::StringValue(text)) if text == "id" => StepNames::Id,
        Some(Kind::StringValue(text)) if text == "unique_name" => StepNames::UniqueName,
        Some(other) => {
            problems.push(format!("option metrics_step_names is {}; it must be id or unique_name", Shown(other)));
            StepNames::default()
        }
    };
    if problems.is_empty() { Ok((settings, step_names)) } else { Err(problems) }
}

/// The options that SDKs are told of.
pub fn descriptors(config: &Config) -> Vec<PipelineOptionDescriptor> {
    use pipeline_option_type::Enum::{Integer, String};
    [
        ("shards", Integer, config.shards.to_string(), "Into how many shards the job is cut, fixed for its life."),
        (
            "retries",
            Integer,
            config.retries.to_string(),
            "How often a bundle that failed in user code is tried again before the job fails.",
        ),
        (
            "metrics_step_names",
            String,
            "unique_name".to_string(),
            "What metrics call a step: unique_name (the user's name) or id (of the transform in the pipeline).",
        ),
    ]
    .map(|(name, r#type, default_value, description)| PipelineOptionDescriptor {
        name: name.into(),
        r#type: r#type.into(),
        description: description.into(),
        default_value,
        group: "Purlin".into(),
    })
    .to_vec()
}

/// A value as the user is shown it.
struct Shown<'a>(&'a Kind);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Kind::NumberValue(number) => write!(f, "{number}"),
            Kind::StringValue(text) => write!(f, "{:?}", text.chars().take(100).collect::<String>()),
            Kind::BoolValue(on) => write!(f, "{on}"),
            Kind::NullValue(_) => f.write_str("null"),
            Kind::StructValue(_) => f.write_str("a map"),
            Kind::ListValue(_) => f.write_str("a list"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(options: &[(&str, Kind)], expected: &str) {
        let fields = options.iter().map(|(key, kind)| (key.to_string(), Value { kind: Some(kind.clone()) })).collect();
        let found = match settings(&Struct { fields }, &Config { shards: 4, ..Config::default() }) {
            Ok((settings, names)) => format!("{} {} {names:?} {:?}", settings.shards, settings.retries, settings.experiments),
            Err(problems) => problems.join("; "),
        };
        assert_eq!(found, expected);
    }

    fn text(text: &str) -> Kind {
        Kind::StringValue(text.into())
    }

    #[test]
    fn numbers_come_as_numbers_and_as_text() {
        check(&[], "4 0 UniqueName []");
        check(&[("beam:option:shards:v1", Kind::NumberValue(8.0)), ("beam:option:retries:v1", text("3"))], "8 3 UniqueName []");
        check(&[("beam:option:metrics_step_names:v1", text("id"))], "4 0 Id []");
        check(&[("beam:option:something:v1", text("x")), ("beam:option:shards:v1", Kind::NullValue(0))], "4 0 UniqueName []");
    }

    #[test]
    fn all_problems_at_once() {
        check(
            &[("beam:option:shards:v1", Kind::NumberValue(1.5)), ("beam:option:metrics_step_names:v1", Kind::BoolValue(true))],
            "option shards is 1.5; it must be a whole number from 1 to 1024; \
             option metrics_step_names is true; it must be id or unique_name",
        );
    }

    #[test]
    fn go_nests_its_options() {
        let value = |kind| Value { kind: Some(kind) };
        let inner = Struct { fields: [("shards".to_string(), value(text("2")))].into() };
        let outer = Struct { fields: [("options".to_string(), value(Kind::StructValue(inner)))].into() };
        check(&[("beam:option:go_options:v1", Kind::StructValue(outer))], "2 0 UniqueName []");
        check(&[("beam:option:experiments:v1", text("a,b=c"))], "4 0 UniqueName [\"a\", \"b=c\"]");
    }
}
