//! The globals of a run: what Redis lets scripts see of Lua, in tables that are made anew for each run.

use std::rc::Rc;

use mlua::{Error, Function, Lua, StdLib, Table, Value, Variadic};

use crate::bounds::Bounds;
use crate::libraries::{bit, json, msgpack, pack};
use crate::{compile_steps, name_of, strings};

/// Bytes of a text that are hashed in a step.
const BYTES_PER_STEP: usize = 16;

/// Functions of Lua's base library that scripts may call. None of them reaches files, byte code or another function's globals.
const BASE: [&str; 17] = [
    "assert",
    "error",
    "getmetatable",
    "ipairs",
    "next",
    "pairs",
    "pcall",
    "rawequal",
    "rawget",
    "rawset",
    "select",
    "setmetatable",
    "tonumber",
    "tostring",
    "type",
    "unpack",
    "_VERSION",
];

/// Libraries whose functions scripts may call.
const LIBRARIES: [&str; 4] = ["string", "table", "math", "coroutine"];

/// Functions of these that scripts may not call: they give byte code, or change what other scripts see.
const LEFT_OUT: [(&str, &str); 2] = [("string", "dump"), ("math", "randomseed")];

/// The libraries of Lua that are loaded. The base library always is, with coroutines.
pub(crate) fn loaded() -> StdLib {
    StdLib::STRING | StdLib::TABLE | StdLib::MATH
}

/// Makes the globals of a run: called with the functions that reach its host, its keys and its arguments.
pub(crate) fn maker(lua: &Lua, bounds: &Rc<Bounds>) -> mlua::Result<Function> {
    let all = lua.globals();
    let base = lua.create_table()?;
    for name in BASE {
        base.raw_set(name, all.raw_get::<Value>(name)?)?;
    }
    base.raw_set("collectgarbage", lua.create_function(collect_garbage)?)?;
    let libraries = lua.create_table()?;
    for name in LIBRARIES {
        libraries.raw_set(name, all.raw_get::<Table>(name)?)?;
    }
    for (library, name) in LEFT_OUT {
        libraries.raw_get::<Table>(library)?.raw_set(name, Value::Nil)?;
    }
    let string: Table = libraries.raw_get("string")?;
    strings::replace(lua, &string, bounds)?;
    let table: Table = libraries.raw_get("table")?;
    table.raw_set("insert", bounded_insert(lua, &table)?)?;
    protect_strings(lua)?;
    libraries.raw_set("bit", bit::make(lua)?)?;
    libraries.raw_set("struct", pack::make(lua)?)?;
    libraries.raw_set("cjson", json::make(lua, bounds)?)?;
    libraries.raw_set("cmsgpack", msgpack::make(lua, bounds)?)?;
    let own = Rc::clone(bounds);
    let sha1 = lua.create_function(move |_, text: mlua::LuaString| {
        let bytes = text.as_bytes();
        own.take((bytes.len() / BYTES_PER_STEP) as u64)?;
        Ok(name_of(&bytes))
    })?;
    let own = Rc::clone(bounds);
    let is_over = lua.create_function(move |_, ()| Ok(own.is_over()))?;
    let redis = lua.create_table()?;
    redis.raw_set("sha1hex", sha1)?;
    redis.raw_set(
        "error_reply",
        lua.create_function(|lua, args| crate::call::error_reply(lua, &args))?,
    )?;
    redis.raw_set(
        "status_reply",
        lua.create_function(|lua, args| crate::call::status_reply(lua, &args))?,
    )?;
    for (name, value) in [
        ("LOG_DEBUG", 0),
        ("LOG_VERBOSE", 1),
        ("LOG_NOTICE", 2),
        ("LOG_WARNING", 3),
    ] {
        redis.raw_set(name, value)?;
    }
    for (name, value) in [
        ("REPL_NONE", 0),
        ("REPL_AOF", 1),
        ("REPL_SLAVE", 2),
        ("REPL_REPLICA", 2),
        ("REPL_ALL", 3),
    ] {
        redis.raw_set(name, value)?;
    }
    redis.raw_set("REDIS_VERSION", "7.2.4")?;
    redis.raw_set("REDIS_VERSION_NUM", 0x0007_0204)?;
    lua.load(MAKER)
        .set_name("=globals")
        .call((base, libraries, redis, bounded_load(lua, bounds)?, is_over))
}

/// Copies the tables, so that what a script does to them ends with it. `_G` can be read and, as in Redis, not added to.
const MAKER: &str = r#"
local base, libraries, redis, load_text, is_over = ...
local pairs, setmetatable, error, tostring = pairs, setmetatable, error, tostring

local function copy(table)
    local new = {}
    for name, value in pairs(table) do
        new[name] = value
    end
    return new
end

