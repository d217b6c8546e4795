//! User state of bundles, one after another, on a reference ledger.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use executor::side_inputs::{PAGE_BYTES, SideInputs};
use executor::user_state::{BundleState, StageStates};
use ledger::memory::MemoryLedger;
use ledger::{Commit, ShardLedger};
use model::reader::{put_length_prefixed, put_varint};
use model::{Coder, Reader, ShardId, StageId, WindowCoder};
use plan::{Plan, StateKind};
use worker::{Error, Page, StateAccess, StateKey};

use crate::dice::Dice;
use crate::plans::{Plans, kv};
use crate::rig::create;

const STATEFUL: &str = "stateful";

/// A stage with a state of each kind.
fn plan() -> Plan {
    let mut plans = Plans::new();
    let stage = plans.impulse("stage", "source");
    plans.transform(stage, STATEFUL, "source", Some(("out", kv(), WindowCoder::Global)));
    plans.state(stage, "bag", StateKind::Bag { element: Some(Coder::Bytes) });
    plans.state(stage, "blob", StateKind::Bag { element: None });
    plans.state(stage, "map", StateKind::Multimap { value: Some(Coder::Bytes) });
    plans.state(stage, "set", StateKind::Multimap { value: None });
    plans.state(stage, "list", StateKind::OrderedList);
    plans.build()
}

/// A shard whose bundles follow each other.
struct Bundles {
    states: Arc<StageStates>,
    side_inputs: Arc<SideInputs>,
    ledger: Box<dyn ShardLedger>,
}

impl Bundles {
    fn new() -> Self {
        let (plan, job) = (plan(), create(&MemoryLedger::new(), 1));
        let mut ledger = job.shard(ShardId(0), Arc::new(|| {})).unwrap();
        ledger.recover().unwrap();
        let states = Arc::new(StageStates::of(&plan, StageId(0)));
        Bundles { states, side_inputs: Arc::new(SideInputs::new(&plan, job)), ledger }
    }

    fn begin(&self) -> BundleState {
        self.begin_bounded(1 << 30)
    }

    fn begin_bounded(&self, bytes_max: usize) -> BundleState {
        BundleState::new(self.states.clone(), self.ledger.state(), self.side_inputs.clone(), bytes_max)
    }

    fn commit(&mut self, bundle: &BundleState, expired: &[(Bytes, Bytes)]) {
        let state = bundle.finish(expired).unwrap();
        self.ledger.commit(&Commit { state, ..Commit::default() }).unwrap();
    }

    /// What there is of user state.
    fn cells(&self) -> Vec<(Bytes, Bytes)> {
        self.ledger.state().scan(b"u", b"v", usize::MAX, usize::MAX).unwrap()
    }
}

/// Which cell: a state, an encoded key and an encoded window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    state: &'static str,
    key: u8,
    window: u8,
}

impl Place {
    fn parts(self) -> (model::TransformId, String, Bytes, Bytes) {
        (STATEFUL.into(), self.state.to_owned(), encoded(self.window), encoded(self.key))
    }

    fn bag(self) -> StateKey {
        let (transform, state, window, key) = self.parts();
        StateKey::Bag { transform, state, window, key }
    }

    fn values(self, map_key: &[u8]) -> StateKey {
        let (transform, state, window, key) = self.parts();
        StateKey::Multimap { transform, state, window, key, map_key: Bytes::copy_from_slice(map_key) }
    }

    fn keys(self) -> StateKey {
        let (transform, state, window, key) = self.parts();
        StateKey::MultimapKeys { transform, state, window, key }
    }

    fn entries(self) -> StateKey {
        let (transform, state, window, key) = self.parts();
        StateKey::MultimapEntries { transform, state, window, key }
    }

    fn range(self, start: i64, end: i64) -> StateKey {
        let (transform, state, window, key) = self.parts();
        StateKey::OrderedList { transform, state, window, key, start, end }
    }
}

/// Encodings of which some are the beginning of others, as only a broken SDK would send them.
fn encoded(number: u8) -> Bytes {
    Bytes::copy_from_slice(&[1, 1, 1, 1][..usize::from(number)])
}

fn place(state: &'static str) -> Place {
    Place { state, key: 1, window: 0 }
}

fn element(content: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_length_prefixed(&mut bytes, content);
    bytes
}

fn entry(sort_key: i64, value: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    put_varint(&mut bytes, sort_key as u64);
    put_length_prefixed(&mut bytes, value);
    bytes
}

fn pages(state: &BundleState, key: &StateKey) -> Vec<Bytes> {
    let mut pages = Vec::new();
    let mut next = None;
    loop {
        let Page { data, next: more } = state.get(key, next.as_ref()).unwrap();
        pages.push(data);
        next = more;
        if next.is_none() {
            return pages;
        }
    }
}

