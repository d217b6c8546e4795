//! Reading side inputs: by page, by key, by window; and how much of them is in memory.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use executor::side_inputs::PAGE_BYTES;
use model::Reader;
use model::windowing::WindowingStrategy;
use plan::WindowMapping;
use worker::outputs::key_hash;
use worker::{Error, StateKey};

use crate::dofns::{Access, Context, Faultless, TestWorker};
use crate::rig::{Rig, results};
use crate::rows::{Draft, decode, encode};

/// Runs `read` once, on a shard that may not have made the side input.
fn check(
    shards: u32,
    draft: &mut Draft,
    read: impl Fn(&mut Context<'_>) -> Result<(), Error> + Send + Sync + 'static,
) -> Vec<String> {
    draft.numbers("main", 1);
    let stage = draft.stage("reader", "main", None, move |_, context| read(context));
    draft.plans.side(stage, "reader", "side", WindowingStrategy::global(), WindowMapping::ToGlobal);
    let Draft { plans, dofns } = std::mem::take(draft);
    let rig = Rig::new(plans.build(), TestWorker::new(Arc::new(dofns), Arc::new(Faultless)), shards);
    results(&rig.by_hand().unwrap()).into_iter().filter(|line| line.starts_with("reader")).collect()
}

#[test]
fn a_large_side_input_is_read_in_pages() {
    const ROWS: usize = 25_600;
    const KEY_BYTES: usize = 4_090;
    let mut draft = Draft::default();
    // The rows are spread over the shards before they are broadcast.
    draft.numbers("seed", 100);
    draft.stage("grow", "seed", Some("side"), |row, context| {
        let (_, number) = decode(row.value);
        for copy in 0..ROWS as u64 / 100 {
            let mut key = vec![b'x'; KEY_BYTES];
            key[..8].copy_from_slice(&(number * 1_000 + copy).to_be_bytes());
            context.emit(model::batch::Row { value: &encode(&key, 1), ..row });
        }
        Ok(())
    });
    let found = check(4, &mut draft, |context| {
        let window = Bytes::new();
        let key = StateKey::IterableSideInput { transform: "reader".into(), side_input: "side".to_owned(), window };
        let (mut next, mut pages, mut bytes, mut distinct) = (None, 0, 0, BTreeSet::new());
        loop {
            let page = context.page(&key, next.as_ref())?;
            pages += 1;
            bytes += page.data.len();
            assert!(page.data.len() < PAGE_BYTES + KEY_BYTES + 8, "a page has {} bytes", page.data.len());
            let mut reader = Reader::new(&page.data);
            while !reader.is_empty() {
                distinct.insert(reader.length_prefixed().unwrap()[..8].to_vec());
                reader.varint().unwrap();
            }
            next = page.next;
            if next.is_none() {
                break;
            }
        }
        context.count("pages", pages);
        context.count("rows", distinct.len() as i64);
        context.count("megabytes", (bytes >> 20) as i64);
        Ok(())
    });
    assert_eq!(found, ["reader megabytes: 99", "reader pages: 100", &format!("reader rows: {ROWS}")]);
}

/// Two keys whose encodings have the same hash.
fn colliding() -> [Vec<u8>; 2] {
    let one = [0x18, 0x46, 0x00, 0x71, 0x16, 0xe1, 0x02, 0x79, 0x1c, 0x5e, 0xeb];
    let two = [0x08, 0x57, 0x05, 0x17, 0x21, 0x2f, 0x11, 0xe9, 0x11, 0x4e, 0xd0];
    let hash = |key: &[u8]| key_hash(&encode(key, 0)[..12]);
    assert_eq!(hash(&one), hash(&two));
    [one.to_vec(), two.to_vec()]
}

fn pairs(bytes: &[u8]) -> Vec<(Vec<u8>, Vec<u64>)> {
    let mut reader = Reader::new(bytes);
    let mut pairs = Vec::new();
    while !reader.is_empty() {
        let key = reader.length_prefixed().unwrap().to_vec();
        let mut values: Vec<u64> = (0..reader.be_i32().unwrap()).map(|_| reader.varint().unwrap()).collect();
        values.sort_unstable();
        pairs.push((key, values));
    }
    pairs.sort();
    pairs
}

#[test]
fn keys_are_told_apart_even_when_their_hashes_are_not() {
    let [one, two] = colliding();
    let rows = [(one.clone(), 1), (two.clone(), 2), (b"".to_vec(), 3), (one.clone(), 4), (two.clone(), 5), (b"c".to_vec(), 6)];
    let seen = Arc::new(Mutex::new(Vec::new()));
    let written = seen.clone();
    let mut draft = Draft::default();
    draft.source("side", rows);
    let keys = [one.clone(), two.clone(), b"".to_vec(), b"absent".to_vec()];
    check(1, &mut draft, move |context| {
        for key in &keys {
            let encoded = encode(key, 0);
            let values = context.side(Access::Values, &[], &encoded[..encoded.len() - 1])?;
            written.lock().unwrap().push(format!("{values:?}"));
        }
        let data = context.side(Access::Keys, &[], &[])?;
        let mut reader = Reader::new(&data);
        let mut found = BTreeSet::new();
        while !reader.is_empty() {
            assert!(found.insert(reader.length_prefixed().unwrap().to_vec()), "a key comes once");
        }
        assert_eq!(found, BTreeSet::from([one.clone(), two.clone(), b"".to_vec(), b"c".to_vec()]));
        let data = context.side(Access::KeysAndValues, &[], &[])?;
        let expected = [(b"".to_vec(), vec![3]), (two.clone(), vec![2, 5]), (one.clone(), vec![1, 4]), (b"c".to_vec(), vec![6])];
        assert_eq!(pairs(&data), expected);
        written.lock().unwrap().push("compared".to_owned());
        Ok(())
    });
    assert_eq!(*seen.lock().unwrap(), ["[1, 4]", "[2, 5]", "[3]", "[]", "compared"]);
}

/// One key with very many values is indexed and read in pages in reasonable time.
#[test]
fn a_key_may_have_many_values() {
    const VALUES: u64 = 300_000;
    let mut draft = Draft::default();
    draft.source("side", (0..VALUES).map(|number| (b"k".to_vec(), (1 << 40) + number)));
    let found = check(2, &mut draft, |context| {
        let data = context.side(Access::Values, &[], &encode(b"k", 0)[..2])?;
        let mut reader = Reader::new(&data);
        while !reader.is_empty() {
            reader.varint().unwrap();
            context.count("values", 1);
        }
        let all = pairs(&context.side(Access::KeysAndValues, &[], &[])?);
        context.count("keys", all.len() as i64);
        context.count("values with keys", all[0].1.len() as i64);
        Ok(())
    });
    assert_eq!(found, ["reader keys: 1", "reader values: 300000", "reader values with keys: 300000"]);
}

#[test]
fn what_is_not_there_is_a_fault_of_the_worker() {
    let mut draft = Draft::default();
    draft.numbers("side", 1);
    check(1, &mut draft, |context| {
        let (transform, side_input, window) = ("reader".into(), "other".to_owned(), Bytes::new());
        let error = context.read_all(&StateKey::IterableSideInput { transform, side_input, window }).unwrap_err();
        assert!(matches!(&error, Error::Protocol(text) if text == "reader has no side input other"), "{error:?}");
        let (transform, state, window, key) = ("reader".into(), "bag".to_owned(), Bytes::new(), Bytes::new());
        let error = context.read_all(&StateKey::Bag { transform, state, window, key }).unwrap_err();
        assert!(matches!(&error, Error::Protocol(_)), "{error:?}");
        let (transform, side_input) = ("reader".into(), "side".to_owned());
        let key = StateKey::IterableSideInput { transform, side_input, window: Bytes::new() };
        let error = context.page(&key, Some(&Bytes::from_static(b"nonsense?"))).unwrap_err();
        assert!(matches!(&error, Error::Protocol(_)), "{error:?}");
        assert_eq!(context.page(&key, Some(&Bytes::from_static(&[0xff; 8])))?, worker::Page::default(), "beyond the end");
        let elsewhere = context.side(Access::Elements, b"another window", &[])?;
        assert!(elsewhere.is_empty());
        Ok(())
    });
}
