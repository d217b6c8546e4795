//! Runs a stage's fused transforms, for workers that do so themselves: which collection feeds which transform and sink, and
//! the order of a bundle.
//!
//! ```text
//!  start   transforms from the last to the first, so that what one emits finds its readers started
//!  process every batch, depth first: a batch goes through the whole body before the next one enters
//!  timers  those that are due, in their order, those of one transform together
//!  finish  from the first to the last, for the same reason
//! ```
//!
//! Batches are passed on as they are. Values are checked against their coder where a collection leaves the stage: nobody
//! inside depends on them.

use std::collections::BTreeMap;

use model::metrics::{MetricName, MetricValue};
use model::{Batch, Coder, FiredTimer, Reader, TransformId, urn};

use crate::outputs::{BATCH_BYTES, BATCH_ROWS};
use crate::{Error, Outputs, StageSpec};

/// URN of the metric that counts the elements of a collection.
pub const ELEMENT_COUNT: &str = "beam:metric:element_count:v1";

/// The body of a stage, resolved once.
#[derive(Debug, Default)]
pub struct Body {
    collections: Vec<Collection>,
    /// Collection of each transform's outputs, in the order of [`crate::TransformSpec::outputs`]; empty for a Flatten.
    outputs: Vec<Vec<usize>>,
    transforms: Vec<TransformId>,
    /// Indices of the transforms to run: all but Flattens.
    runs: Vec<usize>,
    /// The transform of each timer family.
    families: Vec<usize>,
}

#[derive(Debug)]
struct Collection {
    id: String,
    /// Transforms that read it.
    readers: Vec<usize>,
    /// Collections that it is a part of.
    parts_of: Vec<usize>,
    /// Sinks that take it, and how its elements look there.
    sinks: Vec<(usize, Coder)>,
}

/// What the transforms of a body do. The index is that of [`StageSpec::transforms`]; outputs come back in order, with the index
/// of [`crate::TransformSpec::outputs`].
pub trait Transforms {
    /// A bundle begins.
    fn start(&mut self, transform: usize) -> Result<Vec<(usize, Batch)>, Error>;
    /// Rows arrive.
    fn process(&mut self, transform: usize, input: &Batch) -> Result<Vec<(usize, Batch)>, Error>;
    /// Timers of the transform are due, in this order. Workers without timers leave this as it is.
    fn timers(&mut self, _transform: usize, _due: &[FiredTimer]) -> Result<Vec<(usize, Batch)>, Error> {
        Err(Error::Protocol("a timer is due in a worker that has none".to_owned()))
    }
    /// The bundle ends.
    fn finish(&mut self, transform: usize) -> Result<Vec<(usize, Batch)>, Error>;
}

impl Body {
    /// Resolves collections. Refuses a stage that is not what it must be: our bug, not the user's.
    pub fn of(spec: &StageSpec) -> Result<Body, Error> {
        let mut names = BTreeMap::new();
        let mut body = Body::default();
        body.add(&mut names, &spec.source.collection);
        for (index, transform) in spec.transforms.iter().enumerate() {
            let known = |name: &String| {
                let unknown = || {
                    Error::Protocol(format!("transform {} reads collection {name}, which nothing before it makes", transform.id))
                };
                names.get(name).copied().ok_or_else(unknown)
            };
            let input = known(&transform.input)?;
            let flatten = transform.urn == urn::FLATTEN;
            let outputs: Vec<usize> = transform.outputs.iter().map(|(_, name)| body.add(&mut names, name)).collect();
            if outputs.iter().any(|output| body.reaches(*output, input)) {
                return Err(Error::Protocol(format!("transform {} makes its own input", transform.id)));
            }
            if flatten {
                let [output] = outputs.as_slice() else {
                    return Err(Error::Protocol(format!("flatten {} has {} outputs", transform.id, outputs.len())));
                };
                body.collections[input].parts_of.push(*output);
            } else {
                body.collections[input].readers.push(index);
                body.runs.push(index);
            }
            body.outputs.push(if flatten { Vec::new() } else { outputs });
            body.transforms.push(transform.id.clone());
        }
        for (index, sink) in spec.sinks.iter().enumerate() {
            let name = &sink.port.collection;
            let unknown =
                || Error::Protocol(format!("sink {} takes collection {name}, which nothing makes", sink.port.transform));
            let collection = *names.get(name).ok_or_else(unknown)?;
            body.collections[collection].sinks.push((index, sink.port.coder.clone()));
        }
        for family in &spec.timer_families {
            let owner = body.transforms.iter().position(|transform| *transform == family.transform);
            let unknown = || Error::Protocol(format!("timers of transform {}, which the stage does not have", family.transform));
            body.families.push(owner.ok_or_else(unknown)?);
        }
        Ok(body)
    }

