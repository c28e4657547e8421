//! Reading the ledger: rows, sums of dropped rows, and whether all of it is as it was written.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use rusqlite::{Connection, OpenFlags, Params, Transaction, params, params_from_iter, types::Value};
use tidemark_meter::spending::Account;
use tidemark_meter::{Break, Chain, Entry, Hash, Kind, Resource, Row, Subject, Totals, Usage, Verifier};
use tidemark_types::{TenantId, UnixMs, utc};

use super::schema::{FIRST_COLUMNS, LAST_COLUMNS, LEDGER_FILE_NAME, explain, resource_columns};
use crate::error::ControlError;

/// Rows to read.
#[derive(Clone, Debug)]
pub struct Query {
    /// The tenant by its name; `None`: all of them, and use that is no tenant's.
    pub tenant: Option<String>,
    /// Those that begin at this moment or later.
    pub from: UnixMs,
    /// Those that begin before this moment.
    pub to: UnixMs,
    /// Those behind the row of this number.
    pub behind: u64,
    /// The limit of rows.
    pub rows_max: usize,
}

impl Default for Query {
    fn default() -> Self {
        Self {
            tenant: None,
            from: UnixMs(0),
            to: UnixMs(i64::MAX as u64),
            behind: 0,
            rows_max: usize::MAX,
        }
    }
}

/// A ledger that was found whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Rows that were checked.
    pub rows: u64,
    /// The last row's number and hash. A reader that keeps it elsewhere also finds out if all of the ledger was written
    /// anew.
    pub last: Chain,
    /// The last row that was dropped after its time.
    pub dropped: u64,
}

/// A ledger that is only read.
#[derive(Debug)]
pub struct LedgerReader {
    connection: Connection,
    path: PathBuf,
}

impl LedgerReader {
    /// Opens the ledger in `folder`, which a server may be writing.
    ///
    /// # Errors
    /// [`ControlError::File`]: there is none, or it cannot be read.
    pub fn open(folder: &Path) -> Result<Self, ControlError> {
        let path = folder.join(LEDGER_FILE_NAME);
        std::fs::metadata(&path).map_err(|error| ControlError::file("open", &path, &error))?;
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || -> Result<Connection, rusqlite::Error> {
            // Not read-only: where nobody else has the file open, its log can be read only by one that may write it.
            let connection = Connection::open_with_flags(&path, flags)?;
            connection.busy_timeout(std::time::Duration::from_secs(2))?;
            connection.pragma_update(None, "query_only", true)?;
            connection.pragma_update(None, "trusted_schema", false)?;
            Ok(connection)
        };
        let connection = open().map_err(|error| explain("open", &path, &error))?;
        Ok(Self { connection, path })
    }

    /// Hands over rows in their order until `take` returns false.
    ///
    /// # Errors
    /// The file cannot be read, or a row in it is none.
    pub fn each(&self, query: &Query, mut take: impl FnMut(Row) -> bool) -> Result<(), ControlError> {
        let bound = |ms: u64| Value::Integer(i64::try_from(ms).unwrap_or(i64::MAX));
        let mut values = vec![bound(query.from.0), bound(query.to.0), bound(query.behind)];
        let mut condition = "from_ms >= ?1 AND from_ms < ?2 AND sequence > ?3".to_owned();
        if let Some(tenant) = &query.tenant {
            condition += " AND tenant = ?4";
            values.push(Value::Text(tenant.clone()));
        }
        let mut left = query.rows_max;
        let take = |row| {
            let takes = left > 0 && take(row);
            left = left.saturating_sub(1);
            takes && left > 0
        };
        each_row(&self.connection, &condition, params_from_iter(values), take).map_err(|error| self.failed(&error))
    }

    /// All rows that are asked for.
    ///
    /// # Errors
    /// The errors of [`Self::each`].
    pub fn rows(&self, query: &Query) -> Result<Vec<Row>, ControlError> {
        let mut rows = Vec::new();
        self.each(query, |row| {
            rows.push(row);
            true
        })?;
        Ok(rows)
    }

