//! The functions of Lua's `string` library that may take long, in a bounded number of steps: those with patterns, and `rep`.

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Error, Function, Lua, LuaString, MultiValue, Table, Value};

use crate::bounds::Bounds;
use crate::limits::MEMORY_BYTES;
use crate::pattern::{Capture, Fault, Matcher, is_plain};

/// Bytes that are copied or looked at in a step.
const BYTES_PER_STEP: usize = 64;

/// Replaces the functions in Lua's own table.
pub(crate) fn replace(lua: &Lua, string: &Table, bounds: &Rc<Bounds>) -> mlua::Result<()> {
    let of = |bounds: &Rc<Bounds>| Rc::clone(bounds);
    let own = of(bounds);
    string.raw_set("rep", lua.create_function(move |lua, args| repeat(lua, &own, args))?)?;
    let own = of(bounds);
    string.raw_set(
        "find",
        lua.create_function(move |lua, args| search(lua, &own, args, true))?,
    )?;
    let own = of(bounds);
    string.raw_set(
        "match",
        lua.create_function(move |lua, args| search(lua, &own, args, false))?,
    )?;
    let own = of(bounds);
    let gmatch = lua.create_function(move |lua, args| matches(lua, &own, args))?;
    string.raw_set("gmatch", gmatch.clone())?;
    string.raw_set("gfind", gmatch)?;
    let own = of(bounds);
    string.raw_set(
        "gsub",
        lua.create_function(move |lua, args| substitute(lua, &own, args))?,
    )
}

fn raised(fault: Fault) -> Error {
    match fault {
        Fault::Pattern(text) => Error::runtime(text),
        Fault::Stopped(error) => error,
    }
}

/// `string.rep`, which in Lua 5.1 takes as long as it is told to where the text is empty.
fn repeat(lua: &Lua, bounds: &Bounds, (text, times): (LuaString, f64)) -> mlua::Result<LuaString> {
    let bytes = text.as_bytes();
    let times = if times >= 1.0 { times as u64 } else { 0 };
    let length = (bytes.len() as u64).saturating_mul(times);
    if length > MEMORY_BYTES as u64 {
        return Err(Error::runtime("not enough memory"));
    }
    bounds.take(1 + length / BYTES_PER_STEP as u64)?;
    if length == 0 {
        return lua.create_string("");
    }
    lua.create_string(bytes.repeat(times as usize))
}

/// `find` and `match`.
fn search(
    lua: &Lua,
    bounds: &Bounds,
    (text, pattern, from, is_plain_text): (LuaString, LuaString, Option<f64>, Option<bool>),
    finds: bool,
) -> mlua::Result<MultiValue> {
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let begin = beginning(from.unwrap_or(1.0), text.len());
    if finds && (is_plain_text.unwrap_or(false) || is_plain(&pattern)) {
        bounds.take(1 + ((text.len() - begin) / BYTES_PER_STEP) as u64)?;
        let found = find_plain(&text[begin..], &pattern);
        return Ok(match found {
            Some(at) => numbers([begin + at + 1, begin + at + pattern.len()]),
            None => nil(),
        });
    }
    let take = |steps| bounds.take(steps);
    let (is_anchored, rest) = anchored(&pattern);
    let mut matcher = Matcher::new(&text, rest, &take);
    for at in begin..=text.len() {
        if let Some(end) = matcher.at(at).map_err(raised)? {
            let mut found = if finds {
                numbers([at + 1, end])
            } else {
                MultiValue::new()
            };
            let is_whole = !finds;
            found.extend(captured(lua, &text, &matcher.captures, is_whole.then_some((at, end)))?);
            return Ok(found);
        }
        if is_anchored {
            break;
        }
    }
    Ok(nil())
}

/// The index at which a search begins, from a place that is counted from one, or from behind.
fn beginning(from: f64, length: usize) -> usize {
    let length_f = length as f64;
    let from = if from < 0.0 {
        (length_f + from + 1.0).max(1.0)
    } else {
        from.max(1.0)
    };
    (from.min(length_f + 1.0) as usize).saturating_sub(1).min(length)
}

fn anchored(pattern: &[u8]) -> (bool, &[u8]) {
    match pattern.strip_prefix(b"^") {
        Some(rest) => (true, rest),
        None => (false, pattern),
    }
}

fn find_plain(text: &[u8], wanted: &[u8]) -> Option<usize> {
    if wanted.is_empty() {
        return Some(0);
    }
    memchr::memmem::find(text, wanted)
}

fn numbers(all: [usize; 2]) -> MultiValue {
    all.into_iter().map(|number| Value::Number(number as f64)).collect()
}

fn nil() -> MultiValue {
    std::iter::once(Value::Nil).collect()
}

