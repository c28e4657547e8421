//! An engine: a Lua state, the scripts that it has compiled, and how one of them is run.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

use mlua::{Function, HookTriggers, Lua, LuaOptions, MultiValue, Table, Value, VmState};
use tidemark_protocol::resp::Version;

use crate::Host;
use crate::bounds::{Bounds, Watchman};
use crate::call::{self, Nulls};
use crate::fault::{Broken, SCRIPT_SOURCE, Stopped, one_line, words};
use crate::globals;
use crate::limits::{COMPILED_MAX, KEPT_BYTES, MEMORY_BYTES};
use crate::result;
use crate::shebang;

/// A script and what it is called with.
#[derive(Clone, Copy, Debug)]
pub struct Script<'a> {
    /// The SHA-1 of its text, in hexadecimal digits.
    pub name: &'a str,
    /// Its text.
    pub text: &'a [u8],
    /// `KEYS`.
    pub keys: &'a [Box<[u8]>],
    /// `ARGV`.
    pub args: &'a [Box<[u8]>],
}

/// The outcome of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The reply, also where it is an error.
    pub reply: Vec<u8>,
    /// Whether the reply is an error.
    pub has_failed: bool,
    /// Why it was ended from outside, if it was.
    pub stopped: Option<Stopped>,
    /// Steps of Lua's machine, about.
    pub steps: u64,
}

/// A script that is compiled, and whether it may write.
#[derive(Clone)]
struct Compiled {
    function: Function,
    no_writes: bool,
}

/// A Lua state for the scripts of one tenant.
pub struct Engine {
    lua: Lua,
    make_globals: Function,
    run: Function,
    compiled: HashMap<String, Compiled>,
    bounds: Rc<Bounds>,
    first_bytes: usize,
}

