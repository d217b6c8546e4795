//! Combine per key: combined before and after the grouping where that changes nothing but the amount of data
//! (`beam-model` 4.4).

use model::urn;
use model::windowing::OutputTime;
use prost::Message;
use proto::pipeline::{CombinePayload, FunctionSpec, PTransform};

use super::{Lowering, Next, Refused};
use crate::coders::{CoderRef, ITERABLE, KV};
use crate::graph::*;
use crate::windowing::allows_lifting;

impl Lowering<'_> {
    /// Lifted if it may be; otherwise as it expands itself, or, if it does not, as grouping and combining of groups.
    pub(super) fn combine_per_key(&mut self, id: &str, transform: &PTransform) -> Result<Next, Refused> {
        let Some(combine) = self.simple_combine(id, transform)? else {
            return if transform.subtransforms.is_empty() {
                Err(self.refuse(transform, "it is a combine of a form that is unknown here", "the pipeline is malformed"))
            } else {
                Ok(Next::Descend)
            };
        };
        let input = self.graph.collection(combine.input);
        let strategy = &self.strategies.get(&input.strategy).strategy;
        // Combined before, an element that is late takes its time from those that are not.
        let keeps_times = strategy.output_time != OutputTime::Earliest || !input.unbounded;
        let lifts = allows_lifting(&strategy.trigger, input.unbounded) && keeps_times;
        match combine.accumulator {
            Some(accumulator) if lifts => self.lifted(combine, accumulator),
            _ if !transform.subtransforms.is_empty() => Ok(Next::Descend),
            _ => self.grouped(combine),
        }
    }

    /// The combine, if it is one of keyed values without side inputs.
    fn simple_combine(&mut self, id: &str, transform: &PTransform) -> Result<Option<Combine>, Refused> {
        if transform.inputs.len() != 1 || transform.outputs.len() != 1 {
            return Ok(None);
        }
        let spec = transform.spec.clone().unwrap_or_default();
        let Ok(payload) = CombinePayload::decode(spec.payload.clone()) else { return Ok(None) };
        let input = self.only_input(transform)?;
        let (output_tag, output) = self.only_output(transform)?;
        let Some((key, value)) = self.coders.kv(self.graph.collection(input).coder) else { return Ok(None) };
        let accumulator = match payload.accumulator_coder_id.as_str() {
            "" => None,
            id => match self.coders.lookup(id) {
                Ok(accumulator) => Some(accumulator),
                Err(fault) => {
                    return Err(self.refuse(transform, format!("its accumulators: {fault}"), "the pipeline is malformed"));
                }
            },
        };
        let transform = PTransform {
            spec: Some(FunctionSpec { urn: String::new(), payload: spec.payload }),
            environment_id: self.environment_within(transform),
            ..transform.clone()
        };
        Ok(Some(Combine { id: id.to_owned(), transform, input, output_tag, output, key, value, accumulator }))
    }

    /// Its own environment or, where composites have none, that of the first part that has one.
    fn environment_within(&self, transform: &PTransform) -> String {
        let mut open = vec![transform];
        let mut seen = std::collections::BTreeSet::new();
        while let Some(part) = open.pop() {
            if !part.environment_id.is_empty() {
                return part.environment_id.clone();
            }
            let fresh = part.subtransforms.iter().rev().filter(|id| seen.insert(id.as_str())).collect::<Vec<_>>();
            open.extend(fresh.into_iter().filter_map(|id| self.components.transforms.get(id)));
        }
        String::new()
    }

    fn lifted(&mut self, combine: Combine, accumulator: CoderRef) -> Result<Next, Refused> {
        let accumulated = self.coder(&combine, |coders| coders.make(KV, &[combine.key, accumulator]))?;
        let grouped = self.coder(&combine, |coders| {
            let all = coders.make(ITERABLE, &[accumulator])?;
            coders.make(KV, &[combine.key, all])
        })?;
        let (input, output) = (combine.input, combine.output);
        let unbounded = |lowering: &Self, like: CollectionRef| lowering.graph.collection(like).unbounded;
        let of_input = unbounded(self, input);
        let of_output = unbounded(self, output);
        let precombined = self.made_up_collection(format!("{}/Precombine.out", combine.id), accumulated, input, of_input);
        let groups = self.made_up_collection(format!("{}/Group.out", combine.id), grouped, output, of_output);
        let merged = self.made_up_collection(format!("{}/Merge.out", combine.id), accumulated, output, of_output);
        self.part(&combine, "Precombine", Some(urn::COMBINE_PRECOMBINE), input, precombined)?;
        self.part(&combine, "Group", None, precombined, groups)?;
        self.part(&combine, "Merge", Some(urn::COMBINE_MERGE_ACCUMULATORS), groups, merged)?;
        self.part(&combine, "ExtractOutputs", Some(urn::COMBINE_EXTRACT_OUTPUTS), merged, output)?;
        Ok(Next::Done)
    }

    fn grouped(&mut self, combine: Combine) -> Result<Next, Refused> {
        let grouped = self.coder(&combine, |coders| {
            let all = coders.make(ITERABLE, &[combine.value])?;
            coders.make(KV, &[combine.key, all])
        })?;
        let unbounded = self.graph.collection(combine.output).unbounded;
        let groups = self.made_up_collection(format!("{}/Group.out", combine.id), grouped, combine.output, unbounded);
        self.part(&combine, "Group", None, combine.input, groups)?;
        self.part(&combine, "CombineValues", Some(urn::COMBINE_GROUPED_VALUES), groups, combine.output)?;
        Ok(Next::Done)
    }

    fn coder(
        &mut self,
        combine: &Combine,
        make: impl FnOnce(&mut crate::coders::Coders<'_>) -> Result<CoderRef, crate::coders::CoderFault>,
    ) -> Result<CoderRef, Refused> {
        match make(&mut self.coders) {
            Ok(coder) => Ok(coder),
            Err(fault) => Err(self.refuse(&combine.transform, fault.to_string(), "the pipeline is malformed")),
        }
    }

    /// Adds one part; a grouping if there is no URN.
    fn part(
        &mut self,
        combine: &Combine,
        name: &str,
        urn: Option<&str>,
        from: CollectionRef,
        to: CollectionRef,
    ) -> Result<(), Refused> {
        let id = self.made_up_id(&combine.id, name);
        let tag = if to == combine.output { combine.output_tag.clone() } else { "out".to_owned() };
        let message = PTransform {
            spec: Some(FunctionSpec {
                urn: urn.unwrap_or(urn::GROUP_BY_KEY).to_owned(),
                payload: combine.transform.spec.clone().unwrap_or_default().payload,
            }),
            subtransforms: Vec::new(),
            inputs: [("in".to_owned(), self.graph.collection(from).id.clone())].into(),
            outputs: [(tag, self.graph.collection(to).id.clone())].into(),
            unique_name: format!("{}/{name}", combine.transform.unique_name),
            ..combine.transform.clone()
        };
        match urn {
            None => self.one_to_one(&id, &message, Kind::GroupByKey)?,
            Some(_) => self.sdk(&id, &message)?,
        };
        self.graph.nodes.last_mut().expect("it was just added").name = combine.transform.unique_name.clone();
        Ok(())
    }
}

struct Combine {
    id: String,
    /// The composite, with its payload and an environment.
    transform: PTransform,
    input: CollectionRef,
    output_tag: String,
    output: CollectionRef,
    key: CoderRef,
    value: CoderRef,
    accumulator: Option<CoderRef>,
}