fn read(state: &BundleState, key: &StateKey) -> Vec<u8> {
    pages(state, key).concat()
}

/// What a key of the model has, per kind: members, values by map key, or entries in order.
#[derive(Clone, Default)]
struct Model {
    bags: BTreeMap<Place, Vec<Vec<u8>>>,
    maps: BTreeMap<Place, BTreeMap<Vec<u8>, Vec<Vec<u8>>>>,
    lists: BTreeMap<Place, Vec<(i64, Vec<u8>)>>,
}

impl Model {
    fn expire(&mut self, key: u8, window: u8) {
        let other = |place: &Place| (place.key, place.window) != (key, window);
        self.bags.retain(|place, _| other(place));
        self.maps.retain(|place, _| other(place));
        self.lists.retain(|place, _| other(place));
    }

    fn is_empty(&self) -> bool {
        self.bags.values().all(Vec::is_empty) && self.maps.values().all(BTreeMap::is_empty) && self.lists.is_empty()
    }

    /// One request, to both; what is read must be the same.
    fn act(&mut self, dice: &mut Dice, state: &BundleState) {
        let kind = dice.one_of(&["bag", "blob", "map", "list"]);
        let place = Place { state: kind, key: dice.below(3) as u8, window: dice.below(3) as u8 };
        match kind {
            "map" => self.act_on_map(dice, place, state),
            "list" => self.act_on_list(dice, place, state),
            _ => self.act_on_bag(dice, place, state),
        }
    }

    fn act_on_bag(&mut self, dice: &mut Dice, place: Place, state: &BundleState) {
        let bag = self.bags.entry(place).or_default();
        match dice.below(6) {
            0 => {
                state.clear(&place.bag()).unwrap();
                bag.clear();
            }
            1 | 2 => {
                let added: Vec<Vec<u8>> = (0..dice.below(4)).map(|_| element(&content(dice))).collect();
                state.append(&place.bag(), added.concat().into()).unwrap();
                bag.extend(added);
            }
            _ => assert!(read(state, &place.bag()) == bag.concat()),
        }
    }

    fn act_on_map(&mut self, dice: &mut Dice, place: Place, state: &BundleState) {
        let map = self.maps.entry(place).or_default();
        let map_key = element(&vec![7; dice.below(4)]);
        match dice.below(8) {
            0 => {
                let all = if dice.chance(50) { place.keys() } else { place.entries() };
                state.clear(&all).unwrap();
                map.clear();
            }
            1 => {
                state.clear(&place.values(&map_key)).unwrap();
                map.remove(&map_key);
            }
            2 | 3 => {
                let added: Vec<Vec<u8>> = (0..1 + dice.below(3)).map(|_| element(&content(dice))).collect();
                state.append(&place.values(&map_key), added.concat().into()).unwrap();
                map.entry(map_key).or_default().extend(added);
            }
            4 => assert!(
                read(state, &place.values(&map_key)) == map.get(&map_key).map(|values| values.concat()).unwrap_or_default()
            ),
            5 => assert_eq!(read(state, &place.keys()), map.keys().flatten().copied().collect::<Vec<_>>()),
            _ => {
                let entry = |(key, values): (&Vec<u8>, &Vec<Vec<u8>>)| {
                    [&key[..], &(values.len() as i32).to_be_bytes(), &values.concat()].concat()
                };
                assert!(read(state, &place.entries()) == map.iter().flat_map(entry).collect::<Vec<_>>());
            }
        }
    }

    fn act_on_list(&mut self, dice: &mut Dice, place: Place, state: &BundleState) {
        let list = self.lists.entry(place).or_default();
        let bounds = [i64::MIN, -5, 0, 5, i64::MAX];
        let (start, end) = (dice.one_of(&bounds), dice.one_of(&bounds));
        let within = |sort_key: i64| start <= sort_key && sort_key < end;
        match dice.below(5) {
            0 => {
                state.clear(&place.range(start, end)).unwrap();
                list.retain(|(sort_key, _)| !within(*sort_key));
            }
            1 | 2 => {
                let keys = [i64::MIN, -6, -5, -1, 0, 1, 4, 5, 300, i64::MAX - 1];
                let added: Vec<_> = (0..dice.below(4)).map(|_| (dice.one_of(&keys), content(dice))).collect();
                let data: Vec<u8> = added.iter().flat_map(|(sort_key, value)| entry(*sort_key, value)).collect();
                state.append(&place.range(i64::MIN, i64::MAX), data.into()).unwrap();
                list.extend(added);
                list.sort_by_key(|(sort_key, _)| *sort_key);
            }
            _ => {
                let found = list.iter().filter(|(sort_key, _)| within(*sort_key));
                let expected: Vec<u8> = found.flat_map(|(sort_key, value)| entry(*sort_key, value)).collect();
                assert!(read(state, &place.range(start, end)) == expected);
            }
        }
        if list.is_empty() {
            self.lists.remove(&place);
        }
    }
}