    fn add(&mut self, names: &mut BTreeMap<String, usize>, name: &str) -> usize {
        if let Some(known) = names.get(name) {
            return *known;
        }
        let index = self.collections.len();
        names.insert(name.to_owned(), index);
        self.collections.push(Collection { id: name.to_owned(), readers: Vec::new(), parts_of: Vec::new(), sinks: Vec::new() });
        index
    }

    /// Whether elements of one collection go on into another, or are the same.
    fn reaches(&self, from: usize, to: usize) -> bool {
        let collection = &self.collections[from];
        let made = collection.readers.iter().flat_map(|reader| &self.outputs[*reader]);
        from == to || collection.parts_of.iter().chain(made).any(|next| self.reaches(*next, to))
    }

    /// Runs one bundle without timers; the result are the element counts of its collections.
    pub fn run(
        &self,
        input: &[Batch],
        outputs: &mut Outputs,
        transforms: &mut dyn Transforms,
    ) -> Result<Vec<(MetricName, MetricValue)>, Error> {
        self.run_with_timers(input, &[], outputs, transforms)
    }

    /// Runs one bundle; the result are the element counts of its collections.
    pub fn run_with_timers(
        &self,
        input: &[Batch],
        timers: &[FiredTimer],
        outputs: &mut Outputs,
        transforms: &mut dyn Transforms,
    ) -> Result<Vec<(MetricName, MetricValue)>, Error> {
        let mut run = Run { body: self, outputs, transforms, counts: vec![0; self.collections.len()] };
        for transform in self.runs.iter().rev() {
            let made = run.transforms.start(*transform)?;
            run.deliver_all(*transform, made)?;
        }
        for batch in input {
            run.deliver(0, batch, "the stage's input")?;
        }
        if let Some(stray) = timers.iter().find(|timer| timer.family >= self.families.len()) {
            return Err(Error::Protocol(format!("a timer of family {}, which the stage does not have", stray.family)));
        }
        for due in timers.chunk_by(|one, next| self.families[one.family] == self.families[next.family]) {
            let transform = self.families[due[0].family];
            let made = run.transforms.timers(transform, due)?;
            run.deliver_all(transform, made)?;
        }
        for transform in &self.runs {
            let made = run.transforms.finish(*transform)?;
            run.deliver_all(*transform, made)?;
        }
        Ok(run.counts.iter().zip(&self.collections).map(|(count, collection)| element_count(&collection.id, *count)).collect())
    }
}

fn element_count(collection: &str, count: i64) -> (MetricName, MetricValue) {
    let labels = BTreeMap::from([("PCOLLECTION".to_owned(), collection.to_owned())]);
    (MetricName { urn: ELEMENT_COUNT.to_owned(), labels }, MetricValue::SumInt(count))
}

struct Run<'a> {
    body: &'a Body,
    outputs: &'a mut Outputs,
    transforms: &'a mut dyn Transforms,
    counts: Vec<i64>,
}

impl Run<'_> {
    fn deliver_all(&mut self, transform: usize, made: Vec<(usize, Batch)>) -> Result<(), Error> {
        let body = self.body;
        for (output, batch) in made {
            let unknown =
                || Error::Protocol(format!("transform {} made something for output {output}", body.transforms[transform]));
            let collection = *body.outputs[transform].get(output).ok_or_else(unknown)?;
            self.deliver(collection, &batch, body.transforms[transform].as_str())?;
        }
        Ok(())
    }

    fn deliver(&mut self, collection: usize, batch: &Batch, maker: &str) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let target = &self.body.collections[collection];
        self.counts[collection] += batch.rows() as i64;
        for (sink, coder) in &target.sinks {
            check_values(batch, coder).map_err(|reason| Error::User {
                transform: Some(TransformId::from(maker)),
                message: format!("{maker} made a malformed element for collection {}: {reason}", target.id),
            })?;
            self.outputs.push_batch(*sink, batch)?;
        }
        for whole in &target.parts_of {
            self.deliver(*whole, batch, maker)?;
        }
        for reader in &target.readers {
            let mut from = 0;
            while from < batch.rows() {
                let to = piece_end(batch, from);
                let made = self.transforms.process(*reader, &batch.slice(from..to))?;
                self.deliver_all(*reader, made)?;
                from = to;
            }
        }
        Ok(())
    }
}

/// Where a piece that begins with row `from` ends, so that it is not larger than a batch should be, or is one row.
fn piece_end(batch: &Batch, from: usize) -> usize {
    let start = batch.range(from).start;
    let rows = &batch.ends()[from..batch.rows().min(from + BATCH_ROWS)];
    from + rows.partition_point(|end| *end as usize - start <= BATCH_BYTES).max(1)
}

