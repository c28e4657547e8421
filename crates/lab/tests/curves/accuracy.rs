//! How far sampled curves are from exact ones, over hash seeds.

use tidemark_curve::{Curve, Eviction, Miniatures, Profile, Sampling};
use tidemark_types::Policy;

use super::{Requests, default_sizes, load, skewed};

const SEEDS: [u64; 5] = [1, 2, 3, 4, 5];

#[test]
fn probe() {
    for file in ["cloudPhysicsIO.oracleGeneral.bin", "orm-busy.trace.xz", "scarab-recs.trace.xz"] {
        let requests = load(file).unwrap();
        let sizes = default_sizes(&requests);
        let run = |sampling, sizes: &[u64]| {
            let mut profile = Profile::new(sampling, sizes);
            for (k, b) in &requests { profile.request(*k, *b); }
            profile
        };
        let exact = run(Sampling::EXACT, &sizes).curve();
        let mut whole = Vec::new();
        for p in Policy::ALL {
            let mut m = Miniatures::new(Eviction::Policy(p), &sizes, tidemark_curve::Threshold::ALL, 0);
            for (k, b) in &requests { m.request(*k, *b); }
            whole.push(m.curve());
        }
        for keys in [8192, 4096, 2048, 1024] {
            let mut all = Vec::new();
            for seed in (1..=10).chain(SEEDS) {
                let p = run(Sampling { keys, seed }, &[]);
                let c = p.curve();
                let errs: Vec<String> = sizes.iter().map(|s| { let e = c.at(*s); format!("{:+.2}/{:.2}", 100.0 * (e.miss_ratio - exact.at(*s).miss_ratio), 100.0 * e.standard_error) }).collect();
                let mae = sizes.iter().map(|s| (c.at(*s).miss_ratio - exact.at(*s).miss_ratio).abs()).sum::<f64>() / 8.0;
                all.push(mae);
                println!("{file} {keys} seed {seed} mae {:.2} skew {:?} {}", mae * 100.0, p.skew().map(|s| (s.alpha, s.r_squared)), errs.join(" "));
                if seed <= 2 && all.len() <= 2 {
                    for (i, pol) in Policy::ALL.into_iter().enumerate() {
                        let mut m = Miniatures::new(Eviction::Policy(pol), &sizes, p.threshold(), seed);
                        for (k, b) in &requests { m.request(*k, *b); }
                        let c = m.curve();
                        let errs: Vec<String> = sizes.iter().map(|s| { let e = c.at(*s); format!("{:+.2}/{:.2}", 100.0 * (e.miss_ratio - whole[i].at(*s).miss_ratio), 100.0 * e.standard_error) }).collect();
                        println!("   mini {pol} {}", errs.join(" "));
                    }
                }
            }
            println!("{file} {keys} MEAN {:.3} of the last five {:.3}", 100.0 * all.iter().sum::<f64>() / all.len() as f64, 20.0 * all[all.len()-5..].iter().sum::<f64>());
        }
    }
}
