//! `tidemark backup` and `tidemark restore`: the data folder as one file, and back.
//!
//! They work on the folder's files, so that they also work while no server runs.

use std::path::{Path, PathBuf};

use serde_json::json;
use tidemark_admin::{TOKEN_FILE_NAME, TOKENS_FILE_NAME};
use tidemark_control::backup::{Backup, restore, take};
use tidemark_gateway::access::{ACCESS_FILE, KEY_FILE};
use tidemark_types::{Clock as _, SystemClock, utc};

use crate::client::ClientArgs;
use crate::output::{bytes_text, note, print};

pub(super) const EXAMPLES: &str = "\
Examples:
  tidemark backup /var/backups/tidemark.tar      while the server runs, or not
  tidemark backup tidemark.tar --data /var/lib/tidemark --json";

pub(super) const RESTORE_EXAMPLES: &str = "\
Examples:
  tidemark restore /var/backups/tidemark.tar --data /var/lib/tidemark
  tidemark restore tidemark.tar --replace        what is there is kept in `replaced-TIME` in the data folder";

/// The files of a data folder beside its databases.
const OTHERS: [&str; 4] = [TOKEN_FILE_NAME, TOKENS_FILE_NAME, KEY_FILE, ACCESS_FILE];

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    #[command(flatten)]
    client: ClientArgs,
    /// The file of the backup: a tar archive that only its owner may read, since it has keys in it
    file: PathBuf,
}

#[derive(Debug, clap::Args)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    client: ClientArgs,
    /// The file that `tidemark backup` wrote
    file: PathBuf,
    /// Also where the data folder has a state; that is put aside
    #[arg(long)]
    replace: bool,
}

pub(super) fn run(args: &Args, data: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let client = args.client.client(data)?;
    let backup = take(client.folder(), &args.file, &OTHERS, SystemClock.now())?;
    if !json {
        let file = args.file.display();
        note(&format!(
            "{file}: settings, secrets' hashes and usage; nothing of what is cached"
        ));
    }
    show(&backup, json)
}

pub(super) fn run_restore(args: &RestoreArgs, data: Option<&Path>, json: bool) -> anyhow::Result<()> {
    let client = args.client.client(data)?;
    let backup = restore(&args.file, client.folder(), args.replace, SystemClock.now())?;
    if !json {
        let (folder, taken) = (client.folder().display(), utc::rfc3339(backup.taken_at));
        note(&format!(
            "{folder} is as it was at {taken}; the next `tidemark serve` goes on from there"
        ));
    }
    show(&backup, json)
}

fn show(backup: &Backup, json: bool) -> anyhow::Result<()> {
    let text = if json {
        let files = backup
            .files
            .iter()
            .map(|file| json!({"name": file.name, "bytes": file.bytes}));
        json!({"taken_at": utc::rfc3339(backup.taken_at), "files": files.collect::<Vec<_>>()}).to_string()
    } else {
        let lines = backup
            .files
            .iter()
            .map(|file| format!("{:16} {}", file.name, bytes_text(file.bytes as f64)));
        lines.collect::<Vec<_>>().join("\n")
    };
    Ok(print(&text)?)
}
