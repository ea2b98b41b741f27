//! The OpenAPI 3.1 document of the API, made from one table of its operations.

mod schemas;

use serde_json::{Map, Value, json};

use crate::call::{PER_PAGE, RESERVED_MAX};

/// The path of the document.
pub const OPENAPI_PATH: &str = "/3/openapi.json";

/// All paths begin with it.
const BASE: &str = "/3/projects/{project}/queues";

/// One operation.
struct Operation {
    method: &'static str,
    /// Below [`BASE`].
    path: &'static str,
    summary: &'static str,
    /// The schema of the request's body, and whether it must be there.
    takes: Option<(&'static str, bool)>,
    /// The status of success, and the schema of its body.
    gives: (u16, &'static str),
    /// Statuses of errors beside those of all operations.
    refuses: &'static [u16],
}

/// Errors that any operation may answer.
const ERRORS: &[u16] = &[400, 401, 403, 408, 413, 415, 503];

const QUEUE: &str = "/{queue}";
const SUBSCRIBERS: &str = "/{queue}/subscribers";
const ALERTS: &str = "/{queue}/alerts";
const MESSAGES: &str = "/{queue}/messages";
const MESSAGE: &str = "/{queue}/messages/{message}";

/// All of them.
const OPERATIONS: &[Operation] = &[
    of("get", "", "Names of queues, in order", None, (200, "Names")),
    of("put", QUEUE, "Make a queue, or change it", Some(("Change", false)), (200, "Queue")),
    of("get", QUEUE, "Settings and size of a queue", None, (200, "Queue")),
    of("patch", QUEUE, "Change a queue; alerts are added", Some(("Change", false)), (200, "Queue")),
    of("delete", QUEUE, "Delete a queue with its messages", None, (200, "Done")),
    of("post", SUBSCRIBERS, "Add or update subscribers", Some(("Subscribers", true)), (200, "Done")),
    of("put", SUBSCRIBERS, "Replace all subscribers", Some(("Subscribers", true)), (200, "Done")),
    of("delete", SUBSCRIBERS, "Remove subscribers by name", Some(("Named", true)), (200, "Done")),
    of("post", ALERTS, "Add alerts", Some(("Alerts", true)), (200, "Done")),
    of("put", ALERTS, "Replace all alerts", Some(("Alerts", true)), (200, "Done")),
    of("delete", ALERTS, "Remove alerts; without a list all", Some(("Chosen", false)), (200, "Done")),
    of("delete", "/{queue}/alerts/{alert}", "Remove an alert", None, (200, "Done")),
    of("post", MESSAGES, "Post messages, all or none", Some(("Posted", true)), (201, "Ids")),
    of("get", MESSAGES, "Look at messages that are not reserved", None, (200, "Messages")),
    of("delete", MESSAGES, "Delete messages; without a list all", Some(("Deleted", false)), (200, "Done")),
    of("get", MESSAGE, "One message", None, (200, "Message")),
    of("delete", MESSAGE, "Delete a message", Some(("Reservation", false)), (200, "Done")),
    of(
        "post",
        "/{queue}/messages/{message}/touch",
        "Reserve a message for longer",
        Some(("Touch", true)),
        (200, "Touched"),
    ),
    of(
        "post",
        "/{queue}/messages/{message}/release",
        "Give a message back",
        Some(("Release", true)),
        (200, "Done"),
    ),
    of(
        "get",
        "/{queue}/messages/{message}/subscribers",
        "The progress of each subscriber of a push queue",
        None,
        (200, "PushStatuses"),
    ),
    of("post", "/{queue}/webhook", "Post the body as one message", Some(("Any", false)), (201, "Ids")),
    of("post", "/{queue}/reservations", "Reserve messages", Some(("Reserve", false)), (200, "Messages")),
];

const fn of(
    method: &'static str,
    path: &'static str,
    summary: &'static str,
    takes: Option<(&'static str, bool)>,
    gives: (u16, &'static str),
) -> Operation {
    // Only the list of names is about no queue.
    let refuses: &[u16] = if path.is_empty() { &[405] } else { &[404, 405] };
    Operation { method, path, summary, takes, gives, refuses }
}

/// The document.
pub fn openapi() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(format!("{BASE}{}", operation.path)).or_insert_with(|| json!({}));
        path[operation.method] = operation.written();
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "IronMQ v3 API of Postroad", "version": "3" },
        "paths": paths,
        "components": {
            "schemas": schemas::schemas(),
            "securitySchemes": {
                "header": {
                    "type": "apiKey", "in": "header", "name": "Authorization", "description": "OAuth TOKEN",
                },
                "query": { "type": "apiKey", "in": "query", "name": "oauth" },
            },
        },
        "security": [{ "header": [] }, { "query": [] }, {}],
    })
}

impl Operation {
    fn written(&self) -> Value {
        let names = ["project", "queue", "message", "alert"];
        let is_here = |name: &&str| *name == "project" || self.path.contains(&format!("{{{name}}}"));
        let in_path = names.into_iter().filter(is_here).map(
            |name| json!({ "name": name, "in": "path", "required": true, "schema": schemas::in_path(name) }),
        );
        let parameters: Vec<Value> = in_path.chain(self.query()).collect();
        let (status, schema) = self.gives;
        let mut responses = json!({ status.to_string(): response("done", schema) });
        for status in ERRORS.iter().chain(self.refuses) {
            responses[status.to_string()] = response("error", "Error");
        }
        let mut written =
            json!({ "summary": self.summary, "parameters": parameters, "responses": responses });
        if let Some((schema, required)) = self.takes {
            let content = match schema {
                "Any" => json!({ "text/plain": { "schema": { "type": "string" } } }),
                schema => json!({ "application/json": { "schema": reference(schema) } }),
            };
            written["requestBody"] = json!({ "required": required, "content": content });
        }
        written
    }

    fn query(&self) -> Vec<Value> {
        let parameter = |name: &str, schema: Value| json!({ "name": name, "in": "query", "schema": schema });
        let text = || json!({ "type": "string" });
        let number = |max: u64| json!({ "type": "integer", "minimum": 1, "maximum": max });
        match (self.method, self.path) {
            ("get", "") => vec![
                parameter("per_page", number(PER_PAGE.0)),
                parameter("previous", text()),
                parameter("prefix", text()),
            ],
            ("get", MESSAGES) => vec![parameter("n", number(RESERVED_MAX))],
            _ => Vec::new(),
        }
    }
}

fn response(description: &str, schema: &str) -> Value {
    let content = json!({ "application/json": { "schema": reference(schema) } });
    json!({ "description": description, "content": content })
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Call, Request};

    #[test]
    fn each_operation_of_the_document_is_one_of_the_api() {
        for operation in OPERATIONS {
            let path = format!("{BASE}{}", operation.path)
                .replace("{project}", "p")
                .replace("{queue}", "q")
                .replace("{message}", "18446744073709551617")
                .replace("{alert}", "1");
            let method = operation.method.to_uppercase();
            let request = Request { method: &method, path: &path, query: "", body: b"" };
            let parsed = Call::parse(&request);
            let is_known = parsed.as_ref().err().is_none_or(|error| error.status == 400);
            assert!(is_known, "{method} {path}: {parsed:?}");
        }
    }

    #[test]
    fn each_reference_has_its_schema() {
        let document = openapi();
        let text = document.to_string();
        for rest in text.split("#/components/schemas/").skip(1) {
            let name = rest.split('"').next().unwrap();
            assert!(document["components"]["schemas"][name].is_object(), "{name}");
        }
    }
}
