//! How stateful DoFns are called with batches of rows and of timers: as [`crate::runtime`], with keys.

use std::rc::Rc;

use crate::dofn::chain;
use crate::element::DecodeError;
use crate::manifest::keyed_description;
use crate::runtime::{Column, DueTimers, Edges, Failure, Instance, KeyedInput, KeyedOutcome, Outcome, Registered, Rejection};
use crate::state::{Call, FieldKind, FieldSpec, States, Store};
use crate::stateful::{EXPIRATION_FAMILY, FiredTimer, StatefulDoFn, Window};
use crate::timers::NO_HOLD_MS;
use crate::{Decode, Outputs, Reader};

/// Most bytes of states that an instance holds at once.
const STATE_BYTES_MAX: usize = 16 << 20;

impl Registered {
    /// The stateful DoFn of a type.
    pub const fn of_stateful<D: StatefulDoFn>() -> Self {
        Registered { description: keyed_description::<D>(), open: open::<D> }
    }
}

fn open<D: StatefulDoFn>(config: &[u8], flush_bytes: usize) -> Result<Box<dyn Instance>, Failure> {
    #[cfg(target_arch = "wasm32")]
    let store = crate::component::HostStore;
    #[cfg(not(target_arch = "wasm32"))]
    let store = crate::testing::Memory::of(D::State::FIELDS);
    Ok(Box::new(Keyed::<D>::new(config, flush_bytes, Box::new(store))?))
}

/// A stateful DoFn with what it is called with.
pub(crate) struct Keyed<D: StatefulDoFn> {
    dofn: D,
    state: D::State,
    call: Rc<Call>,
    pub(crate) outputs: D::Out,
    /// By number; the expiration of windows last.
    families: Vec<&'static str>,
}

impl<D: StatefulDoFn> Keyed<D> {
    pub(crate) fn new(config: &[u8], flush_bytes: usize, store: Box<dyn Store>) -> Result<Self, Failure> {
        let dofn = D::setup(config).map_err(|error| Failure(format!("setup: {}", chain(error.as_ref()))))?;
        let mut families: Vec<_> = names(|kind| kind.is_timer(), D::State::FIELDS).collect();
        let states = names(|kind| !kind.is_timer(), D::State::FIELDS).count();
        let call = Rc::new(Call::new(store, states as u32, families.len() as u32, STATE_BYTES_MAX));
        families.extend(D::ON_WINDOW_EXPIRATION.then_some(EXPIRATION_FAMILY));
        let (state, mut outputs) = (D::State::attach(&call), D::Out::new());
        crate::runtime::attach(&mut outputs, flush_bytes);
        Ok(Keyed { dofn, state, call, outputs, families })
    }

    #[inline]
    fn row(&mut self, input: &KeyedInput<'_>, row: usize, value: &[u8]) -> Result<(), Refused> {
        let run = input.runs.of(row)?;
        let cx = input.rows.context(row).of_run(input.runs.window(run), input.now_ms);
        self.call.enter(run, cx.timestamp());
        let mut reader = Reader::new(value);
        let element = <(D::Key<'_>, D::Value<'_>)>::decode(&mut reader)?;
        if !reader.is_empty() {
            return Err(Refused("decode", "malformed input element: bytes are left over".into()));
        }
        Ok(self.dofn.process(element, &cx, &mut self.state, &mut self.outputs)?)
    }

    fn timer(&mut self, due: &DueTimers<'_>, number: usize) -> Result<(), Refused> {
        let run = due.runs.of(number)?;
        let (key, window) = (due.runs.key(run)?, due.runs.window(run));
        let tag = if due.tags.ends.is_empty() { &[] } else { due.tags.get(number).unwrap_or_default() };
        let tag = std::str::from_utf8(tag).map_err(|_| DecodeError("the tag of a timer is not UTF-8"))?;
        let (family, fire_ms, hold_ms) = due.at(number)?;
        let name = *self.families.get(family as usize).ok_or(DecodeError("a timer of an unknown family"))?;
        let output_ms = if hold_ms < NO_HOLD_MS { hold_ms } else { fire_ms };
        self.call.enter(run, Some(output_ms));
        if self.call.timers.is_changed(family, tag) {
            return Ok(());
        }
        let mut reader = Reader::new(key);
        let key = D::Key::decode(&mut reader)?;
        if D::ON_WINDOW_EXPIRATION && family as usize + 1 == self.families.len() {
            return Ok(self.dofn.on_window_expiration(key, window, &mut self.state, &mut self.outputs)?);
        }
        let timer = FiredTimer { family: name, tag, fire_ms, hold_ms, output_ms, window };
        Ok(self.dofn.on_timer(key, &timer, &mut self.state, &mut self.outputs)?)
    }

