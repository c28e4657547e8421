//! Files that say when instances live: events as they are, or invocations of the public Azure traces. Pure but for the reading.

use std::collections::HashMap;
use std::io::{self, BufRead, Read as _};

use tidemark_types::TenantName;

use super::platform::{Burst, Function, Platform, Timed};
use crate::instances::{Happening, LifeEvent};

/// Rows that are kept. The two weeks of Azure 2021 have 2 million invocations, a day of Azure 2019 one row a function and minute.
pub const ROWS_MAX: usize = 4_000_000;
/// A line. One of Azure 2019 has 1,440 numbers.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Traces last some weeks: a later time is a mistake.
const TIME_MAX_S: f64 = 366.0 * 86_400.0;
const MINUTE_US: u64 = 60_000_000;
/// How long an invocation takes where a trace does not say it: the mean of Azure 2019 is near (Shahrad et al., ATC 2020, Fig. 7).
const DURATION_US: u64 = 1_000_000;

/// Why a file is no trace.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// It cannot be read.
    #[error("{0}")]
    Read(#[from] io::Error),
    /// The first line names other columns.
    #[error(
        "the first line names no known columns: at_s,event,instance,app,function or app,func,end_timestamp,duration (Azure 2021) or HashFunction,HashApp,minute_1 (Azure 2019)"
    )]
    Columns,
    /// A line cannot be read.
    #[error("line {line}: {what}")]
    Line {
        /// Its number, from one on.
        line: u64,
        /// The mistake.
        what: String,
    },
}

/// The content of a file.
#[derive(Debug)]
pub(super) enum Source {
    /// Events.
    Events(std::vec::IntoIter<Timed>),
    /// Invocations.
    Invocations(Box<Platform>),
}

impl Iterator for Source {
    type Item = Timed;

    fn next(&mut self) -> Option<Timed> {
        match self {
            Self::Events(events) => events.next(),
            Self::Invocations(platform) => platform.next(),
        }
    }
}

/// The columns of a file, by their names in lower case.
struct Columns(HashMap<String, usize>);

impl Columns {
    fn of(header: &str) -> Self {
        let names = header.trim().trim_start_matches('\u{feff}').split(',').enumerate();
        Self(names.map(|(place, name)| (name.trim().to_lowercase(), place)).collect())
    }

    fn have(&self, names: &[&str]) -> bool {
        names.iter().all(|name| self.0.contains_key(*name))
    }

    /// A field; nothing if it is empty, or the file has no such column.
    fn get<'r>(&self, row: &[&'r str], name: &str) -> Option<&'r str> {
        let field = row.get(*self.0.get(name)?)?.trim();
        (!field.is_empty()).then_some(field)
    }
}

/// The rows of a file after its first line.
struct Rows<R> {
    file: R,
    line: String,
    number: u64,
}

impl<R: BufRead> Rows<R> {
    /// The next row that is not blank. Whether there is one.
    fn next(&mut self) -> Result<bool, TraceError> {
        loop {
            self.line.clear();
            self.number += 1;
            let read = (&mut self.file).take(LINE_BYTES_MAX).read_line(&mut self.line)?;
            if read as u64 == LINE_BYTES_MAX {
                return Err(self.wrong("it is too long"));
            }
            if read == 0 || !self.line.trim().is_empty() {
                return Ok(read > 0);
            }
        }
    }

    fn fields(&self) -> Vec<&str> {
        self.line.trim_end().split(',').collect()
    }

    fn wrong(&self, what: impl Into<String>) -> TraceError {
        TraceError::Line {
            line: self.number,
            what: what.into(),
        }
    }
}

