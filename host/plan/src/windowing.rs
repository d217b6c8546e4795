//! Windowing strategies: from Beam's message to [`model::windowing`], with the defaults that older SDKs rely on
//! (`beam-model` 1.7: unset output time, closing and on-time behaviour and accumulation mode have one).

use std::collections::BTreeMap;

use model::windowing::*;
use model::{Duration, WindowCoder};
use prost::Message;
use proto::pipeline::{self, FunctionSpec};

use crate::coders::{CoderRef, Coders};
use crate::environments::Environments;

/// How deep triggers may nest.
const TRIGGER_DEPTH_MAX: usize = 32;

/// A strategy that can be used.
#[derive(Clone, Debug)]
pub(crate) struct Windowing {
    pub(crate) strategy: WindowingStrategy,
    /// The wire coder of its windows.
    pub(crate) coder: CoderRef,
}

/// The strategies of a pipeline, translated when first asked for.
pub(crate) struct Strategies<'a> {
    submitted: &'a BTreeMap<String, pipeline::WindowingStrategy>,
    found: BTreeMap<&'a str, Result<Windowing, Fault>>,
}

impl<'a> Strategies<'a> {
    pub(crate) fn new(submitted: &'a BTreeMap<String, pipeline::WindowingStrategy>) -> Self {
        Strategies { submitted, found: BTreeMap::new() }
    }

    pub(crate) fn lookup(
        &mut self,
        id: &str,
        coders: &mut Coders<'_>,
        environments: &mut Environments<'_>,
    ) -> Result<Windowing, Fault> {
        let Some((id, message)) = self.submitted.get_key_value(id) else { return Err("does not exist".into()) };
        let found = self.found.entry(id).or_insert_with(|| {
            let coder = coders.lookup(&message.window_coder_id).map_err(|fault| format!("cannot be used: {fault}"))?;
            let (coder, host) = crate::wire::window(coders, coder).map_err(|fault| format!("cannot be used: {fault}"))?;
            Ok(Windowing { strategy: strategy(message, host, environments)?, coder })
        });
        found.clone()
    }

    /// A strategy that was looked up successfully before.
    pub(crate) fn get(&self, id: &str) -> &Windowing {
        match self.found.get(id) {
            Some(Ok(windowing)) => windowing,
            _ => unreachable!("collections with unusable strategies do not enter the graph"),
        }
    }

    pub(crate) fn message(&self, id: &str) -> Option<&'a pipeline::WindowingStrategy> {
        self.submitted.get(id)
    }
}

/// Why a strategy cannot be used; half a sentence about "the windowing strategy".
pub(crate) type Fault = String;

/// The strategy, given how its windows are read on the wire.
fn strategy(
    message: &pipeline::WindowingStrategy,
    window_coder: WindowCoder,
    environments: &mut Environments<'_>,
) -> Result<WindowingStrategy, Fault> {
    use pipeline::{accumulation_mode, closing_behavior, merge_status, on_time_behavior, output_time};
    let window_fn = window_fn(message, environments)?;
    let merging = match merge_status::Enum::try_from(message.merge_status) {
        Ok(merge_status::Enum::NonMerging) => Merging::NonMerging,
        Ok(merge_status::Enum::NeedsMerge) => Merging::NeedsMerge,
        Ok(merge_status::Enum::AlreadyMerged) => Merging::AlreadyMerged,
        Ok(merge_status::Enum::Unspecified) | Err(_) => return Err("does not say whether its windows merge".into()),
    };
    check_windows(&window_fn, merging, window_coder)?;
    Ok(WindowingStrategy {
        window_fn,
        window_coder,
        merging,
        trigger: match &message.trigger {
            None | Some(pipeline::Trigger { trigger: None }) => Trigger::Default,
            Some(set) => trigger(set, TRIGGER_DEPTH_MAX)?,
        },
        accumulation: match accumulation_mode::Enum::try_from(message.accumulation_mode) {
            Ok(accumulation_mode::Enum::Accumulating) => Accumulation::Accumulating,
            Ok(accumulation_mode::Enum::Discarding | accumulation_mode::Enum::Unspecified) => Accumulation::Discarding,
            Ok(accumulation_mode::Enum::Retracting) => {
                return Err("asks for retractions, which no runner has (accumulating and discarding are supported)".into());
            }
            Err(_) => return Err("has an unknown accumulation mode".into()),
        },
        output_time: match output_time::Enum::try_from(message.output_time) {
            Ok(output_time::Enum::EndOfWindow | output_time::Enum::Unspecified) => OutputTime::EndOfWindow,
            Ok(output_time::Enum::LatestInPane) => OutputTime::Latest,
            Ok(output_time::Enum::EarliestInPane) => OutputTime::Earliest,
            Err(_) => return Err("has an unknown output time".into()),
        },
        closing: match closing_behavior::Enum::try_from(message.closing_behavior) {
            Ok(closing_behavior::Enum::EmitAlways) => ClosingBehavior::Always,
            Ok(closing_behavior::Enum::EmitIfNonempty | closing_behavior::Enum::Unspecified) => ClosingBehavior::IfNonEmpty,
            Err(_) => return Err("has an unknown closing behavior".into()),
        },
        on_time: match on_time_behavior::Enum::try_from(message.on_time_behavior) {
            Ok(on_time_behavior::Enum::FireAlways | on_time_behavior::Enum::Unspecified) => OnTimeBehavior::Always,
            Ok(on_time_behavior::Enum::FireIfNonempty) => OnTimeBehavior::IfNonEmpty,
            Err(_) => return Err("has an unknown on-time behavior".into()),
        },
        allowed_lateness: Duration(message.allowed_lateness.max(0)),
    })
}

