//! `cmsgpack`: MessagePack (<https://github.com/msgpack/msgpack/blob/master/spec.md>), as lua-cmsgpack writes and reads it.

use std::rc::Rc;

use mlua::{Error, Lua, LuaString, MultiValue, Table, Value, Variadic};

use crate::bounds::Bounds;
use crate::limits::{CALL_ARGUMENTS_MAX, DATA_DEPTH_MAX, MEMORY_BYTES};

/// Tables within tables that are written; what is deeper is nil, as in lua-cmsgpack.
const WRITTEN_DEPTH: usize = 16;

/// The table of functions.
pub(crate) fn make(lua: &Lua, bounds: &Rc<Bounds>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let own = Rc::clone(bounds);
    let pack = move |lua: &Lua, values: Variadic<Value>| {
        if values.is_empty() {
            return Err(wrong("bad argument #0 to 'pack' (MessagePack pack needs input.)"));
        }
        let mut out = Vec::new();
        values.iter().try_for_each(|value| append(value, &mut out, 0, &own))?;
        lua.create_string(&out)
    };
    table.raw_set("pack", lua.create_function(pack)?)?;
    let own = Rc::clone(bounds);
    let unpack = move |lua: &Lua, data: LuaString| {
        let mut all = read(lua, &data.as_bytes(), 0, CALL_ARGUMENTS_MAX, &own)?.0;
        Ok(all.drain(..).collect::<MultiValue>())
    };
    table.raw_set("unpack", lua.create_function(unpack)?)?;
    let own = Rc::clone(bounds);
    let one = move |lua: &Lua, (data, at): (LuaString, Option<f64>)| limited(lua, &data, 1, at, &own);
    table.raw_set("unpack_one", lua.create_function(one)?)?;
    let own = Rc::clone(bounds);
    let some = move |lua: &Lua, (data, most, at): (LuaString, f64, Option<f64>)| {
        limited(
            lua,
            &data,
            most.clamp(0.0, CALL_ARGUMENTS_MAX as f64) as usize,
            at,
            &own,
        )
    };
    table.raw_set("unpack_limit", lua.create_function(some)?)?;
    table.raw_set("_NAME", "cmsgpack")?;
    table.raw_set("_VERSION", "lua-cmsgpack 0.4.0")?;
    Ok(table)
}

fn wrong(text: &str) -> Error {
    Error::runtime(text)
}

/// The place to go on from (-1 at the end), and so many values.
fn limited(lua: &Lua, data: &LuaString, most: usize, at: Option<f64>, bounds: &Bounds) -> mlua::Result<MultiValue> {
    let bytes = data.as_bytes();
    let at = at.unwrap_or(0.0);
    if at < 0.0 || at > bytes.len() as f64 {
        return Err(wrong("Start offset is greater than or equal to input length."));
    }
    let (values, end) = read(lua, &bytes, at as usize, most, bounds)?;
    let next = if end >= bytes.len() { -1.0 } else { end as f64 };
    Ok(std::iter::once(Value::Number(next)).chain(values).collect())
}

fn append(value: &Value, out: &mut Vec<u8>, depth: usize, bounds: &Bounds) -> mlua::Result<()> {
    bounds.take(1)?;
    if out.len() > MEMORY_BYTES {
        return Err(wrong("not enough memory"));
    }
    match value {
        Value::String(text) => {
            let bytes = text.as_bytes();
            append_length(bytes.len(), Some((0xa0, 31)), [Some(0xd9), Some(0xda), Some(0xdb)], out);
            out.extend_from_slice(&bytes);
        }
        Value::Boolean(yes) => out.push(if *yes { 0xc3 } else { 0xc2 }),
        Value::Integer(number) => append_integer(*number, out),
        Value::Number(number) => append_number(*number, out),
        Value::Table(table) if depth < WRITTEN_DEPTH => append_table(table, out, depth, bounds)?,
        _ => out.push(0xc0),
    }
    Ok(())
}

