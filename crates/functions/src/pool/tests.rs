use super::*;

fn code() -> Code {
    Code::new(2, 1).unwrap()
}

fn put(pool: &mut Pool, content: ContentId, stripe: u32, bytes: u32) -> Option<Placement> {
    let placement = pool.place(content, code(), stripe, bytes)?;
    let hashes: Arc<[u64]> = (0..3).map(|index| u64::from(stripe) * 10 + index).collect();
    assert!(pool.commit(content, stripe, Arc::clone(&hashes), 0));
    for (index, &home) in placement.homes.iter().enumerate() {
        pool.stored(
            home,
            &ChunkKey::new(content, stripe, index as u8, code()),
            hashes[index],
        );
    }
    Some(placement)
}

fn announced(pool: &mut Pool, function: u16) -> Vec<Announced> {
    let keys: Vec<ChunkKey> = pool.functions[usize::from(function)].chunks.iter().copied().collect();
    let hash = |key: &ChunkKey| u64::from(key.stripe) * 10 + u64::from(key.index);
    keys.iter()
        .map(|key| Announced {
            key: *key,
            hash: hash(key),
        })
        .collect()
}

#[test]
fn chunks_of_a_stripe_lie_in_distinct_functions_and_load_is_even() {
    let mut pool = Pool::new(8, 1 << 20, 8);
    for object in 0..40_u8 {
        let placement = put(&mut pool, [object; 16], 0, 10_000).unwrap();
        let distinct: HashSet<u16> = placement.homes.iter().copied().collect();
        assert_eq!(distinct.len(), 3);
    }
    let used: Vec<u64> = (0..8).map(|function| pool.used_by(function)).collect();
    assert_eq!(used.iter().max().unwrap() - used.iter().min().unwrap(), 0, "{used:?}");
}

#[test]
fn stripes_of_an_extent_share_functions() {
    let mut pool = Pool::new(8, 1 << 20, 8);
    let first = put(&mut pool, [1; 16], 0, 10_000).unwrap();
    assert_eq!(put(&mut pool, [1; 16], 1, 10_000).unwrap().homes, first.homes);
    assert_ne!(
        put(&mut pool, [1; 16], EXTENT_STRIPES, 10_000).unwrap().homes,
        first.homes
    );
    assert!(pool.place([1; 16], code(), 1, 10_000).is_none(), "it is there");
}

#[test]
fn what_was_used_longest_ago_is_evicted() {
    // Each chunk takes 5,056 bytes: two objects fit.
    let mut pool = Pool::new(3, 11_000, 3);
    put(&mut pool, [1; 16], 0, 10_000).unwrap();
    put(&mut pool, [2; 16], 0, 10_000).unwrap();
    pool.look(&[1; 16], 0).unwrap();
    let third = put(&mut pool, [3; 16], 0, 10_000).unwrap();
    assert_eq!(third.evicted, [[2; 16]]);
    assert!(pool.look(&[2; 16], 0).is_none() && pool.look(&[1; 16], 0).is_some());
    let trash = pool.take_trash(third.homes[0], 10);
    assert_eq!(trash.len(), 1);
    assert_eq!(trash[0].content, [2; 16]);
    assert!(
        put(&mut pool, [4; 16], 0, 30_000).is_none(),
        "longer than all of a function"
    );
    assert_eq!(pool.used_bytes(), 6 * 5_056);
}

#[test]
fn a_stripe_is_gone_when_too_many_chunks_are() {
    let mut pool = Pool::new(4, 1 << 20, 4);
    put(&mut pool, [1; 16], 0, 1000).unwrap();
    let key = |index| ChunkKey::new([1; 16], 0, index, code());
    assert!(pool.lose(&key(0)));
    assert!(!pool.look(&[1; 16], 0).unwrap().has(0));
    pool.found(&key(0));
    assert!(pool.lose(&key(2)) && !pool.lose(&key(1)));
    assert_eq!((pool.look(&[1; 16], 0), pool.used_bytes()), (None, 0));
}

