//! The cloud: starts instances, gives them events, bills their time, takes them back.

use std::time::Duration;

use tidemark_functions::availability::Reclaim;
use tidemark_functions::cost::billed_ms;
use tidemark_functions::event::Work;
use tidemark_functions::holding::held_bytes;

use super::Purpose;
use super::instance::{Instance, Run};
use super::world::{Event, World};

/// Between two draws of what is reclaimed.
pub(super) const RECLAIM_EVERY_US: u64 = 60_000_000;
/// From the end of an invocation to the proxy's hearing of it, beyond a hop.
const RETURN_US: u64 = 1_000;

/// The distribution of how many are reclaimed, summed up.
pub(super) struct Reclaiming(Vec<f64>);

impl Reclaiming {
    pub(super) fn new(reclaim: Reclaim, functions: u16) -> Self {
        let summed = reclaim.probabilities(functions.into()).into_iter();
        Self(
            summed
                .scan(0.0, |sum, p| {
                    *sum += p;
                    Some(*sum)
                })
                .collect(),
        )
    }

    fn draw(&self, unit: f64) -> usize {
        self.0.partition_point(|sum| *sum <= unit)
    }
}

impl World<'_> {
    /// Invokes a function: the first instance that is free, or else a new one, as the emulator does. Returns which.
    pub(super) fn call(&mut self, member: u16, epoch: u64, work: Work, purpose: Purpose) -> u64 {
        let (least, most) = self.setup.cloud.invoke_us;
        let mut begins_us = self.now_us + least + self.dice.below(most - least + 1);
        let instances = &mut self.instances[usize::from(member)];
        let id = match instances.iter_mut().find(|instance| !instance.is_taken) {
            Some(free) => {
                free.is_taken = true;
                free.id
            }
            None => {
                begins_us += self.setup.cloud.cold_us;
                self.next_instance += 1;
                instances.push(Instance::new(
                    self.next_instance,
                    held_bytes(self.setup.room_bytes, self.setup.memory_bytes),
                ));
                self.next_instance
            }
        };
        let slowness = match self.setup.cloud.stragglers {
            Some(stragglers) if self.dice.below(stragglers.one_in) == 0 => stragglers.times,
            _ => 1,
        };
        let run = Run::new(epoch, work, purpose, (begins_us, slowness));
        self.at(begins_us, Event::Begins { member, id, run });
        id
    }

    /// An invocation returns.
    pub(super) fn end_run(&mut self, member: u16, id: u64) {
        let Some(instance) = self.instance(member, id) else {
            return;
        };
        instance.is_taken = false;
        let Some(run) = instance.run.take() else { return };
        instance.sending = None;
        let hop_us = self.setup.cloud.hop_us;
        self.bill(&run);
        let epoch = run.epoch;
        if run.work == Work::Serve {
            self.after(hop_us, Event::Bye { member, epoch });
        }
        let work = run.work;
        self.after(
            hop_us + RETURN_US,
            Event::Returned {
                member,
                id,
                epoch,
                work,
            },
        );
        if work == Work::Serve {
            self.ends_backup(member, epoch, false);
        }
    }

    /// The time that a backup took of an invocation that serves is the backup's.
    fn bill(&mut self, run: &Run) {
        let took = Duration::from_micros(self.now_us - run.began_us);
        let ms = billed_ms(took, self.setup.unit_ms.into());
        let backing_ms = (run.backing_us / 1000).min(ms);
        let billed = &mut self.found.hour(self.now_us).billed;
        billed[run.purpose as usize].invocations += 1;
        billed[run.purpose as usize].ms += ms - backing_ms;
        billed[Purpose::Backup as usize].ms += backing_ms;
    }

    /// Takes instances back that do not run: as many of the functions' first ones as are drawn, and of their second.
    pub(super) fn reclaim(&mut self) {
        let Some(reclaiming) = &self.reclaiming else { return };
        let draws = [1, 0].map(|rank| (rank, reclaiming.draw(self.dice.unit())));
        for (rank, count) in draws {
            let mut functions: Vec<usize> = (0..self.instances.len()).collect();
            for _ in 0..count.min(functions.len()) {
                let function = functions.swap_remove(self.dice.below(functions.len() as u64) as usize);
                let instances = &mut self.instances[function];
                if instances.get(rank).is_some_and(|instance| !instance.is_taken) {
                    instances.remove(rank);
                    self.found.hour(self.now_us).reclaimed += 1;
                }
            }
        }
        self.after(RECLAIM_EVERY_US, Event::Reclaim);
    }
}