/// A length: in the type's byte itself if it is short enough, else behind the byte for lengths of one, two or four bytes.
fn append_length(length: usize, short: Option<(u8, usize)>, kinds: [Option<u8>; 3], out: &mut Vec<u8>) {
    let [one, two, four] = kinds;
    match (short, one, two, four) {
        (Some((kind, most)), ..) if length <= most => out.push(kind | length as u8),
        (_, Some(kind), ..) if length <= 0xff => out.extend_from_slice(&[kind, length as u8]),
        (_, _, Some(kind), _) if length <= 0xffff => {
            out.push(kind);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        (_, _, _, kind) => {
            out.extend(kind);
            out.extend_from_slice(&(length as u32).to_be_bytes());
        }
    }
}

fn append_number(number: f64, out: &mut Vec<u8>) {
    if number.fract() == 0.0 && (-9.2e18..9.2e18).contains(&number) {
        return append_integer(number as i64, out);
    }
    let single = number as f32;
    if f64::from(single) == number {
        out.push(0xca);
        out.extend_from_slice(&single.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

fn append_integer(number: i64, out: &mut Vec<u8>) {
    match number {
        0..=127 => out.push(number as u8),
        -32..=-1 => out.push(number as i8 as u8),
        128..=0xff => out.extend_from_slice(&[0xcc, number as u8]),
        -128..=-33 => out.extend_from_slice(&[0xd0, number as i8 as u8]),
        0x100..=0xffff => {
            out.push(0xcd);
            out.extend_from_slice(&(number as u16).to_be_bytes());
        }
        -0x8000..=-129 => {
            out.push(0xd1);
            out.extend_from_slice(&(number as i16).to_be_bytes());
        }
        0x1_0000..=0xffff_ffff => {
            out.push(0xce);
            out.extend_from_slice(&(number as u32).to_be_bytes());
        }
        -0x8000_0000..=-0x8001 => {
            out.push(0xd2);
            out.extend_from_slice(&(number as i32).to_be_bytes());
        }
        _ => {
            out.push(if number < 0 { 0xd3 } else { 0xcf });
            out.extend_from_slice(&number.to_be_bytes());
        }
    }
}

fn append_table(table: &Table, out: &mut Vec<u8>, depth: usize, bounds: &Bounds) -> mlua::Result<()> {
    let (mut most, mut pairs, mut is_array) = (0.0_f64, 0_usize, true);
    for pair in table.pairs::<Value, Value>() {
        let (key, _) = pair?;
        let number = key.as_number().or(key.as_integer().map(|number| number as f64));
        is_array &= number.is_some_and(|number| number >= 1.0 && number.fract() == 0.0);
        most = most.max(number.unwrap_or(0.0));
        pairs += 1;
    }
    if is_array && most == pairs as f64 {
        append_length(pairs, Some((0x90, 15)), [None, Some(0xdc), Some(0xdd)], out);
        return (1..=pairs).try_for_each(|index| append(&table.raw_get::<Value>(index)?, out, depth + 1, bounds));
    }
    append_length(pairs, Some((0x80, 15)), [None, Some(0xde), Some(0xdf)], out);
    for pair in table.pairs::<Value, Value>() {
        let (key, value) = pair?;
        append(&key, out, depth + 1, bounds)?;
        append(&value, out, depth + 1, bounds)?;
    }
    Ok(())
}

/// Values from a place on, at most so many, and the place behind them.
fn read(lua: &Lua, bytes: &[u8], at: usize, most: usize, bounds: &Bounds) -> mlua::Result<(Vec<Value>, usize)> {
    let mut reader = Reader { lua, bytes, at, bounds };
    let mut values = Vec::new();
    while reader.at < bytes.len() && values.len() < most {
        values.push(reader.value(0)?);
    }
    Ok((values, reader.at))
}

struct Reader<'a> {
    lua: &'a Lua,
    bytes: &'a [u8],
    at: usize,
    bounds: &'a Bounds,
}

impl Reader<'_> {
    fn take(&mut self, count: usize) -> mlua::Result<&[u8]> {
        let end = self.at.checked_add(count).filter(|end| *end <= self.bytes.len());
        let end = end.ok_or_else(|| wrong("Missing bytes in input."))?;
        let taken = &self.bytes[self.at..end];
        self.at = end;
        Ok(taken)
    }

    /// A number of so many bytes, the highest first.
    fn unsigned(&mut self, count: usize) -> mlua::Result<u64> {
        Ok(self
            .take(count)?
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, count: usize) -> mlua::Result<Value> {
        let unused = 64 - 8 * count as u32;
        Ok(Value::Number(
            (((self.unsigned(count)? << unused) as i64) >> unused) as f64,
        ))
    }

    fn text(&mut self, length: u64) -> mlua::Result<Value> {
        let lua = self.lua;
        Ok(Value::String(lua.create_string(self.take(length as usize)?)?))
    }

    fn value(&mut self, depth: usize) -> mlua::Result<Value> {
        self.bounds.take(1)?;
        if depth > DATA_DEPTH_MAX {
            return Err(wrong("Bad data format in input."));
        }
        let kind = self.take(1)?[0];
        Ok(match kind {
            0..=0x7f => Value::Number(kind.into()),
            0xe0..=0xff => Value::Number((kind as i8).into()),
            0x80..=0x8f => self.map(u64::from(kind & 15), depth)?,
            0x90..=0x9f => self.array(u64::from(kind & 15), depth)?,
            0xa0..=0xbf => self.text(u64::from(kind & 31))?,
            0xc0 => Value::Nil,
            0xc2 => Value::Boolean(false),
            0xc3 => Value::Boolean(true),
            0xca => Value::Number(f32::from_bits(self.unsigned(4)? as u32).into()),
            0xcb => Value::Number(f64::from_bits(self.unsigned(8)?)),
            0xcc..=0xcf => Value::Number(self.unsigned(1 << (kind - 0xcc))? as f64),
            0xd0..=0xd3 => self.signed(1 << (kind - 0xd0))?,
            0xc4..=0xc6 => {
                let length = self.unsigned(1 << (kind - 0xc4))?;
                self.text(length)?
            }
            0xd9..=0xdb => {
                let length = self.unsigned(1 << (kind - 0xd9))?;
                self.text(length)?
            }
            0xdc | 0xdd => {
                let length = self.unsigned(2 << (kind - 0xdc))?;
                self.array(length, depth)?
            }
            0xde | 0xdf => {
                let pairs = self.unsigned(2 << (kind - 0xde))?;
                self.map(pairs, depth)?
            }
            _ => return Err(wrong("Bad data format in input.")),
        })
    }

    fn array(&mut self, length: u64, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        for index in 1..=length {
            let value = self.value(depth + 1)?;
            table.raw_set(index as f64, value)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, pairs: u64, depth: usize) -> mlua::Result<Value> {
        let table = self.lua.create_table()?;
        for _ in 0..pairs {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            let is_key = !key.is_nil() && !key.as_number().is_some_and(f64::is_nan);
            if !is_key {
                return Err(wrong("Bad data format in input."));
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}
