//! Checks of many jobs in one ledger.

use super::*;

checks![
    jobs_are_registered_described_and_removed,
    jobs_do_not_see_each_other,
    a_purged_job_is_empty,
    what_is_not_there_is_missing
];

fn record(job: &str, shards: u32, description: &str) -> JobRecord {
    JobRecord { job: JobId::from(job), shards, description: bytes(description) }
}

fn jobs_are_registered_described_and_removed(adapter: &mut dyn Adapter) {
    let ledger = adapter.ledger();
    assert_eq!(ledger.jobs().expect("listed"), []);
    let [a, b, c] = [record("a", 1, "first"), record("b/with strange name \u{e9}", 7, ""), record("c", 2, "third")];
    for record in [&c, &a, &b] {
        ledger.create(record.clone()).expect("created");
    }
    assert!(matches!(ledger.create(record("a", 9, "again")), Err(Error::Exists(_))));
    assert_eq!(ledger.jobs().expect("listed"), [a.clone(), b.clone(), c.clone()]);
    let large = Bytes::from(super::payloads::noise(3 << 20, 5));
    ledger.describe(&a.job, large.clone()).expect("described");
    ledger.remove(&c.job).expect("removed");
    let a = JobRecord { description: large, ..a };
    assert_eq!(ledger.jobs().expect("listed"), [a.clone(), b.clone()]);
    drop(ledger);
    if adapter.crash() {
        assert_eq!(adapter.ledger().jobs().expect("listed"), [a, b]);
        assert!(matches!(adapter.ledger().open(&c.job), Err(Error::Missing(_))));
    }
}

fn jobs_do_not_see_each_other(adapter: &mut dyn Adapter) {
    let names = ["one", "two"];
    let check = |adapter: &dyn Adapter, present: &[&str]| {
        for name in present {
            let job = adapter.ledger().open(&JobId::from(name)).expect("opened");
            let (owner, found) = recovered(&*job, 1);
            let texts: Vec<_> =
                found.entries.iter().map(|header| words(&owner.fetch(header.position).expect("fetched"))).collect();
            assert_eq!(texts, [format!("{name}-own"), format!("{name}-all")]);
            assert_eq!(found.reports.len(), 1);
            check_state(&*owner, &format!("job={name}"));
        }
    };
    for name in names {
        let job = adapter.ledger().create(record(name, 2, "")).expect("created");
        let mut shards = owners(&*job, 2);
        let mut first = entries(&*job, &[&format!("1:{name}-own"), &format!("*:{name}-all")]);
        first.extend(reports(&[(1, 0, 5)]));
        commit(&mut *shards[0], &first);
        commit(&mut *shards[1], &cells(&[&format!("job={name}")]));
    }
    check(adapter, &names);
    if adapter.crash() {
        check(adapter, &names);
    }
    adapter.ledger().remove(&JobId::from("one")).expect("removed");
    check(adapter, &["two"]);
    if adapter.crash() {
        check(adapter, &["two"]);
    }
}

fn a_purged_job_is_empty(adapter: &mut dyn Adapter) {
    let job = create(adapter, 2);
    let mut shards = owners(&*job, 2);
    let mut first = entries(&*job, &["1:a", "*:b", "0:c"]);
    first.extend(reports(&[(1, 0, 5)]));
    first.extend(cells(&["a=1"]));
    commit(&mut *shards[0], &first);
    let offset = recovered(&*job, 1).1.entries[1].position.offset;
    adapter.ledger().purge(&JobId::from("job")).expect("purged");
    assert!(shards[0].commit(&cells(&["a=2"])).is_err(), "an owner from before the purge is of no use");
    assert!(job.stage(batch("a")).is_err(), "so is the job");
    let check_empty = |adapter: &dyn Adapter| {
        let record = JobRecord { job: JobId::from("job"), shards: 2, description: bytes("a job") };
        assert_eq!(adapter.ledger().jobs().expect("listed"), [record]);
        let job = reopen(adapter);
        for shard in 0..2 {
            let (owner, found) = recovered(&*job, shard);
            assert_eq!(found, Recovered::default());
            check_state(&*owner, "");
        }
        assert!(matches!(job.fetch_broadcast(offset), Err(Error::Missing(_))));
    };
    check_empty(adapter);
    if adapter.crash() {
        check_empty(adapter);
    }
    let job = reopen(adapter);
    let (mut owner, _) = recovered(&*job, 0);
    commit(&mut *owner, &entries(&*job, &["0:again"]));
    check_arrivals(&mut *owner, &["again"]);
}

fn what_is_not_there_is_missing(adapter: &mut dyn Adapter) {
    let ledger = adapter.ledger();
    let nobody = JobId::from("nobody");
    assert!(matches!(ledger.open(&nobody), Err(Error::Missing(_))));
    assert!(matches!(ledger.describe(&nobody, Bytes::new()), Err(Error::Missing(_))));
    assert!(matches!(ledger.purge(&nobody), Err(Error::Missing(_))));
    assert!(matches!(ledger.remove(&nobody), Err(Error::Missing(_))));
    let job = create(adapter, 2);
    assert!(matches!(job.shard(ShardId(2), Arc::new(|| {})), Err(Error::Missing(_))));
    let (owner, _) = recovered(&*job, 0);
    let nowhere = Position { partition: Partition::Own, offset: 1 };
    assert!(matches!(owner.fetch(nowhere), Err(Error::Missing(_))));
}
