//! Checks of payloads: large ones, staged ones, shared ones.

use super::*;

checks![
    a_large_payload_survives,
    a_staged_payload_is_freed_when_it_is_dropped,
    a_consumed_payload_is_freed,
    one_payload_may_go_to_many_shards,
    a_payload_in_memory_is_committed_too,
    payloads_beyond_memory_are_kept,
];

/// What may stay behind when payloads are freed: buffers and files that are not full yet.
const SLACK_BYTES: u64 = 100 << 20;
/// Times that more is staged and dropped until space must be free: storage may be busy with the very files.
const DROPS_MAX: u64 = 50;

/// Bytes that do not compress.
pub(super) fn noise(count: usize, seed: u64) -> Vec<u8> {
    let mut random = super::history::Random::new(seed);
    let mut bytes = Vec::with_capacity(count + 8);
    while bytes.len() < count {
        bytes.extend_from_slice(&random.next().to_le_bytes());
    }
    bytes.truncate(count);
    bytes
}

fn large(count: usize, seed: u64) -> Batch {
    let mut rows = BatchBuilder::new();
    for value in noise(count, seed).chunks(count.div_ceil(4)) {
        rows.push(Row { value, timestamp: Timestamp::MIN, windows: window::GLOBAL_SET, pane: pane::NO_FIRING });
    }
    rows.finish()
}

fn one(to: u32, payload: Staged) -> Commit {
    Commit { appends: vec![append(Destination::Shard(ShardId(to)), payload)], ..Commit::default() }
}

fn a_large_payload_survives(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let (mut owner, _) = recovered(&*job, 0);
    let rows = large(100 << 20, 1);
    let staged = job.stage(rows.clone()).expect("staged");
    commit(&mut *owner, &one(0, staged));
    let header = entry_headers(&mut *owner, 1).remove(0);
    assert!(owner.fetch(header.position).expect("fetched") == rows, "a large payload was changed");
    if adapter.crash() {
        let (owner, _) = recovered(&*reopen(adapter), 0);
        assert!(owner.fetch(header.position).expect("fetched") == rows, "a large payload was changed by a crash");
    }
}

/// What is held once another commit has had the chance to free what it can.
fn held(adapter: &dyn Adapter, job: &dyn JobLedger) -> Option<u64> {
    let (mut owner, _) = recovered(job, 0);
    commit(&mut *owner, &cells(&["now=free"]));
    adapter.payload_bytes()
}

/// What was dropped is freed, if not at once then with what is dropped later.
fn check_freed(adapter: &dyn Adapter, job: &dyn JobLedger, before: u64) {
    let mut after = held(adapter, job).expect("told before");
    for round in 0..DROPS_MAX {
        if after <= before + SLACK_BYTES {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
        drop((0..8).map(|seed| job.stage(large(5 << 20, 100 * round + seed)).expect("staged")).collect::<Vec<_>>());
        after = held(adapter, job).expect("told before");
    }
    panic!("{after} bytes stay held when all but one payload are gone, {before} before");
}

fn a_staged_payload_is_freed_when_it_is_dropped(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let Some(before) = held(adapter, &*job) else { return };
    let staged: Vec<_> = (0..60).map(|seed| job.stage(large(5 << 20, seed)).expect("staged")).collect();
    let during = adapter.payload_bytes().expect("told before");
    assert!(during >= before + (250 << 20), "{during} bytes are held with 300 MB staged");
    let kept = staged[3].clone();
    drop(staged);
    check_freed(adapter, &*job, before);
    let (mut owner, _) = recovered(&*job, 0);
    commit(&mut *owner, &one(0, kept));
    let header = entry_headers(&mut *owner, 1).remove(0);
    assert!(owner.fetch(header.position).expect("fetched") == large(5 << 20, 3));
}

fn a_consumed_payload_is_freed(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let Some(before) = held(adapter, &*job) else { return };
    let (mut owner, _) = recovered(&*job, 0);
    for round in 0..60 {
        commit(&mut *owner, &one(0, job.stage(large(5 << 20, round)).expect("staged")));
        let header = entry_headers(&mut *owner, 1).remove(0);
        commit(&mut *owner, &consume(header.position, &[0..2, 2..4]));
    }
    check_freed(adapter, &*job, before);
}

fn one_payload_may_go_to_many_shards(adapter: &mut dyn Adapter) {
    let job = create(adapter, 2);
    let mut shards = owners(&*job, 2);
    let staged = job.stage(batch("a b")).expect("staged");
    let destinations = [Destination::Shard(ShardId(0)), Destination::Shard(ShardId(1)), Destination::Shard(ShardId(1))];
    let appends = destinations.into_iter().chain([Destination::Broadcast]).map(|to| append(to, staged.clone())).collect();
    commit(&mut *shards[0], &Commit { appends, ..Commit::default() });
    let first = entry_headers(&mut *shards[0], 2).remove(0);
    commit(&mut *shards[0], &consume(first.position, &[0..2]));
    drop(staged);
    check_arrivals(&mut *shards[1], &["a b", "a b", "a b"]);
    if adapter.crash() {
        let (owner, found) = recovered(&*reopen(adapter), 1);
        assert!(found.entries.iter().all(|header| words(&owner.fetch(header.position).expect("fetched")) == "a b"));
        assert_eq!(found.entries.len(), 3);
    }
}

fn a_payload_in_memory_is_committed_too(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let (mut owner, _) = recovered(&*job, 0);
    commit(&mut *owner, &one(0, Staged::in_memory(batch("small"))));
    commit(&mut *owner, &one(0, Staged::in_memory(large(3 << 20, 1))));
    let found = entry_headers(&mut *owner, 2);
    assert_eq!(words(&owner.fetch(found[0].position).expect("fetched")), "small");
    assert!(owner.fetch(found[1].position).expect("fetched") == large(3 << 20, 1));
}

fn payloads_beyond_memory_are_kept(adapter: &mut dyn Adapter) {
    let job = create(adapter, 2);
    let mut shards = owners(&*job, 2);
    let staged: Vec<_> = (0..50).map(|seed| job.stage(large(1 << 20, seed)).expect("staged")).collect();
    for staged in staged {
        let mut both = one(1, staged.clone());
        both.appends.push(append(Destination::Broadcast, staged));
        commit(&mut *shards[0], &both);
    }
    for _ in 0..2 {
        let (owner, found) = recovered(&*job, 1);
        assert_eq!(found.entries.len(), 100);
        for (number, header) in found.entries.iter().enumerate() {
            let rows = owner.fetch(header.position).expect("fetched");
            assert!(rows == large(1 << 20, number as u64 % 50), "payload {number} was changed");
        }
    }
}
