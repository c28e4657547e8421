//! When requests come: the minutes of a function of Azure's public trace (2019), each one a second long here, and chance within a second.

use std::fs;
use std::path::Path;

use tidemark_cachelet::sim::Rng;

/// The trace of a hundred functions, below the folder of traces.
const FILE: &str = "functions/azure2019-100-inv.csv";
/// Columns before the minutes: hashes of function, application and owner.
const NAMES: usize = 3;
/// A function whose highest minute has more than so many times the mean is left out: the instances could not hold it.
const PEAK_MAX: f64 = 3.0;

/// Shares of the mean rate, second by second.
pub(super) type Pattern = Vec<f64>;

/// Patterns of so many seconds, those of the most invoked functions first; generated ones if there is no trace. The second value
/// says which.
pub(super) fn patterns(traces: &Path, seconds: usize, count: usize) -> (Vec<Pattern>, bool) {
    let rows = fs::read_to_string(traces.join(FILE)).unwrap_or_default();
    let found = of_rows(&rows, seconds, count);
    if found.len() == count {
        return (found, true);
    }
    (generated(seconds, count), false)
}

/// Patterns that rise and fall, each one at other times.
fn generated(seconds: usize, count: usize) -> Vec<Pattern> {
    let wave = |at: usize| 1.0 + 0.5 * (at as f64 * 0.9).sin();
    (0..count)
        .map(|number| normal((0..seconds).map(|second| wave(second + 3 * number)).collect()))
        .collect()
}

/// The same from a CSV with a header. A part of the day in which the function is busy, in the middle.
fn of_rows(rows: &str, seconds: usize, count: usize) -> Vec<Pattern> {
    let minutes = rows.lines().skip(1).map(|row| {
        let fields = row.split(',').skip(NAMES);
        fields
            .map(|field| field.trim().parse().unwrap_or(0.0))
            .collect::<Vec<f64>>()
    });
    let mut busy: Vec<(f64, Pattern)> = minutes
        .filter_map(|minutes| {
            let from = minutes.len() / 2;
            let part = minutes.get(from..from + seconds)?.to_vec();
            let sum: f64 = part.iter().sum();
            let pattern = normal(part);
            let is_held = pattern.iter().all(|share| *share <= PEAK_MAX);
            (sum > 0.0 && is_held).then_some((sum, pattern))
        })
        .collect();
    busy.sort_by(|one, other| other.0.total_cmp(&one.0));
    busy.truncate(count);
    busy.into_iter().map(|(_, pattern)| pattern).collect()
}

/// The same with a mean of one.
fn normal(shares: Vec<f64>) -> Pattern {
    let mean = shares.iter().sum::<f64>() / shares.len().max(1) as f64;
    shares
        .into_iter()
        .map(|share| share / mean.max(f64::MIN_POSITIVE))
        .collect()
}

/// The times of requests at so many a second in the mean, in seconds, in order: a Poisson process within each second.
pub(super) fn arrivals(pattern: &[f64], per_second: f64, rng: &mut Rng) -> Vec<f64> {
    let mut all = Vec::new();
    for (second, share) in pattern.iter().enumerate() {
        let rate = share * per_second;
        if rate <= 0.0 {
            continue;
        }
        let mut at = 0.0;
        loop {
            at -= (1.0 - rng.unit()).ln() / rate;
            if at >= 1.0 {
                break;
            }
            all.push(second as f64 + at);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_functions_come_first_and_bursts_are_left_out() {
        let row = |name: &str, minutes: &[u32]| {
            let minutes: Vec<String> = minutes.iter().map(u32::to_string).collect();
            format!("{name},a,o,{}\n", minutes.join(","))
        };
        let rows = [
            "HashFunction,HashApp,HashOwner,minute_1,...\n".to_owned(),
            row("rare", &[0, 0, 0, 0, 2, 2, 2, 2]),
            row("burst", &[0, 0, 0, 0, 900, 0, 0, 0]),
            row("busy", &[0, 0, 0, 0, 30, 10, 20, 20]),
            row("idle", &[9, 9, 9, 9, 0, 0, 0, 0]),
        ];
        let found = of_rows(&rows.concat(), 4, 9);
        assert_eq!(found, [vec![1.5, 0.5, 1.0, 1.0], vec![1.0; 4]]);
    }

    #[test]
    fn without_a_trace_there_are_patterns_as_well() {
        let (patterns, is_real) = patterns(Path::new("/none"), 8, 9);
        assert!(!is_real && patterns.len() == 9 && patterns[0] != patterns[1]);
        for pattern in patterns {
            assert!((pattern.iter().sum::<f64>() - 8.0).abs() < 1e-6, "{pattern:?}");
        }
    }

    #[test]
    fn requests_come_as_often_as_asked_for() {
        let mut rng = Rng::new(5);
        let times = arrivals(&[1.5, 0.0, 0.5, 2.0], 1_000.0, &mut rng);
        assert!(
            times.is_sorted() && (3_700..4_300).contains(&times.len()),
            "{}",
            times.len()
        );
        let within = |second: f64| times.iter().filter(|at| (second..second + 1.0).contains(*at)).count();
        assert!(within(0.0) > 1_300 && within(1.0) == 0 && within(2.0) < 700 && within(3.0) > 1_700);
    }
}