/// Mostly small, sometimes larger than what is kept in one cell.
fn content(dice: &mut Dice) -> Vec<u8> {
    let length = if dice.chance(90) { dice.below(9) } else { dice.below(9_000) };
    vec![dice.below(256) as u8; length]
}

fn check(seed: u64) {
    println!("seed {seed}");
    let mut dice = Dice::new(seed);
    let (mut bundles, mut model) = (Bundles::new(), Model::default());
    for _ in 0..30 {
        let (state, before) = (bundles.begin(), model.clone());
        for _ in 0..dice.below(30) {
            model.act(&mut dice, &state);
        }
        if dice.chance(20) {
            // It failed.
            model = before;
            continue;
        }
        let mut expired = Vec::new();
        if dice.chance(30) {
            let (key, window) = (dice.below(3) as u8, dice.below(3) as u8);
            model.expire(key, window);
            expired.push((encoded(key), encoded(window)));
        }
        bundles.commit(&state, &expired);
    }
    let all: Vec<_> = (0..9u8).map(|number| (encoded(number / 3), encoded(number % 3))).collect();
    (0..9u8).for_each(|number| model.expire(number / 3, number % 3));
    assert!(model.is_empty());
    let last = bundles.begin();
    bundles.commit(&last, &all);
    assert_eq!(bundles.cells(), [], "expired state leaves nothing");
}

#[test]
fn random_bundles_read_what_they_and_those_before_have_written() {
    (0..60).for_each(check);
}

/// Pages are about as large as they should be, and their elements are whole.
fn check_pages(pages: &[Bytes], coder: &Coder, elements: usize) {
    let mut seen = 0;
    for page in pages {
        assert!(page.len() <= PAGE_BYTES + (300 << 10), "a page has {} bytes", page.len());
        let mut reader = Reader::new(page);
        while !reader.is_empty() {
            coder.skip(&mut reader).unwrap();
            seen += 1;
        }
    }
    assert_eq!(seen, elements);
}

#[test]
fn large_bags_are_read_in_pages_and_leave_nothing_when_cleared() {
    let mut bundles = Bundles::new();
    let bag = place("bag").bag();
    // One large append, and many small ones.
    let large: Vec<u8> = (0..20_000).flat_map(|_| element(&[1; 300])).collect();
    for round in 0..4 {
        let state = bundles.begin();
        match round {
            0 => state.append(&bag, large.clone().into()).unwrap(),
            _ => (0..1_000).for_each(|_| state.append(&bag, element(&[2; 500]).into()).unwrap()),
        }
        bundles.commit(&state, &[]);
    }
    let state = bundles.begin();
    let pages = pages(&state, &bag);
    assert!(pages.len() >= 7, "{} pages", pages.len());
    check_pages(&pages, &Coder::Bytes, 23_000);
    state.clear(&bag).unwrap();
    assert_eq!(read(&state, &bag), b"");
    bundles.commit(&state, &[]);
    assert_eq!(bundles.cells(), []);
}

#[test]
fn a_value_that_is_replaced_again_and_again_stays_one_cell() {
    let mut bundles = Bundles::new();
    for round in 0..50u8 {
        let state = bundles.begin();
        state.clear(&place("bag").bag()).unwrap();
        state.append(&place("bag").bag(), element(&[round; 100]).into()).unwrap();
        bundles.commit(&state, &[]);
        assert_eq!(bundles.cells().len(), 1);
    }
}

#[test]
fn small_appends_do_not_make_a_cell_each() {
    let mut bundles = Bundles::new();
    for _ in 0..1_000 {
        let state = bundles.begin();
        state.append(&place("bag").bag(), element(&[1; 40]).into()).unwrap();
        bundles.commit(&state, &[]);
    }
    let cells = bundles.cells().len();
    assert!(cells <= 10, "{cells} cells");
}

