//! The frontier as a picture: cost over mean latency, elastic and proportional, with the plan as a dot.

use super::{Goal, Report, Split};
use crate::curve::grouped;
use crate::curve::picture::{Align, At, Ink, Picture, Shape, heads, words};

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 86.0;
const BOTTOM: f64 = 58.0;
/// Marks on the axis of latencies, at most about.
const LATENCY_TICKS: f64 = 8.0;

/// A chart of a plan.
#[derive(Debug)]
pub struct Chart<'a> {
    report: &'a Report,
    title: String,
    latencies: (f64, f64),
    /// Powers of ten.
    costs: (i32, i32),
}

impl<'a> Chart<'a> {
    /// The chart of a plan for tenants of these names.
    pub fn new(report: &'a Report) -> Self {
        let names: Vec<&str> = report.tenants.iter().map(|tenant| tenant.tenant.as_str()).collect();
        let name = match names[..] {
            [name] => name.to_owned(),
            _ => format!("{} tenants", names.len()),
        };
        let splits = report
            .frontier
            .iter()
            .flat_map(|step| step.proportional.into_iter().chain([step.elastic]));
        let costs: Vec<f64> = splits
            .chain([report.total])
            .map(|split| split.cost)
            .filter(|cost| *cost > 0.0)
            .collect();
        let (least, most) = (
            costs.iter().copied().fold(f64::INFINITY, f64::min),
            costs.iter().copied().fold(0.0, f64::max),
        );
        let costs = if costs.is_empty() {
            (0, 1)
        } else {
            let first = least.log10().floor() as i32;
            (first, (most.log10().ceil() as i32).max(first + 1))
        };
        let latencies = report
            .frontier
            .iter()
            .map(|step| step.latency_us)
            .chain([report.total.latency_us]);
        let bounds = latencies.fold((f64::INFINITY, 0.0_f64), |(a, b), us| (a.min(us), b.max(us)));
        Self {
            report,
            title: format!("Cost of a mean latency, {name}"),
            latencies: (bounds.0, bounds.1.max(bounds.0 * 1.001 + 1e-3)),
            costs,
        }
    }

    /// The picture of it.
    pub fn picture(&self) -> Picture {
        let mut shapes = Vec::new();
        self.draw_axes(&mut shapes);
        self.draw_heads(&mut shapes);
        let line = |of: fn(&super::Step) -> Option<Split>| {
            let seen = |step: &super::Step| of(step).filter(|split| split.cost > 0.0);
            self.report
                .frontier
                .iter()
                .filter_map(seen)
                .map(|split| self.place(split))
                .collect()
        };
        for (through, ink) in [
            (line(|step| step.proportional), Ink::Other),
            (line(|step| Some(step.elastic)), Ink::Curve),
        ] {
            shapes.push(Shape::Line {
                through,
                ink,
                is_dashed: ink == Ink::Other,
            });
        }
        if self.report.total.cost > 0.0 {
            shapes.push(Shape::Dot(self.place(self.report.total), Ink::Curve));
        }
        Picture {
            title: self.title.clone(),
            width: WIDTH,
            height: HEIGHT,
            shapes,
        }
    }

    fn place(&self, split: Split) -> At {
        let (first, last) = self.latencies;
        At {
            x: LEFT + (WIDTH - LEFT - RIGHT) * (split.latency_us - first) / (last - first),
            y: self.height(split.cost),
        }
    }

    fn height(&self, cost: f64) -> f64 {
        let (first, last) = (f64::from(self.costs.0), f64::from(self.costs.1));
        TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - (cost.log10() - first) / (last - first))
    }

    fn draw_axes(&self, shapes: &mut Vec<Shape>) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for power in self.costs.0..=self.costs.1 {
            let y = self.height(10_f64.powi(power));
            let ink = if power == self.costs.0 { Ink::Axis } else { Ink::Grid };
            shapes.push(Shape::Rule(At { x: LEFT, y }, At { x: right, y }, ink));
            let label = format!("{}", 10_f64.powi(power));
            shapes.push(words(
                At {
                    x: LEFT - 8.0,
                    y: y + 4.0,
                },
                label,
                Align::End,
            ));
        }
        let (first, last) = self.latencies;
        let step = round_step((last - first) / LATENCY_TICKS);
        let mut us = (first / step).ceil() * step;
        while us <= last {
            let x = LEFT + (right - LEFT) * (us - first) / (last - first);
            shapes.push(Shape::Rule(At { x, y: TOP }, At { x, y: bottom }, Ink::Grid));
            shapes.push(Shape::Rule(At { x, y: bottom }, At { x, y: bottom + 4.0 }, Ink::Axis));
            // Steps are round, sums of them nearly so.
            let label = format!("{} us", (us * 1000.0).round() / 1000.0);
            shapes.push(words(At { x, y: bottom + 19.0 }, label, Align::Middle));
            us += step;
        }
        let at = At {
            x: LEFT + (right - LEFT) / 2.0,
            y: HEIGHT - 16.0,
        };
        shapes.push(words(at, "mean latency".into(), Align::Middle));
    }

    fn draw_heads(&self, shapes: &mut Vec<Shape>) {
        let requests: u64 = self.report.tenants.iter().map(|tenant| tenant.requests).sum();
        let prices = self.report.price_per_gib;
        let goal = match self.report.goal {
            Goal::LatencyUs(us) => format!("at most {us} us each"),
            Goal::Spending(amount) => format!("for {amount}"),
        };
        let what = format!(
            "{} requests; memory {} and flash {} per GiB; the dot: {goal}",
            grouped(requests),
            prices.dram,
            prices.flash
        );
        let lines = [("elastic", Ink::Curve), ("proportional 1:4", Ink::Other)];
        heads(shapes, At { x: LEFT, y: TOP }, (&self.title, &what), lines);
    }
}

/// The least of 1, 2 and 5 times a power of ten that is no smaller.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0];
    factors.iter().find(|factor| **factor * power >= least).unwrap_or(&10.0) * power
}
