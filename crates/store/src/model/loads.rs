//! The loads that the model is run under.

use super::*;

#[test]
fn small_items_under_every_policy() {
    let shares = [0, 500, 900].map(approx_lru);
    for (seed, policy) in (1..).zip(Policy::PLAIN.into_iter().chain(shares)) {
        Model::new(Load { seed, policy, ..PLAIN }).run();
        Model::new(Load {
            seed: seed + 10,
            policy,
            grant_bytes: 8 * MIB,
            keys: 60_000,
            ..PLAIN
        })
        .run();
    }
}

#[test]
fn many_databases_and_flushes() {
    Model::new(Load {
        seed: 21,
        policy: Policy::S3Fifo,
        dbs: DATABASES as u64,
        grant_bytes: 6 * MIB,
        ..PLAIN
    })
    .run();
    Model::new(Load {
        seed: 22,
        policy: Policy::Clock,
        dbs: 3,
        keys: 2_000,
        ..PLAIN
    })
    .run();
    Model::new(Load {
        seed: 23,
        policy: approx_lru(500),
        dbs: 3,
        grant_bytes: 3 * MIB,
        ..PLAIN
    })
    .run();
}

#[test]
fn large_values_and_pins() {
    let large = Load {
        large_one_in: 50,
        keys: 500,
        value_max: 5_000,
        operations: 20_000,
        ..PLAIN
    };
    Model::new(Load {
        seed: 31,
        grant_bytes: 8 * MIB,
        ..large
    })
    .run();
    Model::new(Load {
        seed: 32,
        grant_bytes: 24 * MIB,
        policy: Policy::Clock,
        ..large
    })
    .run();
    Model::new(Load {
        seed: 33,
        grant_bytes: 16 * MIB,
        policy: Policy::S3Fifo,
        shards: 4,
        ..large
    })
    .run();
    for (seed, thousandths) in [(34, 0), (35, 400)] {
        Model::new(Load {
            seed,
            grant_bytes: 12 * MIB,
            policy: approx_lru(thousandths),
            ..large
        })
        .run();
    }
}

#[test]
fn several_shards_share_a_grant() {
    Model::new(Load {
        seed: 41,
        shards: 8,
        grant_bytes: 3 * MIB,
        policy: Policy::S3Fifo,
        ..PLAIN
    })
    .run();
    Model::new(Load {
        seed: 42,
        shards: 4,
        grant_bytes: 6 * MIB,
        policy: Policy::Clock,
        dbs: 2,
        ..PLAIN
    })
    .run();
    Model::new(Load {
        seed: 43,
        shards: 8,
        grant_bytes: 4 * MIB,
        policy: approx_lru(700),
        ..PLAIN
    })
    .run();
}

/// Whatever a program's policy does, the store is sound.
#[test]
fn policies_of_the_program_good_and_bad() {
    for (seed, way) in (61..).zip(Way::ALL) {
        let load = Load {
            seed,
            policy: Policy::Custom,
            own: Some(way),
            grant_bytes: 2 * MIB,
            ..PLAIN
        };
        Model::new(load).run();
        Model::new(Load {
            seed: seed + 10,
            shards: 4,
            dbs: 3,
            large_one_in: 200,
            keys: 4_000,
            value_max: 3_000,
            grant_bytes: 8 * MIB,
            ..load
        })
        .run();
    }
}

#[test]
fn huge_segments() {
    let huge = Load {
        grant_bytes: 140 * MIB,
        keys: 60_000,
        value_max: 8_000,
        operations: 120_000,
        ..PLAIN
    };
    for (seed, policy) in [(51, Policy::S3Fifo), (52, approx_lru(500))] {
        Model::new(Load { seed, policy, ..huge }).run();
    }
}

/// Other seeds than the fixed ones: a few at each run, more with `TIDEMARK_MODEL_SEEDS`.
#[test]
fn other_seeds() {
    let count = std::env::var("TIDEMARK_MODEL_SEEDS")
        .ok()
        .and_then(|n| n.parse().ok())
        .unwrap_or(3);
    let mut seed_bytes = [0; 8];
    getrandom::fill(&mut seed_bytes).unwrap();
    let mut random = Random(u64::from_le_bytes(seed_bytes));
    for _ in 0..count {
        let load = Load {
            seed: random.next(),
            policy: any_policy(&mut random),
            shards: 1 << random.below(4),
            grant_bytes: MIB << random.below(5),
            keys: 100 << random.below(10),
            value_max: 20 << random.below(9),
            large_one_in: if random.chance(2) { 0 } else { 300 },
            dbs: 1 + random.below(4) * random.below(4),
            operations: 30_000,
            own: None,
        };
        println!("{load:?}");
        Model::new(load).run();
    }
}

/// Shortly before an index of small items grows, keys find 64 buckets in a row full. If there is memory for all of
/// them, it grows for them, however large it is.
#[test]
fn a_crowd_of_keys_costs_nothing_where_there_is_memory() {
    const ITEMS: u64 = 100_000;
    for seed in 1..=5 {
        let model = Model::new(Load {
            seed,
            grant_bytes: 64 * MIB,
            policy: Policy::S3Fifo,
            ..PLAIN
        });
        let tenant = &model.tenant;
        for name in (0..ITEMS).map(u64::to_le_bytes) {
            let put = tenant.put(&tenant.key(0, &name), &name, Attributes::default(), UnixMs(1));
            assert_eq!(put, Ok(()), "{name:?}");
        }
        let shard = tenant.lock(0);
        shard.audit();
        assert_eq!((shard.items(), shard.counters().evicted), (ITEMS, 0), "seed {seed}");
    }
}

/// With this seed, keys come that find 64 buckets in a row full, while there is no memory for the index to grow.
#[test]
fn a_crowd_of_keys_costs_neither_an_item_nor_a_write() {
    let model = Model::new(Load {
        seed: 45,
        grant_bytes: 256 * MIB,
        policy: Policy::S3Fifo,
        ..PLAIN
    });
    let tenant = &model.tenant;
    for n in 0..248_011 {
        let name = format!("k{n:07}");
        let put = tenant.put(
            &tenant.key(0, name.as_bytes()),
            &[0; 1000],
            Attributes::default(),
            UnixMs(1),
        );
        assert_eq!(put, Ok(()), "{name}");
    }
    tenant.lock(0).audit();
    let evicted = tenant.lock(0).counters().evicted;
    assert_eq!(evicted, 0);
}
