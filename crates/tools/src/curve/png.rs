//! A picture as PNG: at twice the size, on white ground, with letters that need no font of the machine's.

use noto_sans_mono_bitmap::{FontWeight, RasterHeight, get_raster, get_raster_width};
use tiny_skia::{
    Color, FillRule, LineJoin, Paint, Path, PathBuilder, Pixmap, PremultipliedColorU8, Rect, Stroke, StrokeDash,
    Transform,
};

use super::picture::{
    AREA_OPACITY, Align, At, DASH, DOT_RADIUS, Font, Ink, LINE_WIDTH, Picture, RULE_WIDTH, Shape, WORDS,
};

/// Dots of the PNG per pixel of the picture: screens are that fine.
const SCALE: f32 = 2.0;

/// The picture as PNG, if there is memory for it.
pub fn png(picture: &Picture) -> Option<Vec<u8>> {
    let dots = |pixels: f64| (pixels * f64::from(SCALE)).ceil() as u32;
    let mut map = Pixmap::new(dots(picture.width), dots(picture.height))?;
    map.fill(Color::WHITE);
    for shape in &picture.shapes {
        draw(shape, &mut map);
    }
    map.encode_png().ok()
}

fn draw(shape: &Shape, map: &mut Pixmap) {
    match shape {
        Shape::Rule(from, to, ink) => stroke(&[*from, *to], *ink, RULE_WIDTH, false, map),
        Shape::Line {
            through,
            ink,
            is_dashed,
        } => stroke(through, *ink, LINE_WIDTH, *is_dashed, map),
        Shape::Area { within, ink } => {
            if let Some(path) = path(within, true) {
                let paint = paint(*ink, AREA_OPACITY);
                map.fill_path(&path, &paint, FillRule::Winding, scaled(), None);
            }
        }
        Shape::Dot(At { x, y }, ink) => {
            let (x, y, radius) = (*x as f32, *y as f32, DOT_RADIUS as f32);
            let around = Rect::from_xywh(x - radius, y - radius, 2.0 * radius, 2.0 * radius);
            if let Some(path) = around.and_then(PathBuilder::from_oval) {
                map.fill_path(&path, &paint(*ink, 1.0), FillRule::Winding, scaled(), None);
            }
        }
        Shape::Words { at, text, align, font } => write(text, *at, *align, *font, map),
    }
}

fn scaled() -> Transform {
    Transform::from_scale(SCALE, SCALE)
}

fn paint(ink: Ink, opacity: f64) -> Paint<'static> {
    let [red, green, blue] = ink.colour();
    let mut paint = Paint::default();
    paint.set_color_rgba8(red, green, blue, (opacity * 255.0) as u8);
    paint
}

/// A line through places; none through fewer than two.
fn path(through: &[At], is_closed: bool) -> Option<Path> {
    let mut builder = PathBuilder::new();
    let (first, others) = through.split_first()?;
    builder.move_to(first.x as f32, first.y as f32);
    for At { x, y } in others {
        builder.line_to(*x as f32, *y as f32);
    }
    if is_closed {
        builder.close();
    }
    builder.finish()
}

fn stroke(through: &[At], ink: Ink, width: f64, is_dashed: bool, map: &mut Pixmap) {
    let dashes = is_dashed.then(|| StrokeDash::new(DASH.map(|length| length as f32).into(), 0.0));
    let stroke = Stroke {
        width: width as f32,
        line_join: LineJoin::Round,
        dash: dashes.flatten(),
        ..Stroke::default()
    };
    if let Some(path) = path(through, false) {
        map.stroke_path(&path, &paint(ink, 1.0), &stroke, scaled(), None);
    }
}

/// Words with their baseline at a place. Letters that the font lacks are written as question marks.
fn write(text: &str, at: At, align: Align, font: Font, map: &mut Pixmap) {
    let (weight, height) = match font {
        Font::Plain => (FontWeight::Regular, RasterHeight::Size24),
        Font::Title => (FontWeight::Bold, RasterHeight::Size32),
    };
    let letter = get_raster_width(weight, height);
    let length = letter * text.chars().count();
    let before = match align {
        Align::Start => 0,
        Align::Middle => length / 2,
        Align::End => length,
    };
    // About three quarters of a letter's height are above the baseline.
    let top = (at.y * f64::from(SCALE)) as i64 - height.val() as i64 * 3 / 4;
    let mut left = (at.x * f64::from(SCALE)) as i64 - before as i64;
    for sign in text.chars() {
        if let Some(raster) = get_raster(sign, weight, height).or_else(|| get_raster('?', weight, height)) {
            for (row, line) in raster.rows().enumerate() {
                for (column, strength) in line.iter().enumerate() {
                    blend(left + column as i64, top + row as i64, *strength, map);
                }
            }
        }
        left += letter as i64;
    }
}

/// Colours a dot as strongly as a letter covers it; nothing outside of the picture.
fn blend(x: i64, y: i64, strength: u8, map: &mut Pixmap) {
    let (width, height) = (i64::from(map.width()), i64::from(map.height()));
    if strength == 0 || !(0..width).contains(&x) || !(0..height).contains(&y) {
        return;
    }
    let dot = &mut map.pixels_mut()[(y * width + x) as usize];
    let mix = |ground: u8, ink: u8| {
        let (ground, ink, strength) = (u32::from(ground), u32::from(ink), u32::from(strength));
        ((ground * (255 - strength) + ink * strength) / 255) as u8
    };
    let [red, green, blue] = WORDS;
    let colour =
        PremultipliedColorU8::from_rgba(mix(dot.red(), red), mix(dot.green(), green), mix(dot.blue(), blue), 255);
    if let Some(colour) = colour {
        *dot = colour;
    }
}
