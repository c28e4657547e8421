//! A script's result as a reply.

use mlua::{Table, Value};
use tidemark_protocol::resp::{Reply, Version};

use crate::fault::one_line;
use crate::limits::{RESULT_BYTES_MAX, RESULT_DEPTH_MAX};

/// Why a result cannot be a reply; the text of an error.
pub(crate) type Refused = String;

/// Appends what a script returned.
///
/// # Errors
/// It is too long, or tables in it are nested too deeply.
pub(crate) fn append(value: &Value, version: Version, out: &mut Vec<u8>) -> Result<(), Refused> {
    append_at(value, version, out, 0)
}

fn append_at(value: &Value, version: Version, out: &mut Vec<u8>, depth: usize) -> Result<(), Refused> {
    if depth > RESULT_DEPTH_MAX {
        return Err(format!(
            "ERR the script's result is nested deeper than {RESULT_DEPTH_MAX} tables"
        ));
    }
    let length = match value {
        Value::String(text) => text.as_bytes().len(),
        _ => 0,
    };
    if out.len() + length > RESULT_BYTES_MAX {
        return Err(format!(
            "ERR the script's result is above the limit of {RESULT_BYTES_MAX} bytes"
        ));
    }
    let mut reply = Reply::new(out, version);
    match value {
        Value::String(text) => reply.bulk(&text.as_bytes()),
        Value::Integer(number) => reply.integer(*number),
        Value::Number(number) => reply.integer(*number as i64),
        Value::Boolean(true) => reply.integer(1),
        Value::Table(table) => return append_table(table, version, out, depth).map_err(|error| error.to_string()),
        _ => reply.null(),
    }
    Ok(())
}

fn append_table(table: &Table, version: Version, out: &mut Vec<u8>, depth: usize) -> Result<(), Refused> {
    let field = |name: &str| table.raw_get::<Value>(name).map_err(|error| error.to_string());
    if let Value::String(text) = field("err")? {
        out.push(b'-');
        out.extend_from_slice(&one_line(&text.as_bytes()));
        out.extend_from_slice(b"\r\n");
        return Ok(());
    }
    if let Value::String(text) = field("ok")? {
        out.push(b'+');
        out.extend_from_slice(&one_line(&text.as_bytes()));
        out.extend_from_slice(b"\r\n");
        return Ok(());
    }
    if let Value::Number(number) = field("double")? {
        Reply::new(out, version).double(number);
        return Ok(());
    }
    let at = |index: usize| table.raw_get::<Value>(index).map_err(|error| error.to_string());
    // As in Redis, an array ends before its first nil.
    let mut length = 0;
    while !at(length + 1)?.is_nil() {
        length += 1;
        if length > RESULT_BYTES_MAX {
            return Err(format!(
                "ERR the script's result is above the limit of {RESULT_BYTES_MAX} bytes"
            ));
        }
    }
    Reply::new(out, version).array(length);
    (1..=length).try_for_each(|index| append_at(&at(index)?, version, out, depth + 1))
}
