//! The OpenAPI 3.1 document of the API, made from one table of its operations.

use axum::Json;
use serde_json::{Map, Value, json};

/// One operation.
pub struct Operation {
    pub method: &'static str,
    pub path: &'static str,
    summary: &'static str,
    /// Parameters of the query.
    pub query: &'static [&'static str],
    /// The schema of the request's body.
    takes: Option<&'static str>,
    /// The status of success, and the schema of its body.
    gives: (u16, Option<&'static str>),
}

const PAGE: &[&str] = &["sort", "limit", "cursor"];

/// All of them.
pub const OPERATIONS: &[Operation] = &[
    read("/api/v1/broker", "The broker: name, version, uptime", &[], "Broker"),
    Operation {
        method: "post",
        path: "/api/v1/broker/drain",
        summary: "Refuse new connections and messages; deliveries go on",
        query: &[],
        takes: None,
        gives: (200, Some("Broker")),
    },
    Operation {
        method: "post",
        path: "/api/v1/broker/resume",
        summary: "End the draining",
        query: &[],
        takes: None,
        gives: (200, Some("Broker")),
    },
    read(
        "/api/v1/overview",
        "Figures of the whole broker now, an hour of their history, and alarms",
        &["history"],
        "Overview",
    ),
    read(
        "/api/v1/queues",
        "Queues and durable subscriptions, by name or a figure",
        &["filter", "sort", "limit", "cursor"],
        "Queues",
    ),
    read("/api/v1/queues/{queue}", "One queue", &[], "Queue"),
    Operation {
        method: "put",
        path: "/api/v1/queues/{queue}",
        summary: "Make a queue, if there is none of this name",
        query: &[],
        takes: None,
        gives: (201, None),
    },
    change("delete", "/api/v1/queues/{queue}", "Delete a queue without consumers, and all that it holds"),
    read("/api/v1/queues/{queue}/consumers", "Consumers of a queue", PAGE, "Consumers"),
    read(
        "/api/v1/queues/{queue}/messages",
        "Browse messages in the order of their delivery",
        &["selector", "text", "from_ms", "to_ms", "limit", "cursor", "body_bytes"],
        "Messages",
    ),
    Operation {
        method: "post",
        path: "/api/v1/queues/{queue}/messages",
        summary: "Send a message; confirmed once it is durable. topic://NAME sends to a topic",
        query: &[],
        takes: Some("ToSend"),
        gives: (201, Some("Sent")),
    },
    read("/api/v1/queues/{queue}/messages/{id}", "One message, by its JMSMessageID", &[], "Message"),
    change("delete", "/api/v1/queues/{queue}/messages/{id}", "Remove a message that no consumer has"),
    Operation {
        method: "post",
        path: "/api/v1/queues/{queue}/messages/{id}/copy",
        summary: "Copy a message to another queue or topic",
        query: &[],
        takes: Some("Move"),
        gives: (200, Some("Copied")),
    },
    Operation {
        method: "post",
        path: "/api/v1/queues/{queue}/messages/{id}/move",
        summary: "Move a message to another queue or topic, in one transaction",
        query: &[],
        takes: Some("Move"),
        gives: (200, Some("Moved")),
    },
    Operation {
        method: "post",
        path: "/api/v1/queues/{queue}/purge",
        summary: "Remove all messages that no consumer has",
        query: &[],
        takes: None,
        gives: (200, Some("Purged")),
    },
    change(
        "post",
        "/api/v1/queues/{queue}/pause",
        "Pause a queue: consumers stay attached and get nothing, sends go on",
    ),
    change("post", "/api/v1/queues/{queue}/resume", "Resume a paused queue"),
    Operation {
        method: "post",
        path: "/api/v1/queues/{queue}/redrive",
        summary: "Send dead letters back to the queues that they came from",
        query: &[],
        takes: Some("Redrive"),
        gives: (200, Some("Redriven")),
    },
    read(
        "/api/v1/queues/{queue}/explain",
        "Why the next message of a queue is not delivered, consumer by consumer",
        &[],
        "Explained",
    ),
    read(
        "/api/v1/queues/{queue}/messages/{id}/explain",
        "Why this message is not delivered, consumer by consumer",
        &[],
        "Explained",
    ),
    read(
        "/api/v1/messages/{id}/explain",
        "Which queues have this message, and why each does not deliver it",
        &[],
        "ExplainedMessage",
    ),
    read(
        "/api/v1/messages/{id}/trace",
        "Where this traced message spent its time, stage by stage",
        &[],
        "Trace",
    ),
    read(
        "/api/v1/redrives",
        "The last redrives that can be undone, the newest first",
        &["destination", "filter", "limit", "cursor"],
        "RedriveRecords",
    ),
    read("/api/v1/redrives/{id}", "One redrive: its targets, and its end", &[], "RedriveRecord"),
    Operation {
        method: "post",
        path: "/api/v1/redrives/{id}/undo",
        summary: "Move the messages of a redrive that still wait back to the dead letters",
        query: &[],
        takes: Some("UndoRedrive"),
        gives: (200, Some("Undone")),
    },
    read(
        "/api/v1/alerts",
        "Alerts that are pending or fire, by the names of their rules",
        &["filter", "limit", "cursor"],
        "Alerts",
    ),
    read(
        "/api/v1/ledger",
        "The counts of all queues, and the queues whose counts differ from their content",
        &[],
        "Ledger",
    ),
    read(
        "/api/v1/audit",
        "The last changes that operators made, and failed logins, the newest first",
        &["filter", "user", "failed", "from_ms", "to_ms", "limit", "cursor"],
        "Changes",
    ),
    read(
        "/api/v1/transactions",
        "Branches of XA transactions that are prepared, or that an operator has ended",
        &["filter", "limit", "cursor"],
        "Branches",
    ),
    change(
        "post",
        "/api/v1/transactions/{branch}/commit",
        "Commit a prepared branch, in place of its manager",
    ),
    change("post", "/api/v1/transactions/{branch}/rollback", "Roll a prepared branch back"),
    change(
        "delete",
        "/api/v1/transactions/{branch}",
        "Forget the outcome of a branch that an operator has ended",
    ),
    read(
        "/api/v1/configuration",
        "The settings in force, with the origin of each, by key",
        &["filter", "limit", "cursor"],
        "Settings",
    ),
    read(
        "/api/v1/configuration/diff",
        "Changes that the configuration file would make to the settings in force",
        &[],
        "Plan",
    ),
    Operation {
        method: "post",
        path: "/api/v1/configuration/plan",
        summary: "Changes that another configuration would make, and whether each needs a restart",
        query: &[],
        takes: Some("WantedConfiguration"),
        gives: (200, Some("Plan")),
    },
    Operation {
        method: "post",
        path: "/api/v1/configuration/apply",
        summary: "Replace the configuration file, and follow the changes that need no restart",
        query: &[],
        takes: Some("WantedConfiguration"),
        gives: (200, Some("Plan")),
    },
    Operation {
        method: "post",
        path: "/api/v1/configuration/reload",
        summary: "Read the configuration file again, and follow the changes that need no restart",
        query: &[],
        takes: None,
        gives: (200, Some("Plan")),
    },
    read(
        "/api/v1/configuration/history",
        "Versions of the configuration, the newest first",
        &["filter", "limit", "cursor"],
        "Versions",
    ),
    read(
        "/api/v1/configuration/history/{version}",
        "One version, with its text; secrets are masked",
        &[],
        "VersionText",
    ),
    read("/api/v1/connections", "Connections of clients", PAGE, "Connections"),
    read(
        "/api/v1/consumers",
        "Consumers, of one destination or all",
        &["destination", "sort", "limit", "cursor"],
        "Consumers",
    ),
    read(
        "/api/v1/sessions",
        "Sessions of clients with consumers or producers",
        &["filter", "sort", "limit", "cursor"],
        "Sessions",
    ),
    read(
        "/api/v1/producers",
        "Producers that clients have announced, of one destination or all",
        &["filter", "destination", "limit", "cursor"],
        "Producers",
    ),
    read("/api/v1/topics", "Topics, by name", &["filter", "limit", "cursor"], "Topics"),
    read("/api/v1/topics/{topic}", "One topic", &[], "Topic"),
    read(
        "/api/v1/bindings",
        "Queues and subscriptions that topics feed, of one topic or all",
        &["filter", "destination", "limit", "cursor"],
        "Bindings",
    ),
    read(
        "/api/v1/schedules",
        "Scheduled messages, in the order in which they are due",
        &["filter", "job", "from_ms", "to_ms", "sort", "limit", "cursor"],
        "Schedules",
    ),
    read("/api/v1/schedules/{id}", "One scheduled message, with its body", &[], "ScheduledMessage"),
    change("delete", "/api/v1/schedules/{id}", "Delete a scheduled message; it is not sent"),
    read(
        "/api/v1/bridges",
        "Links to other brokers, opened and accepted",
        &["filter", "limit", "cursor"],
        "Bridges",
    ),
    read(
        "/api/v1/stores",
        "Stores, with the state of their journals",
        &["filter", "limit", "cursor"],
        "Stores",
    ),
    read(
        "/api/v1/listeners",
        "Addresses that clients connect to",
        &["filter", "limit", "cursor"],
        "Listeners",
    ),
    read(
        "/api/v1/subscriptions",
        "Durable subscriptions, by the name of the topic or a figure",
        &["filter", "sort", "limit", "cursor"],
        "Subscriptions",
    ),
    change(
        "delete",
        "/api/v1/subscriptions/{name}",
        "End a durable subscription without consumers, and all that it holds",
    ),
    read("/api/v1/queues/{queue}/policy", "The policy in force, and where it comes from", &[], "Policy"),
    read(
        "/api/v1/planner",
        "Costs of messages, headroom, and the forecast for another load",
        &["subscribers", "matching", "size", "rate"],
        "Capacity",
    ),
    read(
        "/api/v1/routes",
        "Routes, with the counts of their messages",
        &["filter", "limit", "cursor"],
        "Routes",
    ),
    read(
        "/api/v1/tokens",
        "Tokens of users, without their secrets",
        &["filter", "limit", "cursor"],
        "Tokens",
    ),
    Operation {
        method: "post",
        path: "/api/v1/tokens",
        summary: "Make a token. Its text is in this answer only",
        query: &[],
        takes: Some("WantedToken"),
        gives: (201, Some("MadeToken")),
    },
    change("delete", "/api/v1/tokens/{id}", "Revoke a token, at once"),
    read(
        "/api/v1/access-keys",
        "Access keys of SQS clients, without their secrets",
        &["filter", "limit", "cursor"],
        "AccessKeys",
    ),
    Operation {
        method: "post",
        path: "/api/v1/access-keys",
        summary: "Make an access key. Its secret is in this answer only",
        query: &[],
        takes: Some("WantedAccessKey"),
        gives: (201, Some("MadeAccessKey")),
    },
    change("delete", "/api/v1/access-keys/{id}", "Delete an access key"),
    read(
        "/api/v1/tenants",
        "Tenants, with their quotas and usage",
        &["filter", "limit", "cursor"],
        "Tenants",
    ),
    Operation {
        method: "post",
        path: "/api/v1/tenants",
        summary: "Add a tenant. The password of its administrator is in this answer only",
        query: &[],
        takes: Some("WantedTenant"),
        gives: (201, Some("MadeTenant")),
    },
    read("/api/v1/tenants/{name}", "One tenant", &[], "Tenant"),
    Operation {
        method: "put",
        path: "/api/v1/tenants/{name}",
        summary: "Change quotas of a tenant; those that are not named stay",
        query: &[],
        takes: Some("Quotas"),
        gives: (200, Some("Tenant")),
    },
    change("delete", "/api/v1/tenants/{name}", "Delete a tenant without queues, with its users"),
    Operation {
        method: "post",
        path: "/api/v1/tenants/{name}/apply",
        summary: "Plan or apply queues, users, routes and alerts that a tenant declares",
        query: &[],
        takes: Some("Declared"),
        gives: (200, Some("Applied")),
    },
    read("/api/v1/users", "Users, with their groups", &["filter", "limit", "cursor"], "Users"),
    Operation {
        method: "post",
        path: "/api/v1/users",
        summary: "Add a user; without a password one is made up, and is in this answer only",
        query: &[],
        takes: Some("WantedUser"),
        gives: (201, Some("MadeUser")),
    },
    Operation {
        method: "delete",
        path: "/api/v1/users/{name}",
        summary: "Remove a user, with its tokens, sessions and connections",
        query: &[],
        takes: None,
        gives: (204, None),
    },
    Operation {
        method: "put",
        path: "/api/v1/users/{name}/password",
        summary: "Change a password; users who change their own show the old one as well",
        query: &[],
        takes: Some("NewPassword"),
        gives: (204, None),
    },
    Operation {
        method: "put",
        path: "/api/v1/users/{name}/groups",
        summary: "Set the groups of a user",
        query: &[],
        takes: Some("Groups"),
        gives: (204, None),
    },
    read("/api/v1/session", "The caller: its user, and the CSRF token of its session", &[], "Session"),
    Operation {
        method: "post",
        path: "/api/v1/session",
        summary: "Sign in: begin a session, whose cookie stands for the password",
        query: &[],
        takes: Some("Credentials"),
        gives: (200, Some("Session")),
    },
    change("delete", "/api/v1/session", "Sign out: end the session"),
    read("/api/jolokia/read/{path}", "Attributes of a queue, as ActiveMQ answers them", &[], "Jolokia"),
    read("/api/v1/openapi.json", "This document", &[], "Document"),
];

