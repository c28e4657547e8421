//! The study's plot as time passes: the cache as a program embeds it, with threads of its own, and a thread for each
//! tenant's client.
//!
//! A hit and a miss take the client as long as in virtual time, whatever they take the store. A client that could not
//! keep up says by how much, because then the machine was measured.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tidemark_embed::{Builder, Cache, Tenant, TenantSettings};

use super::{Found, HIT_US, Rule, Setting, TENANTS, name};
use crate::Error;
use crate::elastic::Moment;
use crate::node::Costs;
use tidemark_tools::load::{KeyText, Operation, Requests};

/// A client that is ahead of its time by less goes on: the system wakes nobody more precisely for less.
const SLACK: Duration = Duration::from_millis(1);
/// Requests between two looks at the clock, which costs as much as a fraction of one.
const BATCH: usize = 16;

/// Lets the tenants' memory be shared by Tidemark's rule, or by fixed grants, while time passes. Returns, beside the
/// outcome, the most that any client was behind its time when it ended, over the time that it was there.
///
/// # Errors
/// The cache's.
pub fn run_in_real_time(setting: &Setting, rule: &Rule) -> Result<(Found, f64), Error> {
    let cache = Builder::new(setting.pool_bytes())
        .parallelism(TENANTS)
        .hit_cost(setting.cost(HIT_US))
        .build()?;
    let mut found = Found::nothing(setting);
    let mut clients: [Option<Client>; TENANTS] = Default::default();
    let mut behind: f64 = 0.0;
    let mut there = [false; TENANTS];
    let begun = Instant::now();
    for second in 0..setting.seconds() {
        let now = setting.there(second);
        for tenant in (0..TENANTS).filter(|tenant| there[*tenant] && !now[*tenant]) {
            if let Some(client) = clients[tenant].take() {
                found.note_predictions(&client.tenant.moves()?);
                behind = behind.max(client.end());
                cache.remove(&name(tenant))?;
            }
        }
        if now != there {
            // Tenants that have to give do so before others get memory.
            for (tenant, client) in clients.iter().enumerate() {
                if let Some(client) = client {
                    client.tenant.set(rule.patch(setting, now, tenant))?;
                }
            }
            for tenant in (0..TENANTS).filter(|tenant| now[*tenant] && !there[*tenant]) {
                clients[tenant] = Some(Client::start(&cache, setting, rule, now, tenant)?);
            }
            there = now;
        }
        let until = begun + Duration::from_secs(second as u64 + 1);
        thread::sleep(until.saturating_duration_since(Instant::now()));
        for (course, client) in found.courses.iter_mut().zip(&clients) {
            course.push(client.as_ref().map(|client| client.moment(begun)));
        }
    }
    for client in clients.into_iter().flatten() {
        found.note_predictions(&client.tenant.moves()?);
        behind = behind.max(client.end());
    }
    Ok((found, behind))
}

/// A tenant's client; its thread ends with it.
struct Client {
    tenant: Tenant,
    is_over: Arc<AtomicBool>,
    /// Says how far it was behind at its end, over its time.
    thread: Option<JoinHandle<f64>>,
}

impl Client {
    fn start(
        cache: &Cache,
        setting: &Setting,
        rule: &Rule,
        there: [bool; TENANTS],
        number: usize,
    ) -> Result<Self, Error> {
        let tenant = cache.create(&name(number), TenantSettings::default())?;
        tenant.set(rule.patch(setting, there, number))?;
        let workload = setting.workload(number);
        let (requests, key) = (Requests::new(&workload, (0, 1))?, workload.key_text()?);
        let is_over = Arc::new(AtomicBool::new(false));
        let asker = Asker {
            tenant: tenant.clone(),
            requests,
            key,
            value: vec![b'v'; workload.value_size.largest()],
            costs: setting.costs(),
        };
        let ends = Arc::clone(&is_over);
        let thread = thread::Builder::new()
            .name(name(number))
            .spawn(move || asker.run(&ends))
            .map_err(Error::Cache)?;
        Ok(Self {
            tenant,
            is_over,
            thread: Some(thread),
        })
    }

    fn moment(&self, begun: Instant) -> Moment {
        let stats = self.tenant.stats();
        Moment {
            seconds: begun.elapsed().as_secs_f64(),
            gets: stats.gets,
            hits: stats.hits,
            grant_bytes: stats.grant_bytes,
            usage_bytes: stats.usage_bytes,
        }
    }

    /// How far it was behind, over its time.
    fn end(mut self) -> f64 {
        self.join().unwrap_or(f64::INFINITY)
    }

    /// `None` if it panicked, which it has said, or has ended before.
    fn join(&mut self) -> Option<f64> {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take()?.join().ok()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.join();
    }
}

/// Asks, and asks again when it would have the answer.
struct Asker {
    tenant: Tenant,
    requests: Requests,
    key: KeyText,
    value: Vec<u8>,
    costs: Costs,
}

impl Asker {
    /// Until it is over; how far it was behind then, over its time.
    fn run(mut self, is_over: &AtomicBool) -> f64 {
        let begun = Instant::now();
        let mut taken_us = 0.0;
        loop {
            for _ in 0..BATCH {
                taken_us += self.ask();
            }
            let (taken, passed) = (Duration::from_secs_f64(taken_us / 1e6), begun.elapsed());
            if is_over.load(Ordering::Relaxed) {
                return passed.saturating_sub(taken).as_secs_f64() / passed.as_secs_f64();
            }
            let ahead = taken.saturating_sub(passed);
            if ahead > SLACK {
                thread::sleep(ahead);
            }
        }
    }

    /// Asks once, and returns the time of the answer, in microseconds.
    fn ask(&mut self) -> f64 {
        let (Operation::Get(number) | Operation::Set(number)) = self.requests.draw();
        let key = self.key.of(number);
        if self.tenant.get_with(key, |_| ()).is_some() {
            return self.costs.hit_us;
        }
        // A refusal is counted by the store: a client that looks aside goes on without the cache.
        let _ = self.tenant.insert(key, &self.value);
        self.costs.miss_us
    }
}

#[cfg(test)]
mod tests {
    use tidemark_control::Utility;

    use super::*;
    use crate::study::Plot;

    #[test]
    fn tenants_come_and_go_as_time_passes() {
        let setting = Setting {
            divisor: 512,
            plot: Plot::Dynamic,
            haste: 500,
            seed: 1,
        };
        let rule = Rule::tidemark(Utility::Throughput, 0.05);
        let begun = Instant::now();
        let (found, behind) = run_in_real_time(&setting, &rule).unwrap();
        assert!(begun.elapsed() >= Duration::from_secs(7));
        for (tenant, course) in found.courses.iter().enumerate() {
            let there: Vec<bool> = course.iter().map(Option::is_some).collect();
            let expected: Vec<bool> = (0..7).map(|second| setting.there(second)[tenant]).collect();
            assert_eq!(there, expected, "{}", name(tenant));
            // A client that never hits asks again each time that a miss is over. On a busy machine it is not that fast.
            let misses = 1e6 / setting.costs().miss_us * 512.0;
            let throughput = found.throughput_while_there(tenant);
            assert!(throughput > 0.5 * misses, "{}: {throughput} {misses}", name(tenant));
        }
        assert!((0.0..=1.0).contains(&behind), "{behind}");
        let last = found.courses[0][6].unwrap();
        assert!(
            last.usage_bytes > 0 && last.usage_bytes <= setting.pool_bytes(),
            "{last:?}"
        );
    }
}