    /// Rows and timers are refused alike.
    fn refuse(&mut self, row: u32, refused: Refused, rejected: &mut Vec<Rejection>) -> Result<(), Failure> {
        let Refused(code, detail) = refused;
        crate::runtime::withdraw(&mut self.outputs, row, &detail)?;
        rejected.push(Rejection { row, code, detail });
        Ok(())
    }

    fn take(&mut self, rows: usize, rejected: Vec<Rejection>) -> KeyedOutcome {
        let outcome = Outcome { rejected, ..crate::runtime::take(&mut self.outputs, Some(rows)) };
        KeyedOutcome { outcome, changes: self.call.take_changes(), timers: self.call.timers.take() }
    }
}

impl<D: StatefulDoFn> Instance for Keyed<D> {
    fn start_bundle(&mut self) -> Result<Outcome, Failure> {
        let dofn = &mut self.dofn;
        Edges(&mut self.outputs).run("start_bundle", |outputs| dofn.start_bundle(outputs))
    }

    fn process_keyed(&mut self, input: &KeyedInput<'_>) -> Result<KeyedOutcome, Failure> {
        let (mut rejected, mut start) = (Vec::new(), 0usize);
        self.call.begin(input.runs.count(), input.now_ms);
        for (row, end) in input.rows.ends.iter().enumerate() {
            let value = &input.rows.values[start..*end as usize];
            start = *end as usize;
            self.outputs.each(|output| output.begin_row(Some(row as u32)));
            if let Err(refused) = self.row(input, row, value) {
                self.refuse(row as u32, refused, &mut rejected)?;
            }
        }
        Ok(self.take(input.rows.ends.len(), rejected))
    }

    fn on_timers(&mut self, due: &DueTimers<'_>) -> Result<KeyedOutcome, Failure> {
        let mut rejected = Vec::new();
        self.call.begin(due.runs.count(), due.now_ms);
        for number in 0..due.fire.len() {
            self.outputs.each(|output| output.begin_row(Some(number as u32)));
            if let Err(refused) = self.timer(due, number) {
                self.refuse(number as u32, refused, &mut rejected)?;
            }
        }
        Ok(self.take(due.fire.len(), rejected))
    }

    fn finish_bundle(&mut self) -> Result<Outcome, Failure> {
        let dofn = &mut self.dofn;
        Edges(&mut self.outputs).run("finish_bundle", |outputs| dofn.finish_bundle(outputs))
    }

    fn teardown(&mut self) {
        self.dofn.teardown();
    }
}

fn names(wanted: fn(&FieldKind) -> bool, fields: &'static [FieldSpec]) -> impl Iterator<Item = &'static str> {
    fields.iter().filter(move |field| wanted(&field.kind)).map(|field| field.name)
}

/// Why a row or timer was refused: code and detail.
struct Refused(&'static str, String);

impl From<DecodeError> for Refused {
    fn from(error: DecodeError) -> Self {
        Refused("decode", format!("malformed input element: {error}"))
    }
}

impl From<crate::Error> for Refused {
    fn from(error: crate::Error) -> Self {
        Refused("user", chain(error.as_ref()))
    }
}

/// The keys and windows of a call: `keyed.runs`, and which of them each row has.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs, reason = "the fields are those of keyed.runs")]
pub struct Runs<'a> {
    pub key_bytes: &'a [u8],
    pub key_ends: &'a [u32],
    pub windows: Column<'a>,
    pub run_of: &'a [u32],
}

impl<'a> Runs<'a> {
    fn count(&self) -> usize {
        self.key_ends.len()
    }

    #[inline]
    fn of(&self, row: usize) -> Result<u32, DecodeError> {
        let run = self.run_of.get(row).copied().filter(|run| (*run as usize) < self.count());
        run.ok_or(DecodeError("a row has no run"))
    }

    fn key(&self, run: u32) -> Result<&'a [u8], DecodeError> {
        let keys = Column { bytes: self.key_bytes, ends: self.key_ends, index: &[] };
        keys.entry(run as usize).ok_or(DecodeError("a run has no key"))
    }

    #[inline]
    fn window(&self, run: u32) -> Window<'a> {
        Window::new(self.windows.get(run as usize).unwrap_or_default())
    }
}
