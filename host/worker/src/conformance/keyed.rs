//! The cases of state and timers. Each is named for what must hold.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use model::{Batch, FiredTimer, RawTime, ShardId, Timestamp, TransformId, WindowCoder, pane};

use super::behaviour::{Behaviour, FAMILY, STATE, element};
use super::harness::{StageBuilder, Subject, batch, batches, contents, keyed_batch, run_keyed};
use crate::{Error, Page, Slot, StageSpec, StateAccess, StateKey, TimerChange};

/// Bags in memory, a page for each append.
#[derive(Default)]
struct Bags {
    bags: Mutex<BTreeMap<StateKey, Vec<Bytes>>>,
    /// Whether every request is refused.
    closed: bool,
}

impl Bags {
    fn change<T>(&self, key: &StateKey, change: impl FnOnce(&mut Vec<Bytes>) -> T) -> Result<T, Error> {
        let of_state = matches!(key, StateKey::Bag { transform, state, .. }
            if *transform == TransformId::from("Remember of in") && state == STATE);
        if self.closed || !of_state {
            return Err(Error::Protocol(format!("there is no such state: {key:?}")));
        }
        Ok(change(self.bags.lock().expect("no case panics with the lock").entry(key.clone()).or_default()))
    }
}

impl StateAccess for Bags {
    fn get(&self, key: &StateKey, from: Option<&Bytes>) -> Result<Page, Error> {
        let number = from.map_or(0, |token| usize::from(token[0]));
        self.change(key, |bag| {
            let data = bag.get(number).cloned().unwrap_or_default();
            Page { data, next: (number + 1 < bag.len()).then(|| Bytes::copy_from_slice(&[number as u8 + 1])) }
        })
    }

    fn append(&self, key: &StateKey, data: Bytes) -> Result<(), Error> {
        self.change(key, |bag| bag.push(data))
    }

    fn clear(&self, key: &StateKey) -> Result<(), Error> {
        self.change(key, Vec::clear)
    }
}

fn remembering(subject: &dyn Subject) -> (Arc<StageSpec>, Box<dyn Slot>) {
    open(subject, StageBuilder::new(subject).keyed().par_do(Behaviour::Remember, "in", "out").sink("out").build())
}

fn reminding(subject: &dyn Subject) -> (Arc<StageSpec>, Box<dyn Slot>) {
    let builder = StageBuilder::new(subject).keyed().par_do(Behaviour::Remind, "in", "out").timers(FAMILY).sink("out");
    open(subject, builder.build())
}

fn open(subject: &dyn Subject, stage: Arc<StageSpec>) -> (Arc<StageSpec>, Box<dyn Slot>) {
    let slot = subject.worker().open(stage.clone(), ShardId(0)).expect("the stage opens");
    (stage, slot)
}

/// Members one after another, as [`Behaviour::Remember`] emits them.
fn members(members: &[&[u8]]) -> Vec<u8> {
    members.iter().flat_map(|member| element(member)).collect()
}

/// What is read of the state after one bundle, and in a second one.
fn check(subject: &dyn Subject, first: &[&[u8]], second: &[&[u8]], expected: &[Vec<u8>]) {
    let (stage, mut slot) = remembering(subject);
    let bags: Arc<dyn StateAccess> = Arc::new(Bags::default());
    let mut read = Vec::new();
    for rows in [first, second] {
        let outcome =
            run_keyed(slot.as_mut(), &stage, (vec![keyed_batch(rows)], Vec::new()), &bags).expect("the bundle succeeds");
        read.extend(contents(&outcome, 0));
    }
    assert_eq!(read, expected);
}

/// Neither keys nor windows see each other's state. Rows 0 to 2 are in one window, row 3 is in the next.
pub fn state_is_kept_by_key_and_window(subject: &dyn Subject) {
    let nothing = Vec::new;
    let by_key = [members(&[b"a", b""]), members(&[b"b"]), nothing(), nothing()];
    check(subject, &[b"+1a", b"+2b", b"+1"], &[b"?1", b"?2", b"?3", b"?1"], &by_key);
    let by_window = [nothing(), nothing(), nothing(), members(&[b"c"])];
    check(subject, &[b"-1", b"-1", b"-1", b"+1c"], &[b"?1", b"?1", b"?1", b"?1"], &by_window);
}

/// Adding, clearing and adding again, within a bundle and over two.
pub fn a_bundle_reads_what_it_has_written(subject: &dyn Subject) {
    check(subject, &[b"+1a", b"+1b", b"?1"], &[b"+1c", b"?1"], &[members(&[b"a", b"b"]), members(&[b"a", b"b", b"c"])]);
    check(subject, &[b"+1a", b"-1", b"?1"], &[b"?1", b"+1b", b"?1"], &[Vec::new(), Vec::new(), members(&[b"b"])]);
    check(subject, &[b"+1a", b"-1", b"+1b"], &[b"?1", b"-1", b"?1"], &[members(&[b"b"]), Vec::new()]);
}

/// However many pages there are.
pub fn state_is_read_to_its_last_page(subject: &dyn Subject) {
    let (stage, mut slot) = remembering(subject);
    let bags: Arc<dyn StateAccess> = Arc::new(Bags::default());
    let mut all = Vec::new();
    for number in 0..100u8 {
        run_keyed(slot.as_mut(), &stage, (vec![keyed_batch(&[&[b'+', b'k', number]])], Vec::new()), &bags).expect("succeeds");
        all.extend(element(&[number]));
    }
    let outcome = run_keyed(slot.as_mut(), &stage, (vec![keyed_batch(&[b"?k"])], Vec::new()), &bags).expect("succeeds");
    assert_eq!(contents(&outcome, 0), [all]);
}

