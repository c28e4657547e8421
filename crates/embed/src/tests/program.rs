//! The program's code decides. Whatever it does, the cache stays sound and says what it replaced.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;

use super::*;

/// A tenant, a key, value bytes, and why the item left.
type Gone = (String, Vec<u8>, usize, Left);

/// Notes all that it is told.
#[derive(Default)]
pub(super) struct Notes {
    left: Mutex<Vec<Gone>>,
    emptied: Mutex<Vec<(String, u64, Left)>>,
    moved: Mutex<Vec<(String, MoveView)>>,
    pub(super) replaced: Mutex<Vec<(String, Fault)>>,
}

impl Events for Notes {
    fn left(&self, tenant: &str, item: &LeftItem<'_>) {
        let LeftItem { key, value_bytes, why } = *item;
        self.left.lock().push((tenant.into(), key.to_vec(), value_bytes, why));
    }

    fn emptied(&self, tenant: &str, items: u64, why: Left) {
        self.emptied.lock().push((tenant.into(), items, why));
    }

    fn moved(&self, tenant: &str, change: &MoveView) {
        self.moved.lock().push((tenant.into(), change.clone()));
    }

    fn replaced(&self, tenant: &str, fault: &Fault) {
        self.replaced.lock().push((tenant.into(), fault.clone()));
    }
}

pub(super) fn told(memory_bytes: u64) -> (Scene, Arc<Notes>) {
    let notes = Arc::new(Notes::default());
    (Scene::with_events(memory_bytes, Arc::clone(&notes) as _), notes)
}

/// Keeps what its keys begin with, until it panics.
struct Keeps {
    prefix: &'static [u8],
    answers: AtomicU64,
}

impl Keeps {
    fn forever(prefix: &'static [u8]) -> Arc<Self> {
        Self::times(prefix, u64::MAX)
    }

    fn times(prefix: &'static [u8], answers: u64) -> Arc<Self> {
        let answers = answers.into();
        Arc::new(Self { prefix, answers })
    }
}

impl EvictionPolicy for Keeps {
    fn judge(&self, item: &Resident<'_>) -> Verdict {
        assert!(self.answers.fetch_sub(1, Ordering::Relaxed) > 0, "out of answers");
        if item.key.starts_with(self.prefix) {
            Verdict::Keep { uses: 3 }
        } else {
            Verdict::Drop
        }
    }
}

#[test]
fn a_policy_of_the_program_decides_until_it_fails_or_another_is_named() {
    let (scene, notes) = told(32 * MIB);
    let tenant = scene.cache.create("shop", cap(4 * MIB)).unwrap();
    let mut keys = 0..u32::MAX;
    let mut stays = |tenant: &Tenant| {
        tenant.remove(b"hot");
        tenant.insert(b"hot", b"value").unwrap();
        // Eight mebibytes of keys that were never there.
        for key in keys.by_ref().take(20_000) {
            tenant.insert(&key.to_le_bytes(), &[7; 400]).unwrap();
        }
        tenant.contains(b"hot")
    };
    assert!(!stays(&tenant));
    let view = tenant.set_eviction(Keeps::forever(b"hot")).unwrap();
    assert_eq!(
        (view.policy.as_str(), view.policy_in_force.as_str()),
        ("custom", "custom")
    );
    assert!(stays(&tenant));
    let named = |policy| SettingsPatch {
        policy: Change::Set(PolicyChoice::Fixed(policy)),
        ..SettingsPatch::default()
    };
    tenant.set(named(Policy::Clock)).unwrap();
    assert!(!stays(&tenant));
    tenant.set(named(Policy::Custom)).unwrap();
    assert!(stays(&tenant));
    assert_eq!((tenant.stats().faults, tenant.faults()), (0, vec![]));

    tenant.set_eviction(Keeps::times(b"hot", 1000)).unwrap();
    assert!(!stays(&tenant));
    let fault = Fault {
        part: Part::Eviction,
        cause: Cause::Panicked("out of answers".into()),
    };
    assert_eq!((tenant.stats().faults, tenant.faults()), (1, vec![fault.clone()]));
    assert_eq!(*notes.replaced.lock(), [("shop".to_owned(), fault)]);
    let view = tenant.view().unwrap();
    assert_eq!(
        (view.policy.as_str(), view.policy_in_force.as_str()),
        ("custom", "fifo")
    );
    tenant.set_eviction(Keeps::forever(b"hot")).unwrap();
    assert!(stays(&tenant));
    assert_eq!(tenant.view().unwrap().policy_in_force, "custom");
}

/// One that panics in a call that is made once.
struct Unready;

impl EvictionPolicy for Unready {
    fn judge(&self, _: &Resident<'_>) -> Verdict {
        Verdict::Drop
    }

