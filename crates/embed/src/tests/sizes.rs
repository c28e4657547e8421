//! A program's own strategies of size and worth.

use parking_lot::Mutex;
use tidemark_types::UNIT_BYTES;

use super::program::told;
use super::*;

/// Wants a size, at last an impossible one.
struct Wants {
    bytes: u64,
    rounds: u64,
    then: Option<u64>,
    seen: Arc<Mutex<Vec<(u64, u64, u64)>>>,
}

impl ResizeStrategy for Wants {
    fn wanted_bytes(&mut self, reading: &SizeReading<'_>) -> u64 {
        let read = (reading.gets, reading.hits, reading.most_bytes);
        self.seen.lock().push(read);
        assert!(reading.grant_bytes <= reading.most_bytes && reading.built_in_bytes.is_none());
        match self.rounds.checked_sub(1) {
            Some(rounds) => self.rounds = rounds,
            None => return self.then.unwrap_or_else(|| panic!("tired")),
        }
        self.bytes
    }
}

#[test]
fn a_strategy_of_the_program_decides_how_much_a_tenant_holds() {
    for (then, said) in [
        (Some(1 << 50), "wanted 1125899906842624 bytes: allowed are 65536 to"),
        (Some(0), "wanted 0 bytes"),
        (None, "panicked: tired"),
    ] {
        let (mut scene, notes) = told(32 * MIB);
        let tenant = scene.cache.create("shop", TenantSettings::default()).unwrap();
        let seen = Arc::default();
        let strategy = Wants {
            bytes: 12 * MIB,
            rounds: 20,
            then,
            seen: Arc::clone(&seen),
        };
        tenant.set_sizing(Some(Box::new(strategy))).unwrap();
        for _ in 0..8 {
            fill(&tenant, 60_000, 500);
            scene.pass(SECOND);
        }
        let stats = tenant.stats();
        assert_eq!((stats.grant_bytes, stats.faults), (12 * MIB, 0));
        assert!(
            stats.usage_bytes <= 12 * MIB && stats.usage_bytes > 11 * MIB,
            "{stats:?}"
        );
        let most = seen.lock().iter().map(|(.., most)| *most).max().unwrap();
        assert!(most > 30 * MIB && most.is_multiple_of(UNIT_BYTES), "{most}");
        // From the twenty-first round on.
        for _ in 0..20 {
            fill(&tenant, 60_000, 500);
            scene.pass(SECOND);
        }
        let faults = tenant.faults();
        assert_eq!(faults.len(), 1, "{faults:?}");
        assert!(faults[0].to_string().contains(said), "{}", faults[0]);
        assert_eq!(*notes.replaced.lock(), [("shop".to_owned(), faults[0].clone())]);
        // Without a goal, it takes free memory.
        assert!(tenant.stats().usage_bytes > 20 * MIB, "{:?}", tenant.stats());
    }
}

/// The least memory for half of the hits that all memory would give.
struct HalfTheHits(Arc<Mutex<Option<(u64, f64)>>>);

impl ResizeStrategy for HalfTheHits {
    fn wanted_bytes(&mut self, reading: &SizeReading<'_>) -> u64 {
        let most = reading.curve.hit_ratio_at(reading.most_bytes);
        let Some(most) = most.filter(|_| reading.curve.gets() > 5_000) else {
            return reading.grant_bytes;
        };
        let half = reading.curve.bytes_for(most / 2.0).unwrap_or(reading.grant_bytes);
        *self.0.lock() = Some((half, most / 2.0));
        half.clamp(UNIT_BYTES, reading.most_bytes)
    }
}

#[test]
fn a_strategy_reads_the_curve() {
    let mut scene = Scene::new(64 * MIB);
    let tenant = scene.cache.create("shop", TenantSettings::default()).unwrap();
    let last = Arc::new(Mutex::new(None));
    let strategy = HalfTheHits(Arc::clone(&last));
    tenant.set_sizing(Some(Box::new(strategy))).unwrap();
    let mut state = 1_u64;
    for _ in 0..3_000 {
        for _ in 0..100 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            // Popularity falls with the number: a fraction, squared.
            let fraction = (state >> 11) as f64 / (1_u64 << 53) as f64;
            let key = ((fraction * fraction * 60_000.0) as u32).to_le_bytes();
            if tenant.get(&key).is_none() {
                tenant.insert(&key, &[7; 500]).unwrap();
            }
        }
        scene.pass(Duration::from_millis(10));
    }
    let (half, hit_ratio) = last.lock().unwrap();
    let stats = tenant.stats();
    let wanted = half.div_ceil(UNIT_BYTES) * UNIT_BYTES;
    assert!(stats.grant_bytes.abs_diff(wanted) <= wanted / 8, "{stats:?} {half}");
    assert!((0.3..0.6).contains(&hit_ratio), "{hit_ratio}");
    // The least memory for half of the hits is far less than half of that for all of them.
    assert!(stats.usage_bytes < 20 * MIB, "{stats:?}");
    // Without it, the tenant takes free memory.
    tenant.set_sizing(None).unwrap();
    for _ in 0..4 {
        fill(&tenant, 100_000, 500);
        scene.pass(SECOND);
    }
    assert!(tenant.stats().usage_bytes > 30 * MIB, "{:?}", tenant.stats());
}

