//! Checks of the log: order, visibility, consumption, broadcast, reports.

use std::collections::BTreeSet;

use super::*;

checks![
    entries_arrive_in_the_order_of_their_producer,
    headers_are_kept_as_given,
    polls_are_bounded,
    reports_follow_the_entries_before_them,
    reports_reach_every_shard,
    reports_do_not_go_backwards,
    nothing_is_visible_before_the_commit,
    entries_are_consumed_by_ranges_of_rows,
    rows_are_consumed_once,
    a_refused_commit_changes_nothing,
    positions_are_never_used_twice,
    broadcast_entries_reach_every_shard_and_stay,
    an_append_without_rows_leaves_nothing,
];

fn entries_arrive_in_the_order_of_their_producer(adapter: &mut dyn Adapter) {
    let job = create(adapter, 3);
    let mut owners = owners(&*job, 3);
    for round in 0..10 {
        for (producer, owner) in owners.iter_mut().enumerate() {
            let line = |item| format!("1:{producer}-{round}-{item}");
            commit(&mut **owner, &entries(&*job, &[&line(0), "0:x", &line(1), "2:x"]));
        }
    }
    let found = entry_headers(&mut *owners[1], 60);
    assert!(found.windows(2).all(|pair| pair[0].position != pair[1].position));
    for producer in 0..3 {
        let from_producer = found.iter().filter(|header| header.producer.1 == ShardId(producer));
        let found: Vec<_> = from_producer.map(|header| words(&owners[1].fetch(header.position).expect("fetched"))).collect();
        let expected: Vec<_> = (0..20).map(|item| format!("{producer}-{}-{}", item / 2, item % 2)).collect();
        assert_eq!(found, expected);
    }
    check_nothing_arrives(&mut *owners[1]);
}

fn headers_are_kept_as_given(adapter: &mut dyn Adapter) {
    let job = create(adapter, 2);
    let mut owners = owners(&*job, 2);
    let staged = job.stage(batch("a b c")).expect("staged");
    let given = Append {
        to: Destination::Shard(ShardId(1)),
        stage: StageId(70_000),
        input: u32::MAX,
        producer: StageId(3),
        payload: staged.clone(),
        hold: Timestamp::MIN,
        window_end: Timestamp::from_millis(-1),
        not_before_ms: Some(i64::MIN),
    };
    commit(&mut *owners[0], &Commit { appends: vec![given.clone()], ..Commit::default() });
    let found = entry_headers(&mut *owners[1], 1).remove(0);
    assert_eq!(found, EntryHeader::new(&given, ShardId(0), found.position));
    assert_eq!((found.rows, found.bytes, found.position.partition), (3, staged.bytes, Partition::Own));
    assert_eq!(owners[1].fetch(found.position).expect("fetched"), batch("a b c"));
    assert_eq!(recovered(&*job, 1).1.entries, [found]);
}

fn polls_are_bounded(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let (mut owner, _) = recovered(&*job, 0);
    commit(&mut *owner, &entries(&*job, &["0:a", "0:b", "0:c"]));
    commit(&mut *owner, &reports(&[(1, 0, 5)]));
    let first = arrivals(&mut *owner, 1);
    assert_eq!(first.len(), 1);
    check_arrivals(&mut *owner, &["b", "c", "1/0@5"]);
}

fn reports_follow_the_entries_before_them(adapter: &mut dyn Adapter) {
    let job = create(adapter, 2);
    let mut owners = owners(&*job, 2);
    for round in 0..20 {
        let mut both = entries(&*job, &["1:own", "*:all"]);
        both.reports = reports(&[(1, 0, 10 * round)]).reports;
        commit(&mut *owners[0], &both);
        commit(&mut *owners[0], &entries(&*job, &["*:all"]));
        commit(&mut *owners[0], &reports(&[(1, 0, 10 * round + 1)]));
    }
    let mut entries_seen = 0;
    for arrival in arrivals(&mut *owners[1], 20 * 5) {
        match arrival {
            Arrival::Entry(_) => entries_seen += 1,
            Arrival::Watermark(report) => {
                let (round, step) = (report.watermark.millis() / 10, report.watermark.millis() % 10);
                assert!(entries_seen >= 3 * round + 2 + step, "a report of round {round} came after {entries_seen} entries only");
            }
        }
    }
}

fn reports_reach_every_shard(adapter: &mut dyn Adapter) {
    let job = create(adapter, 3);
    let mut owners = owners(&*job, 3);
    commit(&mut *owners[1], &reports(&[(1, 1, 5), (2, 1, 7)]));
    for owner in &mut owners {
        let found: BTreeSet<_> = arrivals(&mut **owner, 2).iter().map(|arrival| format!("{arrival:?}")).collect();
        assert_eq!(found.len(), 2);
    }
    for shard in 0..3 {
        let reports = recovered(&*job, shard).1.reports;
        let mut found: Vec<_> =
            reports.iter().map(|report| (report.stage.0, report.shard.0, report.watermark.millis())).collect();
        found.sort();
        assert_eq!(found, [(1, 1, 5), (2, 1, 7)]);
    }
}

