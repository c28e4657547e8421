//! The errors of scripts, and their texts.

use mlua::{Error, Lua, Table, Value};

use crate::limits::ERROR_BYTES_MAX;

/// Why a run was ended from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// It took more steps than it may.
    Steps,
    /// It took longer than it may.
    Time,
    /// Somebody asked for its end (SCRIPT KILL).
    Killed,
}

impl Stopped {
    /// The reply's text, its code first.
    pub fn text(self, steps_max: u64) -> String {
        match self {
            Self::Steps => format!("ERR the script is above the limit of {steps_max} steps"),
            Self::Time => "ERR the script is above the limit of its time".to_owned(),
            Self::Killed => "ERR Error running script: Script killed by user with SCRIPT KILL.".to_owned(),
        }
    }
}

/// An engine could not be made, or must not be used again: there was no memory for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken(pub(crate) String);

impl std::fmt::Display for Broken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a Lua engine: {}", self.0)
    }
}

impl std::error::Error for Broken {}

impl From<Error> for Broken {
    fn from(error: Error) -> Self {
        Self(error.to_string())
    }
}

/// A text as one line that a reply can have.
pub(crate) fn one_line(text: &[u8]) -> Vec<u8> {
    let shown = &text[..text.len().min(ERROR_BYTES_MAX)];
    let line = |byte: &u8| if matches!(byte, b'\r' | b'\n') { b' ' } else { *byte };
    shown.iter().map(line).collect()
}

/// An error of the library around Lua in Lua's words: without the trace behind it.
pub(crate) fn words(error: &Error) -> String {
    let text = match error {
        Error::CallbackError { cause, .. } => return words(cause),
        Error::RuntimeError(text) => text.clone(),
        Error::SyntaxError { message, .. } => message.clone(),
        Error::MemoryError(_) => "not enough memory".to_owned(),
        other => other.to_string(),
    };
    text.split("\nstack traceback:").next().unwrap_or_default().to_owned()
}

/// The form of an uncaught error: a table with `err`, `source` and `line`, as in Redis 7. It is called where the error
/// is raised.
pub(crate) fn describe(lua: &Lua, error: Value) -> mlua::Result<Table> {
    let table = match error {
        Value::Table(table) if table.raw_get::<Value>("err")?.is_string() => table,
        Value::Table(_) => with_text(lua, b"ERR unknown error")?,
        Value::Error(error) => with_text(lua, format!("ERR {}", words(&error)).as_bytes())?,
        Value::String(text) => with_text(lua, &[b"ERR ", &text.as_bytes()[..]].concat())?,
        other => with_text(lua, format!("ERR {}", other.to_string()?).as_bytes())?,
    };
    if table.raw_get::<Value>("line")?.is_nil()
        && let Some((source, line)) = place(lua)
    {
        table.raw_set("source", source)?;
        table.raw_set("line", line)?;
    }
    Ok(table)
}

fn with_text(lua: &Lua, text: &[u8]) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("err", lua.create_string(text)?)?;
    Ok(table)
}

/// Calls on the stack among which the script's own line is looked for.
const CALLS_LOOKED_AT: usize = 16;

/// The place in a script's text of the call that is under way.
fn place(lua: &Lua) -> Option<(String, usize)> {
    (1..CALLS_LOOKED_AT).find_map(|level| {
        lua.inspect_stack(level, |call| {
            let line = call.current_line()?;
            let source = call.source().source?.into_owned();
            source.starts_with(SCRIPT_SOURCE).then_some((source, line))
        })?
    })
}

/// How Redis calls a script's text in messages.
pub(crate) const SCRIPT_SOURCE: &str = "@user_script";
