//! Charts as SVG, written by hand: panels of bars or lines over labelled places, with quartiles as whiskers.
//!
//! Charts are readable on light and on dark ground. The ground is left out, text and grid follow the reader's
//! preference, and the colours of the series have middle brightness. Lengths are pixels.

use std::fmt::Write as _;

use super::Spread;
use super::report::Series;

/// A picture of one or several panels with one legend.
#[derive(Clone, Debug)]
pub struct Chart {
    /// The subject of the chart.
    pub title: String,
    /// Beside and below each other.
    pub panels: Vec<Panel>,
}

/// One pair of axes.
#[derive(Clone, Debug)]
pub struct Panel {
    /// The subject of the panel.
    pub title: String,
    /// The meaning of the places.
    pub x_label: String,
    /// The meaning of the values and their unit; the axis begins at zero.
    pub y_label: String,
    /// The places, from left to right; those without a text have no label.
    pub places: Vec<String>,
    /// How values are drawn.
    pub marks: Marks,
    /// The drawn series: a name, which has one colour in all panels, and a value for each place.
    pub series: Vec<(String, Vec<Option<Spread>>)>,
}

impl Panel {
    /// A panel of series of one measure over the same places.
    pub(super) fn of_series(title: &str, marks: Marks, series: &[&Series]) -> Self {
        let first = series.first();
        Self {
            title: title.to_owned(),
            x_label: first.map_or_else(String::new, |series| series.x.clone()),
            y_label: first.map_or_else(String::new, |series| series.unit.clone()),
            places: first.map_or_else(Vec::new, |series| {
                series.points.iter().map(|point| point.x.clone()).collect()
            }),
            marks,
            series: series.iter().map(|series| series.drawn()).collect(),
        }
    }
}

/// How values are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// Side by side, for places that have no order.
    Bars,
    /// Connected, for places that have one.
    Lines,
    /// Connected, without a mark at each: for many places close together.
    Course,
}

const PANEL_WIDTH: f64 = 470.0;
const PANEL_HEIGHT: f64 = 270.0;
const MARGIN: f64 = 14.0;
/// Left of a panel's axes: the label and the numbers.
const LEFT: f64 = 64.0;
const TOP: f64 = 34.0;
const BOTTOM: f64 = 46.0;
const TITLE_HEIGHT: f64 = 34.0;
const LEGEND_HEIGHT: f64 = 26.0;
/// Mean width of a letter at 12 px in a wide font, for laying out the legend.
const LETTER_WIDTH: f64 = 7.4;
/// About so many numbers are on an axis.
const TICKS: f64 = 5.0;

/// Apart for the colour-blind too (after Okabe and Ito), and of middle brightness.
const COLOURS: [&str; 8] = [
    "#2b7bba", "#d9822b", "#2f9e75", "#b8589a", "#8a8f98", "#b39c1f", "#c4452f", "#5cb3dd",
];

const STYLE: &str = "\
text{font:12px -apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#3b434b}\
.title{font-size:15px;font-weight:600}.panel{font-weight:600}.grid{stroke:#c3c8ce;stroke-width:1}\
.axis{stroke:#6b737c;stroke-width:1}.whisker{stroke:#3b434b;stroke-width:1;fill:none}\
@media (prefers-color-scheme:dark){text{fill:#c9d1d9}.grid{stroke:#3a4149}.axis{stroke:#8b949e}.whisker{stroke:#c9d1d9}}";

impl Chart {
    /// The picture.
    pub fn svg(&self) -> String {
        let columns = if self.panels.len() > 1 { 2 } else { 1 };
        let rows = self.panels.len().div_ceil(columns);
        let width = columns as f64 * PANEL_WIDTH + 2.0 * MARGIN;
        let (legend, legend_rows) = self.legend(width);
        let head = MARGIN + TITLE_HEIGHT + legend_rows as f64 * LEGEND_HEIGHT;
        let height = head + rows as f64 * PANEL_HEIGHT + MARGIN;
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             <text class=\"title\" x=\"{MARGIN}\" y=\"{y}\">{title}</text>\n{legend}",
            title = escape(&self.title),
            y = MARGIN + 16.0,
        );
        for (index, panel) in self.panels.iter().enumerate() {
            let (column, row) = (index % columns, index / columns);
            let x = MARGIN + column as f64 * PANEL_WIDTH;
            let y = head + row as f64 * PANEL_HEIGHT;
            let _ = writeln!(svg, "<g transform=\"translate({x} {y})\">");
            self.draw(panel, &mut svg);
            svg.push_str("</g>\n");
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// All names, in the order in which they first occur: the place gives the colour.
    fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for (name, _) in self.panels.iter().flat_map(|panel| &panel.series) {
            if !names.contains(&name.as_str()) {
                names.push(name);
            }
        }
        names
    }

