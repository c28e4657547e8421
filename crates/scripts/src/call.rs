//! `redis.call` and what it is made of: arguments from Lua, and replies to Lua.

use mlua::{Error, Lua, MultiValue, Table, Value};
use tidemark_protocol::number::parse_canonical_i64;

use crate::Host;
use crate::bounds::Bounds;
use crate::fault::words;
use crate::limits::CALL_ARGUMENTS_MAX;

/// Bytes of a command and its reply that count as a step: each is copied several times.
const BYTES_PER_STEP: usize = 64;

/// Calls a command. The value is an error's table where the second result says so.
/// It takes steps by the bytes that are copied for it.
pub(crate) fn call(
    lua: &Lua,
    args: &MultiValue,
    nulls: Nulls,
    host: &mut dyn Host,
    bounds: &Bounds,
) -> mlua::Result<(Value, bool)> {
    let refused = |text: &str| Ok((error_table(lua, text.as_bytes())?, true));
    if args.is_empty() {
        return refused("ERR Please specify at least one argument for this redis.call() call");
    }
    if args.len() > CALL_ARGUMENTS_MAX {
        return refused("ERR the command has more arguments than a script may give it");
    }
    let mut texts: Vec<Vec<u8>> = Vec::with_capacity(args.len());
    for arg in args {
        match arg {
            Value::String(text) => texts.push(text.as_bytes().to_vec()),
            Value::Integer(number) => texts.push(number.to_string().into_bytes()),
            Value::Number(number) => texts.push(number_text(*number).into_bytes()),
            _ => return refused("ERR Lua redis lib command arguments must be strings or integers"),
        }
    }
    let slices: Vec<&[u8]> = texts.iter().map(Vec::as_slice).collect();
    let mut reply = Vec::new();
    host.call(&slices, &mut reply);
    let copied = slices.iter().map(|slice| slice.len()).sum::<usize>() + reply.len();
    bounds.take(1 + (copied / BYTES_PER_STEP) as u64)?;
    let mut rest = &reply[..];
    let value = to_lua(lua, &mut rest, nulls)?;
    Ok((value, reply.first() == Some(&b'-')))
}

/// A number as an argument: as in Redis, whole if it is, else with 17 digits.
fn number_text(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 9e18 {
        return format!("{}", number as i64);
    }
    general(number, 17)
}

/// A number as C's `%.Ng` writes it.
pub(crate) fn general(number: f64, digits: usize) -> String {
    if number.is_nan() {
        return "nan".to_owned();
    }
    if number.is_infinite() {
        return if number > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{number:.*e}", digits - 1);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trimmed = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trimmed(mantissa), exponent.abs());
    }
    trimmed(&format!("{number:.*}", (digits as i32 - 1 - exponent).max(0) as usize))
}

/// How a script sees that there is no value: as `false` in RESP2, as nil after `redis.setresp(3)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nulls {
    False,
    Nil,
}

impl Nulls {
    fn value(self) -> Value {
        match self {
            Self::False => Value::Boolean(false),
            Self::Nil => Value::Nil,
        }
    }
}

/// A table with one field, `err`.
fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<Value> {
    single(lua, "err", text)
}

fn single(lua: &Lua, name: &str, text: &[u8]) -> mlua::Result<Value> {
    let table: Table = lua.create_table()?;
    table.raw_set(name, lua.create_string(text)?)?;
    Ok(Value::Table(table))
}

/// The reply at the beginning of `rest`, which goes on behind it.
fn to_lua(lua: &Lua, rest: &mut &[u8], nulls: Nulls) -> mlua::Result<Value> {
    let broken = || Error::runtime("a reply that is none");
    let line_end = rest.windows(2).position(|pair| pair == b"\r\n").ok_or_else(broken)?;
    let (line, after) = rest.split_at(line_end);
    *rest = &after[2..];
    let (kind, text) = line.split_first().ok_or_else(broken)?;
    let number = || parse_canonical_i64(text).ok_or_else(broken);
    Ok(match kind {
        b'+' => single(lua, "ok", text)?,
        b'-' => single(lua, "err", text)?,
        b':' => Value::Number(number()? as f64),
        b'$' => match usize::try_from(number()?) {
            Err(_) => nulls.value(),
            Ok(length) => {
                let bytes = rest.get(..length).ok_or_else(broken)?;
                let value = Value::String(lua.create_string(bytes)?);
                *rest = rest.get(length + 2..).ok_or_else(broken)?;
                value
            }
        },
        b'*' => match usize::try_from(number()?) {
            Err(_) => nulls.value(),
            Ok(length) => {
                let table = lua.create_table()?;
                for index in 1..=length {
                    table.raw_set(index, to_lua(lua, rest, nulls)?)?;
                }
                Value::Table(table)
            }
        },
        _ => return Err(broken()),
    })
}

/// The text of an error that a script makes. It must begin with a code, without a leading minus, as Redis takes it.
pub(crate) fn error_reply(lua: &Lua, args: &MultiValue) -> mlua::Result<Value> {
    let [Value::String(text)] = &args.iter().collect::<Vec<_>>()[..] else {
        return error_table(lua, b"ERR wrong number or type of arguments");
    };
    let text = text.as_bytes();
    let text = text.strip_prefix(b"-").unwrap_or(&text);
    match text.contains(&b' ') {
        true => error_table(lua, text),
        false => error_table(lua, &[b"ERR ", text].concat()),
    }
}

/// `redis.status_reply`.
pub(crate) fn status_reply(lua: &Lua, args: &MultiValue) -> mlua::Result<Value> {
    let [Value::String(text)] = &args.iter().collect::<Vec<_>>()[..] else {
        return error_table(lua, b"ERR wrong number or type of arguments");
    };
    single(lua, "ok", &text.as_bytes())
}

/// `redis.log`.
pub(crate) fn log(args: &MultiValue, host: &mut dyn Host) -> mlua::Result<()> {
    let mut args = args.iter();
    let level = match args.next() {
        Some(Value::Integer(level)) => *level as f64,
        Some(Value::Number(level)) => *level,
        _ => return Err(Error::runtime("First argument must be a number (log level).")),
    };
    if !(0.0..=3.0).contains(&level) {
        return Err(Error::runtime("Invalid debug level."));
    }
    let mut message = Vec::new();
    for arg in args {
        if !message.is_empty() {
            message.push(b' ');
        }
        match arg {
            Value::String(text) => message.extend_from_slice(&text.as_bytes()),
            other => message.extend_from_slice(other.to_string().map_err(|e| Error::runtime(words(&e)))?.as_bytes()),
        }
    }
    host.log(level as u8, &message);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_c_writes_them() {
        for (number, digits, text) in [
            (3.0, 17, "3"),
            (0.1, 17, "0.10000000000000001"),
            (1e300, 17, "1.0000000000000001e+300"),
            (-2.5, 14, "-2.5"),
            (1e-5, 14, "1e-05"),
            (123_456_789_012_345_680.0, 14, "1.2345678901235e+17"),
            (f64::INFINITY, 14, "inf"),
        ] {
            assert_eq!(general(number, digits), text);
        }
        assert_eq!(number_text(1e15), "1000000000000000");
    }
}
