//! The errors, and the party at fault: the caller ([`Refusal`]) or the machine (the other variants).

#[cfg(feature = "sqlite")]
use std::io;
use std::path::PathBuf;

/// A failure of the control plane.
#[derive(Debug, thiserror::Error)]
pub enum ControlError {
    /// The caller asked for something that cannot be done. Nothing was changed; the same command fails again.
    #[error("{0}")]
    Refused(Refusal),
    /// The state file (or a piece of it) is not as it was written. Only a person can decide what to do.
    #[error("{} is damaged ({detail}): restore a copy of it, or move it away to start without tenants", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The fault of the file.
        detail: String,
    },
    /// Another program's database.
    #[error("{} is an SQLite file, but not a state file of Tidemark: choose another --data folder", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// Written by a later version.
    #[error("{} was written by a newer Tidemark (schema {found}, this one knows {known}): use that version", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The schema of the file.
        found: i64,
        /// The newest schema that this version reads.
        known: i64,
    },
    /// An archive is not a backup as it was written.
    #[error("{} can not be restored: {detail}", path.display())]
    Backup {
        /// The archive.
        path: PathBuf,
        /// The fault of the archive.
        detail: String,
    },
    /// Another process works on the same folder.
    #[error("{} is in use by another Tidemark{}: stop it, or choose another --data folder", path.display(), pid_text(*.holder))]
    InUse {
        /// The locked file.
        path: PathBuf,
        /// The process that holds it, where it said so.
        holder: Option<u32>,
    },
    /// The system refused an operation on a file. A retry helps once the cause is gone (a full disk, permissions).
    #[error("can not {doing} {}: {detail}", path.display())]
    File {
        /// The operation: `open`, `create`, `write`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        detail: String,
    },
    /// The removed tenant's memory was not back in time. The tenant is removed; its memory still comes back.
    #[error("tenant `{name}` is removed, but its memory was not back within {seconds} s; it is still being returned")]
    MemoryNotBack {
        /// The removed tenant.
        name: String,
        /// How long the command waited.
        seconds: u64,
    },
    /// The system gave no randomness or no thread.
    #[error("the system refused {what}: {detail}")]
    System {
        /// The request to the system.
        what: &'static str,
        /// Its reason.
        detail: String,
    },
    /// The control thread has ended: the server is stopping, or goes on without it.
    #[error("the control plane has ended: the program is stopping, or must be started again (see its log)")]
    Stopped,
    /// More commands are waiting than the control thread has answered. A retry helps.
    #[error("too many commands are waiting: try again in a second")]
    Busy,
}

impl ControlError {
    #[cfg(feature = "sqlite")]
    pub(crate) fn file(doing: &'static str, path: &std::path::Path, source: &io::Error) -> Self {
        Self::File {
            doing,
            path: path.into(),
            detail: source.to_string(),
        }
    }
}

impl From<Refusal> for ControlError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

fn pid_text(holder: Option<u32>) -> String {
    holder.map_or_else(String::new, |pid| format!(" (process {pid})"))
}

/// Why a command was refused, in the shape of the API's errors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// The kind of the mistake.
    pub kind: RefusalKind,
    /// The message for people.
    pub message: String,
    /// The setting that is wrong, as a path (`goals.cap_bytes`), where there is one.
    pub field: Option<String>,
    /// The values that would be accepted; empty if they cannot be listed.
    pub allowed: Vec<String>,
}

/// Kinds of refusals; each has one code in the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// A value that is not allowed.
    Invalid,
    /// A field that no version knows.
    UnknownField,
    /// A setting that would have no effect on this server as it was started.
    NotAvailable,
    /// There is no such tenant.
    NotFound,
    /// The name belongs to another tenant, or to one whose memory is still being returned.
    NameTaken,
    /// It would pass a limit of the server.
    OverLimit,
}

impl RefusalKind {
    /// The code in the API's errors.
    pub fn code(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::UnknownField => "unknown_field",
            Self::NotAvailable => "not_available",
            Self::NotFound => "not_found",
            Self::NameTaken => "name_taken",
            Self::OverLimit => "over_limit",
        }
    }
}

impl Refusal {
    /// A refusal without field and allowed values.
    pub fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            field: None,
            allowed: Vec::new(),
        }
    }

    /// Names the setting that is wrong.
    #[must_use]
    pub fn field(mut self, field: impl Into<String>) -> Self {
        self.field = Some(field.into());
        self
    }

    /// Lists what would be accepted.
    #[must_use]
    pub fn allowed<I: IntoIterator<Item: Into<String>>>(mut self, allowed: I) -> Self {
        self.allowed = allowed.into_iter().map(Into::into).collect();
        self
    }
}
