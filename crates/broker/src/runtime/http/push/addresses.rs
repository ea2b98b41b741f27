//! Addresses to which the broker pushes. A client may subscribe any URL, so addresses that are not
//! public are refused unless the configuration allows them.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// A range of addresses: `10.1.0.0/16`, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u32,
}

impl Network {
    fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let mask = u32::MAX.checked_shl(32 - self.bits).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let mask = u128::MAX.checked_shl(128 - self.bits).unwrap_or(0);
                own.to_bits() & mask == other.to_bits() & mask
            }
            _ => false,
        }
    }
}

/// It is no range of addresses.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is not an address or network: use a form such as 10.1.2.3, 10.1.0.0/16 or fd00::/8")]
pub struct NoNetwork(String);

impl FromStr for Network {
    type Err = NoNetwork;

    fn from_str(text: &str) -> Result<Network, NoNetwork> {
        let wrong = || NoNetwork(text.to_owned());
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u32>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(bits_max);
        match bits <= bits_max {
            true => Ok(Network { address, bits }),
            false => Err(wrong()),
        }
    }
}

impl fmt::Display for Network {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.bits)
    }
}

/// Ranges that are allowed beside public addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(pub Vec<Network>);

impl Networks {
    /// Whether the broker may connect to this address.
    pub fn allow(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        is_public(address) || self.0.iter().any(|network| network.contains(address))
    }

    /// Those that are allowed.
    pub fn allowed(&self, addresses: impl Iterator<Item = SocketAddr>) -> Vec<SocketAddr> {
        addresses.filter(|address| self.allow(address.ip())).collect()
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Ranges by the IANA registry of special-purpose addresses.
fn is_public_v4(address: Ipv4Addr) -> bool {
    let octets = address.octets();
    let is_special = match octets {
        // This network, loopback, multicast and reserved ranges.
        [0 | 127 | 224.., ..] => true,
        // Shared by carriers.
        [100, second, ..] => second & 0xc0 == 64,
        // Protocol assignments, and measurements.
        [192, 0, 0, _] | [198, 18 | 19, ..] => true,
        _ => address.is_private() || address.is_link_local() || address.is_documentation(),
    };
    !is_special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low));
    match segments {
        // Translated addresses (RFC 6052), and 6to4: those inside of them count.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => is_public_v4(embedded(high, low)),
        // Teredo, documentation, and the rest of 2001::/23.
        [0x2001, 0..=0x1ff | 0xdb8, ..] => false,
        // Global unicast alone is public.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_public_is_refused_unless_allowed() {
        let none = Networks::default();
        for (address, want) in [
            ("93.184.216.34", true),
            ("2606:2800:220:1::1", true),
            ("127.0.0.1", false),
            ("10.0.0.1", false),
            ("172.16.0.1", false),
            ("172.32.0.1", true),
            ("192.168.1.1", false),
            ("169.254.169.254", false),
            ("100.64.0.1", false),
            ("100.128.0.1", true),
            ("0.0.0.0", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("198.18.0.1", false),
            ("::1", false),
            ("::", false),
            ("fd00::1", false),
            ("fe80::1", false),
            ("ff02::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:93.184.216.34", true),
            ("64:ff9b::7f00:1", false),
            ("2002:7f00:1::", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(none.allow(address.parse().unwrap()), want, "{address}");
        }
        let some = Networks(vec!["127.0.0.0/8".parse().unwrap(), "fd00::/8".parse().unwrap()]);
        for (address, want) in
            [("127.1.2.3", true), ("::ffff:127.0.0.1", true), ("fd12::1", true), ("10.0.0.1", false)]
        {
            assert_eq!(some.allow(address.parse().unwrap()), want, "{address}");
        }
    }

    #[test]
    fn networks_are_read() {
        for (text, want) in [("10.0.0.0/8", Some("10.0.0.0/8")), ("10.1.2.3", Some("10.1.2.3/32"))] {
            assert_eq!(text.parse::<Network>().ok().map(|network| network.to_string()).as_deref(), want);
        }
        for text in ["", "10.0.0.0/33", "host", "::/129", "1.2.3.4/x"] {
            assert!(text.parse::<Network>().is_err(), "{text}");
        }
        let all: Network = "0.0.0.0/0".parse().unwrap();
        assert!(all.contains(IpAddr::from([1, 2, 3, 4])));
    }
}
