//! `cjson`: JSON, as lua-cjson 2.1 writes and reads it with the settings that it has in Redis.

use std::rc::Rc;

use mlua::{Error, Lua, LuaString, Table, Value};

use crate::bounds::Bounds;
use crate::call::general;
use crate::limits::{DATA_DEPTH_MAX, MEMORY_BYTES};

/// Bytes that are read or written in a step of a run.
const BYTES_PER_STEP: usize = 16;
/// Significant digits of a number.
const DIGITS: usize = 14;
/// An array may have so many times as many places as items, or up to [`SPARSE_PLACES`].
const SPARSE_RATIO: usize = 2;
const SPARSE_PLACES: usize = 10;

/// The table of functions.
pub(crate) fn make(lua: &Lua, bounds: &Rc<Bounds>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let own = Rc::clone(bounds);
    let encode = move |lua: &Lua, value: Value| {
        let mut out = Vec::new();
        append(&value, &mut out, 0, &own)?;
        own.take((out.len() / BYTES_PER_STEP) as u64)?;
        lua.create_string(&out)
    };
    table.raw_set("encode", lua.create_function(encode)?)?;
    let own = Rc::clone(bounds);
    let decode = move |lua: &Lua, text: LuaString| {
        let bytes = text.as_bytes();
        own.take((bytes.len() / BYTES_PER_STEP) as u64)?;
        Reader {
            lua,
            bytes: &bytes,
            at: 0,
        }
        .read_all()
    };
    table.raw_set("decode", lua.create_function(decode)?)?;
    table.raw_set("null", Value::NULL)?;
    table.raw_set("_NAME", "cjson")?;
    table.raw_set("_VERSION", "2.1.0")?;
    Ok(table)
}

fn wrong(text: &str) -> Error {
    Error::runtime(text)
}

fn append(value: &Value, out: &mut Vec<u8>, depth: usize, bounds: &Bounds) -> mlua::Result<()> {
    if depth > DATA_DEPTH_MAX {
        return Err(wrong(&format!("Cannot serialise, excessively nested ({depth})")));
    }
    if out.len() > MEMORY_BYTES {
        return Err(wrong("not enough memory"));
    }
    bounds.take(1)?;
    match value {
        Value::Nil => out.extend_from_slice(b"null"),
        value if *value == Value::NULL => out.extend_from_slice(b"null"),
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::Integer(number) => append_number(*number as f64, out)?,
        Value::Number(number) => append_number(*number, out)?,
        Value::String(text) => append_text(&text.as_bytes(), out),
        Value::Table(table) => append_table(table, out, depth, bounds)?,
        other => {
            let kind = other.type_name();
            return Err(wrong(&format!("Cannot serialise {kind}: type not supported")));
        }
    }
    Ok(())
}

fn append_number(number: f64, out: &mut Vec<u8>) -> mlua::Result<()> {
    if !number.is_finite() {
        return Err(wrong("Cannot serialise number: must not be NaN or Inf"));
    }
    out.extend_from_slice(general(number, DIGITS).as_bytes());
    Ok(())
}

fn append_text(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..=0x1f | 0x7f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            other => out.push(*other),
        }
    }
    out.push(b'"');
}

/// How long an array a table is; `None` if it is none.
fn array_length(table: &Table) -> mlua::Result<Option<usize>> {
    let (mut most, mut items) = (0_usize, 0_usize);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair?;
        let number = match key {
            Value::Integer(number) => number as f64,
            Value::Number(number) => number,
            _ => return Ok(None),
        };
        if number < 1.0 || number.fract() != 0.0 || number > u32::MAX.into() {
            return Ok(None);
        }
        most = most.max(number as usize);
        items += 1;
    }
    if most > items * SPARSE_RATIO && most > SPARSE_PLACES {
        return Err(wrong("Cannot serialise table: excessively sparse array"));
    }
    Ok((items > 0).then_some(most))
}

fn append_table(table: &Table, out: &mut Vec<u8>, depth: usize, bounds: &Bounds) -> mlua::Result<()> {
    if let Some(length) = array_length(table)? {
        out.push(b'[');
        for index in 1..=length {
            if index > 1 {
                out.push(b',');
            }
            append(&table.raw_get::<Value>(index)?, out, depth + 1, bounds)?;
        }
        out.push(b']');
        return Ok(());
    }
    out.push(b'{');
    let mut is_first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        match key {
            Value::String(text) => append_text(&text.as_bytes(), out),
            Value::Integer(number) => append_key(number as f64, out)?,
            Value::Number(number) => append_key(number, out)?,
            _ => return Err(wrong("Cannot serialise table: table key must be a number or string")),
        }
        out.push(b':');
        append(&value, out, depth + 1, bounds)?;
    }
    out.push(b'}');
    Ok(())
}

fn append_key(number: f64, out: &mut Vec<u8>) -> mlua::Result<()> {
    out.push(b'"');
    append_number(number, out)?;
    out.push(b'"');
    Ok(())
}

