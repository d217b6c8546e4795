//! Checks of ownership: taking over, waking, crashes.

use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

checks![
    an_earlier_owner_is_fenced,
    an_owner_starts_where_the_one_before_stood,
    nothing_arrives_twice,
    a_commit_wakes_whoever_it_reaches,
    shards_commit_at_the_same_time,
    a_crash_keeps_whole_commits_only,
];

fn an_earlier_owner_is_fenced(adapter: &mut dyn Adapter) {
    let job = create(adapter, 2);
    let mut first = recovered(&*job, 0).0;
    let mut other = recovered(&*job, 1).0;
    commit(&mut *first, &cells(&["a=1"]));
    let mut second = recovered(&*job, 0).0;
    let mut late = entries(&*job, &["0:late", "1:late"]);
    late.extend(cells(&["a=2"]));
    late.extend(reports(&[(1, 0, 5)]));
    for _ in 0..2 {
        let answer = first.commit(&late);
        assert!(matches!(answer, Err(CommitError::Fenced)), "{answer:?}");
    }
    commit(&mut *other, &entries(&*job, &["0:for the owner"]));
    check_nothing_arrives(&mut *first);
    check_arrivals(&mut *second, &["for the owner"]);
    check_nothing_arrives(&mut *first);
    check_nothing_arrives(&mut *other);
    check_state(&*second, "a=1");
    commit(&mut *second, &cells(&["a=3"]));
    check_state(&*second, "a=3");
}

fn an_owner_starts_where_the_one_before_stood(adapter: &mut dyn Adapter) {
    let job = create(adapter, 2);
    let mut shards = owners(&*job, 2);
    commit(&mut *shards[0], &entries(&*job, &["1:a", "1:b", "*:c"]));
    commit(&mut *shards[1], &entries(&*job, &["1:d"]));
    commit(&mut *shards[0], &reports(&[(1, 0, 5)]));
    let seen = entry_headers(&mut *shards[1], 1).remove(0);
    let found = recovered(&*job, 1).1;
    let positions: Vec<_> = found.entries.iter().map(|header| header.position).collect();
    assert!(positions.is_sorted(), "{positions:?}");
    let (mut owner, again) = recovered(&*job, 1);
    assert_eq!(found, again);
    assert_eq!(again.reports, reports(&[(1, 0, 5)]).reports);
    assert!(again.entries.contains(&seen));
    let mut texts: Vec<_> = again.entries.iter().map(|header| words(&owner.fetch(header.position).expect("fetched"))).collect();
    texts.sort();
    assert_eq!(texts, ["a", "b", "c", "d"]);
    commit(&mut *shards[0], &entries(&*job, &["1:e"]));
    check_arrivals(&mut *owner, &["e"]);
}

fn nothing_arrives_twice(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let mut owner = recovered(&*job, 0).0;
    commit(&mut *owner, &entries(&*job, &["0:before"]));
    let (mut owner, found) = recovered(&*job, 0);
    assert_eq!(found.entries.len(), 1);
    commit(&mut *owner, &entries(&*job, &["0:after"]));
    check_arrivals(&mut *owner, &["after"]);
}

fn a_commit_wakes_whoever_it_reaches(adapter: &mut dyn Adapter) {
    let job = create(adapter, 3);
    let wakes: Vec<_> = (0..3).map(|_| Arc::new(AtomicU64::new(0))).collect();
    let take = |shard: u32| {
        let count = wakes[shard as usize].clone();
        let wake = Arc::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        });
        let mut owner = job.shard(ShardId(shard), wake).expect("taken over");
        owner.recover().expect("recovered");
        owner
    };
    let mut owners: Vec<_> = (0..3).map(take).collect();
    let mut check_woken = |shards: &[u32], commits: &Commit| {
        let before: Vec<_> = wakes.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        commit(&mut *owners[0], commits);
        let started = Instant::now();
        for shard in shards {
            while wakes[*shard as usize].load(Ordering::SeqCst) == before[*shard as usize] {
                assert!(started.elapsed() < PATIENCE, "shard {shard} was not woken");
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    };
    check_woken(&[1], &entries(&*job, &["1:a"]));
    check_woken(&[1], &entries(&*job, &["1:again, though nobody has polled"]));
    check_woken(&[0], &entries(&*job, &["0:a"]));
    check_woken(&[0, 1, 2], &entries(&*job, &["*:a"]));
    check_woken(&[0, 1, 2], &reports(&[(1, 0, 5)]));
}

fn shards_commit_at_the_same_time(adapter: &mut dyn Adapter) {
    const SHARDS: u32 = 4;
    const ROUNDS: usize = 100;
    let job = create(adapter, SHARDS);
    let owners = owners(&*job, SHARDS);
    let job = &job;
    // Everybody sends to everybody, then takes what has come; nobody waits for anybody while committing.
    let totals: Vec<usize> = std::thread::scope(|scope| {
        let run = |(shard, mut owner): (usize, Box<dyn ShardLedger>)| {
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let lines: Vec<_> = (0..SHARDS).map(|to| format!("{to}:{shard}-{round}")).collect();
                    let mut sent = entries(&**job, &lines.iter().map(String::as_str).collect::<Vec<_>>());
                    sent.extend(cells(&[&format!("round={round}")]));
                    commit(&mut *owner, &sent);
                }
                let mut next = [0; SHARDS as usize];
                let found = entry_headers(&mut *owner, ROUNDS * SHARDS as usize);
                for header in &found {
                    let producer = header.producer.1.0 as usize;
                    let expected = format!("{producer}-{}", next[producer]);
                    assert_eq!(words(&owner.fetch(header.position).expect("fetched")), expected);
                    next[producer] += 1;
                    commit(&mut *owner, &consume(header.position, &[0..1]));
                }
                check_nothing_arrives(&mut *owner);
                found.len()
            })
        };
        let threads: Vec<_> = owners.into_iter().enumerate().map(run).collect();
        threads.into_iter().map(|thread| thread.join().expect("a shard got everything in order")).collect()
    });
    assert_eq!(totals, [ROUNDS * SHARDS as usize; SHARDS as usize]);
    assert!((0..SHARDS).all(|shard| recovered(&**job, shard).1.entries.is_empty()));
}

fn a_crash_keeps_whole_commits_only(adapter: &mut dyn Adapter) {
    create(adapter, 2);
    // After every commit: a crash with the next commit staged, but not made.
    for round in 0..6u32 {
        let job = reopen(adapter);
        let mut shards = owners(&*job, 2);
        let mut next = entries(&*job, &[&format!("1:{round}"), &format!("*:all-{round}")]);
        next.extend(cells(&[&format!("round={round}")]));
        next.extend(reports(&[(1, 0, i64::from(round))]));
        let staged = entries(&*job, &["1:never", "*:never"]);
        commit(&mut *shards[0], &next);
        if !adapter.crash() {
            return;
        }
        drop(staged);
        let job = reopen(adapter);
        let (owner, _) = recovered(&*job, 0);
        check_state(&*owner, &format!("round={round}"));
        let (owner, found) = recovered(&*job, 1);
        let texts: Vec<_> = found.entries.iter().map(|header| words(&owner.fetch(header.position).expect("fetched"))).collect();
        let own = (0..=round).map(|round| round.to_string());
        assert_eq!(texts, own.chain((0..=round).map(|round| format!("all-{round}"))).collect::<Vec<_>>());
        assert_eq!(found.reports, reports(&[(1, 0, i64::from(round))]).reports);
    }
}
