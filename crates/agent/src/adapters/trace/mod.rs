//! A trace of invocations, or of events, in place of a platform: the same events at the same distances of time.

mod file;
mod platform;

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::instances::LifeEvent;
use file::Source;

pub use file::{ROWS_MAX, TraceError};

/// See the module.
#[derive(Debug)]
pub struct Trace {
    source: Source,
    /// Seconds of the trace in a second.
    speed: f64,
}

impl Trace {
    /// Reads a file, to be played `speed` times as fast; events of other nodes are left out.
    ///
    /// # Errors
    /// See [`TraceError`].
    pub fn read(path: &Path, node: &str, speed: f64) -> Result<Self, TraceError> {
        let source = file::read(BufReader::new(File::open(path)?), node)?;
        Ok(Self { source, speed })
    }

    /// Plays it from now on, to its end or for as long as somebody takes the events. How many there were.
    pub async fn play(mut self, feed: mpsc::Sender<LifeEvent>) -> u64 {
        let begin = Instant::now();
        let mut count = 0;
        for timed in self.source.by_ref() {
            let after = Duration::from_micros(timed.at_us).div_f64(self.speed);
            tokio::select! {
                () = tokio::time::sleep_until(begin + after) => {}
                () = feed.closed() => return count,
            }
            if feed.send(timed.event).await.is_err() {
                return count;
            }
            count += 1;
        }
        if let Source::Invocations(platform) = &self.source
            && platform.turned_away() > 0
        {
            tracing::warn!(
                "{} invocations had no instance: there were too many",
                platform.turned_away()
            );
        }
        tracing::info!("the trace is over: {count} events of instances");
        count
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::instances::{Happening, Instances};

    fn play(path: &Path, speed: f64) -> Instances {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (feed, mut events) = mpsc::channel(8);
            let played = tokio::spawn(Trace::read(path, "n1", speed).unwrap().play(feed));
            let instances = Instances::default();
            let mut kinds = std::collections::HashMap::<_, u64>::new();
            while let Some(event) = events.recv().await {
                *kinds.entry(format!("{:?}", event.event)).or_default() += 1;
                instances.take(event).unwrap();
            }
            let count = played.await.unwrap();
            assert_eq!(count, kinds.values().sum::<u64>());
            assert_eq!(kinds.get("Created"), kinds.get("Removed"), "{kinds:?}");
            assert_eq!(kinds.get("Created"), kinds.get("Identified"), "{kinds:?}");
            assert!(kinds.get("Paused") >= kinds.get("Created"), "{kinds:?}");
            instances
        })
    }

    /// The real trace where it is there, else one with rows of the same form.
    #[test]
    fn azure_is_played() {
        let folder = tempfile::tempdir().unwrap();
        let traces = std::env::var_os("TIDEMARK_TRACES");
        let traces = traces.map_or_else(|| "../../../shared/traces".into(), std::path::PathBuf::from);
        let mut path = traces.join("functions/azure2021-200.csv");
        if !path.is_file() {
            let rows = (0..200).map(|row| {
                let (app, function) = (row % 7, row % 23);
                format!("app{app},f{function},{}.25,0.{row}\n", row * row % 977)
            });
            path = folder.path().join("trace.csv");
            fs::write(
                &path,
                format!("app,func,end_timestamp,duration\n{}", rows.collect::<String>()),
            )
            .unwrap();
        }
        let instances = play(&path, 1e9);
        assert!(instances.all().is_empty(), "all have ended");
    }

    #[test]
    fn time_passes_as_fast_as_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.csv");
        fs::write(&path, "at_s,event,instance\n0,created,a\n20,removed,a\n").unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (feed, mut events) = mpsc::channel(8);
            let begin = Instant::now();
            tokio::spawn(Trace::read(&path, "n1", 100.0).unwrap().play(feed));
            assert_eq!(events.recv().await.unwrap().event, Happening::Created);
            assert_eq!(events.recv().await.unwrap().event, Happening::Removed);
            assert!(begin.elapsed() >= Duration::from_millis(200), "{:?}", begin.elapsed());
        });
    }
}
