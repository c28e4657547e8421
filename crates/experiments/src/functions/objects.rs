//! Requests for objects: reads of stripes from their chunks, writes, repairs, and what they find.
//!
//! As the paper's replayer does, a request that misses puts the object at once: the origin takes no time.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tidemark_functions::chunk::{ChunkKey, ContentId, mark};
use tidemark_functions::codec::{STRIPE_BYTES, chunk_bytes, touched};
use tidemark_functions::pool::Stripe;
use tidemark_functions::proxy::{READS_MAX, REPAIR_TRIES, REPAIRS_MAX, Reading, WRITES_MAX};

use super::Asked;
use super::instance::Length;
use super::member::Job;
use super::world::{Event, World};

/// Stripes of a request under way: the one that is sent to the client, and one ahead.
const AHEAD: u32 = 2;

/// The last that became of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Past {
    Stored,
    Evicted,
}

/// A request for an object.
#[derive(Debug)]
struct Request {
    content: ContentId,
    bytes: u64,
    began_us: u64,
    was: Option<Past>,
    next: u32,
    under_way: u32,
    is_lost: bool,
    is_missed: bool,
    is_recovered: bool,
}

impl Request {
    fn stripes(&self) -> u32 {
        self.bytes.div_ceil(STRIPE_BYTES) as u32
    }
}

/// The purpose of gathered chunks.
#[derive(Clone, Copy, Debug)]
enum For {
    Request(u64),
    /// The how manieth try.
    Repair(usize),
}

/// Chunks of a stripe on their way.
#[derive(Debug)]
struct Gather {
    goal: For,
    content: ContentId,
    number: u32,
    stripe: Stripe,
    wanted: Range<usize>,
    have: u64,
    asked: u64,
    open: u32,
    is_hedged: bool,
    began_us: u64,
}

impl Gather {
    fn is_enough(&self) -> bool {
        self.wanted.clone().all(|index| self.have & (1 << index) != 0)
            || self.have.count_ones() >= self.stripe.code.data()
    }

    fn can_be_enough(&self) -> bool {
        self.have.count_ones() + self.open >= self.stripe.code.data()
    }
}

/// A stripe that is stored, or lost chunks that are put back.
#[derive(Debug)]
enum Write {
    Stripe {
        request: u64,
        content: ContentId,
        number: u32,
        hashes: Arc<[u64]>,
        open: u32,
        lost: u64,
    },
    Repair {
        tries: usize,
        content: ContentId,
        number: u32,
        stripe: Stripe,
        lost: VecDeque<usize>,
    },
}

/// All that is under way.
#[derive(Default)]
pub(super) struct Objects {
    next_id: u64,
    past: HashMap<ContentId, Past>,
    requests: BTreeMap<u64, Request>,
    gathers: BTreeMap<u64, Gather>,
    writes: BTreeMap<u64, Write>,
    /// Stripes that are read, written and repaired, and those that wait for that.
    reading: usize,
    reads: VecDeque<(u64, u32)>,
    writing: usize,
    puts: VecDeque<(u64, u32)>,
    mending: usize,
    repairs: VecDeque<(ContentId, u32)>,
    repairing: HashSet<(ContentId, u32)>,
}

