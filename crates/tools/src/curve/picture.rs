//! A picture as a list of shapes, and the same as SVG.
//!
//! The SVG has no ground; text and grid follow the reader's preference, light or dark. Lengths are pixels.

use std::fmt::Write as _;

/// A place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct At {
    pub(crate) x: f64,
    pub(crate) y: f64,
}

/// Something to draw.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// A straight line.
    Rule(At, At, Ink),
    /// A line through places.
    Line {
        through: Vec<At>,
        ink: Ink,
        is_dashed: bool,
    },
    /// The inside of a line that returns to its beginning, drawn faintly.
    Area { within: Vec<At>, ink: Ink },
    /// A dot.
    Dot(At, Ink),
    /// Words on a line of their own.
    Words {
        at: At,
        text: String,
        align: Align,
        font: Font,
    },
}

/// Colours by their use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ink {
    Curve,
    Other,
    Axis,
    Grid,
}

/// Which end of words is at their place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Start,
    Middle,
    End,
}

/// How words are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Font {
    Plain,
    Title,
}

impl Ink {
    /// The colour on light ground.
    pub(crate) fn colour(self) -> [u8; 3] {
        match self {
            Self::Curve => [0x2b, 0x7b, 0xba],
            Self::Other => [0xd9, 0x82, 0x2b],
            Self::Axis => [0x6b, 0x73, 0x7c],
            Self::Grid => [0xd5, 0xd9, 0xde],
        }
    }

    fn class(self) -> &'static str {
        match self {
            Self::Curve => "curve",
            Self::Other => "other",
            Self::Axis => "axis",
            Self::Grid => "grid",
        }
    }
}

/// The colour of words on light ground.
pub(crate) const WORDS: [u8; 3] = [0x3b, 0x43, 0x4b];
/// About how wide a letter is.
const LETTER_WIDTH: f64 = 7.0;
/// How wide lines and dots are.
pub(crate) const RULE_WIDTH: f64 = 1.0;
pub(crate) const LINE_WIDTH: f64 = 2.0;
pub(crate) const DOT_RADIUS: f64 = 3.5;
/// The lengths of a dash and the gap behind it.
pub(crate) const DASH: [f64; 2] = [6.0, 4.0];
/// How much of an area's colour is seen.
pub(crate) const AREA_OPACITY: f64 = 0.2;

const STYLE: &str = "\
text{font:12px -apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#3b434b}.title{font-size:15px;font-weight:600}\
.curve{stroke:#2b7bba}.other{stroke:#d9822b}.axis{stroke:#6b737c}.grid{stroke:#d5d9de}\
circle.curve,polygon.curve{fill:#2b7bba;stroke:none}circle.other,polygon.other{fill:#d9822b;stroke:none}\
@media (prefers-color-scheme:dark){text{fill:#c9d1d9}.grid{stroke:#3a4149}.axis{stroke:#8b949e}}";

/// A picture.
#[derive(Clone, Debug)]
pub struct Picture {
    pub(crate) title: String,
    pub(crate) width: f64,
    pub(crate) height: f64,
    pub(crate) shapes: Vec<Shape>,
}

impl Picture {
    /// The picture as SVG.
    pub fn svg(&self) -> String {
        let Self {
            title, width, height, ..
        } = self;
        let title = escape(title);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
             role=\"img\">\n<title>{title}</title>\n<style>{STYLE}</style>\n"
        );
        for shape in &self.shapes {
            shape.write_svg(&mut svg);
        }
        svg.push_str("</svg>\n");
        svg
    }
}

impl Shape {
    fn write_svg(&self, svg: &mut String) {
        // Writing to a string does not fail.
        let _ = match self {
            Self::Rule(from, to, ink) => writeln!(
                svg,
                "<line class=\"{}\" x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke-width=\"{RULE_WIDTH}\"/>",
                ink.class(),
                from.x,
                from.y,
                to.x,
                to.y
            ),
            Self::Line {
                through,
                ink,
                is_dashed,
            } => {
                let [dash, gap] = DASH;
                let dashes = if *is_dashed {
                    format!(" stroke-dasharray=\"{dash} {gap}\"")
                } else {
                    String::new()
                };
                writeln!(
                    svg,
                    "<polyline class=\"{}\" points=\"{}\" fill=\"none\" stroke-width=\"{LINE_WIDTH}\" \
                     stroke-linejoin=\"round\"{dashes}/>",
                    ink.class(),
                    places(through)
                )
            }
            Self::Area { within, ink } => writeln!(
                svg,
                "<polygon class=\"{}\" points=\"{}\" opacity=\"{AREA_OPACITY}\"/>",
                ink.class(),
                places(within)
            ),
            Self::Dot(At { x, y }, ink) => writeln!(
                svg,
                "<circle class=\"{}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{DOT_RADIUS}\"/>",
                ink.class()
            ),
            Self::Words {
                at: At { x, y },
                text,
                align,
                font,
            } => {
                let anchor = match align {
                    Align::Start => "start",
                    Align::Middle => "middle",
                    Align::End => "end",
                };
                let class = if *font == Font::Title { " class=\"title\"" } else { "" };
                let text = escape(text);
                writeln!(
                    svg,
                    "<text{class} x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{text}</text>"
                )
            }
        };
    }
}

/// Words in the plain font.
pub(crate) fn words(at: At, text: String, align: Align) -> Shape {
    Shape::Words {
        at,
        text,
        align,
        font: Font::Plain,
    }
}

/// A chart's title, its subject, and which line is which, above the plot that begins at `plot`. A line other than the
/// curve is dashed.
pub(crate) fn heads<'a>(
    shapes: &mut Vec<Shape>,
    plot: At,
    (title, about): (&str, &str),
    lines: impl IntoIterator<Item = (&'a str, Ink)>,
) {
    shapes.push(Shape::Words {
        at: At { x: 16.0, y: 28.0 },
        text: title.to_owned(),
        align: Align::Start,
        font: Font::Title,
    });
    shapes.push(words(At { x: 16.0, y: 48.0 }, about.to_owned(), Align::Start));
    let (mut x, y) = (plot.x, plot.y - 16.0);
    for (name, ink) in lines {
        shapes.push(Shape::Line {
            through: vec![At { x, y }, At { x: x + 26.0, y }],
            ink,
            is_dashed: ink == Ink::Other,
        });
        let at = At {
            x: x + 32.0,
            y: y + 4.0,
        };
        shapes.push(words(at, name.to_owned(), Align::Start));
        x += 56.0 + name.len() as f64 * LETTER_WIDTH;
    }
}

fn places(places: &[At]) -> String {
    let mut text = String::new();
    for At { x, y } in places {
        let _ = write!(text, "{x:.1},{y:.1} ");
    }
    text.truncate(text.trim_end().len());
    text
}

/// Text for XML. Control characters, which XML does not have, become spaces.
fn escape(text: &str) -> String {
    text.replace(char::is_control, " ")
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