    /// The sums of dropped rows.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn carried(&self) -> Result<Carried, ControlError> {
        Carried::read(&self.connection).map_err(|error| self.failed(&error))
    }

    /// The use of each tenant since the month before the one of `now`, by rows up to this one.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn accounts(&self, now: UnixMs, last: u64) -> Result<BTreeMap<TenantId, Account>, ControlError> {
        let begin = |at: UnixMs| utc::month_range(&utc::month_of(at)).map_or(UnixMs(0), |(begin, _)| begin);
        let from = begin(UnixMs(begin(now).0.saturating_sub(1)));
        let mut accounts: BTreeMap<TenantId, Account> = BTreeMap::new();
        let first_month = utc::month_of(from);
        for (key, sums) in self.carried()?.0 {
            let subject = key.tenant.filter(|_| key.kind == Kind::Use && key.month >= first_month);
            if let Some(subject) = subject {
                let commands = sums.commands.iter().map(|(command, count)| (command.as_str(), *count));
                let account = accounts.entry(subject.id).or_default();
                account
                    .sums(&key.month, &key.price_version, key.is_modelled)
                    .add(&sums.totals, commands);
            }
        }
        let query = Query {
            from,
            ..Query::default()
        };
        self.each(&query, |row| {
            let subject = row.entry.tenant.as_ref().filter(|_| row.entry.kind == Kind::Use);
            if let Some(subject) = subject.filter(|_| row.sequence <= last) {
                accounts.entry(subject.id).or_default().add(&row.entry);
            }
            row.sequence < last
        })?;
        Ok(accounts)
    }

    /// The prices file of a version as it was.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn prices(&self) -> Result<Vec<(String, String)>, ControlError> {
        let read = || -> Result<Vec<(String, String)>, rusqlite::Error> {
            let mut found = self
                .connection
                .prepare("SELECT version, text FROM prices ORDER BY version")?;
            found.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?.collect()
        };
        read().map_err(|error| self.failed(&error))
    }

    /// Checks every row against the one before, and the dropped rows against the row that names them.
    ///
    /// # Errors
    /// The outer one: the file cannot be read. The inner one names the first row that is wrong.
    pub fn verify(&self) -> Result<Result<Verified, String>, ControlError> {
        let checkpoint = self.checkpoint()?;
        let dropped = checkpoint.map_or(Chain::default(), |checkpoint| checkpoint.dropped);
        if let Some(checkpoint) = checkpoint
            && self.carried()?.hash() != checkpoint.carried
        {
            let message = "the sums of what was dropped were changed: they are not what the last checkpoint row says";
            return Ok(Err(message.into()));
        }
        let (mut verifier, mut rows) = (Verifier::new(dropped), 0);
        let mut broken: Option<Break> = None;
        self.each(&Query::default(), |row| {
            broken = verifier.check(&row).err();
            rows += u64::from(broken.is_none());
            broken.is_none()
        })?;
        Ok(match broken {
            Some(broken) => Err(broken.to_string()),
            None => Ok(Verified {
                rows,
                last: verifier.chain(),
                dropped: dropped.sequence,
            }),
        })
    }

    /// The last row that says that others were dropped.
    fn checkpoint(&self) -> Result<Option<Checkpoint>, ControlError> {
        let mut last = None;
        let condition = "kind = ?1";
        each_row(&self.connection, condition, [Kind::Checkpoint.name()], |row| {
            last = Checkpoint::parse(&row.entry.note);
            true
        })
        .map_err(|error| self.failed(&error))?;
        Ok(last)
    }

    fn failed(&self, error: &rusqlite::Error) -> ControlError {
        explain("read", &self.path, error)
    }
}

/// The content of a checkpoint row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Checkpoint {
    /// The last row that was dropped.
    pub(super) dropped: Chain,
    /// The hash of the sums of all rows that were ever dropped.
    pub(super) carried: Hash,
}

impl fmt::Display for Checkpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Chain { sequence, hash } = self.dropped;
        write!(f, "dropped={sequence} hash={hash} carried={}", self.carried)
    }
}

impl Checkpoint {
    fn parse(note: &str) -> Option<Self> {
        let mut fields = note.split(' ');
        let mut field = |name: &str| fields.next()?.strip_prefix(name)?.strip_prefix('=');
        Some(Self {
            dropped: Chain {
                sequence: field("dropped")?.parse().ok()?,
                hash: parse_hash(field("hash")?)?,
            },
            carried: parse_hash(field("carried")?)?,
        })
    }
}