    fn colour(&self, name: &str) -> &'static str {
        let place = self.names().iter().position(|other| *other == name).unwrap_or(0);
        COLOURS[place % COLOURS.len()]
    }

    /// The legend, and how many rows it has.
    fn legend(&self, width: f64) -> (String, usize) {
        let (mut svg, mut x, mut row) = (String::new(), MARGIN, 0);
        for name in self.names() {
            let long = 34.0 + name.chars().count() as f64 * LETTER_WIDTH;
            if x > MARGIN && x + long > width - MARGIN {
                (x, row) = (MARGIN, row + 1);
            }
            let y = MARGIN + TITLE_HEIGHT + row as f64 * LEGEND_HEIGHT;
            let _ = writeln!(
                svg,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"12\" height=\"12\" rx=\"2\" fill=\"{}\"/>\
                 <text x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                self.colour(name),
                x + 18.0,
                y + 10.5,
                escape(name)
            );
            x += long;
        }
        (svg, row + 1)
    }

    fn draw(&self, panel: &Panel, svg: &mut String) {
        let frame = Frame::of(panel);
        frame.draw_axes(panel, svg);
        for (index, (name, values)) in panel.series.iter().enumerate() {
            let colour = self.colour(name);
            match panel.marks {
                Marks::Bars => frame.draw_bars((index, panel.series.len()), values, colour, svg),
                Marks::Lines => {
                    frame.draw_line(values, colour, svg);
                    frame.draw_dots(values, colour, svg);
                }
                Marks::Course => frame.draw_line(values, colour, svg),
            }
        }
    }
}

/// A panel's axes: where values and places are.
struct Frame {
    top_value: f64,
    step: f64,
    slot: f64,
}

const PLOT_WIDTH: f64 = PANEL_WIDTH - LEFT - MARGIN;
const PLOT_HEIGHT: f64 = PANEL_HEIGHT - TOP - BOTTOM;

impl Frame {
    fn of(panel: &Panel) -> Self {
        let values = panel.series.iter().flat_map(|(_, values)| values).flatten();
        let largest = values.map(|spread| spread.high.max(spread.median)).fold(0.0, f64::max);
        let step = nice_step(largest / TICKS);
        Self {
            step,
            top_value: (largest / step).ceil().max(1.0) * step,
            slot: PLOT_WIDTH / panel.places.len().max(1) as f64,
        }
    }

    fn y(&self, value: f64) -> f64 {
        TOP + PLOT_HEIGHT * (1.0 - value / self.top_value)
    }

    fn x(&self, place: usize) -> f64 {
        LEFT + (place as f64 + 0.5) * self.slot
    }

    fn draw_axes(&self, panel: &Panel, svg: &mut String) {
        let (right, bottom) = (LEFT + PLOT_WIDTH, TOP + PLOT_HEIGHT);
        let _ = writeln!(
            svg,
            "<text class=\"panel\" x=\"{LEFT}\" y=\"{}\">{}</text>",
            TOP - 14.0,
            escape(&panel.title)
        );
        let ticks = (self.top_value / self.step).round() as usize;
        for tick in 0..=ticks {
            let value = tick as f64 * self.step;
            let y = self.y(value);
            let class = if tick == 0 { "axis" } else { "grid" };
            let _ = writeln!(
                svg,
                "<line class=\"{class}\" x1=\"{LEFT}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\"/>\
                 <text text-anchor=\"end\" x=\"{:.1}\" y=\"{:.1}\">{}</text>",
                LEFT - 6.0,
                y + 4.0,
                number(value)
            );
        }
        for (place, label) in readable(&panel.places, self.slot) {
            let (x, y) = (self.x(place), bottom + 17.0);
            let _ = writeln!(
                svg,
                "<text text-anchor=\"middle\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>",
                escape(label)
            );
        }
        let middle = (LEFT + PLOT_WIDTH / 2.0, TOP + PLOT_HEIGHT / 2.0);
        let _ = writeln!(
            svg,
            "<text text-anchor=\"middle\" x=\"{:.1}\" y=\"{:.1}\">{}</text>\n<text text-anchor=\"middle\" \
             transform=\"translate(12 {:.1}) rotate(-90)\">{}</text>",
            middle.0,
            bottom + 36.0,
            escape(&panel.x_label),
            middle.1,
            escape(&panel.y_label)
        );
    }

