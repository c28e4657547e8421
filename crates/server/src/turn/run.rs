//! Executing one connection's input, command by command: into the window, or by itself.

use tidemark_protocol::{memcached as mc, resp};

use super::admit::Asked;
use super::skip::Skipped;
use super::{Executor, Member};
use crate::connection::Skip;
use crate::counts::Count;
use crate::entrance::Protocol;
use crate::limits::TURN_COMMANDS;
use crate::session::Session;
use crate::step::{Done, StepCommand};
use crate::suspend::Waits;
use crate::{memcached, redis};

/// Parsing a shorter incomplete command again costs less than keeping how far it was parsed.
const PARSED_KEPT_FROM_BYTES: usize = 4 << 10;

impl<'a> Executor<'_, 'a> {
    /// Executes a connection's commands, as far as they are complete and its share of the turn goes.
    pub(super) fn run(
        &mut self,
        group: &mut [Member],
        member: usize,
        bytes: &'a [u8],
        args: &mut resp::ArgList,
    ) -> Done {
        let mut done = Done { bytes: 0, commands: 0 };
        let connection = &mut *group[member].1;
        connection.has_leftover = false;
        let part = &mut self.parts[member];
        part.place = connection.place.take();
        let visit = &mut part.visit;
        visit.begun = std::mem::take(&mut connection.begun);
        visit.progress = connection.progress.take();
        visit.waits = Waits::since(std::mem::take(&mut connection.sought));
        visit.begin();
        while done.bytes < bytes.len() && !group[member].1.session.is_ending {
            let rest = &bytes[done.bytes..];
            if !matches!(group[member].1.skip, Skip::Nothing) {
                match self.skip(group, member, rest) {
                    Skipped::Nothing => {}
                    Skipped::Bytes(bytes) => {
                        done.bytes += bytes;
                        continue;
                    }
                    Skipped::Incomplete => break,
                }
            }
            if done.commands as usize >= TURN_COMMANDS || self.has_many_replies(member) {
                group[member].1.has_leftover = true;
                if let Some(tenant) = &group[member].1.session.tenant {
                    tenant.counts.add(Count::Yields, 1);
                }
                break;
            }
            let taken = match group[member].1.session.protocol {
                Protocol::Memcached => self.run_memcached(group, member, done, rest),
                Protocol::Redis => self.run_redis(group, member, done, rest, args),
            };
            let Some(taken) = taken else { break };
            done.bytes += taken;
            done.commands += 1;
        }
        done
    }

    /// Executes the command at the beginning of `rest`, or puts it into the window. `None` if it is incomplete, or has to
    /// wait.
    fn run_memcached(&mut self, group: &mut [Member], member: usize, before: Done, rest: &'a [u8]) -> Option<usize> {
        let connection = &mut *group[member].1;
        match memcached::parse(rest, &connection.session) {
            mc::Parsed::Incomplete { needed } => {
                connection.needed = needed;
                None
            }
            mc::Parsed::Complete { command, consumed } => {
                match memcached::step_key(&command, &mut connection.session) {
                    Some(key) => self.push(group, (member, before, consumed), key, StepCommand::Memcached(command)),
                    None => {
                        self.finish(group, member)?;
                        let (replied, mut is_refused) = (self.output.len(), false);
                        let asked = |session: &Session| Asked {
                            operations: memcached::operations(&command, session),
                            adds_data: memcached::adds_data(&command),
                        };
                        let is_finished =
                            self.within_limits(group, (member, consumed), asked, |refused, session, exec| {
                                let Some(refused) = refused else {
                                    return memcached::execute(&command, session, exec);
                                };
                                memcached::refuse(&command, refused, exec);
                                memcached::drop_line(&command, session);
                                is_refused = true;
                                true
                            });
                        if !is_finished {
                            self.suspend(member, before);
                            return None;
                        }
                        self.parts[member].visit.pass();
                        if self.sampler.takes(member) && !is_refused {
                            self.record_memcached(group, &command, (member, consumed), replied);
                        }
                    }
                }
                Some(consumed)
            }
            mc::Parsed::TooLarge { failure, key } => {
                self.finish(group, member)?;
                let (session, mut exec) = self.alone(group, member);
                memcached::fail_too_large(&failure, key, rest, session, &mut exec);
                group[member].1.skip = Skip::Bytes(failure.swallow);
                Some(failure.consumed)
            }
            mc::Parsed::Failed(failure) => {
                self.finish(group, member)?;
                let (session, mut exec) = self.alone(group, member);
                memcached::fail(&failure, rest, session, &mut exec);
                group[member].1.skip = Skip::Bytes(failure.swallow);
                Some(failure.consumed)
            }
        }
    }

    /// The same for RESP.
    fn run_redis(
        &mut self,
        group: &mut [Member],
        member: usize,
        before: Done,
        rest: &'a [u8],
        args: &mut resp::ArgList,
    ) -> Option<usize> {
        let connection = &mut *group[member].1;
        let limits = redis::limits(&connection.session);
        let parsed = match (connection.parsed.take(), connection.begun_bytes.take()) {
            // It goes on, and needs not be read again.
            (Some(begun), Some(consumed)) => {
                *args = *begun;
                resp::Parsed::Complete { consumed }
            }
            (Some(begun), None) => {
                *args = *begun;
                resp::parse_more(rest, &limits, args)
            }
            (None, _) => resp::parse(rest, &limits, args),
        };
        match parsed {
            resp::Parsed::Incomplete { needed } => {
                connection.needed = needed;
                if rest.len() >= PARSED_KEPT_FROM_BYTES {
                    connection.parsed = Some(Box::new(std::mem::take(args)));
                }
                None
            }
            resp::Parsed::Nothing { consumed } => Some(consumed),
            resp::Parsed::Complete { consumed } => {
                match redis::step(args, rest, &connection.session) {
                    Some((key, step)) => self.push(group, (member, before, consumed), key, StepCommand::Redis(step)),
                    None => {
                        self.finish(group, member)?;
                        if !self.run_alone(group, member, args.args(rest), &rest[..consumed]) {
                            self.suspend(member, before);
                            let connection = &mut *group[member].1;
                            connection.parsed = Some(Box::new(std::mem::take(args)));
                            connection.begun_bytes = Some(consumed);
                            return None;
                        }
                        self.parts[member].visit.pass();
                    }
                }
                Some(consumed)
            }
            resp::Parsed::Refused { error, consumed, rest } => {
                self.finish(group, member)?;
                let (session, mut exec) = self.alone(group, member);
                redis::refuse(&error, session, &mut exec);
                group[member].1.skip = Skip::Command(rest);
                Some(consumed)
            }
            resp::Parsed::Failed(error) => {
                self.finish(group, member)?;
                let (session, mut exec) = self.alone(group, member);
                redis::refuse(&error, session, &mut exec);
                session.is_ending = true;
                Some(rest.len())
            }
        }
    }

    /// Executes a command of RESP by itself. Whether it is finished.
    fn run_alone(&mut self, group: &mut [Member], member: usize, args: resp::Args<'_>, raw: &[u8]) -> bool {
        let asked = |_: &Session| Asked {
            operations: redis::operations(args),
            adds_data: redis::adds_data(args),
        };
        let (replied, mut is_refused) = (self.output.len(), false);
        let is_finished = self.within_limits(
            group,
            (member, raw.len()),
            asked,
            |refused, session, exec| match refused {
                Some(refused) => {
                    redis::refuse_throttled(args, refused, session, exec);
                    is_refused = true;
                    true
                }
                None => redis::execute(args, raw, session, exec),
            },
        );
        if self.sampler.takes(member) && is_finished && !is_refused {
            self.record_redis(group, args, (member, raw.len()), replied);
        }
        is_finished
    }
}