#[test]
fn what_a_function_holds_is_compared() {
    let mut pool = Pool::new(3, 1 << 20, 3);
    (0..4).for_each(|stripe| drop(put(&mut pool, [1; 16], stripe, 1000)));
    let before = pool.hash(1);
    let mut held = announced(&mut pool, 1);
    assert_eq!(pool.reconcile(1, &held), Reconciled::default());
    assert_eq!(pool.hash(1), before);
    let stranger = ChunkKey::new([9; 16], 0, 0, code());
    held.pop();
    held[0].hash += 1;
    held.push(Announced { key: stranger, hash: 1 });
    let result = pool.reconcile(1, &held);
    assert_eq!((result.lost, result.unknown, result.reset), (2, 2, 0));
    assert_eq!(
        pool.take_trash(1, 10).len(),
        1,
        "the stranger; the damaged one's place is still wanted"
    );
    let all_gone = pool.reconcile(2, &[]);
    assert_eq!(
        (all_gone.lost, all_gone.reset),
        (4, 2),
        "those that had lost one already"
    );
    assert_eq!(pool.hash(2), 0);
}

#[test]
fn functions_come_into_use_as_they_are_needed() {
    let mut pool = Pool::new(30, 11_000, 3);
    assert_eq!(pool.in_use(), 3);
    for object in 0..20_u8 {
        assert_eq!(put(&mut pool, [object; 16], 0, 10_000).unwrap().evicted.len(), 0);
    }
    assert_eq!(pool.in_use(), 30);
    for object in 0..20_u8 {
        pool.forget(&[object; 16]);
    }
    assert_eq!((pool.shrink(), pool.in_use(), pool.used_bytes()), (27, 3, 0));
}

#[test]
fn functions_that_are_not_needed_are_emptied() {
    let mut pool = Pool::new(30, 11_000, 3);
    (0..20_u8).for_each(|object| drop(put(&mut pool, [object; 16], 0, 10_000).unwrap()));
    assert!((0..16_u8).all(|object| pool.forget(&[object; 16])));
    assert_eq!(pool.shrink(), 20, "10 are filled to 55 %");
    let held = pool.in_use();
    assert!(held > 10, "some chunks lie beyond them");
    // One is lost meanwhile, one object forgotten, and one chunk does not arrive.
    let moves = pool.moves(100);
    assert!(
        moves.len() > 3 && moves.iter().all(|one| one.from >= 10 && one.to < 10),
        "{moves:?}"
    );
    let (failed, rest) = moves.split_first().unwrap();
    pool.stayed(failed);
    let forgotten = rest.iter().find(|one| one.key.content != failed.key.content).unwrap();
    pool.forget(&forgotten.key.content);
    for one in rest {
        let mut held = announced(&mut pool, one.to);
        held.retain(|chunk| chunk.key != one.key);
        assert_eq!(pool.reconcile(one.to, &held).lost, 0, "it has not arrived yet");
        pool.stored(one.to, &one.key, one.hash);
        assert_eq!(pool.moved(one), one.key.content != forgotten.key.content);
    }
    let again = pool.moves(100);
    assert_eq!(again.len(), 1, "the one that stayed");
    assert_eq!((again[0].key, again[0].from), (failed.key, failed.from));
    assert!(pool.moved(&again[0]));
    assert_eq!((pool.in_use(), pool.used_bytes()), (10, 3 * 3 * 5_056));
    for object in 16..20_u8 {
        if let Some(stripe) = pool.look(&[object; 16], 0) {
            let distinct: HashSet<u16> = stripe.homes.iter().copied().collect();
            assert!(
                distinct.len() == 3 && stripe.homes.iter().all(|home| *home < 10),
                "{stripe:?}"
            );
        }
    }
    assert!((10..30).all(|function| pool.used_by(function) == 0));
}

#[test]
fn a_write_that_failed_leaves_nothing() {
    let mut pool = Pool::new(3, 1 << 20, 3);
    pool.place([1; 16], code(), 0, 1000).unwrap();
    assert!(pool.look(&[1; 16], 0).is_none(), "it is on its way");
    pool.forget_stripe([1; 16], 0);
    assert_eq!((pool.objects(), pool.used_bytes()), (0, 0));
    pool.place([1; 16], code(), 0, 1000).unwrap();
    assert!(
        !pool.commit([1; 16], 0, Arc::from([1, 2, 3]), 0b110),
        "two of three are lost"
    );
    assert_eq!(pool.objects(), 0);
}