/// An error of the state, or of user code after it has changed the state, fails the bundle; the slot works on.
pub fn state_that_cannot_be_had_fails_the_bundle(subject: &dyn Subject) {
    let (stage, mut slot) = remembering(subject);
    let closed: Arc<dyn StateAccess> = Arc::new(Bags { closed: true, ..Bags::default() });
    let refused = run_keyed(slot.as_mut(), &stage, (vec![keyed_batch(&[b"?1"])], Vec::new()), &closed);
    let message = refused.expect_err("there is no state").to_string();
    assert!(message.contains("there is no such state"), "{message}");
    let open: Arc<dyn StateAccess> = Arc::new(Bags::default());
    let failed = run_keyed(slot.as_mut(), &stage, (vec![keyed_batch(&[b"!1a"])], Vec::new()), &open);
    assert!(matches!(failed, Err(Error::User { .. })), "{failed:?}");
    let open: Arc<dyn StateAccess> = Arc::new(Bags::default());
    let outcome = run_keyed(slot.as_mut(), &stage, (vec![keyed_batch(&[b"?1"])], Vec::new()), &open).expect("the slot works on");
    assert_eq!(contents(&outcome, 0), [Vec::<u8>::new()], "nothing is remembered from another bundle");
}

fn change(tag: &'static [u8], key: &[u8], set: Option<(i64, i64)>) -> TimerChange {
    let set = set.map(|(fire, hold)| (RawTime(fire), RawTime(hold), Bytes::from_static(pane::NO_FIRING)));
    TimerChange { family: 0, tag: Bytes::from_static(tag), key: element(key).into(), window: first_window(), set }
}

/// The window of rows 0 to 2 of [`batch`].
fn first_window() -> Bytes {
    let rows = batch(&[b""]);
    let windows = WindowCoder::Interval.windows_of(&rows.windows().entries()[0]).expect("the suite's windows are intervals");
    Bytes::copy_from_slice(windows[0])
}

/// What a bundle did to timers, last things last. Rows 0 to 2 have times 0 to 2.
pub fn changes_of_timers_come_out_in_order(subject: &dyn Subject) {
    let (stage, mut slot) = reminding(subject);
    let bags: Arc<dyn StateAccess> = Arc::new(Bags::default());
    let input = vec![keyed_batch(&[b"+1a", b"-1a", b"+2b"]), keyed_batch(&[b"+1a"])];
    let outcome = run_keyed(slot.as_mut(), &stage, (input, Vec::new()), &bags).expect("succeeds");
    let latest = |key: &[u8], tag: &[u8]| {
        let mut of_timer = outcome.timers.iter().rev().filter(|change| change.key == element(key) && change.tag == tag);
        of_timer.next().cloned()
    };
    let no_hold = Timestamp::MAX.millis();
    let both = [change(b"a", b"1", Some((0, no_hold))), change(b"b", b"2", Some((2, no_hold)))];
    assert_eq!([latest(b"1", b"a"), latest(b"2", b"b")], both.map(Some));
    assert!(outcome.timers.iter().all(|change| change.family == 0 && change.window == first_window()));
    let outcome = run_keyed(slot.as_mut(), &stage, (vec![keyed_batch(&[b"-1a"])], Vec::new()), &bags).expect("succeeds");
    assert_eq!(outcome.timers, [change(b"a", b"1", None)], "nothing is left of the bundle before");
}

/// Timers fire in the order given, with what they were set to, and may be set again.
pub fn timers_that_are_due_reach_their_dofn_in_order(subject: &dyn Subject) {
    let (stage, mut slot) = reminding(subject);
    let bags: Arc<dyn StateAccess> = Arc::new(Bags::default());
    let fired = |tag: &'static [u8], fire, hold| FiredTimer {
        family: 0,
        tag: Bytes::from_static(tag),
        key: element(b"1").into(),
        window: first_window(),
        fire: RawTime(fire),
        hold: RawTime(hold),
        pane: Bytes::from_static(pane::NO_FIRING),
    };
    let due = vec![fired(b"b", 3, 2), fired(b"a", 5, RawTime::NO_HOLD.0), fired(b"", 5, i64::MIN)];
    let outcome = run_keyed(slot.as_mut(), &stage, (Vec::new(), due), &bags).expect("succeeds");
    assert_eq!(contents(&outcome, 0), [b"fired b".to_vec(), b"fired a".to_vec(), b"fired ".to_vec()]);
    let times: Vec<i64> = batches(&outcome, 0).iter().flat_map(|batch| times(batch)).collect();
    assert_eq!(times, [3, 5, 5]);
    let again = [(&b"b"[..], (4, 2)), (b"a", (6, RawTime::NO_HOLD.0)), (b"", (6, i64::MIN))];
    assert_eq!(outcome.timers, again.map(|(tag, set)| change(tag, b"1", Some(set))), "times beyond Beam's bounds pass, too");
}

fn times(batch: &Batch) -> Vec<i64> {
    batch.iter().map(|row| row.timestamp.millis()).collect()
}