fn window_fn(message: &pipeline::WindowingStrategy, environments: &mut Environments<'_>) -> Result<WindowFn, Fault> {
    let spec = message.window_fn.as_ref().ok_or("has no window function")?;
    let malformed = |_| format!("has a malformed payload for {}", spec.urn);
    Ok(match spec.urn.trim_start_matches("beam:window_fn:") {
        "global_windows:v1" => WindowFn::Global,
        "fixed_windows:v1" => {
            let payload = pipeline::FixedWindowsPayload::decode(spec.payload.clone()).map_err(malformed)?;
            WindowFn::Fixed { size: positive(payload.size, "size")?, offset: since_epoch(payload.offset) }
        }
        "sliding_windows:v1" => {
            let payload = pipeline::SlidingWindowsPayload::decode(spec.payload.clone()).map_err(malformed)?;
            WindowFn::Sliding {
                size: positive(payload.size, "size")?,
                period: positive(payload.period, "period")?,
                offset: since_epoch(payload.offset),
            }
        }
        "session_windows:v1" => {
            let payload = pipeline::SessionWindowsPayload::decode(spec.payload.clone()).map_err(malformed)?;
            WindowFn::Sessions { gap: positive(payload.gap_size, "gap")? }
        }
        _ => WindowFn::Custom {
            urn: spec.urn.clone(),
            spec: FunctionSpec::encode_to_vec(spec).into(),
            environment: match message.environment_id.as_str() {
                "" => None,
                id => Some(environments.in_use(id).map_err(|fault| format!("names a window function that cannot run: {fault}"))?),
            },
        },
    })
}

fn positive(span: Option<prost_types::Duration>, what: &str) -> Result<Duration, Fault> {
    let span = span.unwrap_or_default();
    match span.seconds.saturating_mul(1000).saturating_add(i64::from(span.nanos) / 1_000_000) {
        millis if millis > 0 => Ok(Duration(millis)),
        millis => Err(format!("has a window {what} of {millis} ms")),
    }
}

fn since_epoch(time: Option<prost_types::Timestamp>) -> Duration {
    let time = time.unwrap_or_default();
    Duration(time.seconds.saturating_mul(1000).saturating_add(i64::from(time.nanos) / 1_000_000))
}

fn check_windows(window_fn: &WindowFn, merging: Merging, coder: WindowCoder) -> Result<(), Fault> {
    let needed = match window_fn {
        WindowFn::Global => WindowCoder::Global,
        WindowFn::Fixed { .. } | WindowFn::Sliding { .. } | WindowFn::Sessions { .. } => WindowCoder::Interval,
        WindowFn::Custom { .. } => coder,
    };
    if coder != needed {
        return Err("has a window coder that does not belong to its window function".into());
    }
    let can_merge = matches!(window_fn, WindowFn::Sessions { .. } | WindowFn::Custom { .. });
    if merging == Merging::NeedsMerge && !can_merge {
        return Err("wants to merge windows that do not merge".into());
    }
    Ok(())
}

