//! Loads as a model sees them.

use tidemark_types::{LoadShape, TenantSnapshot};

/// The inputs that a model can take of a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Input {
    /// Mean bytes of the keys that are written.
    KeyBytes,
    /// Mean bytes of their values.
    ValueBytes,
    /// Gets as a part of gets and writes.
    ReadShare,
    /// The exponent of the popularity of keys (Zipf): 0 is uniform.
    Skew,
    /// Commands per second.
    Rate,
    /// Commands that a connection sends at a time, on average.
    Pipeline,
    /// Commands that arrive at a time on all connections, on average.
    Burst,
    /// Found keys as a part of gets.
    HitRatio,
    /// Commands of RESP as a part of all; the rest is memcached's.
    RespShare,
    /// Open connections.
    Connections,
    /// Items that are stored: what of them is looked up is the less in the processor's caches the more there are.
    Items,
}

impl Input {
    /// All of them, in the order in which a [`Load`] holds them.
    pub const ALL: [Self; 11] = [
        Self::KeyBytes,
        Self::ValueBytes,
        Self::ReadShare,
        Self::Skew,
        Self::Rate,
        Self::Pipeline,
        Self::Burst,
        Self::HitRatio,
        Self::RespShare,
        Self::Connections,
        Self::Items,
    ];

    /// The name in model files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeyBytes => "key_bytes",
            Self::ValueBytes => "value_bytes",
            Self::ReadShare => "read_share",
            Self::Skew => "skew",
            Self::Rate => "rate",
            Self::Pipeline => "pipeline",
            Self::Burst => "burst",
            Self::HitRatio => "hit_ratio",
            Self::RespShare => "resp_share",
            Self::Connections => "connections",
            Self::Items => "items",
        }
    }

    /// By its name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|input| input.name() == name)
    }

    /// Whether it counts bytes, which all cost about the same.
    pub(super) const fn is_bytes(self) -> bool {
        matches!(self, Self::KeyBytes | Self::ValueBytes)
    }

    /// A value on the scale on which its effect is about even: of what spans decades, the logarithm; shares and the skew as they
    /// are. Value bytes stay as they are too, because what is copied costs in proportion to them.
    pub fn scaled(self, value: f64) -> f64 {
        match self {
            Self::Rate | Self::Pipeline | Self::Burst | Self::Connections | Self::Items => value.max(0.0).ln_1p(),
            Self::KeyBytes | Self::ValueBytes | Self::ReadShare | Self::Skew | Self::HitRatio | Self::RespShare => {
                value
            }
        }
    }
}

/// A load: what is known of each input.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load([Option<f64>; Input::ALL.len()]);

impl Load {
    /// The value of an input, a finite number, if it is known.
    pub fn get(&self, input: Input) -> Option<f64> {
        self.0[input as usize]
    }

    /// The load with this value of an input. A value that is not finite counts as not known.
    #[must_use]
    pub fn with(mut self, input: Input, value: Option<f64>) -> Self {
        self.0[input as usize] = value.filter(|value| value.is_finite());
        self
    }
}

/// The holdings of a tenant at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Present {
    /// Open connections.
    pub connections: u64,
    /// Stored items.
    pub items: u64,
}

impl Present {
    /// The holdings of a tenant at a snapshot.
    pub fn of(report: &TenantSnapshot) -> Self {
        Self {
            connections: report.connections,
            items: report.items,
        }
    }
}

/// The requests of a tenant, in counts that never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Commands executed at the sockets.
    pub operations: u64,
    /// Those of RESP.
    pub resp_operations: u64,
    /// Keys looked up.
    pub gets: u64,
    /// Those that were found.
    pub hits: u64,
    /// Items written.
    pub sets: u64,
    /// How commands came, and what they wrote.
    pub shape: LoadShape,
}

impl Work {
    /// All that a tenant did until a snapshot.
    pub fn of(report: &TenantSnapshot) -> Self {
        let of = |protocol: &str| -> u64 {
            let commands = report.commands.iter().filter(|count| count.protocol == protocol);
            commands.map(|count| count.count).sum()
        };
        let counters = &report.counters;
        Self {
            // Models are of the sockets' commands.
            operations: counters.operations.saturating_sub(of("s3")),
            resp_operations: of("redis"),
            gets: counters.gets,
            hits: counters.hits,
            sets: counters.sets,
            shape: counters.shape,
        }
    }

    /// The growth of each over an earlier count.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        let (shape, shape_before) = (&self.shape, &before.shape);
        Self {
            operations: self.operations.saturating_sub(before.operations),
            resp_operations: self.resp_operations.saturating_sub(before.resp_operations),
            gets: self.gets.saturating_sub(before.gets),
            hits: self.hits.saturating_sub(before.hits),
            sets: self.sets.saturating_sub(before.sets),
            shape: LoadShape {
                visits: shape.visits.saturating_sub(shape_before.visits),
                arrivals: shape.arrivals.saturating_sub(shape_before.arrivals),
                written_key_bytes: shape.written_key_bytes.saturating_sub(shape_before.written_key_bytes),
                written_value_bytes: shape
                    .written_value_bytes
                    .saturating_sub(shape_before.written_value_bytes),
            },
        }
    }

    /// The load over a time. A tenant that wrote nothing in it reads earlier values: `all` is everything since the
    /// beginning.
    pub fn load(&self, all: &Self, seconds: f64, present: Present) -> Load {
        let ratio = |part: u64, whole: u64| (whole > 0).then(|| part as f64 / whole as f64);
        let mean = |bytes: fn(&LoadShape) -> u64| {
            let of = |work: &Self| ratio(bytes(&work.shape), work.sets);
            of(self).or_else(|| of(all))
        };
        // Visits are counted a little later than their commands: there were never more of them than commands.
        let each = |times: u64| ratio(self.operations, times).map(|commands| commands.max(1.0));
        Load::default()
            .with(Input::KeyBytes, mean(|shape| shape.written_key_bytes))
            .with(Input::ValueBytes, mean(|shape| shape.written_value_bytes))
            .with(Input::ReadShare, ratio(self.gets, self.gets + self.sets))
            .with(Input::Rate, Some(self.operations as f64 / seconds))
            .with(Input::Pipeline, each(self.shape.visits))
            .with(Input::Burst, each(self.shape.arrivals))
            .with(Input::HitRatio, ratio(self.hits, self.gets))
            .with(
                Input::RespShare,
                ratio(self.resp_operations.min(self.operations), self.operations),
            )
            .with(Input::Connections, Some(present.connections as f64))
            .with(Input::Items, Some(present.items as f64))
    }
}
