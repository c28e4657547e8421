//! The output of commands: JSON as the API gave it, or text for people.

use std::io::{self, Write as _};

use serde_json::Value;

/// A line or more on standard output.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut stdout = io::stdout().lock();
    writeln!(stdout, "{text}")?;
    stdout.flush()
}

/// A message for people, beside the data.
pub(crate) fn note(text: &str) {
    // Nothing depends on it: where standard error is closed, it is not said.
    let _ = writeln!(io::stderr(), "{text}");
}

/// How a field is written for people.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Form {
    Plain,
    Bytes,
    Ratio,
    Seconds,
    Microseconds,
    /// Seconds, written in thousandths.
    Milliseconds,
    /// A number that is estimated.
    Count,
    /// Parts of cores.
    Cores,
}

/// A field of an answer: its name for people, its place in the JSON, its form.
pub(crate) type Field = (&'static str, &'static str, Form);

/// Fields of one object, one per line.
pub(crate) fn list(object: &Value, fields: &[Field]) -> String {
    let rows: Vec<Vec<String>> = fields
        .iter()
        .map(|(label, place, form)| vec![(*label).to_owned(), form.text(object.pointer(place))])
        .collect();
    table(&rows)
}

/// Fields of many objects, one object per line below the names.
pub(crate) fn columns(objects: &[Value], fields: &[Field]) -> String {
    let names = fields.iter().map(|(label, ..)| label.to_uppercase()).collect();
    let row = |object: &Value| {
        fields
            .iter()
            .map(|(_, place, form)| form.text(object.pointer(place)))
            .collect()
    };
    let rows: Vec<Vec<String>> = std::iter::once(names).chain(objects.iter().map(row)).collect();
    table(&rows)
}

/// Columns as wide as their widest cell, two spaces apart.
pub(crate) fn table(rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        rows.iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count())
            .max()
    };
    let line = |row: &Vec<String>| {
        let cells = row
            .iter()
            .enumerate()
            .map(|(i, cell)| format!("{cell:<width$}", width = width(i).unwrap_or(0)));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

impl Form {
    pub(crate) fn text(self, value: Option<&Value>) -> String {
        let number = value.and_then(Value::as_f64);
        match (self, value, number) {
            (_, None | Some(Value::Null), _) => "-".into(),
            (Self::Bytes, _, Some(bytes)) => bytes_text(bytes),
            (Self::Ratio, _, Some(ratio)) => format!("{:.2} %", ratio * 100.0),
            (Self::Seconds, _, Some(seconds)) => format!("{seconds:.1} s"),
            (Self::Microseconds, _, Some(us)) => format!("{} s", us / 1e6),
            (Self::Milliseconds, _, Some(seconds)) => format!("{:.1} ms", seconds * 1e3),
            (Self::Count, _, Some(count)) => format!("{count:.0}"),
            (Self::Cores, _, Some(cores)) => format!("{cores:.3}"),
            (_, Some(Value::String(text)), _) => text.clone(),
            (_, Some(other), _) => other.to_string(),
        }
    }
}

/// About how much: three digits are enough to read; the exact number is in the JSON.
pub(crate) fn bytes_text(bytes: f64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < units.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 {
        format!("{value} B")
    } else {
        format!("{value:.1} {}", units[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn fields_are_written_for_people() {
        for (form, value, text) in [
            (Form::Plain, json!("idle"), "idle"),
            (Form::Plain, json!(12), "12"),
            (Form::Plain, json!(true), "true"),
            (Form::Plain, Value::Null, "-"),
            (Form::Bytes, json!(512), "512 B"),
            (Form::Bytes, json!(1536), "1.5 KiB"),
            (Form::Bytes, json!(64_u64 << 20), "64.0 MiB"),
            (Form::Bytes, json!(5000_u64 << 40), "5000.0 TiB"),
            (Form::Bytes, Value::Null, "-"),
            (Form::Ratio, json!(0.98765), "98.77 %"),
            (Form::Seconds, json!(1.25), "1.2 s"),
            (Form::Microseconds, json!(250_000), "0.25 s"),
            (Form::Milliseconds, json!(0.0125), "12.5 ms"),
            (Form::Count, json!(1234.6), "1235"),
            (Form::Cores, json!(0.12345), "0.123"),
        ] {
            assert_eq!(form.text(Some(&value)), text, "{form:?} {value}");
        }
        assert_eq!(Form::Plain.text(None), "-");
    }

    #[test]
    fn columns_line_up() {
        let objects = [json!({"name": "a", "size": 1}), json!({"name": "longer", "size": 2048})];
        let fields = [("name", "/name", Form::Plain), ("size", "/size", Form::Bytes)];
        assert_eq!(columns(&objects, &fields), "NAME    SIZE\na       1 B\nlonger  2.0 KiB");
        assert_eq!(list(&objects[0], &fields), "name  a\nsize  1 B");
    }
}