    fn has_ghosts(&self) -> bool {
        panic!("not yet")
    }
}

impl Events for Unready {
    fn wants_items(&self) -> bool {
        panic!("not yet")
    }
}

#[test]
fn what_fails_at_once_is_refused() {
    let scene = Scene::new(16 * MIB);
    let tenant = scene.cache.create("shop", TenantSettings::default()).unwrap();
    let refused = |error: Error| matches!(&error, Error::Faulty(_)) && error.to_string().contains("not yet");
    assert!(tenant.set_eviction(Arc::new(Unready)).is_err_and(refused));
    assert_eq!(tenant.view().unwrap().policy, "adaptive");
    let built = Builder::new(16 * MIB).events(Arc::new(Unready)).build_driven();
    assert!(built.is_err_and(refused));
}

/// Panics once in a while, whatever it is asked.
#[derive(Debug)]
struct Wild(AtomicU64);

impl Wild {
    fn may_panic(&self) {
        let drawn = self.0.fetch_add(1, Ordering::Relaxed);
        let hashed = (drawn ^ (drawn >> 7)).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
        assert!(!hashed.is_multiple_of(2_000), "wild");
    }
}

impl EvictionPolicy for Wild {
    fn judge(&self, item: &Resident<'_>) -> Verdict {
        self.may_panic();
        match item.uses {
            0 => Verdict::DropToGhost,
            uses => Verdict::Keep { uses: uses - 1 },
        }
    }

    fn small_share(&self) -> f64 {
        0.2
    }

    fn has_ghosts(&self) -> bool {
        true
    }

    fn notes_uses(&self) -> bool {
        true
    }

    fn used(&self, _: &[u8]) {
        self.may_panic();
    }
}

impl Admission for Wild {
    fn admits(&self, candidate: &Candidate<'_>) -> bool {
        self.may_panic();
        candidate.was_seen || !candidate.is_full
    }
}

/// Threads read and write while the program's code fails under them and is supplied again.
#[test]
fn code_that_panics_at_random_harms_nobody() {
    const FAULTS: u64 = 30;
    let notes = Arc::new(Notes::default());
    let builder = Builder::new(64 * MIB).parallelism(2).events(Arc::clone(&notes) as _);
    let cache = builder.build().unwrap();
    let tenant = cache.create("shop", cap(6 * MIB)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for thread in 0..2_u32 {
            let (tenant, stop) = (tenant.clone(), &stop);
            scope.spawn(move || {
                for number in (0..40_000_u32).cycle() {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let key = (number * 2 + thread).to_le_bytes();
                    let value = [key; 40].concat();
                    match tenant.get(&key) {
                        Some(found) => assert_eq!(found.to_vec(), value),
                        None => match tenant.insert(&key, &value) {
                            Ok(()) | Err(Error::NotAdmitted) => {}
                            Err(error) => panic!("{error}"),
                        },
                    }
                }
            });
        }
        let mut seed = 1;
        wait_for("faults", || {
            seed += 1000;
            if tenant.view().unwrap().policy_in_force != "custom" {
                tenant.set_eviction(Arc::new(Wild(seed.into()))).unwrap();
            }
            let of = |part| tenant.faults().iter().filter(|fault| fault.part == part).count();
            if of(Part::Admission) == 0 {
                tenant.set_admission(AdmissionChoice::Custom(Arc::new(Wild(seed.into()))));
            }
            tenant.stats().faults >= FAULTS
        });
        stop.store(true, Ordering::Relaxed);
    });
    assert!(tenant.stats().faults >= FAULTS && tenant.faults().len() <= 16);
    assert_eq!(notes.replaced.lock().len() as u64, tenant.stats().faults);
    cache.remove("shop").unwrap();
    assert_eq!(cache.stats().usage_bytes, 0);
}