    fn draw_bars(&self, (index, count): (usize, usize), values: &[Option<Spread>], colour: &str, svg: &mut String) {
        /// The part of the slot that the bars of one place take together.
        const FILLED: f64 = 0.78;
        let width = self.slot * FILLED / count as f64;
        for (place, value) in values.iter().enumerate() {
            let Some(value) = value else { continue };
            let left = self.x(place) - self.slot * FILLED / 2.0 + index as f64 * width;
            let y = self.y(value.median);
            let _ = writeln!(
                svg,
                "<rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{colour}\"/>",
                (width - 1.0).max(1.0),
                TOP + PLOT_HEIGHT - y
            );
            self.draw_whisker(left + (width - 1.0) / 2.0, value, svg);
        }
    }

    fn known<'v>(&self, values: &'v [Option<Spread>]) -> impl Iterator<Item = (f64, &'v Spread)> {
        let places = values.iter().enumerate();
        places.filter_map(|(place, value)| Some((self.x(place), value.as_ref()?)))
    }

    fn draw_line(&self, values: &[Option<Spread>], colour: &str, svg: &mut String) {
        let mut points = String::new();
        for (x, value) in self.known(values) {
            let _ = write!(points, "{x:.1},{:.1} ", self.y(value.median));
        }
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2.5\"/>",
            points.trim_end()
        );
    }

    fn draw_dots(&self, values: &[Option<Spread>], colour: &str, svg: &mut String) {
        for (x, value) in self.known(values) {
            self.draw_whisker(x, value, svg);
            let y = self.y(value.median);
            let _ = writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>");
        }
    }

    /// The quartiles, where they are far enough apart to be seen.
    fn draw_whisker(&self, x: f64, value: &Spread, svg: &mut String) {
        let (low, high) = (self.y(value.low), self.y(value.high));
        if low - high < 1.0 {
            return;
        }
        let (left, right) = (x - 3.0, x + 3.0);
        let _ = writeln!(
            svg,
            "<path class=\"whisker\" d=\"M{left:.1} {high:.1}H{right:.1}M{x:.1} {high:.1}V{low:.1}M{left:.1} \
             {low:.1}H{right:.1}\"/>"
        );
    }
}

/// One, two or five times a power of ten, at least this much.
fn nice_step(least: f64) -> f64 {
    if least <= 0.0 || !least.is_finite() {
        return 1.0;
    }
    let power = 10_f64.powf(least.log10().floor());
    let factor = [1.0, 2.0, 5.0].into_iter().find(|factor| factor * power >= least);
    factor.unwrap_or(10.0) * power
}

/// The places whose labels are written, so that none lies on another. All are if they fit, else those at round numbers,
/// or without any, each one that has room.
fn readable(places: &[String], slot: f64) -> Vec<(usize, &str)> {
    /// Between two labels, in letters.
    const APART: f64 = 1.5;
    let labelled: Vec<(usize, &str)> = places
        .iter()
        .enumerate()
        .filter(|(_, label)| !label.is_empty())
        .map(|(place, label)| (place, label.as_str()))
        .collect();
    let letters = labelled.iter().map(|(_, label)| label.chars().count()).max();
    let apart = ((letters.unwrap_or(0) as f64 + APART) * LETTER_WIDTH / slot).ceil() as usize;
    let fit = labelled.windows(2).all(|pair| pair[1].0 - pair[0].0 >= apart);
    if fit {
        return labelled;
    }
    at_round_numbers(&labelled, apart).unwrap_or_else(|| {
        let mut next = 0;
        labelled
            .into_iter()
            .filter(|(place, _)| {
                let is_free = *place >= next;
                next = if is_free { place + apart } else { next };
                is_free
            })
            .collect()
    })
}

/// Those of labels that are evenly spaced numbers that are multiples of a round one, so many places apart at least.
fn at_round_numbers<'l>(labelled: &[(usize, &'l str)], apart: usize) -> Option<Vec<(usize, &'l str)>> {
    /// Numbers this near to each other, over the step, are the same.
    const ROUNDING: f64 = 1e-6;
    let numbers: Option<Vec<f64>> = labelled.iter().map(|(_, label)| label.parse().ok()).collect();
    let numbers = numbers?;
    let gap = numbers.get(1)? - numbers[0];
    let is_even = |pair: &[f64]| (pair[1] - pair[0] - gap).abs() <= gap * ROUNDING;
    if gap <= 0.0 || !numbers.windows(2).all(is_even) {
        return None;
    }
    let step = nice_step(gap * apart as f64 / (labelled[1].0 - labelled[0].0) as f64);
    let is_round = |number: f64| (number / step - (number / step).round()).abs() <= ROUNDING;
    let round = labelled.iter().zip(numbers);
    let found: Vec<(usize, &str)> = round
        .filter(|(_, number)| is_round(*number))
        .map(|(label, _)| *label)
        .collect();
    (found.len() > 1).then_some(found)
}