/// A text that is read.
struct Reader<'a> {
    lua: &'a Lua,
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn read_all(mut self) -> mlua::Result<Value> {
        let value = self.value(0)?;
        self.skip_space();
        match self.bytes.get(self.at) {
            None => Ok(value),
            Some(_) => Err(self.expected("the end")),
        }
    }

    fn expected(&self, what: &str) -> Error {
        let found = if self.at >= self.bytes.len() {
            "T_END"
        } else {
            "invalid token"
        };
        wrong(&format!(
            "Expected {what} but found {found} at character {}",
            self.at + 1
        ))
    }

    fn skip_space(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    /// Takes the next character if it is this one, behind space.
    fn takes(&mut self, byte: u8) -> bool {
        self.skip_space();
        let is_next = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(is_next);
        is_next
    }

    fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        if depth > DATA_DEPTH_MAX {
            return Err(wrong(&format!("Found too many nested data structures ({depth})")));
        }
        self.skip_space();
        match self.bytes.get(self.at) {
            Some(b'{') => self.object(depth),
            Some(b'[') => self.array(depth),
            Some(b'"') => Ok(Value::String(self.lua.create_string(self.text()?)?)),
            Some(b'-' | b'0'..=b'9') => self.number(),
            _ => {
                let words = [
                    (&b"true"[..], Value::Boolean(true)),
                    (b"false", Value::Boolean(false)),
                    (b"null", Value::NULL),
                ];
                for (word, value) in words {
                    if self.bytes[self.at..].starts_with(word) {
                        self.at += word.len();
                        return Ok(value);
                    }
                }
                Err(self.expected("value"))
            }
        }
    }

    fn object(&mut self, depth: usize) -> mlua::Result<Value> {
        self.at += 1;
        let table = self.lua.create_table()?;
        if self.takes(b'}') {
            return Ok(Value::Table(table));
        }
        loop {
            self.skip_space();
            if self.bytes.get(self.at) != Some(&b'"') {
                return Err(self.expected("object key string"));
            }
            let key = self.lua.create_string(self.text()?)?;
            if !self.takes(b':') {
                return Err(self.expected("colon"));
            }
            let value = self.value(depth + 1)?;
            table.raw_set(key, value)?;
            if self.takes(b'}') {
                return Ok(Value::Table(table));
            }
            if !self.takes(b',') {
                return Err(self.expected("comma or object end"));
            }
        }
    }

    fn array(&mut self, depth: usize) -> mlua::Result<Value> {
        self.at += 1;
        let table = self.lua.create_table()?;
        if self.takes(b']') {
            return Ok(Value::Table(table));
        }
        for index in 1.. {
            let value = self.value(depth + 1)?;
            table.raw_set(index, value)?;
            if self.takes(b']') {
                break;
            }
            if !self.takes(b',') {
                return Err(self.expected("comma or array end"));
            }
        }
        Ok(Value::Table(table))
    }

    fn number(&mut self) -> mlua::Result<Value> {
        let rest = &self.bytes[self.at..];
        let is_part = |byte: &&u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
        let text = &rest[..rest.iter().take_while(is_part).count()];
        let number = str::from_utf8(text).ok().and_then(|text| text.parse::<f64>().ok());
        let number = number.ok_or_else(|| self.expected("value"))?;
        self.at += text.len();
        Ok(Value::Number(number))
    }

    fn text(&mut self) -> mlua::Result<Vec<u8>> {
        let mut out = Vec::new();
        self.at += 1;
        loop {
            let byte = *self.bytes.get(self.at).ok_or_else(|| self.expected("string end"))?;
            self.at += 1;
            match byte {
                b'"' => return Ok(out),
                b'\\' => self.escape(&mut out)?,
                0..=0x1f => return Err(self.expected("string end")),
                other => out.push(other),
            }
        }
    }

    fn escape(&mut self, out: &mut Vec<u8>) -> mlua::Result<()> {
        let byte = *self.bytes.get(self.at).ok_or_else(|| self.expected("string end"))?;
        self.at += 1;
        out.push(match byte {
            b'"' | b'\\' | b'/' => byte,
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                let mut code = self.hex()?;
                if (0xd800..0xdc00).contains(&code) && self.bytes[self.at..].starts_with(b"\\u") {
                    self.at += 2;
                    code = 0x10000 + ((code - 0xd800) << 10) + (self.hex()?.wrapping_sub(0xdc00) & 0x3ff);
                }
                let letter = char::from_u32(code).ok_or_else(|| self.expected("unicode escape"))?;
                out.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
                return Ok(());
            }
            _ => return Err(self.expected("escape code")),
        });
        Ok(())
    }

    fn hex(&mut self) -> mlua::Result<u32> {
        let digits = self
            .bytes
            .get(self.at..self.at + 4)
            .and_then(|digits| str::from_utf8(digits).ok());
        let number = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        self.at += 4;
        number.ok_or_else(|| self.expected("unicode escape"))
    }
}
