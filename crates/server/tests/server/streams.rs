//! The division of a stream into pieces means nothing. A transcript's requests get the same replies in one piece, cut
//! in two at any byte, and among the pieces of another connection's stream.

use std::io::Write;
use std::net::Shutdown;

use tidemark_server::Limits;
use tidemark_types::MIB;

use crate::harness::{Client, Harness, Random, Setup, open_tenant, random_seed, tenant};
use crate::transcript::{Names, Text, parse, show};

const TRANSCRIPTS: [&str; 7] = [
    include_str!("transcripts/storage.txt"),
    include_str!("transcripts/cas.txt"),
    include_str!("transcripts/counters.txt"),
    include_str!("transcripts/expiry.txt"),
    include_str!("transcripts/meta.txt"),
    include_str!("transcripts/stampede.txt"),
    include_str!("transcripts/errors.txt"),
];
/// Longer streams are not cut at every byte.
const CUT_EVERYWHERE_BYTES: usize = 4096;

/// A case's requests one after the other, and the replies.
struct Stream {
    title: String,
    request: Vec<u8>,
    reply: Text,
    closes: bool,
}

/// The cases that one client can send without looking at the replies.
fn streams() -> Vec<Stream> {
    let cases = TRANSCRIPTS.iter().flat_map(|text| parse(text)).filter(|case| {
        case.exchanges
            .iter()
            .all(|part| part.client == 1 && !part.is_polled && !part.request.has_names())
    });
    let stream = cases.map(|case| Stream {
        request: case
            .exchanges
            .iter()
            .flat_map(|part| part.request.bytes(&Names::default()))
            .collect(),
        reply: case.exchanges.iter().map(|part| part.reply.clone()).collect(),
        closes: case.exchanges.iter().any(|part| part.closes),
        title: case.title,
    });
    let streams: Vec<Stream> = stream.collect();
    assert!(streams.len() > 60, "only {} cases are streams", streams.len());
    streams
}

/// One worker, so that a reply on one connection says that earlier input on another has been received.
fn one_worker() -> Harness {
    let tenants = vec![open_tenant(), tenant(2, "left"), tenant(3, "right")];
    Harness::start(Setup {
        workers: 1,
        pool_bytes: 256 * MIB,
        limits: Limits::default(),
        tenants,
        flash: None,
    })
}

#[track_caller]
fn check(stream: &Stream, answered: &[u8], how: &str) {
    assert!(
        stream.reply.matches(answered, &mut Names::default()),
        "{}, {how}\nasked    {}\nexpected {}\nanswered {}",
        stream.title,
        show(&stream.request),
        stream.reply.shown(),
        show(answered)
    );
}

/// Sends all and receives all at the same time: neither side need hold it all.
fn send_all(client: &mut Client, request: &[u8]) -> Vec<u8> {
    let mut sender = client.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            // The server may close before it has read everything.
            let _ = sender.write_all(request);
            let _ = sender.shutdown(Shutdown::Write);
        });
        client.receive_until(|_| false).0
    })
}

/// All cases that do not close, behind each other, each to an empty tenant.
fn all_in_one() -> Stream {
    let together: Vec<Stream> = streams().into_iter().filter(|stream| !stream.closes).collect();
    let flush = &b"flush_all noreply\r\n"[..];
    let request: Vec<u8> = together
        .iter()
        .flat_map(|stream| [flush, &stream.request].concat())
        .collect();
    let reply = together.into_iter().map(|stream| stream.reply).collect();
    Stream {
        title: "all together".into(),
        request,
        reply,
        closes: false,
    }
}

#[test]
fn all_requests_in_one_piece() {
    let harness = one_worker();
    for stream in streams() {
        harness.connect().ask(b"flush_all\r\n", b"OK\r\n");
        check(
            &stream,
            &send_all(&mut harness.connect(), &stream.request),
            "in one piece",
        );
    }
}

#[test]
fn all_cases_in_one_stream() {
    let harness = one_worker();
    let all = all_in_one();
    check(&all, &send_all(&mut harness.connect(), &all.request), "in one piece");
}

#[test]
fn cut_in_two_at_any_byte() {
    let harness = one_worker();
    let mut other = harness.connect();
    for stream in streams() {
        let length = stream.request.len();
        let (step, ends) = if length <= CUT_EVERYWHERE_BYTES {
            (1, length)
        } else {
            (length / 97, 64)
        };
        let is_tried = |at: &usize| at.is_multiple_of(step) || *at < ends || *at + ends > length;
        for at in (1..length).filter(is_tried) {
            other.ask(b"flush_all\r\n", b"OK\r\n");
            let mut client = harness.connect();
            client.send(&stream.request[..at]);
            other.ask(b"mn\r\n", b"MN\r\n");
            let answered = send_all(&mut client, &stream.request[at..]);
            check(&stream, &answered, &format!("cut at {at}"));
        }
    }
}

#[test]
fn pieces_of_two_streams_in_turn() {
    let harness = one_worker();
    let all = all_in_one();
    let seed = random_seed();
    println!("seed {seed}");
    let mut random = Random(seed);
    for _ in 0..3 {
        let mut clients = [harness.log_in("left"), harness.log_in("right")];
        let mut senders = clients.each_ref().map(|client| client.stream.try_clone().unwrap());
        let answers = std::thread::scope(|scope| {
            let readers = clients
                .each_mut()
                .map(|client| scope.spawn(|| client.receive_until(|_| false).0));
            let mut sent = [0, 0];
            while sent.iter().any(|&sent| sent < all.request.len()) {
                let who = random.below(2);
                let piece = &all.request[sent[who]..];
                let most = 2 << random.below(17);
                let size = (1 + random.below(most)).min(piece.len());
                senders[who].write_all(&piece[..size]).unwrap();
                sent[who] += size;
            }
            senders
                .iter()
                .for_each(|sender| sender.shutdown(Shutdown::Write).unwrap());
            readers.map(|reader| reader.join().unwrap())
        });
        answers
            .iter()
            .for_each(|answered| check(&all, answered, &format!("in turn, seed {seed}")));
    }
}