#[test]
fn large_maps_and_lists_are_read_in_pages() {
    let mut bundles = Bundles::new();
    let (map, list) = (place("map"), place("list"));
    let state = bundles.begin();
    for number in 0..300u32 {
        let map_key = element(&[&number.to_be_bytes()[..], &[7; 5_000]].concat());
        state.append(&map.values(&map_key), element(&[1; 3_000]).into()).unwrap();
        state.append(&map.values(&map_key), element(&[2; 3_000]).into()).unwrap();
        state.append(&list.range(0, 0), entry(i64::from(number % 7), &[3; 9_000]).into()).unwrap();
    }
    bundles.commit(&state, &[]);
    let state = bundles.begin();
    let entry_coder = Coder::Kv(Box::new(Coder::Bytes), Box::new(Coder::Iterable(Box::new(Coder::Bytes))));
    check_pages(&pages(&state, &map.keys()), &Coder::Bytes, 300);
    check_pages(&pages(&state, &map.entries()), &entry_coder, 300);
    let ordered = Coder::Kv(Box::new(Coder::VarInt), Box::new(Coder::Bytes));
    check_pages(&pages(&state, &list.range(i64::MIN, i64::MAX)), &ordered, 300);
    state.clear(&map.keys()).unwrap();
    state.clear(&list.range(i64::MIN, i64::MAX)).unwrap();
    bundles.commit(&state, &[(encoded(1), encoded(0))]);
    assert_eq!(bundles.cells(), []);
}

#[test]
fn members_of_a_set_are_there_although_they_have_no_value() {
    let mut bundles = Bundles::new();
    let set = place("set");
    let state = bundles.begin();
    state.append(&set.values(b"\x01a"), Bytes::new()).unwrap();
    state.append(&set.values(b"\x01b"), Bytes::from_static(&[0])).unwrap();
    bundles.commit(&state, &[]);
    let state = bundles.begin();
    assert_eq!(read(&state, &set.keys()), b"\x01a\x01b");
    state.clear(&set.values(b"\x01a")).unwrap();
    assert_eq!(read(&state, &set.keys()), b"\x01b");
}

fn text<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => "granted".to_owned(),
        Err(Error::Protocol(message)) => message,
        Err(other) => format!("{other:?}"),
    }
}

#[test]
fn what_a_stage_does_not_have_is_refused_by_name() {
    let bundles = Bundles::new();
    let state = bundles.begin();
    let elsewhere = StateKey::Bag { transform: "other".into(), state: "bag".into(), window: encoded(0), key: encoded(1) };
    assert_eq!(text(state.get(&elsewhere, None)), "other has no user state \"bag\" in stage 0");
    assert_eq!(text(state.append(&place("none").bag(), Bytes::new())), "stateful has no user state \"none\" in stage 0");
    let wrong = "stateful asks for its user state \"map\" as what it is not";
    assert_eq!(text(state.clear(&place("map").bag())), wrong);
    assert_eq!(
        text(state.get(&place("bag").bag(), Some(&encoded(2)))),
        "user state \"bag\" of stateful: foreign continuation token"
    );
    let last = state.append(&place("list").range(0, 0), entry(i64::MAX, b"").into());
    assert!(text(last).contains("the sort key 9223372036854775807 cannot be kept"));
    let cut = state.append(&place("list").range(0, 0), Bytes::from_static(&[1, 9]));
    assert!(text(cut).starts_with("user state \"list\" of stateful: malformed entry"));
    let keys = state.append(&place("map").keys(), Bytes::from_static(&[1, 9]));
    assert!(text(keys).contains("cannot be appended to in this way"));
    assert!(text(state.get(&StateKey::Runner { key: encoded(1) }, None)).contains("not a side input"));
}

#[test]
fn nothing_is_read_or_written_after_the_end() {
    let bundles = Bundles::new();
    let state = bundles.begin();
    state.finish(&[]).unwrap();
    let over = "state was asked for after the end of its bundle";
    assert_eq!(text(state.get(&place("bag").bag(), None)), over);
    assert_eq!(text(state.append(&place("bag").bag(), encoded(1))), over);
    assert_eq!(text(state.clear(&place("bag").bag())), over);
}

#[test]
fn a_bundle_that_writes_too_much_fails_and_says_so() {
    let bundles = Bundles::new();
    let state = bundles.begin_bounded(10_000);
    state.append(&place("bag").bag(), element(&[1; 5_000]).into()).unwrap();
    let refused = state.append(&place("blob").bag(), element(&[1; 5_000]).into());
    let message = "user state \"blob\" of stateful: a bundle changed more than 10000 bytes of user state; it has to be smaller";
    match refused {
        Err(Error::User { transform, message: said }) => assert_eq!((transform, &*said), (Some(STATEFUL.into()), message)),
        other => panic!("{other:?}"),
    }
    assert!(state.is_full());
    assert!(state.finish(&[]).is_err(), "whatever the SDK makes of that");
}