/// Further answers of success: method, path, status and meaning; none has a body.
const ALSO: &[(&str, &str, u16, &str)] = &[("put", "/api/v1/queues/{queue}", 200, "the queue was there")];

/// Without a body, in either direction.
const fn change(method: &'static str, path: &'static str, summary: &'static str) -> Operation {
    Operation { method, path, summary, query: &[], takes: None, gives: (204, None) }
}

const fn read(
    path: &'static str,
    summary: &'static str,
    query: &'static [&'static str],
    gives: &'static str,
) -> Operation {
    Operation { method: "get", path, summary, query, takes: None, gives: (200, Some(gives)) }
}

pub async fn document() -> Json<Value> {
    Json(written())
}

fn written() -> Value {
    let mut paths: Map<String, Value> = Map::new();
    for operation in OPERATIONS {
        let path = paths.entry(operation.path).or_insert_with(|| json!({}));
        path[operation.method] = operation.written();
    }
    json!({
        "openapi": "3.1.0",
        "info": { "title": "Postroad admin API", "version": "1" },
        "paths": paths,
        "components": {
            "schemas": schemas(),
            "securitySchemes": {
                "basic": { "type": "http", "scheme": "basic" },
                "token": { "type": "http", "scheme": "bearer" },
            },
        },
        "security": [{ "basic": [] }, { "token": [] }, {}],
    })
}

