//! Trace contexts, as clients send them: W3C Trace Context, and the header of AWS X-Ray.

/// Bytes of a `tracestate` that are kept; a longer one is dropped whole (W3C Trace Context, section
/// 3.3.1.5 asks for 512 at least).
const STATE_BYTES_MAX: usize = 512;

/// The place of a message in the trace of its sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceContext {
    /// The trace; never zero.
    pub trace_id: u128,
    /// The sender's span; never zero.
    pub parent_id: u64,
    /// The sender records this trace.
    pub sampled: bool,
    /// The state of tracing systems, passed on as it is.
    pub state: Option<Box<str>>,
}

impl TraceContext {
    /// Reads `traceparent` (W3C Trace Context, section 3.2) and `tracestate`. `None` if the first
    /// is malformed: the message then counts as one without a context.
    pub fn parse(parent: &str, state: Option<&str>) -> Option<TraceContext> {
        let bytes = parent.as_bytes();
        let (version, rest) = (parent.get(..2)?, parent.get(2..)?);
        let version = number(version)?;
        let fields = (rest.get(1..33)?, rest.get(34..50)?, rest.get(51..53)?);
        let has_dashes = [2, 35, 52].into_iter().all(|at| bytes.get(at) == Some(&b'-'));
        // A later version may have more, after a dash.
        let ends = match bytes.len() {
            55 => version != 0xff,
            _ => version != 0 && version != 0xff && bytes.get(55) == Some(&b'-'),
        };
        if !has_dashes || !ends {
            return None;
        }
        let (trace_id, parent_id) = (number(fields.0)?, u64::try_from(number(fields.1)?).ok()?);
        let sampled = number(fields.2)? & 1 == 1;
        let state = state.filter(|state| !state.is_empty() && state.len() <= STATE_BYTES_MAX);
        let context = TraceContext { trace_id, parent_id, sampled, state: state.map(Into::into) };
        (trace_id != 0 && parent_id != 0).then_some(context)
    }

    /// Reads the header of AWS X-Ray: `Root=1-<8 hex>-<24 hex>;Parent=<16 hex>;Sampled=1`, in any
    /// order. `None` if it has no root or no parent, or if they are malformed.
    pub fn parse_aws(header: &str) -> Option<TraceContext> {
        let (mut trace_id, mut parent_id, mut sampled) = (None, None, false);
        for part in header.split(';') {
            match part.trim().split_once('=')? {
                ("Root", root) => {
                    let (version, rest) = root.split_once('-')?;
                    let (time, unique) = rest.split_once('-')?;
                    let is_regular = version == "1" && time.len() == 8 && unique.len() == 24;
                    trace_id = if is_regular { number(&format!("{time}{unique}")) } else { return None };
                }
                ("Parent", parent) if parent.len() == 16 => parent_id = number(parent),
                ("Sampled", flag) => sampled = flag == "1",
                _ => {}
            }
        }
        let (trace_id, parent_id) = (trace_id?, u64::try_from(parent_id?).ok()?);
        let context = TraceContext { trace_id, parent_id, sampled, state: None };
        (trace_id != 0 && parent_id != 0).then_some(context)
    }
}

/// Lower-case hexadecimal digits alone.
fn number(digits: &str) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if !digits.bytes().all(is_digit) {
        return None;
    }
    u128::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
    const PARENT: u64 = 0x00f0_67aa_0ba9_02b7;

    fn context(sampled: bool) -> Option<TraceContext> {
        Some(TraceContext { trace_id: TRACE, parent_id: PARENT, sampled, state: None })
    }

    #[test]
    fn traceparent_is_read_as_the_standard_writes_it() {
        for (name, header, want) in [
            ("sampled", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", context(true)),
            ("not sampled", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", context(false)),
            ("other flags", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03", context(true)),
            ("a later version", "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", context(true)),
            ("version 0 has no more", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x", None),
            ("version ff", "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
            ("upper case", "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01", None),
            ("no trace", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", None),
            ("no parent", "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", None),
            ("a sign is no digit", "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
            ("too short", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-1", None),
            ("no dash", "00-4bf92f3577b34da6a3ce929d0e0e4736x00f067aa0ba902b7-01", None),
            ("not ASCII", "00-4bf92f3577b34da6a3ce929d0e0e473é-00f067aa0ba902b7-01", None),
            ("cut in a character", "0é-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", None),
            ("empty", "", None),
        ] {
            assert_eq!(TraceContext::parse(header, None), want, "case: {name}");
        }
    }

    #[test]
    fn tracestate_is_kept_up_to_its_bound() {
        let header = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let (most, more) = ("x".repeat(STATE_BYTES_MAX), "x".repeat(STATE_BYTES_MAX + 1));
        for (state, want) in [("a=1", Some("a=1")), ("", None), (&most, Some(&*most)), (&more, None)] {
            let context = TraceContext::parse(header, Some(state)).unwrap();
            assert_eq!(context.state.as_deref(), want, "{} bytes", state.len());
        }
    }

    #[test]
    fn the_header_of_x_ray_is_read() {
        let aws = |sampled| {
            let trace_id = 0x5759_e988_bd86_2e3f_e1be_46a9_9427_2793;
            Some(TraceContext { trace_id, parent_id: 0x5399_5c3f_42cd_8ad8, sampled, state: None })
        };
        for (name, header, want) in [
            ("all", "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Sampled=1", aws(true)),
            (
                "order",
                "Sampled=0; Parent=53995c3f42cd8ad8;Root=1-5759e988-bd862e3fe1be46a994272793",
                aws(false),
            ),
            (
                "more",
                "Root=1-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8;Lineage=a",
                aws(false),
            ),
            ("no parent", "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1", None),
            ("other version", "Root=2-5759e988-bd862e3fe1be46a994272793;Parent=53995c3f42cd8ad8", None),
            ("short root", "Root=1-5759e988-bd;Parent=53995c3f42cd8ad8", None),
            ("no pairs", "hello", None),
        ] {
            assert_eq!(TraceContext::parse_aws(header), want, "case: {name}");
        }
    }
}