fn trigger(message: &pipeline::Trigger, depth: usize) -> Result<Trigger, Fault> {
    use pipeline::trigger::Trigger as Proto;
    let depth = depth.checked_sub(1).ok_or_else(|| format!("has a trigger of more than {TRIGGER_DEPTH_MAX} levels"))?;
    let some = |part: &Option<Box<pipeline::Trigger>>| match part {
        Some(part) => trigger(part, depth).map(Box::new),
        None => Err("has a trigger with a missing part".to_owned()),
    };
    // Some SDKs write an empty message where there is no such part.
    let optional = |part: &Option<Box<pipeline::Trigger>>| match part.as_deref() {
        None | Some(pipeline::Trigger { trigger: None }) => Ok(None),
        Some(part) => trigger(part, depth).map(|part| Some(Box::new(part))),
    };
    let all = |parts: &[pipeline::Trigger]| match parts {
        [] => Err("has a composite trigger without parts".to_owned()),
        parts => parts.iter().map(|part| trigger(part, depth)).collect(),
    };
    let kind = message.trigger.as_ref().ok_or("has a trigger of a kind that is unknown here")?;
    Ok(match kind {
        Proto::Default(_) => Trigger::Default,
        Proto::Always(_) => Trigger::Always,
        Proto::Never(_) => Trigger::Never,
        Proto::ElementCount(count) => Trigger::ElementCount(count.element_count),
        Proto::AfterEndOfWindow(parts) => {
            Trigger::AfterEndOfWindow { early: optional(&parts.early_firings)?, late: optional(&parts.late_firings)? }
        }
        Proto::AfterProcessingTime(delays) => {
            Trigger::AfterProcessingTime(delays.timestamp_transforms.iter().map(timestamp_transform).collect::<Result<_, _>>()?)
        }
        Proto::AfterSynchronizedProcessingTime(_) => Trigger::AfterSynchronizedProcessingTime,
        Proto::AfterAll(parts) => Trigger::AfterAll(all(&parts.subtriggers)?),
        Proto::AfterAny(parts) => Trigger::AfterAny(all(&parts.subtriggers)?),
        Proto::AfterEach(parts) => Trigger::AfterEach(all(&parts.subtriggers)?),
        Proto::OrFinally(parts) => Trigger::OrFinally(some(&parts.main)?, some(&parts.finally)?),
        Proto::Repeat(part) => Trigger::Repeat(some(&part.subtrigger)?),
    })
}

fn timestamp_transform(message: &pipeline::TimestampTransform) -> Result<TimestampTransform, Fault> {
    use pipeline::timestamp_transform::TimestampTransform as Proto;
    match message.timestamp_transform {
        Some(Proto::Delay(delay)) => Ok(TimestampTransform::Delay(Duration(delay.delay_millis))),
        Some(Proto::AlignTo(align)) if align.period > 0 => {
            Ok(TimestampTransform::AlignTo { period: Duration(align.period), offset: Duration(align.offset) })
        }
        Some(Proto::AlignTo(_)) => Err("has a trigger that aligns to no period".into()),
        None => Err("has a trigger with an unknown timestamp transform".into()),
    }
}

/// Whether combining before the grouping leaves this trigger's decisions as they are (`beam-model` 4.4, after
/// `CombinePerKeyTranslation`'s rule in the Python SDK). In `unbounded` input, whose rows are not gathered, a trigger that is ready
/// with each one must see each one; in late rows, as few as they are, it need not.
pub(crate) fn allows_lifting(trigger: &Trigger, unbounded: bool) -> bool {
    match trigger {
        Trigger::Default | Trigger::Never | Trigger::AfterProcessingTime(_) | Trigger::AfterSynchronizedProcessingTime => true,
        Trigger::Always | Trigger::ElementCount(1) => !unbounded,
        Trigger::AfterEndOfWindow { early, late } => {
            let allows = |part: &Option<Box<Trigger>>, unbounded| part.iter().all(|part| allows_lifting(part, unbounded));
            allows(early, unbounded) && allows(late, false)
        }
        Trigger::AfterAny(parts) => parts.iter().all(|part| allows_lifting(part, unbounded)),
        Trigger::Repeat(part) => allows_lifting(part, unbounded),
        Trigger::ElementCount(_) | Trigger::AfterAll(_) | Trigger::AfterEach(_) | Trigger::OrFinally(..) => false,
    }
}
