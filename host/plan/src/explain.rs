//! A plan as stable, readable text.

use std::fmt::{self, Write};

use model::windowing::{Accumulation, Merging, Trigger, WindowFn, WindowingStrategy};
use model::{Duration, Keyed, WindowCoder};

use crate::plan::*;

impl Plan {
    /// The plan as text, a stage at a time, by the user's names.
    pub fn explain(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("writing to a string cannot fail");
        text
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        for (index, environment) in self.environments.iter().enumerate() {
            writeln!(out, "environment {index}: {} \"{}\"", environment.urn, environment.id)?;
        }
        for (index, script) in self.scripts.iter().enumerate() {
            writeln!(out)?;
            write_script(index, script, out)?;
        }
        for stage in &self.stages {
            writeln!(out)?;
            self.write_stage(stage, out)?;
        }
        Ok(())
    }

    fn write_stage(&self, stage: &Stage, out: &mut String) -> fmt::Result {
        writeln!(out, "stage {} \"{}\"", stage.id.0, stage.name)?;
        writeln!(out, "  {}: {}, {}", head(stage), stage.input_coder, windows(stage.input_windows))?;
        for (index, input) in stage.inputs.iter().enumerate() {
            match input {
                Input::Impulse => writeln!(out, "  input {index}: impulse")?,
                Input::Script { script, output } => writeln!(out, "  input {index}: output {output} of script {script}")?,
                Input::Stage { stage, local } => {
                    writeln!(out, "  input {index}: stage {}{}", stage.0, if *local { ", local" } else { "" })?;
                }
            }
        }
        for side in &stage.side_inputs {
            self.write_side_input(side, out)?;
        }
        if let Some(WindowMerging { aside, window }) = &stage.merging {
            writeln!(out, "  environment {} merges windows: {window}", aside.body.environment.0)?;
        }
        if stage.truncation.is_some() {
            writeln!(out, "  truncated when drained")?;
        }
        if let Some(body) = &stage.body {
            self.write_body(body, out)?;
        }
        for (index, sink) in stage.sinks.iter().enumerate() {
            let readers: Vec<String> = sink.readers.iter().map(reader).collect();
            let (coder, windows) = (&sink.coder, windows(sink.windows));
            writeln!(out, "  sink {index} \"{}\": {coder}, {windows} -> {}", sink.collection, readers.join("; "))?;
        }
        Ok(())
    }

    fn write_side_input(&self, side: &SideInput, out: &mut String) -> fmt::Result {
        let from: Vec<String> = side.producers.iter().map(|(stage, sink)| format!("stage {} sink {sink}", stage.0)).collect();
        let pattern = side.access_pattern.trim_start_matches("beam:side_input:").trim_end_matches(":v1");
        let mapping = match &side.mapping {
            WindowMapping::ToGlobal => "global window".to_owned(),
            WindowMapping::ByEnd => format!("window by end in {}", strategy(&side.windowing)),
            WindowMapping::Custom(_) => format!("window known to the SDK in {}", strategy(&side.windowing)),
        };
        let (tag, transform, coder) = (&side.tag, &side.transform, &side.coder);
        let from = if from.is_empty() { "nothing".to_owned() } else { from.join(", ") };
        writeln!(out, "  side input \"{tag}\" of {transform}: {pattern} of {coder} from {from}, {mapping}")
    }

    fn write_body(&self, body: &Body, out: &mut String) -> fmt::Result {
        writeln!(out, "  body in environment {}: {}", body.environment.0, body.source_coder)?;
        for transform in &body.transforms {
            let urn = transform.urn.trim_start_matches("beam:transform:").trim_end_matches(":v1");
            let outputs: Vec<&str> = transform.outputs.iter().map(|(_, collection)| collection.as_str()).collect();
            let elsewhere = match transform.environment == body.environment {
                true => String::new(),
                false => format!(" in environment {}", transform.environment.0),
            };
            let outputs = if outputs.is_empty() { "nothing".to_owned() } else { outputs.join(", ") };
            writeln!(out, "    \"{}\" {urn}{elsewhere}: {} -> {outputs}", transform.name, transform.input)?;
        }
        for family in &body.timer_families {
            let time = if family.event_time { "event" } else { "processing" };
            let (key, windows) = (&family.key_coder, windows(family.window_coder));
            writeln!(out, "    timers \"{}\" of {}: {time} time, {key}, {windows}", family.family, family.transform)?;
        }
        Ok(())
    }
}

fn reader(reader: &Reader) -> String {
    match reader {
        Reader::Side => "side inputs".to_owned(),
        Reader::Main { stage, input, routing } => {
            let routing = match routing {
                Routing::Local => "local",
                Routing::ByKey => "by key",
                Routing::RoundRobin => "round robin",
            };
            format!("stage {} input {input}, {routing}", stage.0)
        }
    }
}