/// Reads a trace. `node`: events of other nodes are left out.
///
/// # Errors
/// See [`TraceError`].
pub(super) fn read(file: impl BufRead, node: &str) -> Result<Source, TraceError> {
    let mut rows = Rows {
        file,
        line: String::new(),
        number: 0,
    };
    if !rows.next()? {
        return Err(TraceError::Columns);
    }
    let columns = Columns::of(&rows.line);
    if columns.have(&["at_s", "event", "instance"]) {
        return events(&mut rows, &columns, node);
    }
    if columns.have(&["app", "func", "end_timestamp", "duration"]) {
        return invocations(&mut rows, |row, functions, bursts| {
            let seconds = |name| columns.get(row, name).and_then(time_us).ok_or_else(|| not_a_time(name));
            let (end_us, duration_us) = (seconds("end_timestamp")?, seconds("duration")?);
            let function = functions.place(columns.get(row, "app"), columns.get(row, "func"))?;
            bursts.push(Burst {
                start_us: end_us.saturating_sub(duration_us),
                every_us: 0,
                count: 1,
                duration_us,
                function,
            });
            Ok(())
        });
    }
    if columns.have(&["hashfunction", "hashapp", "minute_1"]) {
        return invocations(&mut rows, |row, functions, bursts| {
            let function = functions.place(columns.get(row, "hashapp"), columns.get(row, "hashfunction"))?;
            for minute in 1.. {
                let name = format!("minute_{minute}");
                if !columns.have(&[name.as_str()]) {
                    return Ok(());
                }
                let count = columns.get(row, &name).unwrap_or("0");
                let count: u32 = count.parse().map_err(|_| format!("{count} is no number"))?;
                if count > 0 {
                    bursts.push(Burst {
                        start_us: (minute - 1) * MINUTE_US,
                        every_us: MINUTE_US / u64::from(count),
                        count,
                        duration_us: DURATION_US,
                        function,
                    });
                }
            }
            Ok(())
        });
    }
    Err(TraceError::Columns)
}

/// Functions, each once.
#[derive(Default)]
struct Functions {
    all: Vec<Function>,
    places: HashMap<(String, String), usize>,
}

impl Functions {
    fn place(&mut self, app: Option<&str>, name: Option<&str>) -> Result<usize, String> {
        let app = app.ok_or("there is no application")?;
        let name = name.ok_or("there is no function")?;
        let key = (app.to_owned(), name.to_owned());
        if let Some(place) = self.places.get(&key) {
            return Ok(*place);
        }
        // An application is a tenant.
        app.parse::<TenantName>().map_err(|error| error.to_string())?;
        let place = self.all.len();
        self.all.push(Function {
            app: app.to_owned(),
            name: name.to_owned(),
        });
        self.places.insert(key, place);
        Ok(place)
    }
}

fn invocations<R: BufRead>(
    rows: &mut Rows<R>,
    read: impl Fn(&[&str], &mut Functions, &mut Vec<Burst>) -> Result<(), String>,
) -> Result<Source, TraceError> {
    let (mut functions, mut bursts) = (Functions::default(), Vec::new());
    while rows.next()? {
        read(&rows.fields(), &mut functions, &mut bursts).map_err(|what| rows.wrong(what))?;
        if bursts.len() > ROWS_MAX {
            return Err(rows.wrong(format!("there are more than {ROWS_MAX}")));
        }
    }
    Ok(Source::Invocations(Box::new(Platform::new(functions.all, bursts))))
}

fn events<R: BufRead>(rows: &mut Rows<R>, columns: &Columns, node: &str) -> Result<Source, TraceError> {
    let mut events = Vec::new();
    while rows.next()? {
        let row = rows.fields();
        if columns.get(&row, "node").is_some_and(|of| of != node) {
            continue;
        }
        events.push(event(&row, columns).map_err(|what| rows.wrong(what))?);
        if events.len() > ROWS_MAX {
            return Err(rows.wrong(format!("there are more than {ROWS_MAX}")));
        }
    }
    events.sort_by_key(|timed| timed.at_us);
    Ok(Source::Events(events.into_iter()))
}

fn event(row: &[&str], columns: &Columns) -> Result<Timed, String> {
    let text = |name| columns.get(row, name).map(str::to_owned);
    let at_us = columns.get(row, "at_s").and_then(time_us);
    let happening = match columns.get(row, "event").unwrap_or_default() {
        "created" => Happening::Created,
        "identified" => Happening::Identified,
        "paused" => Happening::Paused,
        "resumed" => Happening::Resumed,
        "removed" => Happening::Removed,
        other => {
            return Err(format!(
                "{other}: allowed are created, identified, paused, resumed, removed"
            ));
        }
    };
    let address = columns.get(row, "address").map(|text| {
        let address = text.parse();
        address.map_err(|_| format!("{text} is no address"))
    });
    let limit = columns.get(row, "memory_limit_bytes").map(|text| {
        let bytes = text.parse();
        bytes.map_err(|_| format!("{text} is no number of bytes"))
    });
    Ok(Timed {
        at_us: at_us.ok_or_else(|| not_a_time("at_s"))?,
        event: LifeEvent {
            event: happening,
            instance: text("instance").ok_or("there is no instance")?,
            app: text("app"),
            function: text("function"),
            address: address.transpose()?,
            cgroup: text("cgroup"),
            memory_limit_bytes: limit.transpose()?,
        },
    })
}

