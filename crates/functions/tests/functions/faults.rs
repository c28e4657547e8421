//! Functions that end at moments that a test chooses.

use std::collections::HashMap;
use std::sync::Mutex;

use tidemark_functions::event::Returned;
use tidemark_functions::holding::Holding;
use tidemark_functions::wire::{Frame, Hello, LENGTH_BYTES};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;

/// When an instance is taken back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// It has sent half of a chunk.
    MidChunk,
    /// It has said PONG, and was not yet asked for anything.
    AfterPong,
}

/// A function as a task of the test: its memory, the number of its instance, and what happens to it next.
struct Scripted {
    holding: Holding<Bytes>,
    instance: u64,
    fault: Option<Fault>,
}

impl Default for Scripted {
    fn default() -> Self {
        Self {
            holding: Holding::new(u64::MAX),
            instance: 1,
            fault: None,
        }
    }
}

impl Scripted {
    /// Takes the instance back, if this is the moment: the next one is empty.
    fn ends(&mut self, at: Fault) -> bool {
        let ends = self.fault == Some(at);
        if ends {
            (self.holding, self.instance, self.fault) = (Holding::new(u64::MAX), self.instance + 1, None);
        }
        ends
    }
}

/// A cloud of such functions. They promise no time, so that each request after the first is preceded by a PING.
#[derive(Clone, Default)]
struct Cloud(Arc<Mutex<HashMap<String, Scripted>>>);

impl Cloud {
    fn of<T>(&self, name: &str, act: impl FnOnce(&mut Scripted) -> T) -> T {
        act(self.0.lock().unwrap().entry(name.to_owned()).or_default())
    }

    fn returned(&self, event: &Invocation) -> Returned {
        self.of(&event.name, |function| Returned {
            epoch: event.epoch,
            instance: function.instance,
            term: function.holding.term(),
            hash: function.holding.hash(),
            chunks: function.holding.chunks() as u32,
            bytes: function.holding.held_bytes(),
        })
    }

    /// An invocation, until the proxy wants no more or the instance is taken back, which is `None`.
    async fn serve(&self, event: &Invocation) -> Option<Returned> {
        let mut stream = TcpStream::connect(&event.proxy).await.ok()?;
        let now = self.returned(event);
        let hello = Hello {
            epoch: event.epoch,
            instance: now.instance,
            term: now.term,
            hash: now.hash,
            chunks: now.chunks,
            bytes: now.bytes,
            ends_ms: event.ends_ms,
            token: read_token(&event.token)?,
            name: event.name.clone(),
        };
        stream.write_all(&Frame::Hello(Box::new(hello)).head(0)).await.ok()?;
        let name = &event.name;
        loop {
            let mut length = [0; LENGTH_BYTES];
            stream.read_exact(&mut length).await.ok()?;
            let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
            stream.read_exact(&mut bytes).await.ok()?;
            let (frame, at) = Frame::read(&bytes).ok()?;
            let rest = bytes.split_off(at);
            let lease_ms = 0;
            let (reply, body) = match frame {
                Frame::Get { id, key } => match self.of(name, |function| function.holding.get(&key)) {
                    Some((bytes, hash)) => (Frame::Value { id, lease_ms, hash }, bytes),
                    None => (Frame::Missing { id, lease_ms }, Bytes::new()),
                },
                Frame::Put { id, key, hash } => {
                    assert!(self.of(name, |function| function.holding.put(key, rest.into(), hash)));
                    (Frame::Stored { id, lease_ms }, Bytes::new())
                }
                Frame::Delete { id, key } => {
                    self.of(name, |function| function.holding.delete(&key));
                    (Frame::Stored { id, lease_ms }, Bytes::new())
                }
                Frame::Ping { id } => (Frame::Pong { id, lease_ms }, Bytes::new()),
                _ => return Some(self.returned(event)),
            };
            stream.write_all(&reply.head(body.len())).await.ok()?;
            let is_value = matches!(reply, Frame::Value { .. });
            if is_value && self.of(name, |function| function.ends(Fault::MidChunk)) {
                stream.write_all(&body[..body.len() / 2]).await.ok()?;
                return None;
            }
            stream.write_all(&body).await.ok()?;
            if matches!(reply, Frame::Pong { .. }) && self.of(name, |function| function.ends(Fault::AfterPong)) {
                return None;
            }
        }
    }
}