/// The captured text, or the whole match if nothing was captured and it is given.
fn captured(lua: &Lua, text: &[u8], captures: &[Capture], whole: Option<(usize, usize)>) -> mlua::Result<Vec<Value>> {
    let text_of = |begin: usize, end: usize| Ok(Value::String(lua.create_string(&text[begin..end])?));
    if let (Some((begin, end)), true) = (whole, captures.is_empty()) {
        return Ok(vec![text_of(begin, end)?]);
    }
    let value = |capture: &Capture| match *capture {
        Capture::Open(_) => Err(Error::runtime("unfinished capture")),
        Capture::Position(at) => Ok(Value::Number((at + 1) as f64)),
        Capture::Closed(begin, length) => text_of(begin, begin + length),
    };
    captures.iter().map(value).collect()
}

/// `gmatch`: a function that gives one match after the other.
fn matches(lua: &Lua, bounds: &Rc<Bounds>, (text, pattern): (LuaString, LuaString)) -> mlua::Result<Function> {
    let next = Cell::new(0);
    let bounds = Rc::clone(bounds);
    lua.create_function(move |lua, _: MultiValue| {
        let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
        let take = |steps| bounds.take(steps);
        let mut matcher = Matcher::new(&text, &pattern, &take);
        for at in next.get()..=text.len() {
            if let Some(end) = matcher.at(at).map_err(raised)? {
                next.set(if end == at { end + 1 } else { end });
                let values = captured(lua, &text, &matcher.captures, Some((at, end)))?;
                return Ok(MultiValue::from_iter(values));
            }
        }
        next.set(text.len() + 1);
        Ok(nil())
    })
}

/// `gsub`.
fn substitute(
    lua: &Lua,
    bounds: &Bounds,
    (text, pattern, by, most): (LuaString, LuaString, Value, Option<f64>),
) -> mlua::Result<(LuaString, f64)> {
    let by = match by {
        Value::Integer(_) | Value::Number(_) => match lua.coerce_string(by)? {
            Some(text) => Value::String(text),
            None => Value::Nil,
        },
        other => other,
    };
    if !matches!(by, Value::String(_) | Value::Table(_) | Value::Function(_)) {
        return Err(Error::runtime(
            "bad argument #3 to 'gsub' (string/function/table expected)",
        ));
    }
    let (text, pattern) = (text.as_bytes(), pattern.as_bytes());
    let (is_anchored, rest) = anchored(&pattern);
    let take = |steps| bounds.take(steps);
    let mut matcher = Matcher::new(&text, rest, &take);
    let most = most.unwrap_or(text.len() as f64 + 1.0);
    let (mut out, mut at, mut count) = (Vec::new(), 0, 0.0);
    while count < most {
        let end = matcher.at(at).map_err(raised)?;
        if let Some(end) = end {
            count += 1.0;
            append_replaced(lua, &text, (at, end), &matcher.captures, &by, &mut out)?;
        }
        match end {
            Some(end) if end > at => at = end,
            _ if at < text.len() => {
                out.push(text[at]);
                at += 1;
            }
            _ => break,
        }
        if out.len() > MEMORY_BYTES {
            return Err(Error::runtime("not enough memory"));
        }
        if is_anchored {
            break;
        }
    }
    out.extend_from_slice(&text[at.min(text.len())..]);
    Ok((lua.create_string(&out)?, count))
}

/// Appends what a match is replaced by.
fn append_replaced(
    lua: &Lua,
    text: &[u8],
    (begin, end): (usize, usize),
    captures: &[Capture],
    by: &Value,
    out: &mut Vec<u8>,
) -> mlua::Result<()> {
    let values = captured(lua, text, captures, Some((begin, end)))?;
    let value = match by {
        Value::String(template) => return append_template(&template.as_bytes(), &text[begin..end], &values, out),
        Value::Table(table) => table.get::<Value>(values.into_iter().next().unwrap_or(Value::Nil))?,
        Value::Function(function) => function.call::<Value>(MultiValue::from_iter(values))?,
        _ => Value::Nil,
    };
    match value {
        Value::Nil | Value::Boolean(false) => out.extend_from_slice(&text[begin..end]),
        value => match lua.coerce_string(value)? {
            Some(text) => out.extend_from_slice(&text.as_bytes()),
            None => return Err(Error::runtime("invalid replacement value")),
        },
    }
    Ok(())
}

/// Appends a text in which `%1` and its like stand for what was captured.
fn append_template(template: &[u8], whole: &[u8], values: &[Value], out: &mut Vec<u8>) -> mlua::Result<()> {
    let mut bytes = template.iter().copied();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        match bytes.next() {
            Some(b'0') => out.extend_from_slice(whole),
            Some(digit @ b'1'..=b'9') => match values.get(usize::from(digit - b'1')) {
                Some(Value::String(text)) => out.extend_from_slice(&text.as_bytes()),
                Some(Value::Number(number)) => out.extend_from_slice(number.to_string().as_bytes()),
                _ => return Err(Error::runtime("invalid capture index")),
            },
            Some(other) => out.push(other),
            None => return Err(Error::runtime("invalid use of '%' in replacement string")),
        }
    }
    Ok(())
}