fn write_script(index: usize, script: &Script, out: &mut String) -> fmt::Result {
    writeln!(out, "script {index} \"{}\"", script.name)?;
    for (index, tag) in script.outputs.iter().enumerate() {
        writeln!(out, "  output {index}: \"{tag}\"")?;
    }
    for event in &script.events {
        match event {
            ScriptEvent::Elements { output, batch } => {
                let rows: Vec<String> = batch.iter().map(|row| format!("{} at {}", hex(row.value), row.timestamp)).collect();
                writeln!(out, "  elements to {output}: {}", rows.join(", "))?;
            }
            ScriptEvent::Watermark { output, watermark } => writeln!(out, "  watermark of {output}: {watermark}")?,
            ScriptEvent::ProcessingTime(span) => writeln!(out, "  processing time passes: {} ms", span.0)?,
        }
    }
    Ok(())
}

/// The first bytes of an element.
fn hex(bytes: &[u8]) -> String {
    const BYTES_MAX: usize = 16;
    let shown: String = bytes.iter().take(BYTES_MAX).map(|byte| format!("{byte:02x}")).collect();
    if bytes.len() > BYTES_MAX { format!("{shown}…") } else { shown }
}

/// What is not written at the stage's timer families.
fn keyed(stage: &Stage, keyed: &Keyed) -> String {
    let mut text = format!("keyed in {}", strategy(&keyed.windowing));
    if keyed.time_sorted {
        text.push_str(", sorted by time");
    }
    let families = stage.body.as_ref().map_or(&[][..], |body| &body.timer_families);
    if let Some(family) = keyed.expiration_family.and_then(|index| families.get(index)) {
        let _ = write!(text, ", timer \"{}\" at expiration", family.family);
    }
    text
}

fn head(stage: &Stage) -> String {
    match &stage.head {
        Head::Plain => "plain".to_owned(),
        Head::Keyed(governs) => keyed(stage, governs),
        Head::Script => "script".to_owned(),
        Head::Grouping(windowing) => format!("grouping in {}", strategy(windowing)),
        Head::Restrictions { unbounded: false } => "restrictions".to_owned(),
        Head::Restrictions { unbounded: true } => "unbounded restrictions".to_owned(),
    }
}

fn windows(coder: WindowCoder) -> &'static str {
    match coder {
        WindowCoder::Global => "global windows",
        WindowCoder::Interval => "interval windows",
        WindowCoder::Custom => "custom windows",
    }
}

fn strategy(windowing: &WindowingStrategy) -> String {
    let mut text = match &windowing.window_fn {
        WindowFn::Global => "global window".to_owned(),
        WindowFn::Fixed { size, offset: Duration(0) } => format!("fixed({} ms)", size.0),
        WindowFn::Fixed { size, offset } => format!("fixed({} ms from {} ms)", size.0, offset.0),
        WindowFn::Sliding { size, period, .. } => format!("sliding({} ms every {} ms)", size.0, period.0),
        WindowFn::Sessions { gap } => format!("sessions({} ms)", gap.0),
        WindowFn::Custom { urn, .. } => format!("custom({urn})"),
    };
    match windowing.merging {
        Merging::NonMerging => {}
        Merging::NeedsMerge => text.push_str(", merging"),
        Merging::AlreadyMerged => text.push_str(", merged before"),
    }
    if windowing.trigger != Trigger::Default {
        text.push_str(&format!(", {}", trigger(&windowing.trigger)));
    }
    if windowing.accumulation == Accumulation::Accumulating {
        text.push_str(", accumulating");
    }
    if windowing.allowed_lateness != Duration(0) {
        text.push_str(&format!(", {} ms late", windowing.allowed_lateness.0));
    }
    text
}

fn trigger(of: &Trigger) -> String {
    let all = |parts: &[Trigger]| parts.iter().map(trigger).collect::<Vec<_>>().join(", ");
    let optional = |name: &str, part: &Option<Box<Trigger>>| match part {
        Some(part) => format!(", {name} {}", trigger(part)),
        None => String::new(),
    };
    match of {
        Trigger::Default => "default".into(),
        Trigger::Always => "always".into(),
        Trigger::Never => "never".into(),
        Trigger::ElementCount(count) => format!("count({count})"),
        Trigger::AfterEndOfWindow { early, late } => {
            format!("end of window{}{}", optional("early", early), optional("late", late))
        }
        Trigger::AfterProcessingTime(steps) => format!("processing time({} steps)", steps.len()),
        Trigger::AfterSynchronizedProcessingTime => "synchronized processing time".into(),
        Trigger::AfterAll(parts) => format!("all({})", all(parts)),
        Trigger::AfterAny(parts) => format!("any({})", all(parts)),
        Trigger::AfterEach(parts) => format!("each({})", all(parts)),
        Trigger::OrFinally(main, until) => format!("{} until {}", trigger(main), trigger(until)),
        Trigger::Repeat(part) => format!("repeat({})", trigger(part)),
    }
}
