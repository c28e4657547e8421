//! A chunk that arrives slowly at a real process of the functions' program. The test is the proxy.

use tidemark_functions::chunk::{ChunkKey, chunk_hash};
use tidemark_functions::event::{Returned, Work, token_text};
use tidemark_functions::lifetime::LINGER_MS;
use tidemark_functions::token::TOKEN_BYTES;
use tidemark_functions::wire::{Frame, LENGTH_BYTES};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

async fn next(stream: &mut TcpStream) -> Frame {
    let mut length = [0; LENGTH_BYTES];
    stream.read_exact(&mut length).await.unwrap();
    let mut bytes = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut bytes).await.unwrap();
    Frame::read(&bytes).unwrap().0
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invocation_does_not_end_while_a_chunk_arrives() {
    let emulator = emulator();
    assert!(emulator.create("f-0", 64));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let event = Invocation {
        work: Work::Serve,
        name: "f-0".into(),
        epoch: 1,
        proxy: listener.local_addr().unwrap().to_string(),
        key: None,
        token: token_text(&[7; TOKEN_BYTES]),
        ends_ms: u64::MAX,
        unit_ms: 1,
        memory_bytes: 32 * MIB as u64,
    };
    let invoking = tokio::spawn(api(&emulator).invoke("f-0", serde_json::to_vec(&event).unwrap()));
    let (mut stream, _) = listener.accept().await.unwrap();
    assert!(matches!(next(&mut stream).await, Frame::Hello(_)));
    let (bytes, key) = (pattern(MIB, 1), ChunkKey::new([1; 16], 0, 0, "1+0".parse().unwrap()));
    let hash = chunk_hash(&bytes);
    let head = Frame::Put { id: 7, key, hash }.head(bytes.len());
    stream.write_all(&head).await.unwrap();
    stream.write_all(&bytes[..MIB / 2]).await.unwrap();
    // Many times as long as it waits for a request.
    let many_cycles = Duration::from_millis(30 * LINGER_MS);
    let said = tokio::time::timeout(many_cycles, stream.peek(&mut [0])).await;
    assert!(
        said.is_err() && !invoking.is_finished(),
        "it ended in the midst of a chunk"
    );
    stream.write_all(&bytes[MIB / 2..]).await.unwrap();
    let stored = next(&mut stream).await;
    assert!(matches!(stored, Frame::Stored { id: 7, .. }), "{stored:?}");
    // Nothing holds it any more.
    let bye = next(&mut stream).await;
    assert!(matches!(bye, Frame::Bye { .. }), "{bye:?}");
    let answer = invoking.await.unwrap().unwrap();
    let returned: Returned = serde_json::from_slice(&answer).unwrap();
    assert_eq!(returned.chunks, 1);
    assert!(returned.bytes >= MIB as u64);
}