fn reports_do_not_go_backwards(adapter: &mut dyn Adapter) {
    let job = create(adapter, 2);
    let mut owners = owners(&*job, 2);
    for millis in [5, 3, 5, 9, 7] {
        commit(&mut *owners[0], &reports(&[(1, 0, millis)]));
    }
    commit(&mut *owners[0], &reports(&[(1, 0, 20), (1, 0, 11)]));
    commit(&mut *owners[0], &entries(&*job, &["1:end"]));
    check_arrivals(&mut *owners[1], &["1/0@5", "1/0@9", "1/0@20", "end"]);
    let latest = |adapter: &dyn Adapter| recovered(&*reopen(adapter), 1).1.reports;
    assert_eq!(latest(adapter), reports(&[(1, 0, 20)]).reports);
    if adapter.crash() {
        assert_eq!(latest(adapter), reports(&[(1, 0, 20)]).reports);
    }
    let refused = owners_commit(adapter, &reports(&[(1, 0, 30)]));
    assert!(matches!(refused, Err(CommitError::Fatal(_))), "shard 1 cannot report for shard 0: {refused:?}");
}

fn owners_commit(adapter: &dyn Adapter, commit: &Commit) -> Result<(), CommitError> {
    recovered(&*reopen(adapter), 1).0.commit(commit)
}

fn nothing_is_visible_before_the_commit(adapter: &mut dyn Adapter) {
    let job = create(adapter, 2);
    let mut owners = owners(&*job, 2);
    let staged = entries(&*job, &["1:a", "*:b", "0:c"]);
    for owner in &mut owners {
        check_nothing_arrives(&mut **owner);
    }
    assert_eq!(recovered(&*job, 1).1, Recovered::default());
    let (mut one, _) = recovered(&*job, 1);
    commit(&mut *owners[0], &staged);
    check_arrivals(&mut *one, &["a", "b"]);
}

fn entries_are_consumed_by_ranges_of_rows(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let (mut owner, _) = recovered(&*job, 0);
    commit(&mut *owner, &entries(&*job, &["0:a b c d e f g h", "0:x"]));
    let found = entry_headers(&mut *owner, 2);
    let position = found[0].position;
    assert_eq!(found[0].remaining, [0..8]);
    commit(&mut *owner, &consume(position, &[1..2, 4..6]));
    assert_eq!(owner.fetch(position).expect("some rows remain"), batch("a b c d e f g h"));
    // In one commit twice, as when bundles are grouped.
    let mut twice = consume(position, &[0..1]);
    twice.extend(consume(position, &[7..8]));
    commit(&mut *owner, &twice);
    let check_left = |recovered: Recovered| {
        assert_eq!(recovered.entries.len(), 2);
        let header = EntryHeader { remaining: vec![2..4, 6..7], ..found[0].clone() };
        assert_eq!(recovered.entries[0], header);
        assert_eq!(recovered.entries[1], found[1]);
    };
    check_left(recovered(&*job, 0).1);
    if adapter.crash() {
        check_left(recovered(&*reopen(adapter), 0).1);
    }
    let (mut owner, _) = recovered(&*reopen(adapter), 0);
    commit(&mut *owner, &consume(position, &[2..4, 6..7]));
    assert!(matches!(owner.fetch(position), Err(Error::Missing(_))), "the entry is forgotten");
    check_nothing_arrives(&mut *owner);
    let gone = |adapter: &dyn Adapter| assert_eq!(recovered(&*reopen(adapter), 0).1.entries, [found[1].clone()]);
    gone(adapter);
    if adapter.crash() {
        gone(adapter);
    }
}

fn rows_are_consumed_once(adapter: &mut dyn Adapter) {
    let job = create(adapter, 2);
    let mut owners = owners(&*job, 2);
    commit(&mut *owners[0], &entries(&*job, &["1:a b c d"]));
    let position = entry_headers(&mut *owners[1], 1)[0].position;
    commit(&mut *owners[1], &consume(position, &[1..2]));
    let mut twice = consume(position, &[0..1]);
    twice.extend(consume(position, &[0..1]));
    let elsewhere = Position { partition: Partition::Broadcast, ..position };
    let unordered = consume(position, &[3..4, 2..3]);
    for wrong in [consume(position, &[0..2]), consume(position, &[3..5]), unordered, twice, consume(elsewhere, &[0..1])] {
        let refused = owners[1].commit(&wrong);
        assert!(matches!(refused, Err(CommitError::Fatal(_))), "{:?} was answered with {refused:?}", wrong.consumed);
    }
    let refused = owners[0].commit(&consume(position, &[0..1]));
    assert!(matches!(refused, Err(CommitError::Fatal(_))), "the entry is another shard's: {refused:?}");
    assert_eq!(recovered(&*job, 1).1.entries[0].remaining, [0..1, 2..4]);
}

