//! The picture of a curve: miss ratio over size, with the requested points and, for sampled ones, the error.

use tidemark_curve::{Curve, Point};

use super::axis::{Ratios, Sizes};
use super::picture::{Align, At, Ink, Picture, Shape, heads, words};
use super::{PointReport, Report};

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 480.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 86.0;
const BOTTOM: f64 = 58.0;
/// Places at which a curve is looked at, from the first size to the last.
const PLACES: u32 = 360;
/// The band around a sampled curve is so many standard errors to either side: the truth is in it 19 times out of 20.
const BAND_ERRORS: f64 = 2.0;

/// A chart of a report.
#[derive(Debug)]
pub struct Chart<'a> {
    report: &'a Report,
    /// LRU's curve, where it is to be compared with that.
    other: Option<&'a Curve>,
    title: String,
    /// The measurement and its method.
    what: String,
    sizes: Sizes,
    ratios: Ratios,
}

impl<'a> Chart<'a> {
    /// The chart of a report on this trace.
    pub fn new(trace: &str, report: &'a Report) -> Self {
        let how = match report.sampled_objects {
            Some(sampled) => format!("from a sample of {}; the band is two standard errors", grouped(sampled)),
            None => "exact".into(),
        };
        let what = format!(
            "{} requests for {} objects, {how}",
            grouped(report.requests),
            grouped(report.objects)
        );
        let other = (report.policy != "lru").then_some(&report.lru);
        Self::with(report, other, trace, what)
    }

    /// The chart of a running cache's estimate: all of its curve is known, and the report's points are only marks on
    /// it.
    pub fn live(tenant: &str, report: &'a Report) -> Self {
        let gets = grouped(report.requests);
        let what = format!("{gets} gets, estimated from a sample");
        Self::with(report, None, tenant, what)
    }

    fn with(report: &'a Report, other: Option<&'a Curve>, name: &str, what: String) -> Self {
        let first = report.points.first().map_or(1, |point| point.bytes);
        let last = report.points.last().map_or(1, |point| point.bytes);
        let sizes = Sizes::new(first / 2, last.max(report.distinct_bytes));
        let highest = |point: Point| (point.miss_ratio + BAND_ERRORS * point.standard_error).min(1.0);
        let at_first = highest(report.lru.at(sizes.bytes_at(0.0)));
        let of_points = report.points.iter().map(|point| highest(report.curve.at(point.bytes)));
        let largest = of_points.fold(at_first, f64::max);
        Self {
            report,
            other,
            title: format!("Miss ratio of {name}"),
            what,
            sizes,
            ratios: Ratios::new(largest),
        }
    }

    /// The picture of it.
    pub fn picture(&self) -> Picture {
        let mut shapes = Vec::new();
        self.draw_axes(&mut shapes);
        self.draw_heads(&mut shapes);
        if self.report.sampled_objects.is_some() {
            shapes.push(self.band());
        }
        if let Some(other) = self.other {
            shapes.push(Shape::Line {
                through: self.line(other),
                ink: Ink::Other,
                is_dashed: true,
            });
        }
        shapes.push(Shape::Line {
            through: self
                .drawn()
                .iter()
                .map(|point| self.place(point.bytes, point.miss_ratio))
                .collect(),
            ink: Ink::Curve,
            is_dashed: false,
        });
        for PointReport { bytes, miss_ratio, .. } in &self.report.points {
            shapes.push(Shape::Dot(self.place(*bytes, *miss_ratio), Ink::Curve));
        }
        Picture {
            title: self.title.clone(),
            width: WIDTH,
            height: HEIGHT,
            shapes,
        }
    }

    /// Whether there is a policy to be compared with LRU.
    fn compares(&self) -> bool {
        self.other.is_some()
    }

    fn place(&self, bytes: u64, miss_ratio: f64) -> At {
        At {
            x: LEFT + (WIDTH - LEFT - RIGHT) * self.sizes.at(bytes as f64),
            y: TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - self.ratios.at(miss_ratio)),
        }
    }

    /// A curve from the axis's one end to the other.
    fn line(&self, curve: &Curve) -> Vec<At> {
        self.along(curve)
            .iter()
            .map(|point| self.place(point.bytes, point.miss_ratio))
            .collect()
    }

    fn along(&self, curve: &Curve) -> Vec<Point> {
        let mut points: Vec<Point> = (0..=PLACES)
            .map(|place| curve.at(self.sizes.bytes_at(f64::from(place) / f64::from(PLACES))))
            .collect();
        points.dedup_by_key(|point| point.bytes);
        points
    }

    /// The part of the curve that is drawn. A policy's curve is drawn only between its points, since nothing is known
    /// outside them.
    fn drawn(&self) -> Vec<Point> {
        if self.compares() {
            self.report
                .points
                .iter()
                .map(|point| self.report.curve.at(point.bytes))
                .collect()
        } else {
            self.along(&self.report.curve)
        }
    }

    fn band(&self) -> Shape {
        let edge = |factor: f64| {
            let ratio = move |point: &Point| (point.miss_ratio + factor * point.standard_error).clamp(0.0, 1.0);
            self.drawn()
                .into_iter()
                .map(move |point| self.place(point.bytes, ratio(&point)))
        };
        let within = edge(BAND_ERRORS).chain(edge(-BAND_ERRORS).rev()).collect();
        Shape::Area {
            within,
            ink: Ink::Curve,
        }
    }

    fn draw_axes(&self, shapes: &mut Vec<Shape>) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for tick in self.ratios.ticks() {
            let y = TOP + (bottom - TOP) * (1.0 - tick.at);
            let ink = if tick.at == 0.0 { Ink::Axis } else { Ink::Grid };
            shapes.push(Shape::Rule(At { x: LEFT, y }, At { x: right, y }, ink));
            shapes.push(words(
                At {
                    x: LEFT - 8.0,
                    y: y + 4.0,
                },
                tick.label,
                Align::End,
            ));
        }
        for tick in self.sizes.ticks() {
            let x = LEFT + (right - LEFT) * tick.at;
            shapes.push(Shape::Rule(At { x, y: TOP }, At { x, y: bottom }, Ink::Grid));
            shapes.push(Shape::Rule(At { x, y: bottom }, At { x, y: bottom + 4.0 }, Ink::Axis));
            shapes.push(words(At { x, y: bottom + 19.0 }, tick.label, Align::Middle));
        }
        let middle = LEFT + (right - LEFT) / 2.0;
        shapes.push(words(
            At {
                x: middle,
                y: HEIGHT - 16.0,
            },
            "cache size".into(),
            Align::Middle,
        ));
    }

    /// Title, measurement, and which line is which.
    fn draw_heads(&self, shapes: &mut Vec<Shape>) {
        let other = self.compares().then_some(("lru", Ink::Other));
        let lines = std::iter::once((self.report.policy.as_str(), Ink::Curve)).chain(other);
        heads(shapes, At { x: LEFT, y: TOP }, (&self.title, &self.what), lines);
    }
}

/// A number with commas between its thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
