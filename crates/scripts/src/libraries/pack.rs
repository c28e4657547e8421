//! `struct`: values in binary, as in Roberto Ierusalimschy's library of 2012 (<http://www.inf.puc-rio.br/~roberto/struct/>).
//!
//! `b` `B` 1 byte, `h` `H` 2, `l` `L` 8, `T` 8, `i` `I` 4 or as many as said, `f` `d` floating point, `x` a zero, `s` a text up to
//! a zero, `c0` or `cN` bytes, `<` `>` `=` byte order, `!N` alignment.

use mlua::{Error, Lua, LuaString, MultiValue, Table, Value, Variadic};

use crate::limits::MEMORY_BYTES;

/// The longest integer, in bytes; also the largest alignment.
const INTEGER_BYTES_MAX: usize = 32;
/// The alignment that `!` alone means.
const NATIVE_ALIGNMENT: usize = 8;

/// The table of functions.
pub(crate) fn make(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", lua.create_function(pack)?)?;
    table.raw_set("unpack", lua.create_function(unpack)?)?;
    table.raw_set(
        "size",
        lua.create_function(|_, format: LuaString| size(&format.as_bytes()))?,
    )?;
    Ok(table)
}

fn wrong(text: &str) -> Error {
    Error::runtime(text)
}

/// The meaning of a letter of a format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Item {
    Integer {
        bytes: usize,
        is_signed: bool,
    },
    Float,
    Double,
    Zero,
    Text,
    /// So many bytes; with zero, as many as the number before it says.
    Bytes(usize),
}

/// A format that is read item by item.
struct Format<'a> {
    rest: &'a [u8],
    is_little: bool,
    alignment: usize,
}

impl<'a> Format<'a> {
    fn new(format: &'a [u8]) -> Self {
        Self {
            rest: format,
            is_little: true,
            alignment: 1,
        }
    }

    /// The number at the beginning of the rest, if there is one.
    fn number(&mut self) -> mlua::Result<Option<usize>> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (number, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let too_large = || wrong("integral size overflow");
        let text = str::from_utf8(number).map_err(|_| too_large())?;
        if text.is_empty() {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| too_large())
    }

    fn integer(&mut self, is_signed: bool) -> mlua::Result<Item> {
        let bytes = self.number()?.unwrap_or(4);
        if !(1..=INTEGER_BYTES_MAX).contains(&bytes) {
            return Err(wrong(&format!(
                "integral size {bytes} is larger than limit of {INTEGER_BYTES_MAX}"
            )));
        }
        Ok(Item::Integer { bytes, is_signed })
    }

    /// The next item, and how many bytes of zeros align it behind so many.
    fn next(&mut self, at: usize) -> mlua::Result<Option<(Item, usize)>> {
        while let Some((&letter, rest)) = self.rest.split_first() {
            self.rest = rest;
            let plain = |bytes, is_signed| Item::Integer { bytes, is_signed };
            let item = match letter {
                b'b' => plain(1, true),
                b'B' => plain(1, false),
                b'h' => plain(2, true),
                b'H' => plain(2, false),
                b'l' | b'j' => plain(8, true),
                b'L' | b'T' | b'J' => plain(8, false),
                b'i' => self.integer(true)?,
                b'I' => self.integer(false)?,
                b'f' => Item::Float,
                b'd' | b'n' => Item::Double,
                b'x' => Item::Zero,
                b's' => Item::Text,
                b'c' => Item::Bytes(self.number()?.unwrap_or(1)),
                b' ' => continue,
                b'<' | b'=' => {
                    self.is_little = true;
                    continue;
                }
                b'>' => {
                    self.is_little = false;
                    continue;
                }
                b'!' => {
                    self.alignment = self.number()?.unwrap_or(NATIVE_ALIGNMENT);
                    if !self.alignment.is_power_of_two() || self.alignment > INTEGER_BYTES_MAX {
                        return Err(wrong("alignment is not a power of 2"));
                    }
                    continue;
                }
                other => return Err(wrong(&format!("invalid format option '{}'", char::from(other)))),
            };
            return Ok(Some((item, self.padding(item, at))));
        }
        Ok(None)
    }

    fn padding(&self, item: Item, at: usize) -> usize {
        let bytes = match item {
            Item::Integer { bytes, .. } => bytes,
            Item::Float => 4,
            Item::Double => 8,
            Item::Zero | Item::Text | Item::Bytes(_) => 1,
        };
        let alignment = bytes.min(self.alignment);
        if alignment > 1 {
            (alignment - at % alignment) % alignment
        } else {
            0
        }
    }
}

fn ordered(mut bytes: Vec<u8>, is_little: bool) -> Vec<u8> {
    if !is_little {
        bytes.reverse();
    }
    bytes
}

