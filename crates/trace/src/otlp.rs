//! Spans as OTLP writes them in JSON (OpenTelemetry Protocol 1.5, "JSON Protobuf Encoding").

use serde_json::{Value, json};

use crate::span::{Attribute, Span};

/// `SPAN_KIND_SERVER` and `SPAN_KIND_PRODUCER` of the protocol.
const SERVER: u8 = 2;
const PRODUCER: u8 = 4;

/// `STATUS_CODE_ERROR` of the protocol.
const ERROR: u8 = 2;

/// The body of a request with these spans of the broker of this name.
pub fn otlp_request(spans: &[Span], broker: &str, version: &str) -> String {
    let resource =
        [("service.name", "postroad"), ("service.instance.id", broker), ("service.version", version)];
    let resource: Vec<Value> =
        resource.iter().map(|(name, text)| attribute(name, &Attribute::Text((*text).to_owned()))).collect();
    let spans: Vec<Value> = spans.iter().map(span).collect();
    let scope = json!({ "scope": { "name": "postroad", "version": version }, "spans": spans });
    let body =
        json!({ "resourceSpans": [{ "resource": { "attributes": resource }, "scopeSpans": [scope] }] });
    body.to_string()
}

fn span(span: &Span) -> Value {
    let attributes: Vec<Value> = span.attributes.iter().map(|(name, value)| attribute(name, value)).collect();
    let mut written = json!({
        "traceId": format!("{:032x}", span.trace_id),
        "spanId": format!("{:016x}", span.span_id),
        "name": span.name,
        "kind": if span.is_intake { SERVER } else { PRODUCER },
        // Numbers of 64 bits are text in JSON.
        "startTimeUnixNano": nanos(span.began_us),
        "endTimeUnixNano": nanos(span.ended_us),
        "attributes": attributes,
        "flags": 1,
    });
    if let Some(parent) = span.parent_id {
        written["parentSpanId"] = format!("{parent:016x}").into();
    }
    if let Some(state) = &span.state {
        written["traceState"] = (&**state).into();
    }
    if let Some(failure) = span.failure {
        written["status"] = json!({ "code": ERROR, "message": failure });
    }
    written
}

fn nanos(micros: u64) -> String {
    (u128::from(micros) * 1000).to_string()
}

fn attribute(name: &str, value: &Attribute) -> Value {
    let value = match value {
        Attribute::Text(text) => json!({ "stringValue": text }),
        Attribute::Number(number) => json!({ "intValue": number.to_string() }),
    };
    json!({ "key": name, "value": value })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_written_as_the_protocol_says() {
        let span = Span {
            trace_id: 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736,
            span_id: 0xf0,
            parent_id: Some(1),
            state: Some("a=1".into()),
            name: "deliver orders".to_owned(),
            is_intake: false,
            began_us: 1_700_000_000_000_001,
            ended_us: 1_700_000_000_000_002,
            attributes: vec![
                ("messaging.system".to_owned(), Attribute::Text("postroad".to_owned())),
                ("postroad.stage.client_us".to_owned(), Attribute::Number(7)),
            ],
            failure: Some("expired"),
        };
        let body: Value = serde_json::from_str(&otlp_request(&[span], "b1", "0.1.0")).unwrap();
        let of = &body["resourceSpans"][0];
        assert_eq!(of["resource"]["attributes"][1]["value"]["stringValue"], "b1");
        let want = json!({
            "traceId": "4bf92f3577b34da6a3ce929d0e0e4736",
            "spanId": "00000000000000f0",
            "parentSpanId": "0000000000000001",
            "traceState": "a=1",
            "name": "deliver orders",
            "kind": 4,
            "startTimeUnixNano": "1700000000000001000",
            "endTimeUnixNano": "1700000000000002000",
            "attributes": [
                { "key": "messaging.system", "value": { "stringValue": "postroad" } },
                { "key": "postroad.stage.client_us", "value": { "intValue": "7" } },
            ],
            "flags": 1,
            "status": { "code": 2, "message": "expired" },
        });
        assert_eq!(of["scopeSpans"][0]["spans"][0], want);
    }
}