#[test]
fn keys_that_come_once_displace_nothing() {
    let scene = Scene::new(32 * MIB);
    let tenant = scene.cache.create("shop", cap(4 * MIB)).unwrap();
    tenant.set_admission("second-time".parse().unwrap());
    let key = |kind: u8, number: u32| [&[kind][..], &number.to_le_bytes()].concat();
    // While there is room, everything is let in.
    let used = 4_000;
    (0..used).for_each(|number| tenant.insert(&key(b'u', number), &[1; 400]).unwrap());
    assert_eq!(tenant.stats().not_admitted, 0);
    let mut refused = 0;
    for number in 0..50_000 {
        match tenant.insert(&key(b'o', number), &[2; 400]) {
            Ok(()) => {}
            Err(Error::NotAdmitted) => refused += 1,
            Err(error) => panic!("{error}"),
        }
    }
    let stats = tenant.stats();
    assert_eq!(stats.not_admitted, refused);
    assert!(refused > 35_000, "{refused}");
    let left = (0..used).filter(|&number| tenant.contains(&key(b'u', number))).count();
    assert!(left > 3_000, "{left} of {used}");
    // The second time, and then it is there.
    // One key in some two thousand is taken for another one: of ten, one at least is not.
    let refuses = |key: &Vec<u8>| matches!(tenant.insert(key, b"v"), Err(Error::NotAdmitted));
    let again = (0..10).map(|number| key(b'a', number)).find(refuses).unwrap();
    assert!(!tenant.contains(&again));
    tenant.insert(&again, b"v").unwrap();
    assert_eq!(tenant.get(&again).unwrap(), b"v");
    // A new value of it is not asked about.
    tenant.insert(&again, &[3; 500]).unwrap();
    let refuses = |key: &Vec<u8>| matches!(tenant.reserve(key, 10), Err(Error::NotAdmitted));
    let new = (0..10).map(|number| key(b'n', number)).find(refuses).unwrap();
    let mut room = tenant.reserve(&new, 10).unwrap();
    room.fill(&[4; 10]);
    room.commit().unwrap();
    assert!(tenant.contains(&new));
    tenant.set_admission(AdmissionChoice::All);
    tenant.insert(&key(b'x', 1), b"v").unwrap();
    assert_eq!(tenant.stats().not_admitted, refused + 2);
}

/// Takes small values, and panics at empty ones.
struct Small;

impl Admission for Small {
    fn admits(&self, candidate: &Candidate<'_>) -> bool {
        assert!(candidate.value_bytes > 0, "empty");
        candidate.value_bytes < 100 && candidate.lifetime != Some(SECOND)
    }
}

#[test]
fn admission_of_the_program_is_asked_until_it_fails() {
    let (scene, notes) = told(16 * MIB);
    let tenant = scene.cache.create("shop", TenantSettings::default()).unwrap();
    tenant.set_admission(AdmissionChoice::Custom(Arc::new(Small)));
    tenant.insert(b"small", &[1; 99]).unwrap();
    assert!(matches!(tenant.insert(b"large", &[1; 100]), Err(Error::NotAdmitted)));
    assert!(matches!(
        tenant.insert_for(b"short", b"v", SECOND),
        Err(Error::NotAdmitted)
    ));
    assert!(matches!(tenant.reserve(b"large", 2 << 20), Err(Error::NotAdmitted)));
    // A present key gets its new value, whatever it is.
    tenant.insert(b"small", &[2; 5000]).unwrap();
    assert_eq!(tenant.get(b"small").unwrap().to_vec(), [2; 5000]);
    assert_eq!((tenant.stats().not_admitted, tenant.stats().faults), (3, 0));
    // It fails, and everything is let in: that item, too.
    tenant.insert(b"empty", b"").unwrap();
    tenant.insert(b"large", &[1; 100]).unwrap();
    let fault = Fault {
        part: Part::Admission,
        cause: Cause::Panicked("empty".into()),
    };
    assert_eq!(tenant.faults(), std::slice::from_ref(&fault));
    assert_eq!(*notes.replaced.lock(), [("shop".to_owned(), fault)]);
    assert_eq!(tenant.stats().not_admitted, 3);
}

#[test]
fn the_program_is_told_what_leaves_and_what_moves() {
    let (mut scene, notes) = told(32 * MIB);
    let tenant = scene.cache.create("shop", cap(4 * MIB)).unwrap();
    let other = scene.cache.create("other", TenantSettings::default()).unwrap();
    fill(&tenant, 20_000, 400);
    tenant.insert_for(b"short", b"lived", SECOND).unwrap();
    tenant.insert(b"gone", b"value").unwrap();
    assert!(tenant.remove(b"gone"));
    scene.pass(2 * SECOND);
    assert!(tenant.get(b"short").is_none());
    let left = std::mem::take(&mut *notes.left.lock());
    assert!(left.iter().all(|(name, ..)| name == "shop"));
    let named = |key: &[u8]| left.iter().find(|(_, other, ..)| other == key).cloned();
    let shop = "shop".to_owned();
    assert_eq!(
        named(b"short"),
        Some((shop.clone(), b"short".to_vec(), 5, Left::Expired))
    );
    assert_eq!(named(b"gone"), Some((shop, b"gone".to_vec(), 5, Left::Removed)));
    let evicted = left.iter().filter(|(.., why)| *why == Left::Evicted).count() as u64;
    assert_eq!(evicted, tenant.stats().evicted);
    assert!(evicted > 5_000, "{evicted}");

    fill(&other, 100, 10);
    let items = tenant.stats().items;
    tenant.clear();
    scene.cache.remove("other").unwrap();
    let emptied = std::mem::take(&mut *notes.emptied.lock());
    let of = |name: &str| {
        let of = emptied.iter().filter(|(other, ..)| other == name);
        of.inspect(|(.., why)| assert_eq!(*why, Left::Removed))
            .map(|(_, items, _)| items)
            .sum::<u64>()
    };
    assert_eq!((of("shop"), of("other")), (items, 100));

    // Each step is told of; the tenant's list joins those of one move.
    let moves = tenant.moves().unwrap();
    let told = notes.moved.lock();
    let mut told = told
        .iter()
        .filter_map(|(name, change)| (name == "shop").then_some(change));
    for listed in moves.iter().rev() {
        let mut at_bytes = listed.from_bytes;
        while at_bytes != listed.to_bytes {
            let step = told.next().unwrap();
            assert_eq!((&step.reason, step.from_bytes), (&listed.reason, at_bytes), "{moves:?}");
            at_bytes = step.to_bytes;
        }
    }
    assert!(!moves.is_empty() && told.next().is_none());
}

