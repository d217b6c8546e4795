//! From drafts to the stages of a [`Plan`]: inputs, sinks, readers, side inputs, in topological order.

use std::collections::BTreeSet;

use model::windowing::{Merging, WindowFn};
use model::{Coder, Keyed, StageId, TimeDomain, TransformId, WindowCoder};
use prost::Message;
use proto::pipeline::{TimerFamilySpec, time_domain};

use crate::coders::CoderRef;
use crate::flow::{Feed, Flow};
use crate::fuse::{Draft, DraftHead, Drafts};
use crate::graph::*;
use crate::lower::Lowering;
use crate::plan::*;

/// How many characters of transform names a stage is called by.
const NAME_CHARS_MAX: usize = 120;

/// What leaves one stage.
struct Leaving {
    /// In the order of sinks.
    collections: Vec<CollectionRef>,
    readers: Vec<Vec<Reader>>,
}

impl Lowering<'_> {
    /// The stages of the plan. The error is a fault of planning: the drafts wait for each other.
    pub(crate) fn cut(&mut self, flow: &Flow, mut drafts: Drafts) -> Result<Vec<Stage>, &'static str> {
        let feeds: Vec<Vec<Feed>> = drafts.list.iter().map(|draft| self.arriving(draft, flow)).collect();
        let order = self.topological(&feeds, flow, &drafts).ok_or("stages wait for each other")?;
        let mut number = vec![0; order.len()];
        for (index, &draft) in order.iter().enumerate() {
            number[draft] = index;
        }
        let mut leaving = self.leaving(&feeds, flow, &drafts);
        let mut inputs: Vec<Vec<Input>> = vec![Vec::new(); order.len()];
        for &to in &order {
            if let DraftHead::Script { script, output } = drafts.list[to].head {
                inputs[to].push(Input::Script { script, output });
            }
            for feed in &feeds[to] {
                let index = inputs[to].len() as u32;
                let Some(from) = self.main_producer(feed.origin, &drafts) else {
                    inputs[to].push(Input::Impulse);
                    continue;
                };
                let routing = match drafts.list[to].head {
                    DraftHead::Grouping(_) | DraftHead::Keyed => Routing::ByKey,
                    DraftHead::Restrictions => Routing::RoundRobin,
                    DraftHead::Plain | DraftHead::Script { .. } => feed.routing,
                };
                inputs[to].push(Input::Stage { stage: stage_id(number[from]), local: routing == Routing::Local });
                let reader = Reader::Main { stage: stage_id(number[to]), input: index, routing };
                leaving[from].readers_of(feed.origin).push(reader);
            }
        }
        let list = std::mem::take(&mut drafts.list);
        let side_inputs: Vec<Vec<SideInput>> =
            list.iter().map(|draft| self.side_inputs(draft, flow, &drafts, &leaving, &number)).collect();
        let mut parts: Vec<_> = list.into_iter().zip(inputs).zip(side_inputs).zip(leaving).map(Some).collect();
        let mut stages = Vec::with_capacity(order.len());
        for draft in order {
            let (((draft, inputs), side_inputs), leaving) = parts[draft].take().expect("each draft comes once");
            stages.push(self.stage(stage_id(stages.len()), &draft, flow, inputs, side_inputs, leaving));
        }
        Ok(stages)
    }

    /// What arrives at a draft.
    fn arriving(&self, draft: &Draft, flow: &Flow) -> Vec<Feed> {
        if let DraftHead::Script { .. } = draft.head {
            return Vec::new();
        }
        match flow.gathered.get(&draft.input) {
            Some(gathered) if !draft.has_body() && draft.head == DraftHead::Plain => gathered.clone(),
            _ => flow.feeds(draft.input),
        }
    }

    /// The draft that writes a main input; None for an Impulse, which every reader has for itself.
    fn main_producer(&self, origin: CollectionRef, drafts: &Drafts) -> Option<usize> {
        let producer = self.graph.collection(origin).producer?;
        match self.graph.node(producer).kind {
            Kind::Impulse => None,
            _ => drafts.producer(&self.graph, origin),
        }
    }

    /// What a side input is made of: distinct collections, each written by a stage.
    fn side_origins(&self, side: CollectionRef, flow: &Flow, drafts: &Drafts) -> Vec<(usize, CollectionRef)> {
        let made_whole = drafts.producer(&self.graph, side).map(|stage| vec![(stage, side)]);
        let of_parts = || {
            let feeds = flow.feeds(side).into_iter();
            feeds.filter_map(|feed| Some((drafts.producer(&self.graph, feed.origin)?, feed.origin))).collect()
        };
        made_whole.unwrap_or_else(of_parts)
    }

    fn sides<'g>(&'g self, draft: &'g Draft) -> impl Iterator<Item = (NodeRef, &'g Side)> {
        draft.nodes.iter().flat_map(|&at| self.graph.node(at).sides.iter().map(move |side| (at, side)))
    }

    /// Producers first; among those that are ready, the one that was drafted first.
    fn topological(&self, feeds: &[Vec<Feed>], flow: &Flow, drafts: &Drafts) -> Option<Vec<usize>> {
        let mut after: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); feeds.len()];
        let mut waits_for = vec![0; feeds.len()];
        for (to, draft) in drafts.list.iter().enumerate() {
            let mains = feeds[to].iter().filter_map(|feed| self.main_producer(feed.origin, drafts));
            let sides = self.sides(draft).flat_map(|(_, side)| self.side_origins(side.collection, flow, drafts));
            for from in mains.chain(sides.map(|(stage, _)| stage)) {
                if after[from].insert(to) {
                    waits_for[to] += 1;
                }
            }
        }
        let mut ready: BTreeSet<usize> = (0..feeds.len()).filter(|&draft| waits_for[draft] == 0).collect();
        let mut order = Vec::with_capacity(feeds.len());
        while let Some(draft) = ready.pop_first() {
            order.push(draft);
            for &next in &after[draft] {
                waits_for[next] -= 1;
                if waits_for[next] == 0 {
                    ready.insert(next);
                }
            }
        }
        (order.len() == feeds.len()).then_some(order)
    }

    /// The collections that leave each draft, without their main readers as yet.
    fn leaving(&self, feeds: &[Vec<Feed>], flow: &Flow, drafts: &Drafts) -> Vec<Leaving> {
        let mut collections: Vec<BTreeSet<CollectionRef>> = vec![BTreeSet::new(); feeds.len()];
        let mut sides = BTreeSet::new();
        for feed in feeds.iter().flatten() {
            if let Some(from) = self.main_producer(feed.origin, drafts) {
                collections[from].insert(feed.origin);
            }
        }
        for (_, side) in drafts.list.iter().flat_map(|draft| self.sides(draft)) {
            for (from, origin) in self.side_origins(side.collection, flow, drafts) {
                collections[from].insert(origin);
                sides.insert(origin);
            }
        }
        let readers = |collection: &CollectionRef| if sides.contains(collection) { vec![Reader::Side] } else { Vec::new() };
        let leaving = |set: BTreeSet<CollectionRef>| Leaving {
            readers: set.iter().map(readers).collect(),
            collections: set.into_iter().collect(),
        };
        collections.into_iter().map(leaving).collect()
    }

    fn side_inputs(&self, draft: &Draft, flow: &Flow, drafts: &Drafts, leaving: &[Leaving], number: &[usize]) -> Vec<SideInput> {
        let made = |(at, side): (NodeRef, &Side)| {
            let windowing = self.windowing(side.collection).clone();
            let origins = self.side_origins(side.collection, flow, drafts);
            let spec = side.spec.window_mapping_fn.clone().unwrap_or_default();
            SideInput {
                transform: TransformId::from(&self.graph.node(at).id),
                tag: side.tag.clone(),
                access_pattern: side.spec.access_pattern.clone().unwrap_or_default().urn,
                collection: self.graph.collection(side.collection).id.clone(),
                producers: origins.iter().map(|&(from, origin)| (stage_id(number[from]), leaving[from].index(origin))).collect(),
                coder: self.host(flow.wire[side.collection.0]),
                mapping: match windowing.window_fn {
                    WindowFn::Global => WindowMapping::ToGlobal,
                    WindowFn::Fixed { .. } | WindowFn::Sliding { .. } if windowing.merging != Merging::NeedsMerge => {
                        WindowMapping::ByEnd
                    }
                    _ => WindowMapping::Custom(spec.encode_to_vec().into()),
                },
                windowing,
            }
        };
        self.sides(draft).map(made).collect()
    }

    fn stage(
        &mut self,
        id: StageId,
        draft: &Draft,
        flow: &Flow,
        inputs: Vec<Input>,
        side_inputs: Vec<SideInput>,
        leaving: Leaving,
    ) -> Stage {
        let sink = |(index, (&collection, readers)): (usize, (&CollectionRef, &Vec<Reader>))| Sink {
            transform: TransformId::from(self.port_id(id, &format!("sink{index}"))),
            collection: self.graph.collection(collection).id.clone(),
            coder: self.host(flow.wire[collection.0]),
            windows: self.windows(collection),
            readers: readers.clone(),
        };
        let sinks: Vec<Sink> = leaving.collections.iter().zip(&leaving.readers).enumerate().map(sink).collect();
        let body = draft.has_body().then(|| self.body(id, draft, flow, &leaving.collections, &sinks));
        let families = body.as_ref().map_or(&[][..], |body| &body.timer_families);
        let merging = match draft.head {
            DraftHead::Grouping(_) => self.window_merging(id, draft.input),
            _ => None,
        };
        let truncation = match draft.head {
            DraftHead::Restrictions => body.as_ref().and_then(|body| self.truncation(id, body)),
            _ => None,
        };
        Stage {
            id,
            name: self.stage_name(draft),
            head: match draft.head {
                DraftHead::Plain => Head::Plain,
                DraftHead::Keyed => Head::Keyed(Box::new(self.keyed(draft, families))),
                DraftHead::Grouping(_) => Head::Grouping(Box::new(self.windowing(draft.input).clone())),
                DraftHead::Restrictions => Head::Restrictions { unbounded: self.graph.collection(draft.input).unbounded },
                DraftHead::Script { .. } => Head::Script,
            },
            inputs,
            input_coder: self.host(flow.wire[draft.input.0]),
            input_windows: self.windows(draft.input),
            side_inputs,
            merging,
            truncation,
            body,
            sinks,
        }
    }

    fn body(&mut self, id: StageId, draft: &Draft, flow: &Flow, leaving: &[CollectionRef], sinks: &[Sink]) -> Body {
        let source = TransformId::from(self.port_id(id, "source"));
        let transforms: Vec<Transform> = draft.nodes.iter().map(|&at| self.fused(at)).collect();
        Body {
            environment: transforms.first().expect("a body has transforms").environment,
            descriptor: self.descriptor(draft, flow, &source, leaving, sinks).into(),
            source,
            source_collection: self.graph.collection(draft.source).id.clone(),
            source_coder: self.host(flow.wire[draft.source.0]),
            source_windows: self.windows(draft.source),
            timer_families: self.timer_families(draft, flow),
            states: self.user_states(draft),
            transforms,
        }
    }

    fn fused(&self, at: NodeRef) -> Transform {
        let node = self.graph.node(at);
        let sdk = node.sdk().expect("a body has SDK transforms only");
        let do_fn = sdk.par_do.as_ref().and_then(|par_do| par_do.do_fn.clone()).unwrap_or_default();
        Transform {
            id: TransformId::from(&node.id),
            name: node.label.clone(),
            environment: sdk.environment.expect("planning ends earlier without one"),
            urn: sdk.message.spec.clone().unwrap_or_default().urn,
            dofn_urn: do_fn.urn,
            dofn_payload: do_fn.payload,
            input: self.graph.collection(node.main()).id.clone(),
            outputs: node.outputs.iter().map(|(tag, output)| (tag.clone(), self.graph.collection(*output).id.clone())).collect(),
        }
    }

    /// The families of the first transform: any other one with timers starts a stage of its own.
    fn timer_families(&self, draft: &Draft, flow: &Flow) -> Vec<TimerFamily> {
        let node = self.graph.node(*draft.nodes.first().expect("a body has transforms"));
        let par_do = node.sdk().and_then(|sdk| sdk.par_do.as_ref());
        let specs = par_do.iter().flat_map(|par_do| &par_do.timer_family_specs);
        let key = self.coders.kv(flow.wire[node.main().0]).map(|(key, _)| key);
        let family = |(family, spec): (&String, &TimerFamilySpec)| {
            Some(TimerFamily {
                transform: TransformId::from(&node.id),
                family: family.clone(),
                event_time: spec.time_domain == time_domain::Enum::EventTime as i32,
                key_coder: self.host(key?),
                window_coder: self.windows(node.main()),
            })
        };
        specs.filter_map(family).collect()
    }

    /// What governs a stage that is fed by key: what its first transform asks for.
    fn keyed(&self, draft: &Draft, families: &[TimerFamily]) -> Keyed {
        let domain = |family: &TimerFamily| if family.event_time { TimeDomain::Event } else { TimeDomain::Processing };
        let par_do = self.graph.node(draft.nodes[0]).sdk().and_then(|sdk| sdk.par_do.as_ref());
        let par_do = par_do.expect("what is keyed is a ParDo");
        let expiration = &par_do.on_window_expiration_timer_family_spec;
        Keyed {
            windowing: self.windowing(draft.input).clone(),
            timer_families: families.iter().map(domain).collect(),
            expiration_family: families.iter().position(|family| family.family == *expiration),
            time_sorted: par_do.requires_time_sorted_input,
        }
    }

    fn windowing(&self, collection: CollectionRef) -> &model::windowing::WindowingStrategy {
        &self.strategies.get(&self.graph.collection(collection).strategy).strategy
    }

    fn windows(&self, collection: CollectionRef) -> WindowCoder {
        self.windowing(collection).window_coder
    }

    pub(crate) fn host(&self, wire: CoderRef) -> Coder {
        crate::wire::host_form(&self.coders, wire).expect("a wire coder consists of what the host knows")
    }

    /// An id for a source or sink that no transform has.
    pub(crate) fn port_id(&self, stage: StageId, what: &str) -> String {
        let mut id = format!("stage{}/{what}", stage.0);
        while self.components.transforms.contains_key(&id) || self.origins.transforms.contains_key(&id) {
            id.push('#');
        }
        id
    }

    /// The names of its transforms without what is common to them.
    fn stage_name(&self, draft: &Draft) -> String {
        let grouping = match draft.head {
            DraftHead::Grouping(at) => Some(at),
            _ => None,
        };
        let mut names: Vec<&str> = grouping.iter().chain(&draft.nodes).map(|&at| self.graph.node(at).label.as_str()).collect();
        if names.is_empty() {
            let producer = self.graph.collection(draft.source).producer;
            names.extend(producer.map(|producer| self.graph.node(producer).label.as_str()));
        }
        shorten(&names)
    }
}