/// Pays for hits, at last in a way that makes no sense.
struct Pays {
    price: f64,
    rounds: u64,
    then: Option<f64>,
}

impl UtilityFunction for Pays {
    fn worth(&mut self, load: &Load, hit_ratio: f64) -> f64 {
        assert!(load.gets_per_second >= 0.0 && load.miss_cost_us >= load.hit_cost_us);
        if hit_ratio == 0.0 {
            match self.rounds.checked_sub(1) {
                Some(rounds) => self.rounds = rounds,
                None => self.price = self.then.unwrap_or_else(|| panic!("bankrupt")),
            }
        }
        self.price * hit_ratio
    }
}

/// Gets that are asked of two tenants alike for so many tenths of a second; missed values are stored.
fn ask_both(scene: &mut Scene, tenants: [&Tenant; 2], tenths: u32, state: &mut u64) {
    for _ in 0..tenths {
        for _ in 0..500 {
            *state ^= *state << 13;
            *state ^= *state >> 7;
            *state ^= *state << 17;
            let fraction = (*state >> 11) as f64 / (1_u64 << 53) as f64;
            let key = ((fraction * fraction * 60_000.0) as u32).to_le_bytes();
            for tenant in tenants {
                if tenant.get(&key).is_none() {
                    tenant.insert(&key, &[7; 500]).unwrap();
                }
            }
        }
        scene.pass(Duration::from_millis(100));
    }
}

#[test]
fn a_utility_of_the_program_decides_who_gets_the_surplus() {
    for (rounds, then, said) in [
        (90, Some(f64::NAN), Some("said that a hit ratio of 0 is worth NaN")),
        (90, Some(-1.0), Some("0.01 is worth -0.01")),
        (90, None, Some("panicked: bankrupt")),
        // The program takes it back.
        (u64::MAX, None, None),
    ] {
        let (mut scene, notes) = told(32 * MIB);
        let by_name = TenantSettings {
            utility: Some(Utility::Cost),
            ..TenantSettings::default()
        };
        let create = |name| scene.cache.create(name, by_name).unwrap();
        let (cheap, dear) = (create("cheap"), create("dear"));
        let pays = |price, rounds, then| Some(Box::new(Pays { price, rounds, then }) as _);
        cheap.set_utility(pays(10.0, u64::MAX, None)).unwrap();
        dear.set_utility(pays(1_000.0, rounds, then)).unwrap();
        let (both, mut state) = ([&cheap, &dear], 1);
        ask_both(&mut scene, both, 700, &mut state);
        let [poor, rich] = both.map(|tenant| tenant.stats().usage_bytes);
        assert!(rich > 4 * poor, "{poor} {rich}");
        assert_eq!(both.map(|tenant| tenant.stats().faults), [0, 0]);
        if said.is_none() {
            dear.set_utility(None).unwrap();
        }
        // The utility of its settings counts again, by which its hits are worth less than the cheap ones.
        ask_both(&mut scene, both, 900, &mut state);
        let [more, less] = both.map(|tenant| tenant.stats().usage_bytes);
        assert!(more > less, "{more} {less}, before {poor} {rich}");
        let faults = dear.faults();
        assert_eq!(
            (faults.len(), cheap.stats().faults),
            (said.iter().count(), 0),
            "{faults:?}"
        );
        for (fault, said) in faults.iter().zip(said) {
            assert!(fault.to_string().contains(said), "{fault}");
        }
        let replaced: Vec<(String, Fault)> = faults.into_iter().map(|fault| ("dear".to_owned(), fault)).collect();
        assert_eq!(*notes.replaced.lock(), replaced);
    }
    let scene = Scene::new(32 * MIB);
    let gone = scene.cache.create("gone", TenantSettings::default()).unwrap();
    scene.cache.remove("gone").unwrap();
    assert!(gone.set_utility(None).is_err());
}
