//! Pairs of a measured value and an estimate of it, on logarithmic axes: an estimate that is right lies on the diagonal.

use super::picture::{Align, At, Ink, Picture, Shape, heads, words};

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 640.0;
const LEFT: f64 = 76.0;
const RIGHT: f64 = 28.0;
const TOP: f64 = 86.0;
const BOTTOM: f64 = 58.0;

/// A chart of pairs.
#[derive(Clone, Debug)]
pub struct Scatter<'a> {
    /// The text above it.
    pub title: &'a str,
    /// And below that: what was measured, and how.
    pub about: &'a str,
    /// The axes' names: of what was measured, and of the estimates.
    pub axes: (&'a str, &'a str),
    /// Measured, estimated. Pairs with a number that is not above 0 are not drawn.
    pub pairs: &'a [(f64, f64)],
    /// Two faint lines show how far off so much is, as a part of what was measured.
    pub band_ratio: f64,
}

impl Scatter<'_> {
    /// The picture of it.
    pub fn picture(&self) -> Picture {
        let drawn = |pair: &&(f64, f64)| pair.0 > 0.0 && pair.1 > 0.0;
        let pairs: Vec<(f64, f64)> = self.pairs.iter().filter(drawn).copied().collect();
        let logarithms = || pairs.iter().flat_map(|pair| [pair.0.log10(), pair.1.log10()]);
        let least = logarithms().fold(f64::INFINITY, f64::min);
        let most = logarithms().fold(f64::NEG_INFINITY, f64::max);
        let decades = if pairs.is_empty() {
            Decades { first: 0.0, last: 1.0 }
        } else {
            let first = least.floor();
            Decades {
                first,
                last: most.ceil().max(first + 1.0),
            }
        };
        let mut shapes = Vec::new();
        self.draw_axes(&decades, &mut shapes);
        for ratio in [1.0, 1.0 + self.band_ratio, 1.0 / (1.0 + self.band_ratio)] {
            shapes.push(decades.diagonal(ratio.log10(), ratio == 1.0));
        }
        for pair in &pairs {
            shapes.push(Shape::Dot(decades.place(pair.0.log10(), pair.1.log10()), Ink::Curve));
        }
        Picture {
            title: self.title.to_owned(),
            width: WIDTH,
            height: HEIGHT,
            shapes,
        }
    }

    fn draw_axes(&self, decades: &Decades, shapes: &mut Vec<Shape>) {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        for power in decades.first as i32..=decades.last as i32 {
            let at = decades.place(f64::from(power), f64::from(power));
            let ink = if f64::from(power) == decades.first {
                Ink::Axis
            } else {
                Ink::Grid
            };
            let label = format!("{}", 10_f64.powi(power));
            shapes.push(Shape::Rule(At { x: LEFT, y: at.y }, At { x: right, y: at.y }, ink));
            shapes.push(Shape::Rule(At { x: at.x, y: TOP }, At { x: at.x, y: bottom }, ink));
            let beside = At {
                x: LEFT - 8.0,
                y: at.y + 4.0,
            };
            shapes.push(words(beside, label.clone(), Align::End));
            let below = At {
                x: at.x,
                y: bottom + 19.0,
            };
            shapes.push(words(below, label, Align::Middle));
        }
        let (measured, estimated) = self.axes;
        let below = At {
            x: LEFT + (right - LEFT) / 2.0,
            y: HEIGHT - 16.0,
        };
        shapes.push(words(below, measured.to_owned(), Align::Middle));
        let lines = [(estimated, Ink::Curve)];
        heads(shapes, At { x: LEFT, y: TOP }, (self.title, self.about), lines);
    }
}

/// Both axes, in powers of ten.
struct Decades {
    first: f64,
    last: f64,
}

impl Decades {
    fn place(&self, measured: f64, estimated: f64) -> At {
        let part = |power: f64| (power - self.first) / (self.last - self.first);
        At {
            x: LEFT + (WIDTH - LEFT - RIGHT) * part(measured),
            y: TOP + (HEIGHT - TOP - BOTTOM) * (1.0 - part(estimated)),
        }
    }

    /// The places, within the plot, at which an estimate is so many decades above the measurement.
    fn diagonal(&self, above: f64, is_right: bool) -> Shape {
        let from = self.first - above.min(0.0);
        let to = self.last - above.max(0.0);
        Shape::Line {
            through: vec![self.place(from, from + above), self.place(to, to + above)],
            ink: if is_right { Ink::Axis } else { Ink::Grid },
            is_dashed: !is_right,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scatter(pairs: &[(f64, f64)]) -> Picture {
        let chart = Scatter {
            title: "Title",
            about: "about <it>",
            axes: ("measured", "estimated"),
            pairs,
            band_ratio: 0.2,
        };
        chart.picture()
    }

    #[test]
    fn pairs_are_dots_and_what_is_right_lies_on_the_diagonal() {
        let picture = scatter(&[(0.02, 0.02), (0.5, 0.25), (0.0, 1.0), (1.0, -1.0)]);
        let dots: Vec<At> = picture
            .shapes
            .iter()
            .filter_map(|shape| match shape {
                Shape::Dot(at, _) => Some(*at),
                _ => None,
            })
            .collect();
        assert_eq!(dots.len(), 2, "what has no logarithm is not drawn");
        let right = dots[0];
        let (x, y) = (right.x - LEFT, HEIGHT - BOTTOM - right.y);
        let (width, height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
        assert!((x / width - y / height).abs() < 1e-9, "{right:?}");
        assert!(
            (HEIGHT - BOTTOM - dots[1].y) / height < (dots[1].x - LEFT) / width,
            "too little is below it"
        );
        let svg = picture.svg();
        for part in ["about &lt;it&gt;", ">0.01<", ">1<", "measured", "estimated"] {
            assert!(svg.contains(part), "{part}: {svg}");
        }
    }

    #[test]
    fn a_chart_without_pairs_has_axes() {
        assert!(scatter(&[]).svg().contains(">10<"));
    }
}
