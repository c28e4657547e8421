//! `bit`: operations on 32-bit numbers, as in LuaBitOp (<https://bitop.luajit.org/semantics.html>).

use mlua::{Error, Lua, Table, Variadic};

/// The table of functions.
pub(crate) fn make(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let many = |name: &str, of: fn(u32, u32) -> u32| {
        let function = lua.create_function(move |_, args: Variadic<f64>| {
            let mut numbers = args.iter().map(|number| wrapped(*number));
            let first = numbers
                .next()
                .ok_or_else(|| Error::runtime("number expected, got no value"))?;
            Ok(f64::from(numbers.fold(first, of) as i32))
        })?;
        table.raw_set(name, function)
    };
    many("band", |a, b| a & b)?;
    many("bor", |a, b| a | b)?;
    many("bxor", |a, b| a ^ b)?;
    let one = |name: &str, of: fn(u32) -> u32| {
        let function = lua.create_function(move |_, number: f64| Ok(f64::from(of(wrapped(number)) as i32)))?;
        table.raw_set(name, function)
    };
    one("tobit", |a| a)?;
    one("bnot", |a| !a)?;
    one("bswap", u32::swap_bytes)?;
    // Only the lowest five bits of a count mean something.
    let shifted = |name: &str, of: fn(u32, u32) -> u32| {
        let function = lua.create_function(move |_, (number, count): (f64, f64)| {
            Ok(f64::from(of(wrapped(number), wrapped(count) & 31) as i32))
        })?;
        table.raw_set(name, function)
    };
    shifted("lshift", |a, count| a << count)?;
    shifted("rshift", |a, count| a >> count)?;
    shifted("arshift", |a, count| ((a as i32) >> count) as u32)?;
    shifted("rol", u32::rotate_left)?;
    shifted("ror", u32::rotate_right)?;
    table.raw_set("tohex", lua.create_function(to_hex)?)?;
    Ok(table)
}

/// A number as 32 bits: rounded to the nearest, ties to even, and wrapped around.
fn wrapped(number: f64) -> u32 {
    const RANGE: f64 = 4_294_967_296.0;
    if !number.is_finite() {
        return 0;
    }
    number.round_ties_even().rem_euclid(RANGE) as u32
}

/// The lowest digits in hexadecimal: eight, or as many as said; in capitals if that is negative.
fn to_hex(_: &Lua, (number, digits): (f64, Option<f64>)) -> mlua::Result<String> {
    let digits = digits.unwrap_or(8.0);
    let count = (digits.abs().min(8.0)) as usize;
    let text = format!("{:08x}", wrapped(number));
    let text = &text[8 - count..];
    Ok(if digits < 0.0 {
        text.to_ascii_uppercase()
    } else {
        text.to_owned()
    })
}