impl Engine {
    /// A new state.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn new() -> Result<Self, Broken> {
        let lua = Lua::new_with(globals::loaded(), LuaOptions::new())?;
        lua.set_memory_limit(MEMORY_BYTES)?;
        let bounds = Rc::default();
        let make_globals = globals::maker(&lua, &bounds)?;
        let run = globals::runner(&lua)?;
        let first_bytes = lua.used_memory();
        Ok(Self {
            make_globals,
            run,
            compiled: HashMap::new(),
            bounds,
            first_bytes,
            lua,
        })
    }

    /// Whether a script can be compiled.
    ///
    /// # Errors
    /// The error to reply with, its code first.
    pub fn check(&mut self, name: &str, text: &[u8]) -> Result<(), String> {
        self.compile(name, text).map(drop)
    }

    /// Whether a script is compiled already.
    pub fn has_compiled(&self, name: &str) -> bool {
        self.compiled.contains_key(name)
    }

    /// Whether a script says of itself that it writes nothing. One that cannot be compiled says nothing.
    pub fn is_read_only(&mut self, name: &str, text: &[u8]) -> bool {
        self.compile(name, text).is_ok_and(|compiled| compiled.no_writes)
    }

    /// Runs a script, up to so many steps and as long as the watchman lets it.
    ///
    /// # Errors
    /// The state is of no use any more: there was no memory even to begin.
    pub fn run(
        &mut self,
        script: &Script<'_>,
        version: Version,
        host: &mut dyn Host,
        steps_max: u64,
        watchman: Watchman,
    ) -> Result<Run, Broken> {
        let compiled = match self.compile(script.name, script.text) {
            Ok(compiled) => compiled,
            Err(text) => return Ok(failed(&text)),
        };
        self.bounds.begin(steps_max, watchman);
        let outcome = self.run_within(&compiled.function, script, host);
        self.lua.remove_global_hook();
        let (steps, stopped) = self.bounds.end();
        if let Some(stopped) = stopped {
            return Ok(Run {
                stopped: Some(stopped),
                steps,
                ..failed(&stopped.text(steps_max))
            });
        }
        let (is_done, value) = outcome?;
        let mut run = Run {
            reply: Vec::new(),
            has_failed: !is_done,
            stopped: None,
            steps,
        };
        if !is_done {
            run.reply = uncaught(&value, script.name);
        } else if let Err(text) = result::append(&value, version, &mut run.reply) {
            run = Run { steps, ..failed(&text) };
        }
        Ok(run)
    }

    /// Whether it holds more than an engine should between two runs.
    pub fn is_worn(&self) -> bool {
        self.lua.used_memory() > self.first_bytes + KEPT_BYTES
    }

    /// Calls a script with globals of its own, under the hook. Whether it returned, and what.
    fn run_within(&self, script: &Function, of: &Script<'_>, host: &mut dyn Host) -> mlua::Result<(bool, Value)> {
        let lua = &self.lua;
        let host = RefCell::new(host);
        let nulls = Cell::new(Nulls::False);
        let busy = || mlua::Error::runtime("a command is under way");
        lua.scope(|scope| {
            let invoke = scope.create_function(|lua, args: MultiValue| {
                let mut host = host.try_borrow_mut().map_err(|_| busy())?;
                call::call(lua, &args, nulls.get(), &mut **host, &self.bounds)
            })?;
            let log = scope.create_function(|_, args: MultiValue| {
                let mut host = host.try_borrow_mut().map_err(|_| busy())?;
                call::log(&args, &mut **host)
            })?;
            let set_resp = scope.create_function(|_, version: i64| {
                nulls.set(match version {
                    2 => Nulls::False,
                    3 => Nulls::Nil,
                    _ => return Err(mlua::Error::runtime("RESP version must be 2 or 3.")),
                });
                Ok(())
            })?;
            let (keys, args) = (list(lua, of.keys)?, list(lua, of.args)?);
            let env: Table = self.make_globals.call((invoke, log, set_resp, keys, args))?;
            script.set_environment(env)?;
            self.watch()?;
            self.run.call((script,))
        })
    }

    /// Has the hook look at the run every few steps.
    fn watch(&self) -> mlua::Result<()> {
        let steps = self.bounds.steps_per_look();
        let every = HookTriggers::new().every_nth_instruction(steps);
        let bounds = Rc::clone(&self.bounds);
        self.lua.set_global_hook(every, move |_, _| {
            bounds.take(u64::from(steps))?;
            Ok(VmState::Continue)
        })
    }

    fn compile(&mut self, name: &str, text: &[u8]) -> Result<Compiled, String> {
        if let Some(compiled) = self.compiled.get(name) {
            return Ok(compiled.clone());
        }
        let (flags, text) = shebang::read(text)?;
        let compiling = |text: &str| format!("ERR Error compiling script (new function): {text}");
        if text.first() == Some(&0x1b) {
            return Err(compiling("byte code is not allowed"));
        }
        let function = self
            .lua
            .load(text)
            .set_name(SCRIPT_SOURCE)
            .set_mode(mlua::chunk::ChunkMode::Text)
            .into_function()
            .map_err(|error| compiling(&words(&error)))?;
        if self.compiled.len() >= COMPILED_MAX {
            self.compiled.clear();
        }
        let compiled = Compiled {
            function,
            no_writes: flags.no_writes,
        };
        self.compiled.insert(name.to_owned(), compiled.clone());
        Ok(compiled)
    }
}

fn list(lua: &Lua, items: &[Box<[u8]>]) -> mlua::Result<Table> {
    let table = lua.create_table_with_capacity(items.len(), 0)?;
    for (index, item) in items.iter().enumerate() {
        table.raw_set(index + 1, lua.create_string(item)?)?;
    }
    Ok(table)
}

fn failed(text: &str) -> Run {
    let mut reply = vec![b'-'];
    reply.extend_from_slice(&one_line(text.as_bytes()));
    reply.extend_from_slice(b"\r\n");
    Run {
        reply,
        has_failed: true,
        stopped: None,
        steps: 0,
    }
}

/// The reply to an error that a script did not catch, as in Redis 7.
fn uncaught(value: &Value, name: &str) -> Vec<u8> {
    let field = |field: &str| value.as_table().and_then(|table| table.raw_get::<Value>(field).ok());
    let mut text = match field("err") {
        Some(Value::String(text)) => text.as_bytes().to_vec(),
        _ => b"ERR not enough memory".to_vec(),
    };
    text = one_line(&text);
    // A call in place of a return has left no place behind.
    let place = match (field("source"), field("line")) {
        (Some(Value::String(source)), Some(Value::Integer(line))) => {
            format!(" script: {name}, on {}:{line}.", source.display())
        }
        _ => format!(" script: {name}."),
    };
    text.extend_from_slice(place.as_bytes());
    let mut reply = vec![b'-'];
    reply.extend_from_slice(&one_line(&text));
    reply.extend_from_slice(b"\r\n");
    reply
}