/// Wants to hear of nothing but faults, and fails at those.
struct Deaf;

impl Events for Deaf {
    fn left(&self, _: &str, _: &LeftItem<'_>) {
        panic!("it said that it does not want that");
    }

    fn replaced(&self, _: &str, _: &Fault) {
        panic!("too much");
    }

    fn wants_items(&self) -> bool {
        false
    }
}

#[test]
fn a_hook_that_fails_is_told_nothing_more() {
    let scene = Scene::with_events(16 * MIB, Arc::new(Deaf));
    let tenant = scene.cache.create("shop", cap(2 * MIB)).unwrap();
    fill(&tenant, 10_000, 400);
    assert!(tenant.stats().evicted > 0 && scene.cache.events_fault().is_none());
    tenant.set_eviction(Keeps::times(b"", 10)).unwrap();
    fill(&tenant, 10_000, 400);
    // Both are known: the event, and that it could not be told.
    assert_eq!(tenant.stats().faults, 1);
    let fault = scene.cache.events_fault().unwrap();
    assert_eq!(fault.to_string(), "the program's event hook panicked: too much");
    // Under the shard's lock, in the midst of an eviction, and the cache goes on.
    assert!(tenant.get(&9_999_u32.to_le_bytes()).is_some());
}

#[test]
fn values_of_any_length_are_looked_at_where_they_lie() {
    let scene = Scene::new(64 * MIB);
    let tenant = scene.cache.create("shop", cap(32 * MIB)).unwrap();
    for value_bytes in [0, 1, 5_000, 200_000, 600_000, 10 << 20] {
        let value: Vec<u8> = (0..value_bytes).map(|i| (i % 251) as u8).collect();
        tenant.insert(b"k", &value).unwrap();
        let seen = tenant.get_with(b"k", |found| {
            assert_eq!((found.len(), found.is_empty()), (value_bytes, value_bytes == 0));
            let is_whole = matches!(found.as_bytes(), std::borrow::Cow::Borrowed(_));
            assert_eq!(is_whole, found.parts().count() == 1, "{value_bytes}");
            assert!(*found.as_bytes() == value);
            found.parts().flatten().map(|byte| u64::from(*byte)).sum::<u64>()
        });
        assert_eq!(seen, Some(value.iter().map(|byte| u64::from(*byte)).sum()));
    }
    assert_eq!(tenant.get_with(b"none", |_| ()), None);
    assert_eq!(tenant.get_with(&vec![0; KEY_BYTES_MAX + 1], |_| ()), None);
    assert_eq!((tenant.stats().gets, tenant.stats().hits), (7, 6));
    // More than is held in place at a time is looked at in place all the same.
    let held = tenant.get(b"k").unwrap();
    assert!(held.is_in_place());
    assert_eq!(tenant.get_with(b"k", |found| found.len()), Some(10 << 20));
}

#[test]
fn a_look_that_panics_leaves_all_as_it_was() {
    let mut scene = Scene::new(64 * MIB);
    let tenant = scene.cache.create("shop", TenantSettings::default()).unwrap();
    for value_bytes in [100, 600_000] {
        tenant.insert(b"k", &vec![b'v'; value_bytes]).unwrap();
        let gets = tenant.stats().gets;
        let look = || tenant.get_with(b"k", |_| -> usize { panic!("at what it saw") });
        assert!(catch_unwind(AssertUnwindSafe(look)).is_err());
        assert_eq!(tenant.stats().gets, gets + 1);
        // Nothing is locked, nothing is held.
        assert_eq!(tenant.get_with(b"k", |found| found.len()), Some(value_bytes));
        assert!(tenant.remove(b"k"));
    }
    scene.cache.remove("shop").unwrap();
    scene.pass(SECOND);
    assert_eq!(scene.cache.stats().usage_bytes, 0);
}