impl Operation {
    fn written(&self) -> Value {
        let names = self.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
        let in_path = names.map(
            |name| json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }),
        );
        let in_query = self.query.iter().map(|name| {
            let kind = match *name {
                "limit" | "body_bytes" | "from_ms" | "to_ms" => "integer",
                "history" => "boolean",
                "subscribers" | "matching" | "size" | "rate" => "number",
                _ => "string",
            };
            json!({ "name": name, "in": "query", "schema": { "type": kind } })
        });
        let (status, schema) = self.gives;
        let mut gives = json!({ "description": "done" });
        if let Some(schema) = schema {
            gives["content"] = content(schema);
        }
        let mut written = json!({
            "summary": self.summary,
            "parameters": in_path.chain(in_query).collect::<Vec<Value>>(),
            "responses": {
                status.to_string(): gives,
                "default": { "description": "why not", "content": content("Problem") },
            },
        });
        for (_, _, status, meaning) in
            ALSO.iter().filter(|(method, path, ..)| (*method, *path) == (self.method, self.path))
        {
            written["responses"][status.to_string()] = json!({ "description": meaning });
        }
        if let Some(schema) = self.takes {
            written["requestBody"] = json!({ "required": true, "content": content(schema) });
        }
        written
    }
}

fn content(schema: &str) -> Value {
    let schema = json!({ "$ref": format!("#/components/schemas/{schema}") });
    json!({ "application/json": { "schema": schema } })
}