/// A number on an axis.
fn number(value: f64) -> String {
    let scaled = |factor: f64, unit: &str| {
        let text = format!("{:.2}", value / factor);
        format!("{}{unit}", text.trim_end_matches('0').trim_end_matches('.'))
    };
    if value >= 1e6 {
        scaled(1e6, "M")
    } else if value >= 1e4 {
        scaled(1e3, "k")
    } else {
        scaled(1.0, "")
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_do_not_lie_on_each_other() {
        let written = |places: &[&str], slot| -> Vec<String> {
            let places: Vec<String> = places.iter().map(|place| (*place).to_owned()).collect();
            readable(&places, slot)
                .iter()
                .map(|(_, label)| (*label).to_owned())
                .collect()
        };
        let seconds: Vec<String> = (1..=90).map(|second| second.to_string()).collect();
        let seconds: Vec<&str> = seconds.iter().map(String::as_str).collect();
        assert_eq!(
            written(&seconds, 4.2),
            ["10", "20", "30", "40", "50", "60", "70", "80", "90"]
        );
        assert_eq!(written(&seconds[..3], 40.0), ["1", "2", "3"]);
        assert_eq!(written(&["0", "", "", "", "", "500"], 8.0), ["0", "500"]);
        assert_eq!(
            written(&["alone", "beside one", "beside two", "x"], 50.0),
            ["alone", "beside two"]
        );
        assert_eq!(written(&[], 50.0), [""; 0]);
        assert_eq!(written(&["0", "0.1", "0.2", "0.3", "0.4"], 20.0), ["0", "0.2", "0.4"]);
        assert_eq!(written(&["1", "2", "5", "10", "1000"], 25.0), ["1", "5", "1000"]);
    }

    #[test]
    fn steps_are_round_numbers() {
        for (least, step) in [
            (0.0, 1.0),
            (0.9, 1.0),
            (1.1, 2.0),
            (3.0, 5.0),
            (6.0, 10.0),
            (0.013, 0.02),
            (700.0, 1000.0),
        ] {
            assert!(
                (nice_step(least) / step - 1.0).abs() < 1e-9,
                "{least}: {}",
                nice_step(least)
            );
        }
    }

    #[test]
    fn numbers_are_short() {
        for (value, text) in [
            (0.0, "0"),
            (0.25, "0.25"),
            (500.0, "500"),
            (9000.0, "9000"),
            (25_000.0, "25k"),
            (1.5e6, "1.5M"),
        ] {
            assert_eq!(number(value), text);
        }
    }

    #[test]
    fn every_value_is_drawn_within_the_axes() {
        let spread = |median| {
            Some(Spread {
                median,
                low: median * 0.9,
                high: median * 1.1,
            })
        };
        let chart = Chart {
            title: "a < b & c".into(),
            panels: [Marks::Bars, Marks::Lines, Marks::Course]
                .map(|marks| Panel {
                    title: "panel".into(),
                    x_label: "place".into(),
                    y_label: "ns".into(),
                    places: vec!["first".into(), String::new()],
                    marks,
                    series: vec![
                        ("one".into(), vec![spread(10.0), spread(100.0)]),
                        ("two".into(), vec![None, spread(50.0)]),
                    ],
                })
                .into(),
        };
        let svg = chart.svg();
        // The legend's two and the bars' three.
        assert_eq!(svg.matches("<rect").count(), 5);
        assert_eq!(
            (svg.matches("<polyline").count(), svg.matches("<circle").count()),
            (4, 3)
        );
        assert_eq!(svg.matches("class=\"whisker\"").count(), 6);
        assert_eq!(svg.matches(">first</text>").count(), 3);
        assert!(!svg.contains("></text>"), "{svg}");
        assert!(svg.contains("a &lt; b &amp; c") && !svg.contains("NaN"), "{svg}");
        for part in svg.split("cy=\"").skip(1) {
            let y: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((TOP..=TOP + PLOT_HEIGHT).contains(&y), "{y}");
        }
    }
}