/// `A/B` and `A/C` become `A/{B, C}`, and long lists end in an ellipsis.
fn shorten(names: &[&str]) -> String {
    let [first, rest @ ..] = names else { return String::new() };
    let mut common = match rest {
        [] => 0,
        _ => first.rfind('/').map_or(0, |slash| slash + 1),
    };
    while common > 0 && !rest.iter().all(|name| name.starts_with(&first[..common])) {
        common = first[..common - 1].rfind('/').map_or(0, |slash| slash + 1);
    }
    let tails: Vec<&str> = names.iter().map(|name| &name[common..]).collect();
    let joined = match common {
        0 => tails.join(", "),
        _ => format!("{}{{{}}}", &first[..common], tails.join(", ")),
    };
    match joined.char_indices().nth(NAME_CHARS_MAX) {
        Some((end, _)) => format!("{}…", &joined[..end]),
        None => joined,
    }
}

fn stage_id(index: usize) -> StageId {
    StageId(u32::try_from(index).expect("a pipeline has fewer than 2^32 stages"))
}

impl Leaving {
    fn index(&self, collection: CollectionRef) -> u32 {
        self.collections.iter().position(|one| *one == collection).expect("every origin leaves its stage") as u32
    }

    fn readers_of(&mut self, collection: CollectionRef) -> &mut Vec<Reader> {
        let index = self.index(collection) as usize;
        &mut self.readers[index]
    }
}