/// An object whose members are named with their types: `name:string count:integer`.
fn object(members: &str) -> Value {
    let pairs = members.split_whitespace().filter_map(|pair| pair.split_once(':'));
    let of = |kind: &str| match kind.strip_suffix('?') {
        Some(kind) => json!({ "type": [kind, "null"] }),
        None => json!({ "type": kind }),
    };
    let properties: Map<String, Value> = pairs.map(|(name, kind)| (name.to_owned(), of(kind))).collect();
    json!({ "type": "object", "properties": properties })
}

fn list_of(schema: &str) -> Value {
    let item = json!({ "$ref": format!("#/components/schemas/{schema}") });
    json!({
        "type": "object",
        "properties": {
            "items": { "type": "array", "items": item },
            "next": { "type": ["string", "null"] },
            "total": { "type": "integer" },
        },
    })
}

/// Pages of lists: their names, and the schemas of their rows.
const LISTS: &[(&str, &str)] = &[
    ("Alerts", "Alert"),
    ("RedriveRecords", "RedriveRecord"),
    ("Branches", "Branch"),
    ("Changes", "Change"),
    ("Queues", "Queue"),
    ("Connections", "Connection"),
    ("Bridges", "Bridge"),
    ("Routes", "Route"),
    ("Settings", "Setting"),
    ("Sessions", "ClientSession"),
    ("Producers", "Producer"),
    ("Topics", "Topic"),
    ("Bindings", "Binding"),
    ("Schedules", "Schedule"),
    ("Stores", "Store"),
    ("Listeners", "Listener"),
    ("Subscriptions", "Subscription"),
    ("Versions", "Version"),
    ("Tenants", "Tenant"),
    ("Tokens", "Token"),
    ("AccessKeys", "AccessKey"),
    ("Users", "User"),
    ("Consumers", "Consumer"),
    ("Messages", "Message"),
];

