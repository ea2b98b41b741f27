//! The schemas of bodies.

use serde_json::{Value, json};

use super::reference;
use crate::alerts::{ALERTS_MAX, SNOOZE_S_MAX, TRIGGER_MAX};
use crate::call::{DELETED_MAX, POSTED_MAX, RESERVED_MAX, TraceHeaders, WAIT_S_MAX};
use crate::id::NAME_CHARS_MAX;
use crate::push;
use crate::settings::{EXPIRATION_S, EXPIRATION_S_MAX, TIMEOUT_S_MAX};

/// The schema of a parameter in the path.
pub fn in_path(name: &str) -> Value {
    match name {
        "project" | "queue" => queue_name(),
        _ => json!({ "type": "string", "minLength": 1, "pattern": "^[0-9]+$" }),
    }
}

pub fn schemas() -> Value {
    let mut all = of_queues();
    for part in [of_changes(), of_requests(), of_answers()] {
        if let (Value::Object(all), Value::Object(part)) = (&mut all, part) {
            all.extend(part);
        }
    }
    all
}

fn queue_name() -> Value {
    let name = "^[^\\u0000-\\u001F\\u007F-\\u009F]+$";
    json!({ "type": "string", "minLength": 1, "maxLength": NAME_CHARS_MAX, "pattern": name })
}

fn trace_header(name: &str) -> Value {
    let description = format!("As the header {name} of the request, for this message (W3C Trace Context)");
    json!({ "type": "string", "maxLength": TraceHeaders::BYTES_MAX, "description": description })
}

fn number(min: u64, max: u64) -> Value {
    json!({ "type": "integer", "minimum": min, "maximum": max })
}

fn list(schema: &str, min: usize, max: usize) -> Value {
    json!({ "type": "array", "items": reference(schema), "minItems": min, "maxItems": max })
}

fn object(required: &[&str], properties: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": properties })
}

/// Parts of a queue.
fn of_queues() -> Value {
    json!({
        "Settings": object(&[], json!({
            "type": { "enum": ["pull", "multicast", "unicast"] },
            "message_timeout": number(1, TIMEOUT_S_MAX),
            "message_expiration": number(1, EXPIRATION_S_MAX),
            "dead_letter": object(&[], json!({
                "queue_name": { "type": "string", "description": "Empty: none" },
                "max_reservations": number(1, u64::from(u32::MAX)),
            })),
            "push": reference("Push"),
            "alerts": list("Alert", 0, ALERTS_MAX),
        })),
        "Push": object(&[], json!({
            "subscribers": list("Subscriber", 0, push::SUBSCRIBERS_MAX),
            "retries": number(0, push::RETRIES.1),
            "retries_delay": number(1, push::RETRIES_DELAY_S.1),
            "error_queue": { "type": "string", "description": "Empty: none" },
            "timeout": number(1, push::TIMEOUT_S_MAX),
            "concurrency": number(1, push::CONCURRENCY.1),
            "rate_limit": number(0, push::RATE_MAX),
        })),
        "Subscriber": object(&["url"], json!({
            "name": { "type": "string", "maxLength": push::NAME_CHARS_MAX },
            "url": {
                "type": "string", "maxLength": push::URL_CHARS_MAX,
                "pattern": "^(https?://[!-~]+|ironmq:///[!-~]+)$",
            },
            "headers": reference("Headers"),
        })),
        "Headers": {
            "type": "object", "maxProperties": push::HEADERS_MAX,
            "additionalProperties": { "type": "string", "maxLength": push::HEADER_CHARS_MAX },
        },
        "Alert": object(&["type", "trigger", "queue"], json!({
            "id": { "type": "string", "description": "Given by the broker" },
            "type": { "enum": ["fixed", "progressive"] },
            "direction": { "enum": ["asc", "desc"] },
            "trigger": number(1, TRIGGER_MAX),
            "queue": queue_name(),
            "snooze": number(0, SNOOZE_S_MAX),
        })),
    })
}