impl Objects {
    fn id(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

fn content_of(key: u64) -> ContentId {
    let mixed = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut content = [0; 16];
    content[..8].copy_from_slice(&(mixed ^ (mixed >> 29)).to_be_bytes());
    content[8..].copy_from_slice(&key.to_be_bytes());
    content
}

fn stripe_bytes(bytes: u64, number: u32) -> u32 {
    (bytes - u64::from(number) * STRIPE_BYTES).min(STRIPE_BYTES) as u32
}

impl World<'_> {
    pub(super) fn request(&mut self, asked: &Asked) {
        let content = content_of(asked.key);
        let id = self.objects.id();
        let request = Request {
            content,
            bytes: asked.bytes,
            began_us: self.now_us,
            was: self.objects.past.get(&content).copied(),
            next: 0,
            under_way: 0,
            is_lost: false,
            is_missed: false,
            is_recovered: false,
        };
        self.objects.requests.insert(id, request);
        self.advance(id);
    }

    fn advance(&mut self, id: u64) {
        while let Some(request) = self.objects.requests.get_mut(&id)
            && request.under_way < AHEAD
            && request.next < request.stripes()
        {
            request.under_way += 1;
            let number = request.next;
            request.next += 1;
            self.objects.reads.push_back((id, number));
            self.read_next();
        }
    }

    /// Reads the stripes whose turn it is.
    fn read_next(&mut self) {
        while self.objects.reading < READS_MAX
            && let Some((id, number)) = self.objects.reads.pop_front()
        {
            let Some(request) = self.objects.requests.get_mut(&id) else {
                continue;
            };
            let content = request.content;
            if let Some(stripe) = self.pool.look(&content, number) {
                self.objects.reading += 1;
                self.gather(For::Request(id), content, number, stripe);
                continue;
            }
            if request.was == Some(Past::Stored) {
                request.is_lost = true;
            } else {
                request.is_missed = true;
                self.objects.past.remove(&content);
            }
            self.objects.puts.push_back((id, number));
            self.write_next();
        }
    }

    fn gather(&mut self, goal: For, content: ContentId, number: u32, stripe: Stripe) {
        let bytes = stripe.bytes as usize;
        let wanted = touched(stripe.code, bytes, &(0..bytes));
        let is_whole = self.setup.reading == Reading::FirstD || wanted.clone().any(|index| !stripe.has(index));
        let id = self.objects.id();
        let (asked, have) = (0, 0);
        let gather = Gather {
            goal,
            content,
            number,
            wanted: wanted.clone(),
            have,
            asked,
            open: 0,
            is_hedged: is_whole,
            began_us: self.now_us,
            stripe,
        };
        self.objects.gathers.insert(id, gather);
        if is_whole {
            self.ask_all(id);
        } else {
            wanted.for_each(|index| self.ask_chunk(id, index));
            self.after(micros(self.late.after()), Event::Late { gather: id });
        }
        self.judge(id);
    }

    fn ask_chunk(&mut self, id: u64, index: usize) {
        let Some(gather) = self.objects.gathers.get_mut(&id) else {
            return;
        };
        let bit = 1 << index;
        if gather.asked & bit != 0 {
            return;
        }
        gather.asked |= bit;
        if gather.stripe.has(index) {
            gather.open += 1;
            let key = ChunkKey::new(gather.content, gather.number, index as u8, gather.stripe.code);
            let home = gather.stripe.homes[index];
            self.ask(home, Job::Get(key, id));
        }
    }

    fn ask_all(&mut self, id: u64) {
        let chunks = self
            .objects
            .gathers
            .get(&id)
            .map_or(0, |gather| gather.stripe.homes.len());
        (0..chunks).for_each(|index| self.ask_chunk(id, index));
    }

    pub(super) fn is_gathering(&self, id: u64) -> bool {
        self.objects.gathers.contains_key(&id)
    }

    pub(super) fn is_late(&mut self, id: u64) {
        let Some(gather) = self.objects.gathers.get_mut(&id) else {
            return;
        };
        if !std::mem::replace(&mut gather.is_hedged, true) {
            self.found.hedged += 1;
            self.ask_all(id);
        }
    }

    /// A chunk came, or did not.
    pub(super) fn got(&mut self, id: u64, index: u8, is_there: bool) {
        let now_us = self.now_us;
        let Some(gather) = self.objects.gathers.get_mut(&id) else {
            return;
        };
        gather.open -= 1;
        if is_there {
            gather.have |= 1 << index;
            let took = Duration::from_micros(now_us - gather.began_us);
            self.late.learn(took);
        } else {
            self.ask_all(id);
        }
        self.judge(id);
    }

    fn judge(&mut self, id: u64) {
        let Some(gather) = self.objects.gathers.get(&id) else {
            return;
        };
        let is_enough = gather.is_enough();
        if !is_enough && gather.open > 0 && (gather.can_be_enough() || !gather.is_hedged) {
            return;
        }
        let Some(gather) = self.objects.gathers.remove(&id) else {
            return;
        };
        match gather.goal {
            For::Request(request) => self.read(request, &gather, is_enough),
            For::Repair(tries) => self.rebuilt(tries, &gather, is_enough),
        }
    }

    fn read(&mut self, id: u64, gather: &Gather, is_there: bool) {
        self.objects.reading -= 1;
        let (content, number) = (gather.content, gather.number);
        let is_computed = gather.wanted.clone().any(|index| gather.have & (1 << index) == 0);
        let lost = gather.wanted.clone().any(|index| !gather.stripe.has(index));
        if let Some(request) = self.objects.requests.get_mut(&id) {
            request.is_lost |= !is_there;
            request.is_recovered |= is_there && is_computed && lost;
        }
        if is_there {
            let is_damaged = self.pool.look(&content, number).is_some_and(|now| now.lost != 0);
            if gather.stripe.lost != 0 || is_damaged {
                self.repair_later(content, number);
            }
            self.stripe_done(id);
        } else {
            self.objects.puts.push_back((id, number));
            self.write_next();
        }
        self.read_next();
    }

    fn stripe_done(&mut self, id: u64) {
        let Some(request) = self.objects.requests.get_mut(&id) else {
            return;
        };
        request.under_way -= 1;
        if request.under_way > 0 || request.next < request.stripes() {
            return self.advance(id);
        }
        let Some(request) = self.objects.requests.remove(&id) else {
            return;
        };
        if request.is_missed && self.objects.past.get(&request.content) != Some(&Past::Evicted) {
            self.objects.past.insert(request.content, Past::Stored);
        }
        let now_us = self.now_us;
        let hour = self.found.hour(now_us);
        hour.requests += 1;
        if request.is_lost {
            hour.resets += 1;
        } else if !request.is_missed {
            hour.hits += 1;
            hour.recoveries += u64::from(request.is_recovered);
            self.found.took_us.push(now_us - request.began_us);
        }
    }

    /// Writes the stripes whose turn it is.
    fn write_next(&mut self) {
        while self.objects.writing < WRITES_MAX
            && let Some((request, number)) = self.objects.puts.pop_front()
        {
            if !self.write(request, number) {
                self.stripe_done(request);
            }
        }
    }

    fn write(&mut self, request: u64, number: u32) -> bool {
        let Some((content, bytes)) = self.objects.requests.get(&request).map(|one| (one.content, one.bytes)) else {
            return false;
        };
        let (stripe_bytes, functions) = (stripe_bytes(bytes, number), usize::from(self.setup.functions));
        let code = self.setup.codes.of(bytes, functions);
        let placed = code.and_then(|code| self.pool.place(content, code, number, stripe_bytes));
        let Some(placement) = placed else { return false };
        self.found.evicted += placement.evicted.len() as u64;
        for evicted in &placement.evicted {
            self.objects.past.insert(*evicted, Past::Evicted);
        }
        let length = Length(chunk_bytes(placement.code, stripe_bytes as usize) as u32);
        let keys: Vec<ChunkKey> = (0..placement.homes.len())
            .map(|index| ChunkKey::new(content, number, index as u8, placement.code))
            .collect();
        let hashes: Arc<[u64]> = keys.iter().map(|key| mark(key, 0)).collect();
        let id = self.objects.id();
        for ((key, hash), home) in keys.iter().zip(hashes.iter()).zip(placement.homes.iter()) {
            self.ask(*home, Job::Put(*key, *hash, length, id));
        }
        self.objects.writing += 1;
        let (open, lost) = (keys.len() as u32, 0);
        self.objects.writes.insert(
            id,
            Write::Stripe {
                request,
                content,
                number,
                hashes,
                open,
                lost,
            },
        );
        true
    }

    /// A chunk is stored, or not.
    pub(super) fn put(&mut self, id: u64, index: u8, is_stored: bool) {
        match self.objects.writes.get_mut(&id) {
            Some(Write::Stripe { open, lost, .. }) => {
                *open -= 1;
                *lost |= u64::from(!is_stored) << index;
                if *open == 0 {
                    self.written(id);
                }
            }
            Some(Write::Repair {
                content,
                number,
                stripe,
                ..
            }) => {
                let key = ChunkKey::new(*content, *number, index, stripe.code);
                if is_stored {
                    self.pool.found(&key);
                    self.found.repaired_chunks += 1;
                }
                self.put_back(id);
            }
            None => {}
        }
    }

    fn written(&mut self, id: u64) {
        if let Some(Write::Stripe {
            request,
            content,
            number,
            hashes,
            lost,
            ..
        }) = self.objects.writes.remove(&id)
        {
            self.pool.commit(content, number, hashes, lost);
            self.objects.writing -= 1;
            self.stripe_done(request);
            self.write_next();
        }
    }

    /// Has the lost chunks of a stripe computed and stored, when it is its turn.
    pub(super) fn repair_later(&mut self, content: ContentId, number: u32) {
        if self.objects.repairing.insert((content, number)) {
            self.objects.repairs.push_back((content, number));
            self.repair_next();
        }
    }

    fn repair_next(&mut self) {
        while self.objects.mending < REPAIRS_MAX
            && let Some((content, number)) = self.objects.repairs.pop_front()
        {
            self.objects.mending += 1;
            self.repair(1, content, number);
        }
    }

    fn repair(&mut self, tries: usize, content: ContentId, number: u32) {
        let stripe = self.pool.look(&content, number).filter(|stripe| stripe.lost != 0);
        match stripe {
            Some(stripe) if tries <= REPAIR_TRIES => self.gather(For::Repair(tries), content, number, stripe),
            _ => {
                self.objects.repairing.remove(&(content, number));
                self.objects.mending -= 1;
                self.repair_next();
            }
        }
    }

    fn rebuilt(&mut self, tries: usize, gather: &Gather, is_there: bool) {
        let (content, number) = (gather.content, gather.number);
        let now = self.pool.look(&content, number).filter(|_| is_there);
        let Some(stripe) = now else {
            return self.repair(REPAIR_TRIES + 1, content, number);
        };
        let lost = (0..stripe.homes.len()).filter(|index| !stripe.has(*index)).collect();
        let id = self.objects.id();
        self.objects.writes.insert(
            id,
            Write::Repair {
                tries,
                content,
                number,
                stripe,
                lost,
            },
        );
        self.put_back(id);
    }

    /// Puts the next lost chunk back.
    fn put_back(&mut self, id: u64) {
        let Some(Write::Repair {
            content,
            number,
            stripe,
            lost,
            ..
        }) = self.objects.writes.get_mut(&id)
        else {
            return;
        };
        if let Some(index) = lost.pop_front() {
            let key = ChunkKey::new(*content, *number, index as u8, stripe.code);
            let length = Length(chunk_bytes(stripe.code, stripe.bytes as usize) as u32);
            let (home, hash) = (stripe.homes[index], stripe.hashes[index]);
            return self.ask(home, Job::Put(key, hash, length, id));
        }
        if let Some(Write::Repair {
            tries, content, number, ..
        }) = self.objects.writes.remove(&id)
        {
            self.repair(tries + 1, content, number);
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
