//! The header of one delivery: as the producer sent it, with the broker's changes.

use bytes::{Bytes, BytesMut};
use postroad_model::Message;

use crate::codec::{Field, Header, Reader, WireError};
use crate::message::sections::Section;

/// Typical bytes of a header, to reserve once.
const HEADER_BYTES: usize = 24;

/// The header of a delivery, encoded, and everything that follows the producer's own in `bytes`,
/// but for its delivery annotations: they were for us (3.2.2).
///
/// Delivery count and time to live change on the way (3.2.1), and an expiry that the broker set or
/// removed shows in the latter; `first-acquirer` is not claimed, for the message may have been with
/// another consumer; the rest is as the producer sent it. Defaults are not written.
///
/// # Errors
/// `bytes` begin with something else than sections.
pub fn delivery_header(
    bytes: &Bytes,
    message: &Message,
    failed_deliveries: u32,
    now_ms: u64,
) -> Result<(Bytes, Bytes), WireError> {
    let (sent, end) = leading_header(bytes)?;
    let header = sent.clone().unwrap_or_default();
    let header = Header {
        ttl: match message.expires_at_ms {
            0 => header.ttl.filter(|ttl| *ttl == 0),
            end_ms => Some(u32::try_from(end_ms.saturating_sub(now_ms)).unwrap_or(u32::MAX).max(1)),
        },
        first_acquirer: false,
        delivery_count: header.delivery_count.saturating_add(failed_deliveries),
        ..header
    };
    let rest = bytes.slice(behind_delivery_annotations(bytes, end)?..);
    if sent.as_ref() == Some(&header) {
        return Ok((bytes.slice(..end), rest));
    }
    let mut encoded = BytesMut::with_capacity(HEADER_BYTES);
    if sent.is_some() || header != Header::default() {
        header.write(&mut encoded);
    }
    Ok((encoded.freeze(), rest))
}

/// Where delivery annotations end that begin at `start`; there, if there are none.
fn behind_delivery_annotations(bytes: &Bytes, start: usize) -> Result<usize, WireError> {
    let code = Section::DeliveryAnnotations.code();
    // As nearly every section begins that is another one.
    if matches!(bytes.get(start..start + 3), Some([0, 0x53, other]) if *other != code) {
        return Ok(start);
    }
    let mut reader = Reader::at(bytes, start);
    if reader.is_empty() || Section::of(&reader.descriptor()?) != Some(Section::DeliveryAnnotations) {
        return Ok(start);
    }
    reader.skip()?;
    Ok(reader.offset())
}

/// The header that a message begins with, if it has one, and where it ends.
fn leading_header(bytes: &Bytes) -> Result<(Option<Header>, usize), WireError> {
    use crate::codec::Composite;
    let mut reader = Reader::new(bytes);
    if reader.is_empty() || !reader.descriptor()?.is::<Header>() {
        return Ok((None, 0));
    }
    let header = Header::read_list(&mut reader)?;
    Ok((Some(header), reader.offset()))
}

#[cfg(test)]
mod tests {
    use postroad_model::{Encoding, Protocol};

    use super::*;

    const BODY: &[u8] = b"\0\x53\x77\xa1\x01a";

    fn delivered(bytes: &[u8], failed: u32, expires_at_ms: u64) -> Vec<u8> {
        let bytes = Bytes::copy_from_slice(bytes);
        let message = Message {
            encoding: Encoding { protocol: Protocol::Amqp, version: 0 },
            persistent: true,
            priority: 4,
            expires_at_ms,
            rare: None,
            bytes: bytes.clone(),
        };
        let (header, rest) = delivery_header(&bytes, &message, failed, 1_000).unwrap();
        assert_eq!(rest, BODY);
        header.to_vec()
    }

    fn header(header: Header) -> Vec<u8> {
        let mut out = BytesMut::new();
        header.write(&mut out);
        out.to_vec()
    }

    #[test]
    fn the_header_says_what_happened_on_the_way_and_no_more() {
        let durable = Header { durable: true, ..Header::default() };
        let with_ttl = Header { ttl: Some(9_000), ..Header::default() };
        let endless = Header { ttl: Some(0), ..Header::default() };
        let sent = |of: &Header| [header(of.clone()), BODY.to_vec()].concat();
        let long = b"\0\x53\x70\xc0\x04\x03\x41\x40\x40".to_vec();
        for (case, bytes, failed, expires_at_ms, want) in [
            ("none, and nothing to say", BODY.to_vec(), 0, 0, vec![]),
            (
                "none, delivered before",
                BODY.to_vec(),
                2,
                0,
                header(Header { delivery_count: 2, ..Header::default() }),
            ),
            ("unchanged", sent(&durable), 0, 0, header(durable.clone())),
            ("unchanged to the byte", [long.clone(), BODY.to_vec()].concat(), 0, 0, long),
            ("counted", sent(&durable), 1, 0, header(Header { delivery_count: 1, ..durable.clone() })),
            (
                "counted on",
                sent(&Header { delivery_count: 3, ..durable.clone() }),
                1,
                0,
                header(Header { delivery_count: 4, ..durable.clone() }),
            ),
            (
                "time has passed",
                sent(&with_ttl),
                0,
                8_000,
                header(Header { ttl: Some(7_000), ..with_ttl.clone() }),
            ),
            (
                "the time is over",
                sent(&with_ttl),
                0,
                900,
                header(Header { ttl: Some(1), ..with_ttl.clone() }),
            ),
            (
                "an end that a policy gave",
                BODY.to_vec(),
                0,
                8_000,
                header(Header { ttl: Some(7_000), ..Header::default() }),
            ),
            ("delivery annotations stay here", [&b"\0\x53\x71\xc1\x01\0"[..], BODY].concat(), 0, 0, vec![]),
            (
                "behind a header, and named in full",
                [&header(durable.clone()), &b"\0\xa3\x1damqp:delivery-annotations:map\xc1\x01\0"[..], BODY]
                    .concat(),
                0,
                0,
                header(durable.clone()),
            ),
            ("a dead letter has none", sent(&with_ttl), 0, 0, header(Header::default())),
            ("endless by the producer's word", sent(&endless), 0, 0, header(endless.clone())),
            (
                "no claim",
                sent(&Header { first_acquirer: true, ..durable.clone() }),
                0,
                0,
                header(durable.clone()),
            ),
        ] {
            assert_eq!(delivered(&bytes, failed, expires_at_ms), want, "case: {case}");
        }
    }
}
