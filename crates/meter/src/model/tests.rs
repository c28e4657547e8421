use std::time::Duration;

use proptest::prelude::*;

use super::*;

const SECOND_US: u64 = 1_000_000;

/// A model that takes rate and pipeline: 1000 ns a command, half of it where ten come at a time.
pub(crate) fn model() -> Model {
    let input = |input: Input, least: f64, most: f64| InputRange {
        input,
        least,
        most,
        mean: 0.0,
        deviation: 1.0,
    };
    let slope = -(2.0_f32.ln()) / 9.0_f32.mul_add(1.0, 2.0).ln();
    let last = Layer::new(&[vec![0.0, slope, 1000.0_f32.ln()]]).unwrap();
    Model {
        reference: "A machine (2 cores)".into(),
        machine: "another one".into(),
        factor: 0.5,
        accuracy: Accuracy {
            loads: 150,
            held_out: 30,
            r_squared: 0.96,
            mean_error: 0.05,
        },
        output_ns: (400.0, 3_000.0),
        inputs: vec![input(Input::Rate, 10.0, 1e6), input(Input::Pipeline, 0.0, 50.0)],
        network: Network::new(2, vec![last]).unwrap(),
    }
}

fn load(pipeline: f64) -> Load {
    Load::default().with(Input::Pipeline, Some(pipeline))
}

#[test]
fn a_model_says_what_its_network_was_made_for() {
    let model = model();
    let near = |is: f64, expected: f64| assert!((is / expected - 1.0).abs() < 1e-4, "{is} {expected}");
    near(model.ns_per_operation(&load(0.0)), 1000.0);
    near(model.ns_per_operation(&load(10.0)), 500.0);
    near(model.ns_per_operation(&Load::default()), 1000.0);
    // Beyond the trained range it is the range's end, also where that would be below what is possible at all.
    let most = model.ns_per_operation(&load(50.0));
    near(model.ns_per_operation(&load(75.0)), most);
    assert!(most < 400.0 && most > 400.0 / OUTPUT_MARGIN, "{most}");
}

#[test]
fn bytes_beyond_the_range_cost_what_they_do_in_it() {
    let mut model = model();
    let range = |least: f64, most: f64| InputRange {
        input: Input::ValueBytes,
        least,
        most,
        mean: 0.0,
        deviation: 1.0,
    };
    // Twice as much for each thousand bytes.
    let network = |slope: f32| Network::new(1, vec![Layer::new(&[vec![slope, 1000.0_f32.ln()]]).unwrap()]).unwrap();
    model.inputs = vec![range(0.0, 1000.0)];
    model.network = network(2.0_f32.ln() / 1000.0);
    let at = |model: &Model, bytes: f64| model.ns_per_operation(&Load::default().with(Input::ValueBytes, Some(bytes)));
    let near = |is: f64, expected: f64| assert!((is / expected - 1.0).abs() < 1e-4, "{is} {expected}");
    near(at(&model, 1000.0), 2000.0);
    // The upper half of the range costs 2000 less the root of two thousands.
    let half = 2000.0 - 1000.0 * 2.0_f64.sqrt();
    near(at(&model, 1500.0), 2000.0 + half);
    near(at(&model, 101_000.0), 2000.0 + 200.0 * half);
    near(at(&model, f64::MAX), OUTPUT_MAX_NS);
    near(at(&model, -5.0), 1000.0);
    // If more bytes seem to cost less, more of them cost nothing; a range without a middle says nothing.
    model.network = network(-(2.0_f32.ln()) / 1000.0);
    near(at(&model, 5000.0), 500.0);
    model.inputs = vec![range(1000.0, 1000.0)];
    near(at(&model, 5000.0), 500.0);
}