fn pack(lua: &Lua, (format, args): (LuaString, Variadic<Value>)) -> mlua::Result<LuaString> {
    let format = format.as_bytes();
    let mut format = Format::new(&format);
    let mut args = args.into_iter();
    let mut out: Vec<u8> = Vec::new();
    while let Some((item, padding)) = format.next(out.len())? {
        out.resize(out.len() + padding, 0);
        let mut argument = || args.next().ok_or_else(|| wrong("bad argument (no value)"));
        let is_little = format.is_little;
        match item {
            Item::Integer { bytes, .. } => {
                out.extend(ordered(integer_bytes(number(lua, argument()?)?, bytes), is_little));
            }
            Item::Float => out.extend(ordered(
                (number(lua, argument()?)? as f32).to_le_bytes().to_vec(),
                is_little,
            )),
            Item::Double => out.extend(ordered(number(lua, argument()?)?.to_le_bytes().to_vec(), is_little)),
            Item::Zero => out.push(0),
            Item::Text => {
                out.extend_from_slice(&text(lua, argument()?)?.as_bytes());
                out.push(0);
            }
            Item::Bytes(count) => {
                let text = text(lua, argument()?)?;
                let bytes = text.as_bytes();
                let count = if count == 0 { bytes.len() } else { count };
                out.extend_from_slice(bytes.get(..count).ok_or_else(|| wrong("string too short"))?);
            }
        }
        if out.len() > MEMORY_BYTES {
            return Err(wrong("not enough memory"));
        }
    }
    lua.create_string(&out)
}

fn number(lua: &Lua, value: Value) -> mlua::Result<f64> {
    lua.coerce_number(value)?.ok_or_else(|| wrong("number expected"))
}

fn text(lua: &Lua, value: Value) -> mlua::Result<LuaString> {
    lua.coerce_string(value)?.ok_or_else(|| wrong("string expected"))
}

/// A number as a little-endian integer of so many bytes; a negative one is extended by its sign.
fn integer_bytes(number: f64, bytes: usize) -> Vec<u8> {
    // Large unsigned numbers wrap around, as in C.
    let whole = if number >= 9_223_372_036_854_775_808.0 {
        number as u64
    } else {
        number as i64 as u64
    };
    let extension = if number < 0.0 { 0xff } else { 0 };
    let all = whole.to_le_bytes().into_iter().chain(std::iter::repeat(extension));
    all.take(bytes).collect()
}

/// Values from the bytes at a place, and the place behind them.
fn unpack(lua: &Lua, (format, data, from): (LuaString, LuaString, Option<f64>)) -> mlua::Result<MultiValue> {
    let (format, data) = (format.as_bytes(), data.as_bytes());
    let mut format = Format::new(&format);
    let from = from.unwrap_or(1.0);
    if from < 1.0 {
        return Err(wrong("offset must be 1 or greater"));
    }
    let mut at = from as usize - 1;
    let mut values: Vec<Value> = Vec::new();
    while let Some((item, padding)) = format.next(at)? {
        at = at.saturating_add(padding);
        let bytes = |count: usize| {
            let part = at.checked_add(count).and_then(|end| data.get(at..end));
            part.ok_or_else(|| wrong("data string too short"))
        };
        let read = |count: usize| Ok::<_, Error>(ordered(bytes(count)?.to_vec(), format.is_little));
        match item {
            Item::Integer { bytes, is_signed } => {
                values.push(Value::Number(integer_of(&read(bytes)?, is_signed)));
                at += bytes;
            }
            Item::Float => {
                let bytes = read(4)?.try_into().map_err(|_| wrong("data string too short"))?;
                values.push(Value::Number(f32::from_le_bytes(bytes).into()));
                at += 4;
            }
            Item::Double => {
                let bytes = read(8)?.try_into().map_err(|_| wrong("data string too short"))?;
                values.push(Value::Number(f64::from_le_bytes(bytes)));
                at += 8;
            }
            Item::Zero => at = at.saturating_add(1),
            Item::Text => {
                let rest = data.get(at..).unwrap_or_default();
                let end = rest.iter().position(|byte| *byte == 0);
                let end = end.ok_or_else(|| wrong("unfinished string in data"))?;
                values.push(Value::String(lua.create_string(&rest[..end])?));
                at += end + 1;
            }
            Item::Bytes(count) => {
                let count = match count {
                    0 => match values.pop() {
                        Some(Value::Number(count)) if count >= 0.0 => count as usize,
                        _ => return Err(wrong("format 'c0' needs a previous size")),
                    },
                    count => count,
                };
                values.push(Value::String(lua.create_string(bytes(count)?)?));
                at += count;
            }
        }
        if values.len() > crate::limits::CALL_ARGUMENTS_MAX {
            return Err(wrong("too many results"));
        }
    }
    values.push(Value::Number(at as f64 + 1.0));
    Ok(MultiValue::from_iter(values))
}

/// The number that a little-endian integer is, as far as it has eight bytes.
fn integer_of(bytes: &[u8], is_signed: bool) -> f64 {
    let low = bytes
        .iter()
        .take(8)
        .rev()
        .fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    if !is_signed {
        return low as f64;
    }
    let unused = 64 - 8 * bytes.len().min(8) as u32;
    (((low << unused) as i64) >> unused) as f64
}

fn size(format: &[u8]) -> mlua::Result<f64> {
    let mut format = Format::new(format);
    let mut at = 0_usize;
    while let Some((item, padding)) = format.next(at)? {
        let bytes = match item {
            Item::Integer { bytes, .. } => bytes,
            Item::Float => 4,
            Item::Double => 8,
            Item::Zero => 1,
            Item::Text => return Err(wrong("variable-size format in size")),
            Item::Bytes(0) => return Err(wrong("variable-length format")),
            Item::Bytes(count) => count,
        };
        at = at.saturating_add(padding).saturating_add(bytes);
    }
    Ok(at as f64)
}
