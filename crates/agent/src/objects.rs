//! Reads and writes of the S3 address, given to the cachelet that serves the caller.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use tidemark_cachelet::choose::Access;
use tidemark_cachelet::config::WritePolicy;
use tidemark_cachelet::config::scope::Instance;
use tidemark_cachelet::message::{ReadOutcome, Source, WriteOutcome};
use tidemark_cachelet::types::{Key, Value, Version, key_hash};
use tidemark_gateway::coherent::{Caller, Coherent, Reading, Writing, Written};

use crate::clock::now_us;
use crate::domains::{Domain, Domains};
use crate::host::{Host, ReadEnd};
use crate::instances::Instances;
use crate::tuning::Tuning;

/// How often an operation is tried again that ended because its cachelet's incarnation was over.
const TRIES: usize = 3;

/// See the module.
pub struct Objects {
    /// The applications.
    pub domains: Arc<Domains>,
    /// The instances on this node.
    pub instances: Arc<Instances>,
    /// The state of choosing.
    pub tuning: Arc<Tuning>,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").finish_non_exhaustive()
    }
}

/// The place of an operation, and its caller.
struct Served {
    domain: Arc<Domain>,
    host: Arc<Host>,
    instance: Option<Instance>,
    /// When it began, if it is counted.
    counted_from_us: Option<u64>,
}

/// The facts of an ended operation for choosing.
struct Ended<'a> {
    key: &'a Key,
    size_bytes: u64,
    is_write: bool,
    version: Option<&'a Version>,
    source: Source,
}

impl Objects {
    fn host(&self, caller: &Caller) -> Option<Served> {
        // A tenant is an application: no cachelet is shared between two of them.
        let domain = self.domains.get(&caller.tenant)?;
        let instance = caller
            .address
            .and_then(|address| self.instances.at(&caller.tenant, address));
        let host = domain.host_of(instance.as_ref())?;
        let now_us = now_us();
        let counted_from_us = domain.counting.is_on(now_us).then_some(now_us);
        Some(Served {
            domain,
            host,
            instance,
            counted_from_us,
        })
    }

    fn count(&self, served: &Served, ended: &Ended<'_>) {
        let Some(from_us) = served.counted_from_us else { return };
        let now_us = now_us();
        let number = |name: &str| key_hash(&Key::new(name));
        let instance = served.instance.as_ref();
        let access = || Access {
            key: ended.key,
            size_bytes: ended.size_bytes,
            is_write: ended.is_write,
            version: ended.version,
            source: ended.source,
            function: instance.map_or(0, |instance| number(&instance.function)),
            instance: instance.map_or(0, |instance| number(&instance.name)),
            took_us: now_us.saturating_sub(from_us),
        };
        served.domain.counting.note(now_us, access, &self.tuning.allowance);
    }
}

fn etag(version: Option<Version>) -> Option<String> {
    match version? {
        Version::Absent => None,
        Version::Tag(etag) => Some(etag.to_string()),
    }
}

fn place(source: Source) -> &'static str {
    match source {
        Source::Copy => "copy",
        Source::Validated => "validated",
        Source::Home => "home",
        Source::Store => "store",
    }
}

#[async_trait::async_trait]
impl Coherent for Objects {
    async fn read(&self, caller: &Caller, object: &str) -> Reading {
        for _ in 0..TRIES {
            let Some(served) = self.host(caller) else {
                return Reading::Unavailable;
            };
            let host = &served.host;
            let (id, key) = (host.id(), Key::new(object));
            let ReadEnd {
                outcome,
                version,
                content,
            } = host.read(key.clone()).await;
            if let ReadOutcome::Is(value, source) = &outcome {
                let ended = Ended {
                    key: &key,
                    size_bytes: value.as_ref().map_or(0, |value| value.size_bytes),
                    is_write: false,
                    version: version.as_ref(),
                    source: *source,
                };
                self.count(&served, &ended);
            }
            match outcome {
                ReadOutcome::Is(Some(_), source) => {
                    return Reading::Object {
                        content,
                        etag: etag(version),
                        place: place(source),
                    };
                }
                ReadOutcome::Is(None, _) => return Reading::Nothing,
                ReadOutcome::Denied(status) => return Reading::Denied(status),
                ReadOutcome::Unavailable if host.id() != id => {}
                ReadOutcome::Unavailable => return Reading::Unavailable,
            }
        }
        Reading::Unavailable
    }

    async fn write(&self, caller: &Caller, object: &str, written: Written) -> Writing {
        let value = written.content.as_ref().map(|content: &Bytes| Value::new(content));
        for _ in 0..TRIES {
            let Some(served) = self.host(caller) else {
                return Writing::Unavailable;
            };
            if written.is_conditional && served.domain.record().config.write == WritePolicy::Back {
                return Writing::ConditionUnknown;
            }
            let host = &served.host;
            let (id, key) = (host.id(), Key::new(object));
            let (outcome, version) = host.write(key.clone(), value.clone()).await;
            if outcome == WriteOutcome::Applied {
                let ended = Ended {
                    key: &key,
                    size_bytes: value.as_ref().map_or(0, |value| value.size_bytes),
                    is_write: true,
                    version: version.as_ref(),
                    source: Source::Store,
                };
                self.count(&served, &ended);
            }
            match outcome {
                WriteOutcome::Applied => return Writing::Applied(etag(version)),
                WriteOutcome::Unknown => return Writing::Unknown,
                WriteOutcome::Denied(status) => return Writing::Denied(status),
                WriteOutcome::Unavailable if host.id() != id => {}
                WriteOutcome::Unavailable => return Writing::Unavailable,
            }
        }
        Writing::Unavailable
    }
}