local function read(_, name)
    error("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'", 2)
end

local function write()
    error("Attempt to modify a readonly table", 2)
end

-- Once the run has to end, nothing that catches an error goes on.
local function checked(...)
    if is_over() then
        error("the script is stopped", 0)
    end
    return ...
end

local lua_pcall, lua_resume = pcall, libraries.coroutine.resume
local function pcall(...)
    return checked(lua_pcall(...))
end

base.pcall = pcall
libraries.coroutine.resume = function(...)
    return checked(lua_resume(...))
end

-- Lua's own calls the handler where the error is raised. Raised by the hook, that is where no hook can end the handler.
local function handled(handler, is_done, ...)
    if is_done then
        return true, ...
    end
    return false, handler((...))
end

local function xpcall(f, handler)
    return handled(handler, pcall(f))
end

return function(invoke, log, set_resp, keys, args)
    local env = copy(base)
    for name, library in pairs(libraries) do
        env[name] = copy(library)
    end
    local own = copy(redis)
    own.call = function(...)
        local value, is_error = invoke(...)
        if is_error then
            error(value, 0)
        end
        return value
    end
    own.pcall = function(...)
        return (invoke(...))
    end
    own.log = log
    own.setresp = set_resp
    own.replicate_commands = function() return true end
    own.set_repl = function() end
    own.breakpoint = function() return false end
    own.debug = function() end
    env.redis = own
    env.server = own
    env.KEYS = keys
    env.ARGV = args
    env._G = env
    env.xpcall = xpcall
    env.loadstring = function(text) return load_text(text, env) end
    return setmetatable(env, { __index = read, __newindex = write, __metatable = false })
end
"#;

/// Calls a script and answers its first result; of what it raises, what the handler makes of it.
pub(crate) fn runner(lua: &Lua) -> mlua::Result<Function> {
    let handler = lua.create_function(crate::fault::describe)?;
    let runner = "local handler, xpcall = ... return function(script) return xpcall(script, handler) end";
    let xpcall: Function = lua.globals().raw_get("xpcall")?;
    lua.load(runner).set_name("=runner").call((handler, xpcall))
}

/// The strings' own metatable would be shared by scripts.
fn protect_strings(lua: &Lua) -> mlua::Result<()> {
    lua.load("local meta = getmetatable('') local own = {} for k, v in pairs(string) do own[k] = v end meta.__index = own meta.__metatable = false")
        .set_name("=strings")
        .exec()
}

/// Only asking is allowed: to collect again and again takes long.
#[expect(clippy::needless_pass_by_value, reason = "Lua's functions are given what they own")]
fn collect_garbage(lua: &Lua, option: Option<String>) -> mlua::Result<f64> {
    match option.as_deref() {
        Some("count") => Ok(lua.used_memory() as f64 / 1024.0),
        _ => Ok(0.0),
    }
}

/// `table.insert`, which in Lua 5.1 takes as long as the place is far from the table.
fn bounded_insert(lua: &Lua, table: &Table) -> mlua::Result<Function> {
    let insert: Function = table.raw_get("insert")?;
    lua.create_function(move |_, args: Variadic<Value>| {
        if let [Value::Table(list), place, _] = &args[..] {
            let place = place.as_number().or(place.as_integer().map(|place| place as f64));
            let end = list.raw_len() as f64 + 1.0;
            if place.is_some_and(|place| !(0.0..=end).contains(&place)) {
                return Err(Error::runtime("bad argument #2 to 'insert' (position out of bounds)"));
            }
        }
        insert.call::<()>(args)
    })
}

/// `loadstring`, which takes as long as its text.
fn bounded_load(lua: &Lua, bounds: &Rc<Bounds>) -> mlua::Result<Function> {
    let bounds = Rc::clone(bounds);
    lua.create_function(move |lua, (text, env): (mlua::LuaString, Table)| {
        bounds.take(compile_steps(&text.as_bytes()))?;
        load_text(lua, &text, env)
    })
}

/// A text as a function of the same globals. Byte code is refused: it can do anything to the process.
fn load_text(lua: &Lua, text: &mlua::LuaString, env: Table) -> mlua::Result<(Value, Value)> {
    let bytes = text.as_bytes();
    let chunk = lua
        .load(&bytes[..])
        .set_name("=loadstring")
        .set_mode(mlua::chunk::ChunkMode::Text)
        .set_environment(env);
    if bytes.first() == Some(&0x1b) {
        return Err(Error::runtime("byte code is not allowed"));
    }
    match chunk.into_function() {
        Ok(function) => Ok((Value::Function(function), Value::Nil)),
        Err(error) => Ok((
            Value::Nil,
            Value::String(lua.create_string(crate::fault::words(&error))?),
        )),
    }
}