/// Objects of users and their credentials, with their members.
const OF_IDENTITIES: &[(&str, &str)] = &[
    ("AccessKey", "id:string user:string"),
    ("Token", "id:string user:string scope:string created_ms:integer expires_ms:integer?"),
    (
        "Tenant",
        "name:string destinations:array is_configured:boolean quotas:object usage:object users:integer store:integer?",
    ),
    (
        "WantedTenant",
        "name:string store:integer connections_max:integer queues_max:integer messages_max:integer bytes_max:integer disk_bytes_max:integer messages_per_second_max:integer share:integer",
    ),
    (
        "Quotas",
        "connections_max:integer? queues_max:integer? messages_max:integer? bytes_max:integer? disk_bytes_max:integer? messages_per_second_max:integer? share:integer?",
    ),
    (
        "MadeTenant",
        "name:string destinations:array is_configured:boolean quotas:object usage:object users:integer administrator:string? password:string?",
    ),
    ("Declared", "queues:array users:array routes:array alerts:array prune:boolean dry_run:boolean"),
    ("Applied", "changes:array faults:array"),
    ("User", "name:string groups:array tokens:integer"),
    ("WantedUser", "name:string password:string groups:array"),
    ("MadeUser", "name:string groups:array password:string?"),
    ("NewPassword", "password:string current:string"),
    ("Groups", "groups:array"),
    ("Credentials", "user:string password:string"),
    ("Session", "user:string? csrf:string? administers:boolean is_session:boolean stores:integer"),
    ("WantedAccessKey", "user:string"),
    ("MadeAccessKey", "secret:string id:string user:string"),
    ("WantedToken", "user:string scope:string expires_seconds:integer"),
    ("MadeToken", "token:string id:string user:string scope:string created_ms:integer expires_ms:integer?"),
];