/// Requests that change a queue.
fn of_changes() -> Value {
    let by_name = json!({ "type": "array", "items": object(&["name"], json!({
        "name": { "type": "string" },
    })) });
    json!({
        "Change": object(&[], json!({ "queue": reference("Settings") })),
        "Subscribers": object(&["subscribers"], json!({
            "subscribers": list("Subscriber", 0, push::SUBSCRIBERS_MAX),
        })),
        "Named": object(&["subscribers"], json!({ "subscribers": by_name })),
        "Alerts": object(&["alerts"], json!({ "alerts": list("Alert", 0, ALERTS_MAX) })),
        "Chosen": object(&[], json!({
            "alerts": { "type": "array", "items": object(&["id"], json!({ "id": { "type": "string" } })) },
        })),
    })
}

/// Requests about messages.
fn of_requests() -> Value {
    let id = json!({ "type": "string", "pattern": "^[0-9]+$" });
    let reservation = json!({
        "reservation_id": id,
        "subscriber_name": { "type": "string", "description": "Of a push queue" },
    });
    let mut deleted = reservation.clone();
    deleted["id"] = id.clone();
    json!({
        "Posted": object(&["messages"], json!({ "messages": list("NewMessage", 1, POSTED_MAX) })),
        "NewMessage": object(&["body"], json!({
            "body": { "type": "string" },
            "delay": number(0, EXPIRATION_S),
            "push_headers": reference("Headers"),
            "traceparent": trace_header("traceparent"),
            "tracestate": trace_header("tracestate"),
        })),
        "Reserve": object(&[], json!({
            "n": number(1, RESERVED_MAX),
            "timeout": number(0, TIMEOUT_S_MAX),
            "wait": number(0, WAIT_S_MAX),
            "delete": { "type": "boolean" },
        })),
        "Reservation": object(&[], reservation),
        "Deleted": object(&[], json!({
            "ids": {
                "type": "array", "minItems": 1, "maxItems": DELETED_MAX, "items": object(&["id"], deleted),
            },
        })),
        "Touch": object(&["reservation_id"], json!({
            "reservation_id": id, "timeout": number(1, TIMEOUT_S_MAX),
        })),
        "Release": object(&["reservation_id"], json!({
            "reservation_id": id, "delay": number(0, EXPIRATION_S),
        })),
    })
}

fn of_answers() -> Value {
    let (text, count) = (json!({ "type": "string" }), json!({ "type": "integer", "minimum": 0 }));
    let name = object(&["name"], json!({ "name": text }));
    let message = object(
        &["id", "body", "reserved_count"],
        json!({
            "id": text, "body": text, "reserved_count": count, "reservation_id": text,
        }),
    );
    let status = object(
        &["name", "url", "tries", "retries_remaining", "status_code"],
        json!({
            "name": text, "url": text, "tries": count, "retries_remaining": count, "status_code": count,
            "msg": text, "last_try_at": { "type": ["integer", "null"] },
        }),
    );
    json!({
        "Error": object(&["msg"], json!({ "msg": text })),
        "Done": object(&["msg"], json!({ "msg": text })),
        "Names": object(&["queues"], json!({ "queues": { "type": "array", "items": name } })),
        "Queue": object(&["queue"], json!({ "queue": {
            "allOf": [
                reference("Settings"),
                object(&["project_id", "name", "type"], json!({
                    "project_id": text, "name": text, "size": count, "total_messages": count,
                })),
            ],
        } })),
        "Ids": object(&["ids", "msg"], json!({
            "ids": { "type": "array", "items": text }, "msg": text,
        })),
        "Messages": object(&["messages"], json!({ "messages": { "type": "array", "items": message } })),
        "Message": object(&["message"], json!({ "message": message })),
        "Touched": object(&["reservation_id", "msg"], json!({ "reservation_id": text, "msg": text })),
        "PushStatuses": object(&["subscribers"], json!({
            "subscribers": { "type": "array", "items": status },
        })),
    })
}