#[test]
fn work_is_a_load_over_its_time() {
    let shape = |visits, arrivals, written_key_bytes, written_value_bytes| tidemark_types::LoadShape {
        visits,
        arrivals,
        written_key_bytes,
        written_value_bytes,
    };
    let before = Work {
        operations: 100,
        resp_operations: 100,
        gets: 50,
        hits: 0,
        sets: 50,
        shape: shape(100, 100, 500, 5_000),
    };
    let all = Work {
        operations: 1100,
        resp_operations: 350,
        gets: 1050,
        hits: 900,
        sets: 50,
        shape: shape(600, 200, 500, 5_000),
    };
    let present = Present {
        connections: 7,
        items: 900,
    };
    let load = all.since(&before).load(&all, 2.0, present);
    for (input, expected) in [
        // The size of the keys that were written before it.
        (Input::KeyBytes, Some(10.0)),
        (Input::ValueBytes, Some(100.0)),
        (Input::ReadShare, Some(1.0)),
        (Input::Skew, None),
        (Input::Rate, Some(500.0)),
        (Input::Pipeline, Some(2.0)),
        (Input::Burst, Some(10.0)),
        (Input::HitRatio, Some(0.9)),
        (Input::RespShare, Some(0.25)),
        (Input::Connections, Some(7.0)),
        (Input::Items, Some(900.0)),
    ] {
        assert_eq!(load.get(input), expected, "{input:?}");
    }
    let idle = Work::default().load(&Work::default(), 1.0, Present::default());
    assert_eq!((idle.get(Input::HitRatio), idle.get(Input::Pipeline)), (None, None));
}

#[test]
fn an_estimate_allocates_nothing() {
    let model = model();
    let mut tally = Tally::default();
    let allocated = allocation_counter::measure(|| {
        for second in 1..100_u64 {
            let work = Work {
                operations: second * 100,
                ..Work::default()
            };
            tally.observe(
                &model,
                work,
                Present::default(),
                (second * SECOND_US - SECOND_US, second * SECOND_US),
            );
            tally.estimate_after(&model, Duration::from_secs(1));
        }
    });
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
    assert!(tally.ns() > 0);
}

#[test]
fn a_file_is_read_as_it_was_written() {
    let model = model();
    let text = write(&model, "Two lines\nof comment");
    assert!(text.starts_with("# Two lines\n# of comment\n"), "{text}");
    assert_eq!(parse(&text).unwrap(), model);
}

#[test]
fn a_mistake_in_a_file_is_named_with_its_line() {
    let good = write(&model(), "");
    for (from, to, line, expected) in [
        ("format = 1", "format = 2", 1, "this version reads 1"),
        ("another one", "", 5, "`machine` must be a name"),
        ("factor = 0.5", "factor = 0.001", 6, "allowed are 0.01 to 100"),
        ("factor = 0.5", "factor = nan", 6, "allowed are 0.01 to 100"),
        ("[400.0", "[-1.0", 8, "`output_ns` must be"),
        (
            "r_squared = 0.96",
            "r_squared = 1.5",
            11,
            "`r_squared` must be at most 1",
        ),
        ("held_out = 30", "held_out = 300", 11, "`held_out` at most `loads`"),
        ("\"rate\"", "\"speed\"", 17, "no input `speed`; known are key_bytes"),
        ("\"rate\"", "\"pipeline\"", 24, "input `pipeline` already"),
        ("most = 1000000.0", "most = 1.0", 17, "`least` not above `most`"),
        ("deviation = 1.0", "deviation = 0.0", 17, "`deviation` above 0"),
        ("[0.0, ", "[", 31, "layer 1 takes 1 inputs and is given 2"),
        ("[0.0, ", "[inf, ", 31, "no finite number"),
        ("factor = 0.5", "factor = 0.5\nfaktor = 1", 7, "unknown field `faktor`"),
        ("format = 1", "format", 1, ""),
    ] {
        let text = good.replacen(from, to, 1);
        assert_ne!(text, good, "{from}");
        let error = parse(&text).unwrap_err();
        assert!(error.message.contains(expected), "{to}: {error}");
        assert_eq!(error.line, line, "{to}: {error}");
    }
}

#[test]
fn layers_that_do_not_fit_are_refused() {
    let layer = |neurons: usize, inputs: usize| Layer::new(&vec![vec![0.5; inputs + 1]; neurons]);
    assert!(Network::new(3, vec![layer(4, 3).unwrap(), layer(1, 4).unwrap()]).is_ok());
    for (inputs, layers) in [
        (3, vec![]),
        (2, vec![layer(1, 3).unwrap()]),
        (3, vec![layer(2, 3).unwrap()]),
        (3, vec![layer(4, 3).unwrap(), layer(1, 5).unwrap()]),
        (NEURONS_MAX + 1, vec![layer(1, NEURONS_MAX + 1).unwrap()]),
        (1, vec![layer(1, 1).unwrap(); 5]),
    ] {
        assert!(Network::new(inputs, layers.clone()).is_err(), "{inputs} {layers:?}");
    }
    assert!(layer(NEURONS_MAX + 1, 1).is_err() && layer(0, 1).is_err());
    assert!(Layer::new(&[vec![1.0, 2.0], vec![1.0]]).is_err());
}

