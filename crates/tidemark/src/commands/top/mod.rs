//! `tidemark top`: tenants as they are now, in a terminal that follows them, or as one table.

mod keys;
mod screen;
mod view;

use std::io::{self, IsTerminal as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context as _;
use ratatui::DefaultTerminal;
use ratatui::crossterm::event;
use serde_json::{Value, json};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tidemark_types::parse_duration;

use crate::client::{Client, ClientArgs};
use crate::output::print;
use keys::{Act, act_of};
use screen::draw;
use view::{Column, Sorting, View, table_of};

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark top                              q quits, left and right choose the order, r turns it round
  tidemark top --sort spent --every 5s
  tidemark top | head                       without a terminal: one table
  tidemark top --json";

/// How often tenants are asked for, at least: each asks the control plane for all of them.
const EVERY_MIN: Duration = Duration::from_millis(200);
/// And at most.
const EVERY_MAX: Duration = Duration::from_secs(3600);
/// So long a key, a signal and a resize are waited for at a time.
const LOOK_EVERY: Duration = Duration::from_millis(100);

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    client: ClientArgs,
    /// The column by which tenants are sorted
    #[arg(long, value_enum, default_value = "grant")]
    sort: Column,
    /// Begin with the smallest
    #[arg(long)]
    reverse: bool,
    /// Time between two looks
    #[arg(long, value_name = "T", default_value = "1s", value_parser = every)]
    every: Duration,
}

fn every(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).map_err(|error| error.to_string())?;
    if (EVERY_MIN..=EVERY_MAX).contains(&time) {
        Ok(time)
    } else {
        Err("allowed are 200ms to 1h".into())
    }
}

pub(super) fn run(args: &Args, data: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let client = args.client.client(data)?;
    let sorting = Sorting {
        column: args.sort,
        is_reversed: args.reverse,
    };
    // Also where there is a terminal, a server that does not answer is an error and no screen.
    let first = look(&client)?;
    if json {
        return Ok(print(
            &json!({"server": first.server, "tenants": first.tenants}).to_string(),
        )?);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        return Ok(print(&table_of(&View::new(&first.server, &first.tenants, sorting)))?);
    }
    follow(client, first, sorting, args.every)
}

/// The server's answers at one time.
#[derive(Debug)]
struct Look {
    server: Value,
    tenants: Vec<Value>,
}

fn look(client: &Client) -> anyhow::Result<Look> {
    let mut answer = client.get("/api/v1/tenants")?;
    let tenants = match answer.get_mut("tenants").map(Value::take) {
        Some(Value::Array(tenants)) => tenants,
        _ => Vec::new(),
    };
    Ok(Look {
        server: client.get("/api/v1/server")?,
        tenants,
    })
}

/// Asks again and again until nobody listens. A server that hangs does not keep the screen from following keys.
fn ask(client: &Client, every: Duration, to: &SyncSender<anyhow::Result<Look>>, ended: &Receiver<()>) {
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(every) {
        if to.send(look(client)).is_err() {
            return;
        }
    }
}

fn follow(client: Client, first: Look, sorting: Sorting, every: Duration) -> anyhow::Result<()> {
    let is_over = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&is_over)).context("signals can not be handled")?;
    }
    let (to, looks) = sync_channel(0);
    let (_until_here, ended) = sync_channel(0);
    std::thread::Builder::new()
        .name("top-looks".into())
        .spawn(move || ask(&client, every, &to, &ended))
        .context("no thread can be started")?;
    let mut terminal = ratatui::try_init().context("the terminal can not be used")?;
    let result = show(&mut terminal, first, sorting, &looks, &is_over);
    ratatui::try_restore().context("the terminal can not be put back")?;
    result
}

/// Follows keys and what the server says until a key or a signal ends it.
fn show(
    terminal: &mut DefaultTerminal,
    first: Look,
    mut sorting: Sorting,
    looks: &Receiver<anyhow::Result<Look>>,
    is_over: &AtomicBool,
) -> anyhow::Result<()> {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let (mut look, mut problem, mut scrolled) = (first, None, 0);
    while !is_over.load(Ordering::Relaxed) {
        let view = View::new(&look.server, &look.tenants, sorting);
        scrolled = scrolled.min(view.rows.len().saturating_sub(1));
        terminal.draw(|frame| draw(frame, &view, problem.as_deref(), scrolled, is_plain))?;
        if event::poll(LOOK_EVERY)? {
            match act_of(&event::read()?) {
                Some(Act::Quit) => return Ok(()),
                Some(Act::Sort(step)) => sorting.column = sorting.column.beside(step),
                Some(Act::Reverse) => sorting.is_reversed = !sorting.is_reversed,
                Some(Act::Scroll(rows)) => scrolled = scrolled.saturating_add_signed(rows),
                None => {}
            }
        }
        match looks.try_recv() {
            Ok(Ok(new)) => (look, problem) = (new, None),
            Ok(Err(error)) => problem = Some(format!("{error:#}")),
            Err(_) => {}
        }
    }
    Ok(())
}
