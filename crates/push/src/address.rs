//! Which addresses are inside of this host. A webhook's URL is written by any user that may set it up. The address that
//! it names may change with each look-up. So each address is judged, and then connected to.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

/// Whether an address is inside of this host, or is nobody's in particular: loopback, unspecified, link-local (where clouds have
/// their metadata services), multicast and broadcast.
pub(crate) fn is_special(ip: IpAddr) -> bool {
    let is_special_v4 = |ip: Ipv4Addr| {
        ip.is_loopback()
            || ip.is_link_local()
            || ip.is_multicast()
            || ip.is_broadcast()
            // "This network" (RFC 791, 3.2): Linux takes 0.0.0.0 for itself.
            || ip.octets()[0] == 0
    };
    match ip {
        IpAddr::V4(ip) => is_special_v4(ip),
        IpAddr::V6(ip) => {
            ip.is_loopback()
                || ip.is_unspecified()
                || ip.is_multicast()
                || ip.is_unicast_link_local()
                || embedded(ip).is_some_and(is_special_v4)
        }
    }
}

/// The address of version 4 that one of version 6 stands for. It is mapped or compatible (RFC 4291, 2.5.5), or one that
/// a translator makes of it (RFC 6052, 2.1).
fn embedded(ip: Ipv6Addr) -> Option<Ipv4Addr> {
    let segments = ip.segments();
    let last = || {
        let [high, low] = [segments[6].to_be_bytes(), segments[7].to_be_bytes()];
        Ipv4Addr::new(high[0], high[1], low[0], low[1])
    };
    match segments {
        [0, 0, 0, 0, 0, 0 | 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => Some(last()),
        _ => None,
    }
}

/// Whether an address is this host's own: then the system would send to it from that very address. No packet is sent for this.
fn is_own(address: SocketAddr) -> io::Result<bool> {
    let any: IpAddr = match address {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect((address.ip(), if address.port() == 0 { 9 } else { address.port() }))?;
    Ok(socket.local_addr()?.ip() == address.ip())
}

/// Whether an address is inside of this host. One that cannot be judged counts as inside.
pub(crate) fn is_inside(address: SocketAddr) -> bool {
    is_special(address.ip()) || is_own(address).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_inside_are_known_however_they_are_written() {
        for (text, expected) in [
            ("127.0.0.1", true),
            ("127.8.9.10", true),
            ("0.0.0.0", true),
            ("0.1.2.3", true),
            ("169.254.169.254", true),
            ("224.0.0.1", true),
            ("255.255.255.255", true),
            ("::1", true),
            ("::", true),
            ("fe80::1", true),
            ("ff02::1", true),
            ("::ffff:127.0.0.1", true),
            ("::127.0.0.1", true),
            ("64:ff9b::7f00:1", true),
            ("::ffff:169.254.169.254", true),
            ("10.0.0.1", false),
            ("192.168.1.1", false),
            ("198.51.100.7", false),
            ("::ffff:198.51.100.7", false),
            ("2001:db8::1", false),
            ("fd00::1", false),
        ] {
            assert_eq!(is_special(text.parse().unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn the_host_s_own_addresses_are_inside() {
        // By what address this machine would be seen from elsewhere, if it has a network.
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        if socket.connect("198.51.100.7:9").is_ok() {
            let own = socket.local_addr().unwrap().ip();
            assert!(is_inside(SocketAddr::new(own, 80)), "{own}");
        }
        assert!(is_inside("127.0.0.1:80".parse().unwrap()));
    }
}
