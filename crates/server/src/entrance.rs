//! The listeners at which connections come in: their protocol and their tenant.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ipnet::IpNet;
use tidemark_types::TenantName;

/// Which protocol a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Protocol {
    /// memcached's text and meta protocols.
    Memcached,
    /// RESP, versions 2 and 3.
    Redis,
}

impl Protocol {
    /// Its name in options, messages and the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memcached => "memcached",
            Self::Redis => "redis",
        }
    }
}

/// A listener whose connections belong to a tenant without a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TenantListener {
    /// The protocol of its clients.
    pub protocol: Protocol,
    /// The address of the listener; port 0 asks the system for one.
    pub address: SocketAddr,
    /// The tenant of its connections. While there is no such tenant, they must log in.
    pub tenant: TenantName,
}

/// The properties that a listener gives to its connections.
#[derive(Clone, Debug)]
pub(crate) struct Entrance {
    pub(crate) protocol: Protocol,
    /// The tenant of its connections without a login; `None`: the open tenant, if they come from this machine.
    pub(crate) tenant: Option<Arc<TenantName>>,
}

/// The addresses that may connect to tenants' listeners: this machine and these networks.
#[derive(Debug, Default)]
pub(crate) struct Allowed(Box<[IpNet]>);

impl Allowed {
    pub(crate) fn new(networks: &[IpNet]) -> Self {
        Self(networks.into())
    }

    pub(crate) fn has(&self, peer: IpAddr) -> bool {
        // A client of IPv4 comes to a listener of IPv6 with its address mapped (RFC 4291, 2.5.5.2).
        let peer = peer.to_canonical();
        peer.is_loopback() || self.0.iter().any(|network| network.contains(&peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_and_the_networks_may_connect() {
        let allowed = Allowed::new(&["10.1.0.0/16".parse().unwrap(), "fd00::/8".parse().unwrap()]);
        for (peer, expected) in [
            ("127.0.0.1", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("10.1.2.3", true),
            ("::ffff:10.1.2.3", true),
            ("10.2.0.1", false),
            ("fd12::1", true),
            ("2001:db8::1", false),
        ] {
            assert_eq!(allowed.has(peer.parse().unwrap()), expected, "{peer}");
        }
        assert!(!Allowed::default().has("10.1.2.3".parse().unwrap()));
    }
}