fn time_us(text: &str) -> Option<u64> {
    let seconds: f64 = text.parse().ok()?;
    (0.0..=TIME_MAX_S)
        .contains(&seconds)
        .then_some((seconds * 1e6).round() as u64)
}

fn not_a_time(name: &str) -> String {
    format!("{name} is no time in seconds")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str, node: &str) -> Vec<String> {
        let source = read(text.as_bytes(), node).unwrap();
        source
            .map(|Timed { at_us, event }| {
                format!(
                    "{} {:?} {} {}",
                    at_us / 1_000_000,
                    event.event,
                    event.instance,
                    event.app.unwrap_or_default()
                )
            })
            .collect()
    }

    #[test]
    fn events_are_taken_as_they_are() {
        let text = "at_s,event,instance,app,function,address,cgroup,memory_limit_bytes,node\n\
                    2,paused,a,,,,,,n1\n\
                    0.5,created,a,shop,pay,127.0.0.2,pods/a,134217728,n1\n\
                    \n\
                    1,created,b,shop,pay,,,,n2\n\
                    3,removed,a,,,,,,\n";
        assert_eq!(said(text, "n1"), ["0 Created a shop", "2 Paused a ", "3 Removed a "]);
        assert_eq!(said(text, "n2"), ["1 Created b shop", "3 Removed a "]);
        let first = read(text.as_bytes(), "n1").unwrap().next().unwrap();
        assert_eq!(first.at_us, 500_000);
        assert_eq!(first.event.address, Some("127.0.0.2".parse().unwrap()));
        assert_eq!(first.event.cgroup.as_deref(), Some("pods/a"));
        assert_eq!(first.event.memory_limit_bytes, Some(128 << 20));
    }

    #[test]
    fn invocations_become_lives() {
        let lives = [
            "0 Created f-1 ",
            "0 Identified f-1 a",
            "12 Paused f-1 a",
            "602 Removed f-1 a",
        ];
        assert_eq!(said("app,func,end_timestamp,duration\na,f,2.0,2.0\n", "n"), lives);
        let day = "HashFunction,HashApp,HashOwner,minute_1,minute_2\nf,a,o,1,0\ng,a,o,0,3\n";
        let said = said(day, "n");
        assert_eq!(said[0], "0 Created f-1 ");
        assert!(said.contains(&"11 Paused f-1 a".to_owned()), "{said:?}");
        assert!(said.contains(&"60 Created g-2 ".to_owned()), "{said:?}");
        // Twenty seconds lie between its invocations: it is paused after each.
        let resumed = said.iter().filter(|line| line.contains("Resumed g-2")).count();
        assert_eq!(resumed, 2, "{said:?}");
    }

    #[test]
    fn a_wrong_line_is_named() {
        for (text, expected) in [
            ("", "no known columns"),
            ("time,what\n1,2\n", "no known columns"),
            ("at_s,event,instance\n1,born,a\n", "line 2: born"),
            ("at_s,event,instance\n\nsoon,created,a\n", "line 3: at_s"),
            ("at_s,event,instance\n1,created,\n", "line 2: there is no instance"),
            ("at_s,event,instance,address\n1,created,a,here\n", "here is no address"),
            ("app,func,end_timestamp,duration\na,f,-1,0\n", "line 2: end_timestamp"),
            ("app,func,end_timestamp,duration\na/b,f,1,0\n", "not a tenant name"),
            ("HashFunction,HashApp,minute_1\nf,a,many\n", "many is no number"),
        ] {
            let error = read(text.as_bytes(), "n").unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let long = format!(
            "at_s,event,instance\n1,created,{}\n",
            "a".repeat(LINE_BYTES_MAX as usize)
        );
        assert!(read(long.as_bytes(), "n").unwrap_err().to_string().contains("too long"));
    }
}
