//! Checks of keyed state.

use super::*;

checks![
    cells_sort_by_their_bytes,
    scans_are_bounded_and_go_on,
    the_last_write_of_a_cell_counts,
    a_cell_may_be_empty,
    shards_do_not_see_each_others_cells,
    state_is_read_from_any_thread_as_committed,
    a_large_value_is_kept,
];

fn cells_sort_by_their_bytes(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let (mut owner, _) = recovered(&*job, 0);
    let names: Vec<Bytes> =
        [&b""[..], b"\0", b"\0\0", b"\0\x01", b"a", b"a\0", b"aa", b"b", b"\x7f", b"\x80", b"\xff", b"\xff\xff"]
            .map(Bytes::from_static)
            .to_vec();
    for name in names.iter().rev() {
        let write = StateWrite { cell: name.clone(), value: Some(name.clone()) };
        commit(&mut *owner, &Commit { state: vec![write], ..Commit::default() });
    }
    let state = owner.state();
    let scan = |from: &[u8], to: &[u8]| {
        let cells = state.scan(from, to, usize::MAX, usize::MAX).expect("scanned");
        assert!(cells.iter().all(|(cell, value)| cell == value));
        cells.into_iter().map(|(cell, _)| cell).collect::<Vec<_>>()
    };
    for (first, from) in names.iter().enumerate() {
        for (last, to) in names.iter().enumerate() {
            assert_eq!(scan(from, to), names.get(first..last).unwrap_or_default(), "[{from:?}, {to:?})");
        }
    }
    assert_eq!(scan(b"", &[0xff; 9]), names);
    assert!(names.iter().all(|name| state.get(name).expect("read") == Some(name.clone())));
}

fn scans_are_bounded_and_go_on(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let (mut owner, _) = recovered(&*job, 0);
    let all: Vec<_> = (0..100).map(|number| format!("{number:03}={}", "x".repeat(97))).collect();
    commit(&mut *owner, &cells(&all.iter().map(String::as_str).collect::<Vec<_>>()));
    let state = owner.state();
    for (cells_max, bytes_max, expected) in
        [(1, usize::MAX, 1..2), (7, usize::MAX, 7..8), (usize::MAX, 1_000, 9..13), (5, 0, 1..2)]
    {
        let mut found: Vec<(Bytes, Bytes)> = Vec::new();
        loop {
            // The least cell behind the last one is that one with a zero byte.
            let from = found.last().map(|(cell, _)| [cell, &b"\0"[..]].concat()).unwrap_or_default();
            let page = state.scan(&from, b"~", cells_max, bytes_max).expect("scanned");
            if page.is_empty() {
                break;
            }
            let last = found.len() + page.len() == all.len();
            assert!(expected.contains(&page.len()) || last, "{} cells, asked for {cells_max} of {bytes_max} bytes", page.len());
            found.extend(page);
        }
        assert_eq!(state_text(&found), all.join(" "));
    }
    assert_eq!(state.scan(b"", b"~", 0, 100).expect("scanned"), []);
    assert_eq!(state.scan(b"5", b"3", 9, 100).expect("scanned"), []);
}

fn the_last_write_of_a_cell_counts(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let (mut owner, _) = recovered(&*job, 0);
    commit(&mut *owner, &cells(&["a=1", "b=1", "c=1", "d=1"]));
    commit(&mut *owner, &cells(&["a=2", "a=3", "b=2", "b", "c", "c=4", "d", "e"]));
    check_state(&*owner, "a=3 c=4");
    assert_eq!(owner.state().get(b"b").expect("read"), None);
    if adapter.crash() {
        let (owner, _) = recovered(&*reopen(adapter), 0);
        check_state(&*owner, "a=3 c=4");
    }
}

fn a_cell_may_be_empty(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let (mut owner, _) = recovered(&*job, 0);
    commit(&mut *owner, &cells(&["a=", "=nameless"]));
    assert_eq!(owner.state().get(b"a").expect("read"), Some(Bytes::new()));
    check_state(&*owner, "=nameless a=");
}

fn shards_do_not_see_each_others_cells(adapter: &mut dyn Adapter) {
    let job = create(adapter, 3);
    let mut owners = owners(&*job, 3);
    for (shard, owner) in owners.iter_mut().enumerate() {
        commit(&mut **owner, &cells(&[&format!("a={shard}"), &format!("only-{shard}=")]));
    }
    for (shard, owner) in owners.iter().enumerate() {
        check_state(&**owner, &format!("a={shard} only-{shard}="));
        assert_eq!(owner.state().get(b"only-1").expect("read").is_some(), shard == 1);
    }
}

fn state_is_read_from_any_thread_as_committed(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let (mut owner, _) = recovered(&*job, 0);
    let state = owner.state();
    commit(&mut *owner, &cells(&["a=0", "b=0"]));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while !done.load(std::sync::atomic::Ordering::Acquire) || reads == 0 {
                let cells = state.scan(b"", b"~", 9, 999).expect("scanned");
                assert_eq!(cells.len(), 2);
                assert_eq!(cells[0].1, cells[1].1, "half of a commit was read");
                reads += 1;
            }
        });
        for number in 1..500 {
            commit(&mut *owner, &cells(&[&format!("a={number}"), &format!("b={number}")]));
        }
        done.store(true, std::sync::atomic::Ordering::Release);
        reader.join().expect("the reader sees whole commits");
    });
}

fn a_large_value_is_kept(adapter: &mut dyn Adapter) {
    let job = create(adapter, 1);
    let (mut owner, _) = recovered(&*job, 0);
    let value = Bytes::from(super::payloads::noise(50 << 20, 7));
    let write = StateWrite { cell: bytes("large"), value: Some(value.clone()) };
    commit(&mut *owner, &Commit { state: vec![write], ..Commit::default() });
    assert!(owner.state().get(b"large").expect("read").as_ref() == Some(&value), "the large value was changed");
    if adapter.crash() {
        let (owner, _) = recovered(&*reopen(adapter), 0);
        assert!(owner.state().get(b"large").expect("read") == Some(value), "the large value was changed by a crash");
    }
}