fn parse_hash(text: &str) -> Option<Hash> {
    let digit = |place: usize| u8::from_str_radix(text.get(place..place + 2)?, 16).ok();
    let bytes: Option<Vec<u8>> = (0..text.len()).step_by(2).map(digit).collect();
    Hash::of_bytes(&bytes?)
}

/// The key by which dropped rows are added up.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CarriedKey {
    /// The kind of the rows.
    pub kind: Kind,
    /// The tenant's number and name.
    pub tenant: Option<Subject>,
    /// The month in which they began, as `2026-08`.
    pub month: String,
    /// The prices that were in force.
    pub price_version: String,
    /// Whether a model gave the modelled CPU time.
    pub is_modelled: bool,
}

/// Sums of dropped rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CarriedSums {
    /// The sums of each resource.
    pub totals: Totals,
    /// The counts of each command.
    pub commands: BTreeMap<String, u128>,
}

/// Sums of rows that were dropped.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Carried(pub BTreeMap<CarriedKey, CarriedSums>);

impl CarriedSums {
    fn commands_text(&self) -> String {
        let pairs = self
            .commands
            .iter()
            .map(|(command, count)| format!("{command}={count}"));
        pairs.collect::<Vec<_>>().join(" ")
    }
}

impl Carried {
    pub(super) fn read(connection: &Connection) -> Result<Self, rusqlite::Error> {
        let text = format!(
            "SELECT kind, tenant_id, tenant, month, price_version, is_modelled, commands, {} FROM carried",
            resource_columns("")
        );
        let mut found = connection.prepare(&text)?;
        let mut rows = found.query([])?;
        let mut sums = BTreeMap::new();
        while let Some(row) = rows.next()? {
            let key = CarriedKey {
                kind: kind(row, 0)?,
                tenant: subject(row, 1)?,
                month: row.get(3)?,
                price_version: row.get(4)?,
                is_modelled: row.get(5)?,
            };
            let mut sum = CarriedSums::default();
            let commands: String = row.get(6)?;
            for pair in commands.split_ascii_whitespace() {
                let command = pair
                    .rsplit_once('=')
                    .and_then(|(name, count)| Some((name, count.parse().ok()?)));
                let (name, count) = command.ok_or_else(|| not_one(6, pair))?;
                sum.commands.insert(name.to_owned(), count);
            }
            for (place, resource) in Resource::ALL.into_iter().enumerate() {
                let text: String = row.get(7 + place)?;
                let amount = text.parse().map_err(|_| not_one(7 + place, &text))?;
                sum.totals = sum.totals.with(resource, amount);
            }
            sums.insert(key, sum);
        }
        Ok(Self(sums))
    }

    /// Adds a row; one that only marks a moment is not added.
    pub(super) fn add(&mut self, entry: &Entry) {
        if entry.usage.is_zero() {
            return;
        }
        let key = CarriedKey {
            kind: entry.kind,
            tenant: entry.tenant.clone(),
            month: utc::month_of(entry.from),
            price_version: entry.price_version.clone(),
            is_modelled: entry.is_modelled,
        };
        let sums = self.0.entry(key).or_default();
        sums.totals.add(&entry.usage);
        for (command, count) in &entry.commands {
            *sums.commands.entry(command.clone()).or_default() += u128::from(*count);
        }
    }

    pub(super) fn write(&self, transaction: &Transaction<'_>) -> Result<(), rusqlite::Error> {
        transaction.execute("DELETE FROM carried", [])?;
        let places = vec!["?"; 7 + Resource::ALL.len()].join(", ");
        let mut insert = transaction.prepare(&format!("INSERT INTO carried VALUES ({places})"))?;
        for (key, sums) in &self.0 {
            let tenant = key.tenant.as_ref();
            let mut values = vec![
                Value::Text(key.kind.name().into()),
                tenant.map_or(Value::Null, |tenant| Value::Integer(i64::from(tenant.id.0))),
                tenant.map_or(Value::Null, |tenant| Value::Text(tenant.name.clone())),
                Value::Text(key.month.clone()),
                Value::Text(key.price_version.clone()),
                Value::Integer(i64::from(key.is_modelled)),
                Value::Text(sums.commands_text()),
            ];
            values.extend(sums.totals.amounts().map(|(_, sum)| Value::Text(sum.to_string())));
            insert.execute(params_from_iter(values))?;
        }
        Ok(())
    }