/// Objects of the broker's parts, with their members.
const OF_PARTS: &[(&str, &str)] = &[
    ("Redrive", "to:string origin:string selector:string max:integer dry_run:boolean continues:integer"),
    ("Redriven", "moved:integer stayed:integer redrive:integer plan:object"),
    (
        "RedriveRecord",
        "id:integer at_ms:integer user:string? from:string to:string? origin:string? selector:string \
         state:string moved:integer targets:array undone:integer",
    ),
    ("UndoRedrive", "dry_run:boolean"),
    (
        "Undone",
        "redrive:integer moved:integer in_flight:integer dead_again:integer gone:integer? queues:array",
    ),
    ("Setting", "key:string value:string origin:string needs_restart:boolean"),
    ("Plan", "file:string? version:integer changes:array"),
    ("WantedConfiguration", "text:string version:integer"),
    ("Copied", "copied:string to:string"),
    (
        "Explained",
        "queue:string message:string? summary:string remedy:string? queue_verdicts:array consumer_verdicts:array \
         growth:object?",
    ),
    (
        "Growth",
        "code:string grows:boolean text:string remedy:string? messages:integer window_ms:integer \
         came_per_second:number left_per_second:number consumed_per_second:number \
         dead_lettered_per_second:number expired_per_second:number redelivered_per_second:number \
         drain_seconds:integer? consumers:array consumers_left_out:integer",
    ),
    ("ExplainedMessage", "id:string queues:array searched:integer is_complete:boolean"),
    (
        "Trace",
        "id:string trace_id:string parent_span_id:string? destination:string bytes:integer received_at:string \
         micros:integer is_gone:boolean longest:string? stages:array gaps:array",
    ),
    (
        "ClientSession",
        "session:string connection:string consumers:integer producers:integer credit:integer held:integer",
    ),
    ("Producer", "name:string connection:string destination:string window_bytes:integer"),
    ("Topic", "name:string bindings:integer selectors:integer"),
    ("Binding", "topic:string kind:string to:string durable:boolean selectors:array messages:integer"),
    (
        "Schedule",
        "id:string due_ms:integer job:string? destinations:array route:string? bytes:integer? \
         period_ms:integer? times:integer? cron:string?",
    ),
    (
        "ScheduledMessage",
        "id:string due_ms:integer job:string? destinations:array route:string? bytes:integer? \
         period_ms:integer? times:integer? cron:string? message:object?",
    ),
    ("Listener", "protocol:string url:string"),
    ("Policy", "destination:string pattern:string? tenant:string? settings:array"),
    (
        "Store",
        "name:string state:string reason:string? segments:integer file_bytes:integer live_bytes:integer \
         index_bytes:integer written_bytes:integer syncs:integer checkpoints:integer compactions:integer \
         failed_jobs:integer damaged_places:integer",
    ),
    (
        "Subscription",
        "topic:string link_peer:string? link_state:string? name:string kind:string \
         subscription:string messages:integer bytes:integer in_flight:integer consumers:integer enqueued:integer consumed:integer \
         expired:integer dead_lettered:integer dropped:integer moved:integer difference:integer \
         is_moving:boolean is_paused:boolean",
    ),
    (
        "Capacity",
        "observations:integer processors:number load_max:number now:object costs:array headroom:object? \
         forecast:object? model:object? error_next:object error_later:object",
    ),
    ("Version", "version:integer at_ms:integer cause:string changes:integer author:object?"),
    ("VersionText", "version:integer at_ms:integer cause:string changes:integer author:object? text:string"),
];

