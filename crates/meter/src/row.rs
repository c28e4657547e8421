//! Entries and rows of the ledger.

use tidemark_types::{Outcome, TenantId, UnixMs};

use crate::chain::Hash;
use crate::usage::{Resource, Usage};

/// The meaning of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// Use of a tenant.
    Use,
    /// CPU time of the process that was for nobody in particular.
    Unattributed,
    /// CPU time that the system says the process used and that no entry explains.
    Unexplained,
    /// Nothing is known of this time: the process was killed, or entries could not be written.
    Gap,
    /// The clock was set.
    Jump,
    /// The server ended in order.
    End,
    /// Rows up to some place were dropped after their time.
    Checkpoint,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Use,
        Self::Unattributed,
        Self::Unexplained,
        Self::Gap,
        Self::Jump,
        Self::End,
        Self::Checkpoint,
    ];

    /// The name in rows.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Use => "use",
            Self::Unattributed => "unattributed",
            Self::Unexplained => "unexplained",
            Self::Gap => "gap",
            Self::Jump => "jump",
            Self::End => "end",
            Self::Checkpoint => "checkpoint",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// The label of a command with an outcome in entries.
pub(crate) fn label_of(protocol: &str, command: &str, outcome: Outcome) -> String {
    match outcome {
        Outcome::Ok => format!("{protocol}/{command}"),
        other => format!("{protocol}/{command}/{}", other.name()),
    }
}

/// The command of a label, whatever came of it.
pub(crate) fn command_of(label: &str) -> &str {
    parts_of(label).0
}

/// The command of a label, and the name of its outcome; `None` if it did what it was asked.
fn parts_of(label: &str) -> (&str, Option<&str>) {
    let mut slashes = label.match_indices('/').map(|(place, _)| place);
    slashes
        .nth(1)
        .map_or((label, None), |second| (&label[..second], Some(&label[second + 1..])))
}

/// The tenant that an entry is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Tells it from others that had its name.
    pub id: TenantId,
    /// Its name.
    pub name: String,
}

/// The record of the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The meaning of it.
    pub kind: Kind,
    /// The tenant; `None` for use that is no tenant's.
    pub tenant: Option<Subject>,
    /// The time that it is about, by the system's clock.
    pub from: UnixMs,
    /// Its end, not included.
    pub to: UnixMs,
    /// The instance.
    pub node: String,
    /// The prices in force; empty where there are none.
    pub price_version: String,
    /// The amounts of resources.
    pub usage: Usage,
    /// Whether a model gave the modelled CPU time; else that is not known.
    pub is_modelled: bool,
    /// How often each command was executed, as `redis/get`, those that missed or failed as `redis/get/miss`, in the order of
    /// names.
    pub commands: Vec<(String, u64)>,
    /// For people: why a gap is one, how far a clock jumped.
    pub note: String,
}

impl Entry {
    /// One about nobody, without use.
    pub fn event(kind: Kind, from: UnixMs, to: UnixMs, note: impl Into<String>) -> Self {
        Self {
            kind,
            tenant: None,
            from,
            to,
            node: String::new(),
            price_version: String::new(),
            usage: Usage::default(),
            is_modelled: false,
            commands: Vec::new(),
            note: note.into(),
        }
    }

    /// The modelled CPU time, where there is a model.
    pub fn cpu_model_ns(&self) -> Option<u64> {
        self.is_modelled.then(|| self.usage.get(Resource::CpuModelNs))
    }

    /// Commands that were executed with this outcome.
    pub fn commands_with(&self, outcome: Outcome) -> u64 {
        let has_it = |label: &str| parts_of(label).1.unwrap_or(Outcome::Ok.name()) == outcome.name();
        let counts = self.commands.iter().filter(|(label, _)| has_it(label));
        counts.map(|(_, count)| count).sum()
    }

    /// All fields as bytes, each with its length, so that no two entries have the same ones.
    pub(crate) fn encode(&self, sequence: u64, out: &mut Vec<u8>) {
        let mut number = |number: u64| out.extend_from_slice(&number.to_be_bytes());
        number(sequence);
        number(self.from.0);
        number(self.to.0);
        number(u64::from(self.is_modelled));
        number(self.tenant.as_ref().map_or(u64::MAX, |tenant| u64::from(tenant.id.0)));
        number(Resource::ALL.len() as u64);
        self.usage.amounts().for_each(|(_, amount)| number(amount));
        number(self.commands.len() as u64);
        let name = self.tenant.as_ref().map_or("", |tenant| &tenant.name);
        let texts = [self.kind.name(), name, &self.node, &self.price_version, &self.note];
        let mut text = |text: &str| {
            out.extend_from_slice(&(text.len() as u64).to_be_bytes());
            out.extend_from_slice(text.as_bytes());
        };
        texts.into_iter().for_each(&mut text);
        for (command, count) in &self.commands {
            text(command);
            text(&count.to_string());
        }
    }
}

/// An entry at its place in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its number, from 1 on.
    pub sequence: u64,
    /// The entry.
    pub entry: Entry,
    /// The hash of the row before and this one.
    pub hash: Hash,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_says_command_and_outcome() {
        for (command, outcome, expected) in [
            ("get", Outcome::Ok, "redis/get"),
            ("get", Outcome::Miss, "redis/get/miss"),
            ("client|list", Outcome::Error, "redis/client|list/error"),
        ] {
            let label = label_of("redis", command, outcome);
            assert_eq!(label, expected);
            assert_eq!(command_of(&label), format!("redis/{command}"));
            let entry = Entry {
                commands: vec![(label, 3), ("redis/set".to_owned(), 4)],
                ..Entry::event(Kind::Use, UnixMs(0), UnixMs(1), "")
            };
            for other in [Outcome::Ok, Outcome::Miss, Outcome::Error] {
                let sets = if other == Outcome::Ok { 4 } else { 0 };
                assert_eq!(entry.commands_with(other), sets + if other == outcome { 3 } else { 0 });
            }
        }
    }
}