impl FunctionEngine for Cloud {
    fn invoke(&self, _: &str, event: Vec<u8>) -> BoxFuture<Result<Bytes, EngineError>> {
        let this = self.clone();
        Box::pin(async move {
            let event: Invocation = serde_json::from_slice(&event).unwrap();
            let returned = this.serve(&event).await;
            let returned = returned.ok_or_else(|| EngineError::Function("it was taken back".into()))?;
            Ok(serde_json::to_vec(&returned).unwrap().into())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_function_that_is_taken_away_in_the_midst_is_done_without() {
    for fault in [Fault::MidChunk, Fault::AfterPong] {
        for reading in [Reading::DataFirst, Reading::FirstD] {
            let cloud = Cloud::default();
            let names: Vec<String> = (0..3).map(|number| format!("f-{number}")).collect();
            let mut config = config(&names, None);
            (config.encrypts, config.reading, config.refill_at_once) = (false, reading, true);
            config.codes = CodeTable::new(vec![(0, "2+1".parse().unwrap())]).unwrap();
            let functions = Functions::start(config, Arc::new(cloud.clone())).unwrap().remove(0);
            let bytes = pattern(MIB, 5);
            assert!(functions.put([1; 16], MIB as u64, 0, bytes.clone()).await);
            for (lost, name) in names.iter().enumerate() {
                cloud.of(name, |function| function.fault = Some(fault));
                // Reads that have enough chunks do not wait for the others: some are needed until all three were asked.
                while cloud.of(name, |function| function.fault.is_some()) {
                    let found = read(&functions, [1; 16], 0, 0..MIB).await;
                    assert!(found.unwrap() == bytes, "{fault:?}, {reading:?}, {name}");
                    if reading == Reading::DataFirst && lost == 2 {
                        // Parity is not asked for while data is there.
                        break;
                    }
                }
                // The next request finds what is lost, and that it can be put back.
                let is_mended = || functions.totals().repaired_chunks > lost as u64;
                for _ in 0..1000 {
                    if is_mended() || cloud.of(name, |function| function.fault.is_some()) {
                        break;
                    }
                    assert!(read(&functions, [1; 16], 0, 0..MIB).await.unwrap() == bytes);
                }
                assert!(
                    is_mended() || cloud.of(name, |function| function.fault.is_some()),
                    "{fault:?}, {reading:?}, {name}: {:?}",
                    functions.totals()
                );
            }
            let totals = functions.totals();
            assert_eq!((totals.resets, totals.corrupt_chunks), (0, 0), "{totals:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn as_many_as_there_is_parity_may_go_and_one_more_is_a_reset() {
    let bytes = pattern(MIB, 8);
    for (taken, is_left) in [(2, true), (3, false), (6, false)] {
        let bench = bench(6, |_| {});
        let functions = &bench.functions;
        assert!(functions.put([1; 16], MIB as u64, 0, bytes.clone()).await);
        for name in &bench.names[..taken] {
            assert_eq!(bench.emulator.reclaim(name), 1);
        }
        let found = read(functions, [1; 16], 0, 0..MIB).await;
        assert_eq!(found.is_some(), is_left, "{taken} of 6 with 4+2");
        assert!(found.is_none_or(|found| found == bytes), "{taken}");
        // An instance that is gone is one that does not answer, until the next one says what it holds.
        let began = std::time::Instant::now();
        while !is_left && functions.has(&[1; 16], 0) {
            assert!(began.elapsed() < Duration::from_secs(20), "{:?}", functions.totals());
            assert_eq!(read(functions, [1; 16], 0, 0..MIB).await, None, "{taken}");
        }
        assert_eq!(functions.totals().resets, u64::from(!is_left), "{taken}");
        // It is stored anew, over what is left of it.
        assert!(is_left || functions.put([1; 16], MIB as u64, 0, bytes.clone()).await);
        assert!(read(functions, [1; 16], 0, 0..MIB).await.unwrap() == bytes, "{taken}");
    }
}
