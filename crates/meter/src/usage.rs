//! The resources that can be used, and amounts of them.

/// Something that is measured. Amounts are whole numbers of the unit that its name ends in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Resource {
    /// CPU time of the threads that served the tenant or looked after its shards, by their own clocks.
    CpuNs,
    /// The same by the model: time of a core of the reference machine.
    CpuModelNs,
    /// Memory that the tenant was granted, and what its flash takes beside, times the time for which it was.
    MemoryByteSeconds,
    /// Bytes of requests, before TLS.
    NetworkInBytes,
    /// Bytes of replies, before TLS.
    NetworkOutBytes,
    /// Commands executed.
    Operations,
    /// Keys looked up.
    Gets,
    /// Those that were found.
    Hits,
    /// Items written.
    Sets,
    /// Commands, connections and logins that a limit refused.
    Refused,
    /// Flash that the tenant was granted, times the time for which it was.
    FlashByteSeconds,
    /// Bytes written to flash.
    FlashWrittenBytes,
    /// Cloud functions invoked.
    Invocations,
    /// Memory of cloud functions, times the time for which they ran.
    FunctionMibMs,
}

impl Resource {
    /// All of them, in the order in which a row holds them.
    pub const ALL: [Self; 14] = [
        Self::CpuNs,
        Self::CpuModelNs,
        Self::MemoryByteSeconds,
        Self::NetworkInBytes,
        Self::NetworkOutBytes,
        Self::Operations,
        Self::Gets,
        Self::Hits,
        Self::Sets,
        Self::Refused,
        Self::FlashByteSeconds,
        Self::FlashWrittenBytes,
        Self::Invocations,
        Self::FunctionMibMs,
    ];

    /// The name in rows and columns.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CpuNs => "cpu_ns",
            Self::CpuModelNs => "cpu_model_ns",
            Self::MemoryByteSeconds => "memory_byte_seconds",
            Self::NetworkInBytes => "network_in_bytes",
            Self::NetworkOutBytes => "network_out_bytes",
            Self::Operations => "operations",
            Self::Gets => "gets",
            Self::Hits => "hits",
            Self::Sets => "sets",
            Self::Refused => "refused",
            Self::FlashByteSeconds => "flash_byte_seconds",
            Self::FlashWrittenBytes => "flash_written_bytes",
            Self::Invocations => "invocations",
            Self::FunctionMibMs => "function_mib_ms",
        }
    }
}

/// Amounts of all resources, of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage([u64; Resource::ALL.len()]);

impl Usage {
    /// The amount of one.
    #[inline]
    pub fn get(&self, resource: Resource) -> u64 {
        self.0[resource as usize]
    }

    /// Sets the amount of one.
    #[inline]
    pub fn set(&mut self, resource: Resource, amount: u64) {
        self.0[resource as usize] = amount;
    }

    /// The amounts with that of one resource set.
    #[must_use]
    pub fn with(mut self, resource: Resource, amount: u64) -> Self {
        self.set(resource, amount);
        self
    }

    /// The growth of each over an earlier amount. Counts do not fall; one that did all the same counts as not grown.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self(std::array::from_fn(|i| self.0[i].saturating_sub(before.0[i])))
    }

    /// Whether there is nothing of any.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|amount| *amount == 0)
    }

    /// The amounts, in the order of [`Resource::ALL`].
    pub fn amounts(&self) -> impl Iterator<Item = (Resource, u64)> {
        Resource::ALL.into_iter().zip(self.0)
    }
}

/// Sums of rows: a month of a large tenant's byte-seconds is more than 64 bits hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals([u128; Resource::ALL.len()]);

impl Totals {
    /// The sum of one.
    pub fn get(&self, resource: Resource) -> u128 {
        self.0[resource as usize]
    }

    /// The sums with that of one resource set.
    #[must_use]
    pub fn with(mut self, resource: Resource, amount: u128) -> Self {
        self.0[resource as usize] = amount;
        self
    }

    /// Adds a row.
    pub fn add(&mut self, usage: &Usage) {
        for (sum, amount) in self.0.iter_mut().zip(usage.0) {
            *sum += u128::from(amount);
        }
    }

    /// Adds another sum.
    pub fn add_all(&mut self, other: &Self) {
        for (sum, amount) in self.0.iter_mut().zip(other.0) {
            *sum += amount;
        }
    }

    /// The sums, in the order of [`Resource::ALL`].
    pub fn amounts(&self) -> impl Iterator<Item = (Resource, u128)> {
        Resource::ALL.into_iter().zip(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_in_their_order_and_names_differ() {
        for (place, resource) in Resource::ALL.into_iter().enumerate() {
            assert_eq!(resource as usize, place);
            let same = Resource::ALL.iter().filter(|other| other.name() == resource.name());
            assert_eq!(same.count(), 1, "{}", resource.name());
        }
    }

    #[test]
    fn amounts_add_up() {
        let before = Usage::default().with(Resource::Gets, 3).with(Resource::CpuNs, 9);
        let after = before.with(Resource::Gets, 10);
        let grown = after.since(&before);
        assert_eq!(grown, Usage::default().with(Resource::Gets, 7));
        assert!(before.since(&after).is_zero() && !grown.is_zero());
        let mut totals = Totals::default();
        totals.add(&grown);
        totals.add(&Usage::default().with(Resource::Gets, u64::MAX));
        assert_eq!(totals.get(Resource::Gets), u128::from(u64::MAX) + 7);
    }
}