fn a_refused_commit_changes_nothing(adapter: &mut dyn Adapter) {
    let job = create(adapter, 2);
    let mut owners = owners(&*job, 2);
    commit(&mut *owners[0], &entries(&*job, &["0:a"]));
    let position = entry_headers(&mut *owners[0], 1)[0].position;
    let mut wrong = entries(&*job, &["1:x", "*:y", "2:nowhere"]);
    wrong.extend(consume(position, &[0..1]));
    wrong.extend(cells(&["a=1"]));
    wrong.extend(reports(&[(1, 0, 5)]));
    assert!(matches!(owners[0].commit(&wrong), Err(CommitError::Fatal(_))));
    let check_unchanged = |adapter: &dyn Adapter| {
        let job = reopen(adapter);
        let (owner, found) = recovered(&*job, 0);
        assert_eq!((found.entries.len(), found.reports.len()), (1, 0));
        check_state(&*owner, "");
        assert_eq!(recovered(&*job, 1).1, Recovered::default());
    };
    for owner in &mut owners {
        check_nothing_arrives(&mut **owner);
    }
    check_unchanged(adapter);
    if adapter.crash() {
        check_unchanged(adapter);
    }
}

fn positions_are_never_used_twice(adapter: &mut dyn Adapter) {
    create(adapter, 1);
    let mut last: Option<Position> = None;
    for round in 0..4 {
        let job = reopen(adapter);
        let (mut owner, _) = recovered(&*job, 0);
        for _ in 0..3 {
            commit(&mut *owner, &entries(&*job, &["0:a", "0:b"]));
            for header in entry_headers(&mut *owner, 2) {
                assert!(last.is_none_or(|last| last < header.position), "{:?} after {last:?}", header.position);
                last = Some(header.position);
                commit(&mut *owner, &consume(header.position, &[0..1]));
            }
        }
        if round == 1 {
            adapter.crash();
        }
        if round == 2 {
            adapter.ledger().purge(&JobId::from("job")).expect("purged");
        }
    }
}

fn broadcast_entries_reach_every_shard_and_stay(adapter: &mut dyn Adapter) {
    let job = create(adapter, 3);
    let mut shards = owners(&*job, 3);
    commit(&mut *shards[2], &entries(&*job, &["*:a b", "*:c"]));
    let mut offsets = Vec::new();
    for owner in &mut shards {
        let found = entry_headers(&mut **owner, 2);
        assert!(found.iter().all(|header| header.position.partition == Partition::Broadcast));
        assert_eq!(words(&owner.fetch(found[0].position).expect("fetched")), "a b");
        offsets.push(found.iter().map(|header| header.position.offset).collect::<Vec<_>>());
    }
    assert!(offsets.iter().all(|seen| *seen == offsets[0]), "all shards see the same offsets: {offsets:?}");
    let position = Position { partition: Partition::Broadcast, offset: offsets[0][0] };
    commit(&mut *shards[0], &consume(position, &[0..2]));
    commit(&mut *shards[1], &consume(position, &[1..2]));
    let check_left = |adapter: &dyn Adapter| {
        let job = reopen(adapter);
        let left = |shard| recovered(&*job, shard).1.entries.iter().map(|header| header.remaining.clone()).collect::<Vec<_>>();
        assert_eq!(left(0), [[0..1]]);
        assert_eq!(left(1), [[0..1], [0..1]]);
        assert_eq!(left(2), [[0..2], [0..1]]);
    };
    check_left(adapter);
    if adapter.crash() {
        check_left(adapter);
    }
    let job = reopen(adapter);
    let mut shards = owners(&*job, 3);
    commit(&mut *shards[1], &consume(position, &[0..1]));
    commit(&mut *shards[2], &consume(position, &[0..2]));
    // From any thread, after everybody is done with it.
    let fetched = std::thread::scope(|scope| scope.spawn(|| job.fetch_broadcast(offsets[0][0])).join());
    assert_eq!(words(&fetched.expect("no panic").expect("broadcast entries stay")), "a b");
    assert!(matches!(job.fetch_broadcast(u64::MAX), Err(Error::Missing(_))));
}

fn an_append_without_rows_leaves_nothing(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let (mut owner, _) = recovered(&*job, 0);
    commit(&mut *owner, &entries(&*job, &["0:", "*:", "0:a"]));
    check_arrivals(&mut *owner, &["a"]);
    assert_eq!(recovered(&*job, 0).1.entries.len(), 1);
}