/// Every row must be exactly one value of the coder.
fn check_values(batch: &Batch, coder: &Coder) -> Result<(), String> {
    for row in 0..batch.rows() {
        let value = batch.value(row);
        let mut reader = Reader::new(value);
        let reason = match coder.skip(&mut reader) {
            Ok(()) if reader.is_empty() => continue,
            Ok(()) => "bytes are left over".to_owned(),
            Err(error) => error.to_string(),
        };
        return Err(format!("{reason} (row {row}, first bytes {})", hex(value)));
    }
    Ok(())
}

/// Bytes of a value that a message shows.
pub const SHOWN_BYTES: usize = 32;

/// The first bytes of a value, for messages.
pub fn hex(value: &[u8]) -> String {
    let shown: String = value.iter().take(SHOWN_BYTES).map(|byte| format!("{byte:02x}")).collect();
    match value.len() {
        0 => "none".to_owned(),
        length if length > SHOWN_BYTES => format!("0x{shown}.. of {length}"),
        _ => format!("0x{shown}"),
    }
}

#[cfg(test)]
mod tests {
    use model::batch::Row;
    use model::{BatchBuilder, Timestamp, pane, window};

    use super::*;

    fn batch(sizes: &[usize]) -> Batch {
        let mut builder = BatchBuilder::new();
        for size in sizes {
            let value = vec![0; *size];
            builder.push(Row { value: &value, timestamp: Timestamp::MIN, windows: window::GLOBAL_SET, pane: pane::NO_FIRING });
        }
        builder.finish()
    }

    #[test]
    fn large_batches_are_cut_and_large_rows_are_not() {
        let check =
            |sizes: &[usize], from, expected| assert_eq!(piece_end(&batch(sizes), from), expected, "{sizes:?} from {from}");
        check(&[1, 1, 1], 0, 3);
        check(&[BATCH_BYTES, 1], 0, 1);
        check(&[BATCH_BYTES + 1, 1, 1], 0, 1);
        check(&[BATCH_BYTES + 1, 1, 1], 1, 3);
        check(&[1, BATCH_BYTES + 1, 1], 0, 1);
    }

    #[test]
    fn stages_that_are_not_what_they_must_be_are_refused() {
        let port = |collection: &str| crate::PortSpec {
            transform: TransformId::from("port"),
            collection: collection.to_owned(),
            coder: Coder::Bytes,
            window_coder: model::WindowCoder::Global,
        };
        let check = |transforms: &[(&str, &str, &str)], sink: &str, expected: &str| {
            let transform = |(urn, input, output): &(&str, &str, &str)| crate::TransformSpec {
                id: TransformId::from(format!("{input}-{output}")),
                name: String::new(),
                urn: urn.to_string(),
                dofn_urn: String::new(),
                dofn_payload: bytes::Bytes::new(),
                environment: model::EnvironmentId(0),
                input: input.to_string(),
                outputs: vec![("out".to_owned(), output.to_string())],
            };
            let stage = StageSpec {
                stage: model::StageId(0),
                name: String::new(),
                environment: model::EnvironmentId(0),
                transforms: transforms.iter().map(transform).collect(),
                descriptor: bytes::Bytes::new(),
                source: port("in"),
                sinks: vec![crate::SinkSpec { port: port(sink), deliveries: Vec::new() }],
                timer_families: Vec::new(),
                splittable: false,
            };
            assert_eq!(Body::of(&stage).err().map(|error| error.to_string()).unwrap_or_default(), expected, "{transforms:?}");
        };
        let (par_do, flatten) = (urn::PAR_DO, urn::FLATTEN);
        check(&[], "in", "");
        check(&[], "a", "sink port takes collection a, which nothing makes");
        check(&[(par_do, "a", "b")], "b", "transform a-b reads collection a, which nothing before it makes");
        check(&[(par_do, "in", "in")], "in", "transform in-in makes its own input");
        check(
            &[(par_do, "in", "a"), (flatten, "a", "b"), (par_do, "b", "c"), (flatten, "c", "b")],
            "b",
            "transform c-b makes its own input",
        );
        check(&[(par_do, "in", "a"), (par_do, "in", "b"), (flatten, "a", "c"), (flatten, "b", "c")], "c", "");
    }

    #[test]
    fn values_show_their_first_bytes() {
        assert_eq!(hex(b""), "none");
        assert_eq!(hex(b"\x01\xff"), "0x01ff");
        assert_eq!(hex(&[0; 40]), format!("0x{}.. of 40", "00".repeat(32)));
    }
}
