//! What has to be known of each transform once the graph is in order: where it runs, what its inputs must look like, and what
//! of it this build cannot do.

use std::collections::BTreeSet;

use model::windowing::{Merging, WindowFn, WindowingStrategy};
use model::{EnvironmentId, WindowCoder, urn};
use proto::pipeline::{FunctionSpec, PTransform};

use crate::coders::{BYTES, ITERABLE, KV, LENGTH_PREFIX};
use crate::graph::*;
use crate::lower::Lowering;

const MALFORMED: &str = "the pipeline is malformed";

impl Lowering<'_> {
    /// Goes through the sorted graph once. Returns for each node the environment nearest to its output: its own, or that of
    /// what feeds it.
    pub(crate) fn settle(&mut self) -> Vec<Option<EnvironmentId>> {
        let mut nearest: Vec<Option<EnvironmentId>> = vec![None; self.graph.nodes.len()];
        for at in self.graph.order.clone() {
            let feeding = self.graph.node(at).mains.iter().filter_map(|&main| self.graph.collection(main).producer);
            let upstream = feeding.filter_map(|producer| nearest[producer.0]).next();
            nearest[at.0] = upstream;
            match self.graph.node(at).kind {
                Kind::Impulse => self.check_impulse(at),
                Kind::Script(_) => self.check_script(at),
                Kind::GroupByKey => self.check_grouping(at),
                Kind::Redistribute { by_key } => {
                    if by_key && !self.has_keys(self.graph.node(at).main()) {
                        self.note(at, "it redistributes by key, and its input has no keys", "give it key-value pairs");
                    }
                    self.check_windows_agree(at);
                }
                Kind::Flatten => {
                    self.check_windows_agree(at);
                    self.unwrap_single_flatten(at, upstream);
                }
                Kind::Sdk(_) => nearest[at.0] = self.settle_sdk(at, upstream),
            }
        }
        nearest
    }

    fn note(&mut self, at: NodeRef, what: impl Into<String>, hint: &str) {
        let name = self.graph.node(at).name.clone();
        self.problems.at(&name, what, hint);
    }

    fn has_keys(&self, collection: CollectionRef) -> bool {
        self.coders.kv(self.graph.collection(collection).coder).is_some()
    }

    fn strategy(&self, collection: CollectionRef) -> &WindowingStrategy {
        &self.strategies.get(&self.graph.collection(collection).strategy).strategy
    }

    fn check_impulse(&mut self, at: NodeRef) {
        let output = self.graph.node(at).outputs[0].1;
        let coder = self.coders.value(self.graph.collection(output).coder).urn.clone();
        if ![BYTES, LENGTH_PREFIX].contains(&coder.as_str()) || self.strategy(output).window_coder != WindowCoder::Global {
            self.note(
                at,
                "an impulse is an empty byte string in the global window, and its output is declared otherwise",
                MALFORMED,
            );
        }
    }

    fn check_script(&mut self, at: NodeRef) {
        for (_, output) in self.graph.node(at).outputs.clone() {
            if self.strategy(output).window_coder != WindowCoder::Global {
                self.note(at, "a TestStream emits in the global window, and its output is declared otherwise", MALFORMED);
            }
        }
    }

    fn check_grouping(&mut self, at: NodeRef) {
        let (input, output) = (self.graph.node(at).main(), self.graph.node(at).outputs[0].1);
        self.check_windows_agree(at);
        self.check_boundary(at, input);
        let Some((key, value)) = self.coders.kv(self.graph.collection(input).coder) else {
            let urn = self.coders.value(self.graph.collection(input).coder).urn.clone();
            let hint = "give it key-value pairs, in Python with a type hint where it cannot tell";
            return self.note(at, format!("it groups by key, and the coder of its input has no keys ({urn})"), hint);
        };
        // Groups are put together from the input's bytes, so they are what the input's coder says they are.
        let grouped = self.coders.make(ITERABLE, &[value]).and_then(|values| self.coders.make(KV, &[key, values]));
        match grouped {
            Ok(grouped) => {
                let collection = &mut self.graph.collections[output.0];
                if collection.coder != grouped {
                    collection.coder = grouped;
                    collection.coder_id = self.coders.id(grouped).to_owned();
                }
            }
            Err(fault) => self.note(at, fault.to_string(), MALFORMED),
        }
    }

    /// Merging, where panes are made.
    fn check_boundary(&mut self, at: NodeRef, input: CollectionRef) {
        let strategy = self.strategy(input);
        let nobody_to_ask = matches!(strategy.window_fn, WindowFn::Custom { environment: None, .. });
        if nobody_to_ask && strategy.merging == Merging::NeedsMerge {
            self.note(at, "its window function names no environment that can merge its windows", MALFORMED);
        }
    }

    /// Elements pass through runner transforms as bytes, windows included.
    fn check_windows_agree(&mut self, at: NodeRef) {
        let node = self.graph.node(at);
        let coder = |collection: CollectionRef| self.strategies.get(&self.graph.collection(collection).strategy).coder;
        let output = coder(node.outputs[0].1);
        if node.mains.iter().any(|&main| coder(main) != output) {
            self.note(at, "the windows of its inputs and of its output have different coders", "window all inputs alike");
        }
    }

    /// A Flatten of one collection is an SDK's own affair if an SDK makes that collection: it costs no hop then.
    fn unwrap_single_flatten(&mut self, at: NodeRef, environment: Option<EnvironmentId>) {
        let node = self.graph.node(at);
        let [input] = node.mains[..] else { return };
        let produced_by_sdk =
            self.graph.collection(input).producer.is_some_and(|producer| self.graph.node(producer).sdk().is_some());
        let same_coder = self.graph.collection(input).coder == self.graph.collection(node.outputs[0].1).coder;
        let Some(environment) = environment else { return };
        if produced_by_sdk && (same_coder || !self.environments.is_wasm(environment)) {
            let sdk = flatten_in_sdk(&node.label, environment);
            let node = Node { kind: Kind::Sdk(Box::new(sdk)), ..node.clone() };
            self.graph.nodes[at.0] = node.with_ports("in", &self.graph);
        }
    }

    fn settle_sdk(&mut self, at: NodeRef, upstream: Option<EnvironmentId>) -> Option<EnvironmentId> {
        let otherwise = upstream.or_else(|| self.environments.only()).or_else(|| self.reading(at));
        let Kind::Sdk(sdk) = &mut self.graph.nodes[at.0].kind else { return upstream };
        // Old SDKs name no environment for some transforms (`beam-model` trap 35).
        sdk.environment = sdk.environment.or(otherwise);
        let (environment, keyed) = (sdk.environment, sdk.is_keyed());
        if environment.is_none() {
            self.note(at, "it names no environment to run in", MALFORMED);
        }
        let main = self.graph.node(at).main();
        if keyed && !self.has_keys(main) {
            self.note(
                at,
                "it has state, timers or sorted input, and the coder of its input has no keys",
                "give it key-value pairs",
            );
        }
        if keyed && self.strategy(main).merging == Merging::NeedsMerge {
            self.note(at, "it has state or timers, and its windows merge", "group by key before it, or use other windows");
        }
        for side in self.graph.node(at).sides.clone() {
            self.check_side_input(at, &side);
        }
        environment
    }

    /// The environment of the first transform downstream that names one with an SDK.
    fn reading(&self, at: NodeRef) -> Option<EnvironmentId> {
        let mut reached = BTreeSet::from([at]);
        for &next in self.graph.order.iter().skip_while(|&&next| next != at).skip(1) {
            let node = self.graph.node(next);
            let reads =
                |main: &CollectionRef| self.graph.collection(*main).producer.is_some_and(|producer| reached.contains(&producer));
            if !node.mains.iter().any(reads) {
                continue;
            }
            match node.sdk().and_then(|sdk| sdk.environment) {
                Some(environment) if !self.environments.is_wasm(environment) => return Some(environment),
                _ => drop(reached.insert(next)),
            }
        }
        None
    }

    fn check_side_input(&mut self, at: NodeRef, side: &Side) {
        let pattern = side.spec.access_pattern.clone().unwrap_or_default().urn;
        match pattern.as_str() {
            urn::SIDE_INPUT_ITERABLE => {}
            urn::SIDE_INPUT_MULTIMAP if self.has_keys(side.collection) => {}
            urn::SIDE_INPUT_MULTIMAP => {
                let what = format!("its side input \"{}\" is read by key, and its coder has no keys", side.tag);
                self.note(at, what, "give it key-value pairs");
            }
            _ => {
                let what = format!("its side input \"{}\" is read in a way that is unknown here (\"{pattern}\")", side.tag);
                self.note(at, what, "read it as an iterable or a multimap");
            }
        }
        self.check_boundary(at, side.collection);
    }
}

/// A Flatten with one input, which every SDK executes: it turns elements of one coder into elements of another.
pub(crate) fn flatten_in_sdk(name: &str, environment: EnvironmentId) -> Sdk {
    let spec = FunctionSpec { urn: urn::FLATTEN.into(), payload: Default::default() };
    let message = PTransform { spec: Some(spec), unique_name: name.to_owned(), ..Default::default() };
    Sdk { message, environment: Some(environment), par_do: None, role: Role::Ordinary }
}