    /// The hash of all of it.
    pub(super) fn hash(&self) -> Hash {
        let line = |(key, of): (&CarriedKey, &CarriedSums)| {
            let tenant = key.tenant.as_ref();
            let id = tenant.map_or(String::new(), |tenant| tenant.id.to_string());
            let name = tenant.map_or("", |tenant| &tenant.name);
            let sums: Vec<String> = of.totals.amounts().map(|(_, sum)| sum.to_string()).collect();
            let (sums, modelled) = (sums.join(","), key.is_modelled.to_string());
            let commands = of.commands_text();
            let texts = [
                key.kind.name(),
                &id,
                name,
                &key.month,
                &key.price_version,
                &modelled,
                &sums,
                &commands,
            ];
            // Quoted, so that no text can hold what separates it from the next.
            format!("{texts:?}\n")
        };
        Hash::of_text(&self.0.iter().map(line).collect::<String>())
    }
}

/// The end of the chain.
pub(super) fn last_of_chain(connection: &Connection) -> Result<Chain, rusqlite::Error> {
    Ok(last_row(connection)?.map_or(Chain::default(), |row| Chain {
        sequence: row.sequence,
        hash: row.hash,
    }))
}

pub(super) fn last_row(connection: &Connection) -> Result<Option<Row>, rusqlite::Error> {
    let mut last = None;
    let condition = "sequence = (SELECT max(sequence) FROM rows)";
    each_row(connection, condition, params![], |row| {
        last = Some(row);
        false
    })?;
    Ok(last)
}

/// Hands over rows in their order until `take` returns false.
pub(super) fn each_row(
    connection: &Connection,
    condition: &str,
    values: impl Params,
    mut take: impl FnMut(Row) -> bool,
) -> Result<(), rusqlite::Error> {
    let resources = resource_columns("");
    let text =
        format!("SELECT {FIRST_COLUMNS}, {resources}, {LAST_COLUMNS} FROM rows WHERE {condition} ORDER BY sequence");
    let mut found = connection.prepare(&text)?;
    let mut rows = found.query(values)?;
    while let Some(row) = rows.next()? {
        if !take(read_row(row)?) {
            break;
        }
    }
    Ok(())
}

fn read_row(row: &rusqlite::Row<'_>) -> Result<Row, rusqlite::Error> {
    let number = |place: usize| row.get::<_, i64>(place).map(i64::cast_unsigned);
    let mut usage = Usage::default();
    for (place, resource) in Resource::ALL.into_iter().enumerate() {
        usage.set(resource, number(9 + place)?);
    }
    let behind = 9 + Resource::ALL.len();
    let commands: String = row.get(behind)?;
    let hash: Vec<u8> = row.get(behind + 2)?;
    let command = |pair: &str| {
        let (command, count) = pair.rsplit_once('=')?;
        Some((command.to_owned(), count.parse().ok()?))
    };
    let commands: Option<Vec<(String, u64)>> = commands.split_ascii_whitespace().map(command).collect();
    Ok(Row {
        sequence: number(0)?,
        entry: Entry {
            kind: kind(row, 1)?,
            tenant: subject(row, 2)?,
            from: UnixMs(number(4)?),
            to: UnixMs(number(5)?),
            node: row.get(6)?,
            price_version: row.get(7)?,
            usage,
            is_modelled: row.get(8)?,
            // A list that is none does not have the hash of the row.
            commands: commands.unwrap_or_default(),
            note: row.get(behind + 1)?,
        },
        hash: Hash::of_bytes(&hash).unwrap_or(tidemark_meter::GENESIS),
    })
}

fn kind(row: &rusqlite::Row<'_>, place: usize) -> Result<Kind, rusqlite::Error> {
    let name: String = row.get(place)?;
    Kind::named(&name).ok_or_else(|| not_one(place, &name))
}

fn subject(row: &rusqlite::Row<'_>, place: usize) -> Result<Option<Subject>, rusqlite::Error> {
    let (id, name): (Option<u32>, Option<String>) = (row.get(place)?, row.get(place + 1)?);
    Ok(id.zip(name).map(|(id, name)| Subject { id: TenantId(id), name }))
}

fn not_one(place: usize, text: &str) -> rusqlite::Error {
    let message = format!("`{}` can not be there", text.escape_debug());
    rusqlite::Error::FromSqlConversionFailure(place, rusqlite::types::Type::Text, message.into())
}