#[test]
fn a_tally_is_the_same_however_often_it_is_estimated() {
    // The model takes no notice of the time, so that only what is counted twice or not at all could differ.
    let model = model();
    let work = |operations: u64| Work {
        operations,
        shape: tidemark_types::LoadShape {
            visits: operations,
            ..Default::default()
        },
        ..Work::default()
    };
    let total = |interval: Duration| {
        let mut tally = Tally::default();
        for second in 1..=20_u64 {
            // Silent from 5 to 10.
            if (5..10).contains(&second) {
                continue;
            }
            let between_us = (second * SECOND_US - SECOND_US, second * SECOND_US);
            tally.observe(&model, work(second * 100), Present::default(), between_us);
            tally.estimate_after(&model, interval);
        }
        tally.estimate(&model);
        tally.ns()
    };
    let once = total(Duration::MAX);
    let expected = 2000.0 * model.ns_per_operation(&load(1.0));
    assert!((once as f64 - expected).abs() <= 1.0, "{once} {expected}");
    for seconds in [0, 1, 3] {
        assert!(total(Duration::from_secs(seconds)).abs_diff(once) <= 1, "{seconds}");
    }
}

#[test]
fn a_silence_is_not_part_of_what_follows() {
    let mut rate_model = model();
    // Twice as fast, a command takes half.
    let last = Layer::new(&[vec![-1.0, 0.0, 1e6_f32.ln()]]).unwrap();
    rate_model.network = Network::new(2, vec![last]).unwrap();
    rate_model.output_ns = (1.0, 1e9);
    let work = |operations| Work {
        operations,
        ..Work::default()
    };
    let mut tally = Tally::default();
    tally.observe(&rate_model, work(999), Present::default(), (0, SECOND_US));
    tally.observe(
        &rate_model,
        work(1998),
        Present::default(),
        (60 * SECOND_US, 61 * SECOND_US),
    );
    tally.estimate(&rate_model);
    // 999 commands a second, each time.
    assert!(
        (tally.ns() as f64 / (2.0 * 999.0 * 1000.0) - 1.0).abs() < 1e-3,
        "{}",
        tally.ns()
    );
}

fn any_load() -> impl Strategy<Value = Load> {
    prop::collection::vec(prop::option::of(any::<f64>()), Input::ALL.len()).prop_map(|values| {
        let places = Input::ALL.into_iter().zip(values);
        places.fold(Load::default(), |load, (input, value)| load.with(input, value))
    })
}

proptest! {
    #[test]
    fn any_load_has_a_finite_estimate(load in any_load(), weights in prop::collection::vec(-1e3_f32..1e3, 3)) {
        let mut model = model();
        model.network = Network::new(2, vec![Layer::new(&[weights]).unwrap()]).unwrap();
        let ns = model.ns_per_operation(&load);
        prop_assert!((400.0 / OUTPUT_MARGIN..=3_000.0 * OUTPUT_MARGIN).contains(&ns), "{ns}");
    }

    #[test]
    fn beyond_its_range_an_input_changes_nothing(beyond in 1.0_f64..1e6, other in any_load()) {
        let model = model();
        for range in &model.inputs {
            let at = |value: f64| model.ns_per_operation(&other.with(range.input, Some(value)));
            prop_assert_eq!(at(range.most).to_bits(), at(range.most + beyond).to_bits());
            prop_assert_eq!(at(range.least).to_bits(), at(range.least - beyond).to_bits());
        }
    }

    #[test]
    fn any_model_survives_its_file(
        weights in prop::collection::vec(prop::collection::vec(-50.0_f32..50.0, 3), 1..8),
        last in prop::collection::vec(-50.0_f32..50.0, 9),
        factor in 0.01_f64..100.0,
    ) {
        let mut model = model();
        let last = Layer::new(&[last[..=weights.len()].to_vec()]).unwrap();
        model.network = Network::new(2, vec![Layer::new(&weights).unwrap(), last]).unwrap();
        model.factor = factor;
        prop_assert_eq!(parse(&write(&model, "x")).unwrap(), model);
    }
}