fn schemas() -> Value {
    let mut schemas = objects();
    schemas["Branch"] = object("branch:string state:string");
    for (name, members) in OF_IDENTITIES.iter().chain(OF_PARTS) {
        schemas[*name] = object(members);
    }
    schemas["Explained"]["properties"]["growth"] = json!({ "$ref": "#/components/schemas/Growth" });
    for (name, row) in LISTS {
        schemas[*name] = list_of(row);
    }
    schemas
}

fn objects() -> Value {
    json!({
        "Problem": object("status:integer error:string"),
        "Overview": object(
            "broker:object is_limited:boolean now:object history:object alarms:array protocols:array stores:array \
             memory_bytes_max:integer ledger:object cluster:object?",
        ),
        "Broker": object("name:string version:string uptime_seconds:integer draining:boolean endpoints:array"),
        "Queue": object(
            "name:string kind:string subscription:string messages:integer bytes:integer in_flight:integer \
             consumers:integer enqueued:integer consumed:integer expired:integer \
             dead_lettered:integer dropped:integer moved:integer difference:integer is_moving:boolean \
             is_paused:boolean link_peer:string? link_state:string?",
        ),
        "Connection": object(
            "connection:string name:string client_id:string user:string? consumers:integer \
             transactions:integer unwritten_bytes:integer",
        ),
        "Consumer": object(
            "connection:string consumer:integer name:string destination:string subscription:string \
             mode:string selector:string priority:integer credit:integer held:integer",
        ),
        "Bridge": object(
            "name:string number:integer direction:string state:string since_ms:integer profile:string address:string peer:string \
             peer_id:string swimlane:string duplex:boolean demand:integer in_flight:integer oldest_in_flight_ms:integer \
             dispatched:integer dispatched_bytes:integer forwarded:integer refused:integer received:integer \
             reconnects:integer stuck_messages:integer longest_wait_ms:integer wait_cause:string \
             wait_queue:string reason:string retry_seconds:integer",
        ),
        "Route": object(
            "name:string from:string mode:string matched:integer unmatched:integer dead_lettered:integer \
             cut:integer copies:integer targets:array",
        ),
        "Message": object(
            "id:string? destination:string? persistent:boolean priority:integer timestamp_ms:integer? \
             expires_at_ms:integer? correlation_id:string? reply_to:string? type:string? group_id:string? \
             failed_deliveries:integer bytes:integer dead_letter_cause:string? origin:string? properties:object body:object? \
             unreadable:string",
        ),
        "ToSend": object(
            "body:string bytes:string properties:object persistent:boolean priority:integer ttl_ms:integer \
             correlation_id:string reply_to:string type:string group_id:string",
        ),
        "Sent": object("id:string"),
        "Move": object("to:string"),
        "Moved": object("moved:string to:string"),
        "Change": object(
            "number:integer at_ms:integer user:string? peer:string method:string path:string status:integer \
             token:string? detail:string?",
        ),
        "Alert": object(
            "alert:string severity:string on:string subject:string state:string value:integer above:integer \
             since_ms:integer fired_ms:integer? text:string",
        ),
        "Ledger": object(
            "checked_ms:integer? checks:integer queues:integer sent:integer held:integer in_flight:integer \
             consumed:integer expired:integer dead_lettered:integer dropped:integer moved:integer \
             difference:integer differing_queues:integer differing:array",
        ),
        "Purged": object("removed:integer"),
        "Jolokia": object("request:object timestamp:integer status:integer error:string"),
        "Document": json!({ "type": "object" }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_that_is_named_is_there() {
        let document = written();
        let schemas = &document["components"]["schemas"];
        for operation in OPERATIONS {
            for name in operation.takes.iter().chain(&operation.gives.1) {
                assert!(schemas.get(name).is_some(), "{} {}: {name}", operation.method, operation.path);
            }
        }
    }
}
