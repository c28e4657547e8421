//! How far sampled curves are from exact ones, over hash seeds, in points of miss ratio.

use tidemark_curve::{Curve, Eviction, Miniatures, Profile, Sampling, Threshold};
use tidemark_types::{LogShare, Policy};

use super::{Requests, default_sizes, load, skewed};

const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];
/// Samples, and how large the mean error over sizes and seeds may be.
const TARGETS: [(usize, f64); 2] = [(8192, 0.01), (1024, 0.025)];
/// The share of points that are to be within two standard errors of the truth. Points of one seed err together, so that it
/// scatters around the 95 % of a normal distribution.
const WITHIN_TWO_ERRORS: f64 = 0.8;

fn profile(requests: &Requests, keys: usize, seed: u64, sizes: &[u64]) -> Profile {
    let mut profile = Profile::new(Sampling { keys, seed }, sizes);
    for (key, bytes) in requests {
        profile.request(*key, *bytes);
    }
    profile
}

fn miniatures(policy: Policy, requests: &Requests, sizes: &[u64], threshold: Threshold, seed: u64) -> Curve {
    let mut caches = Miniatures::new(Eviction::Policy(policy), sizes, threshold, seed);
    for (key, bytes) in requests {
        caches.request(*key, *bytes);
    }
    caches.curve()
}

/// The differences of a curve from the truth at sizes, each with the error that the curve states.
fn errors(curve: &Curve, truth: &Curve, sizes: &[u64]) -> Vec<(f64, f64)> {
    let error = |size: &u64| {
        let point = curve.at(*size);
        (
            (point.miss_ratio - truth.at(*size).miss_ratio).abs(),
            point.standard_error,
        )
    };
    sizes.iter().map(error).collect()
}

fn mean(errors: &[(f64, f64)]) -> f64 {
    errors.iter().map(|(error, _)| error).sum::<f64>() / errors.len() as f64
}

fn check(name: &str, requests: &Requests) {
    let sizes = default_sizes(requests);
    let truth = profile(requests, Sampling::EXACT.keys, 0, &sizes).curve();
    let mut all = Vec::new();
    for (keys, limit) in TARGETS {
        let of_seeds = SEEDS.map(|seed| errors(&profile(requests, keys, seed, &[]).curve(), &truth, &sizes));
        let worst = of_seeds.iter().map(|errors| mean(errors)).fold(0.0, f64::max);
        let of_all = of_seeds.concat();
        println!(
            "{name}, {keys} samples: mean error {:.2} points, of the worst seed {:.2}",
            100.0 * mean(&of_all),
            100.0 * worst
        );
        assert!(mean(&of_all) <= limit, "{name}, {keys} samples: {}", mean(&of_all));
        all.extend(of_all);
    }
    let within = all.iter().filter(|(error, expected)| *error <= 2.0 * expected).count();
    let share = within as f64 / all.len() as f64;
    println!("{name}: {:.0} % within two standard errors", share * 100.0);
    assert!(share >= WITHIN_TWO_ERRORS, "{name}: {share}");
}

/// The trace's requests, or the generated load's.
fn requests(file: &str) -> Requests {
    load(file).unwrap_or_else(|| skewed(300_000, 60_000, 0.8, 5000))
}

#[test]
fn samples_of_blocks_of_many_sizes_are_as_good_as_promised() {
    let file = "cloudPhysicsIO.oracleGeneral.bin";
    check(file, &requests(file));
}

#[test]
fn samples_of_a_busy_application_are_as_good_as_promised() {
    let file = "orm-busy.trace.xz";
    check(file, &requests(file));
}

#[test]
fn samples_of_recommendations_are_as_good_as_promised() {
    let file = "scarab-recs.trace.xz";
    check(file, &requests(file));
}

#[test]
fn samples_converge_to_the_truth() {
    let requests = skewed(300_000, 60_000, 0.8, 5000);
    let sizes = default_sizes(&requests);
    let truth = profile(&requests, Sampling::EXACT.keys, 0, &sizes).curve();
    let of = |keys: usize| {
        let of_seeds = SEEDS.map(|seed| errors(&profile(&requests, keys, seed, &[]).curve(), &truth, &sizes));
        mean(&of_seeds.concat())
    };
    let means = [256, 2048, 16_384].map(of);
    // Eight times the samples: a third of the error, give or take.
    assert!(means[1] < 0.7 * means[0] && means[2] < 0.7 * means[1], "{means:?}");
    let all = profile(&requests, 60_000, 9, &sizes).curve();
    assert_eq!(all, truth, "a sample of everything is everything");
}

#[test]
fn miniature_caches_are_as_good_as_samples_can_be() {
    let requests = requests("scarab-recs.trace.xz");
    let sizes = default_sizes(&requests);
    for policy in Policy::PLAIN.into_iter().chain([Policy::ApproxLru(LogShare::HALF)]) {
        let truth = miniatures(policy, &requests, &sizes, Threshold::ALL, 0);
        let of_seeds = SEEDS.map(|seed| {
            let threshold = profile(&requests, 8192, seed, &[]).threshold();
            errors(&miniatures(policy, &requests, &sizes, threshold, seed), &truth, &sizes)
        });
        let error = mean(&of_seeds.concat());
        println!("{policy}, 8192 samples: mean error {:.2} points", 100.0 * error);
        assert!(error <= 0.015, "{policy}: {error}");
    }
}
