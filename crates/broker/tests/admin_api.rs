//! The admin API of the running binary, over HTTP and the control socket.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod running;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Output};

use running::Broker;
use serde_json::{Value, json};

/// The status and body of an answer.
fn ask(broker: &Broker, method: &str, path: &str, body: Option<&Value>, more: &str) -> (u16, Value) {
    let mut stream = TcpStream::connect(("127.0.0.1", broker.http)).unwrap();
    let body = body.map(Value::to_string).unwrap_or_default();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{more}content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    stream.write_all(body.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

fn get(broker: &Broker, path: &str) -> Value {
    let (status, body) = ask(broker, "GET", path, None, "");
    assert_eq!(status, 200, "{path}: {body}");
    body
}

fn postroad(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_postroad"));
    command.args(arguments).output().unwrap()
}

fn send(broker: &Broker, queue: &str, body: &str) {
    let url = format!("tcp://127.0.0.1:{}", broker.openwire);
    let sent = postroad(&["send", queue, "--url", &url, "--body", body, "--property", "colour=red"]);
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
}

fn bodies(messages: &Value) -> Vec<&str> {
    let items = messages["items"].as_array().unwrap();
    items.iter().map(|message| message["body"]["value"].as_str().unwrap()).collect()
}

#[test]
fn queues_are_listed_browsed_and_changed() {
    let broker = Broker::start();
    for body in ["one", "two", "three"] {
        send(&broker, "orders.new", body);
    }
    send(&broker, "other", "x");
    let queues = get(&broker, "/api/v1/queues?filter=orders");
    assert_eq!(queues["items"].as_array().unwrap().len(), 1, "{queues}");
    assert_eq!(
        (&queues["items"][0]["name"], &queues["items"][0]["messages"]),
        (&json!("orders.new"), &json!(3))
    );

    let first = get(&broker, "/api/v1/queues/orders.new/messages?limit=2");
    assert_eq!(bodies(&first), ["one", "two"]);
    assert_eq!(first["items"][0]["properties"], json!({ "colour": "red" }));
    let cursor = first["next"].as_str().unwrap();
    let next = get(&broker, &format!("/api/v1/queues/orders.new/messages?cursor={cursor}"));
    assert_eq!((bodies(&next), &next["next"]), (vec!["three"], &Value::Null));

    let id = first["items"][0]["id"].as_str().unwrap().replace(':', "%3A");
    let message = format!("/api/v1/queues/orders.new/messages/{id}");
    assert_eq!(get(&broker, &message)["body"]["value"], json!("one"));
    let to = json!({ "to": "queue://elsewhere" });
    assert_eq!(ask(&broker, "POST", &format!("{message}/move"), Some(&to), "").0, 200);
    assert_eq!(ask(&broker, "GET", &message, None, "").0, 404);
    assert_eq!(bodies(&get(&broker, "/api/v1/queues/elsewhere/messages")), ["one"]);

    let two = first["items"][1]["id"].as_str().unwrap().replace(':', "%3A");
    let removed = format!("/api/v1/queues/orders.new/messages/{two}");
    assert_eq!(ask(&broker, "DELETE", &removed, None, "").0, 204);
    assert_eq!(ask(&broker, "DELETE", &removed, None, "").0, 404, "it is gone");
    let purged = ask(&broker, "POST", "/api/v1/queues/orders.new/purge", None, "");
    assert_eq!(purged, (200, json!({ "removed": 1 })));
    assert_eq!(get(&broker, "/api/v1/queues/orders.new")["messages"], json!(0));
    assert_eq!(ask(&broker, "DELETE", "/api/v1/queues/orders.new", None, "").0, 204);
    assert_eq!(ask(&broker, "GET", "/api/v1/queues/orders.new", None, "").0, 404);
}

#[test]
fn what_the_api_sends_is_received_by_clients_and_found_by_autoscalers() {
    let broker = Broker::start();
    let message = json!({ "body": "hello", "properties": { "n": 7 }, "priority": 9, "correlation_id": "c" });
    let (status, sent) = ask(&broker, "POST", "/api/v1/queues/q/messages", Some(&message), "");
    assert_eq!(status, 201, "{sent}");
    let id = sent["id"].as_str().unwrap().replace(':', "%3A");
    let shown = get(&broker, &format!("/api/v1/queues/q/messages/{id}"));
    assert_eq!((&shown["priority"], &shown["properties"]), (&json!(9), &json!({ "n": 7 })));
    let bean = "org.apache.activemq:type=Broker,brokerName=x,destinationType=Queue,destinationName=q";
    let read = get(&broker, &format!("/api/jolokia/read/{bean}/QueueSize"));
    assert_eq!((&read["value"], &read["status"]), (&json!(1), &json!(200)));
    let none = get(&broker, &format!("/api/jolokia/read/{bean}x/QueueSize"));
    assert_eq!(none["status"], json!(404), "ActiveMQ says so in the body: {none}");
    let url = format!("tcp://127.0.0.1:{}", broker.openwire);
    let got = postroad(&["receive", "q", "--url", &url]);
    assert_eq!(String::from_utf8_lossy(&got.stdout).trim(), "hello");
}

#[test]
fn bad_requests_are_told_what_would_be_right() {
    let broker = Broker::start();
    send(&broker, "q", "x");
    let topic = json!({ "to": "nothing://x" });
    for (method, path, body, status, says) in [
        ("GET", "/nothing", None, 404, "/api/v1/openapi.json"),
        ("PATCH", "/api/v1/queues", None, 405, "method"),
        ("GET", "/api/v1/queues/none", None, 404, "GET /api/v1/queues lists all"),
        ("GET", "/api/v1/queues/topic%3A%2F%2Fa", None, 400, "expected a queue"),
        ("GET", "/api/v1/queues/q/messages?selector=a%20b", None, 400, "invalid selector"),
        ("GET", "/api/v1/queues/q/messages?limit=0", None, 400, "1 to 500"),
        ("GET", "/api/v1/queues?limit=many", None, 400, "invalid digit"),
        (
            "GET",
            "/api/v1/queues?page=1",
            None,
            400,
            "unknown query parameter \"page\"; the operation has filter, sort, limit, cursor",
        ),
        ("GET", "/api/v1/queues?cursor=x", None, 400, "cursor"),
        ("POST", "/api/v1/queues/q/messages", Some(&json!({ "text": "x" })), 400, "unknown field `text`"),
        ("POST", "/api/v1/queues/q/messages", Some(&json!({ "bytes": "!" })), 400, "base 64"),
        ("POST", "/api/v1/queues/q/messages", Some(&json!({ "priority": 10 })), 400, "0 to 9"),
        ("POST", "/api/v1/queues/q/messages/ID%3Anone/move", Some(&topic), 400, "queue://NAME"),
        ("DELETE", "/api/v1/queues/q/messages/ID%3Anone", None, 404, "no message ID:none"),
    ] {
        let (got, answer) = ask(&broker, method, path, body, "");
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(got == status && error.contains(says), "{method} {path}: {got} {answer}");
    }
    let document = get(&broker, "/api/v1/openapi.json");
    assert_eq!(document["openapi"], json!("3.1.0"));
    for (path, methods) in document["paths"].as_object().unwrap() {
        let path = path.replace("{queue}", "q").replace("{id}", "ID%3Anone").replace("{path}", "x");
        for method in methods.as_object().unwrap().keys().filter(|method| *method == "get") {
            let (status, answer) = ask(&broker, &method.to_uppercase(), &path, None, "");
            let is_known = status == 200
                || answer["error"].as_str().is_some_and(|error| !error.contains("no such path"));
            assert!(is_known, "{method} {path}: {status} {answer}");
        }
    }
    let origin = "origin: http://evil.example\r\n";
    assert_eq!(ask(&broker, "POST", "/api/v1/queues/q/purge", None, origin).0, 403);
}

#[test]
fn lists_are_ordered_by_figures_and_the_overview_counts_all() {
    let broker = Broker::start();
    for (queue, count) in [("a", 1), ("b", 3), ("c", 2)] {
        (0..count).for_each(|_| send(&broker, queue, "x"));
    }
    let names = |path: &str| {
        let list = get(&broker, path);
        let names =
            list["items"].as_array().unwrap().iter().map(|row| row["name"].as_str().unwrap().to_owned());
        (names.collect::<Vec<_>>(), list["next"].as_str().map(str::to_owned), list["total"].clone())
    };
    let (first, next, total) = names("/api/v1/queues?sort=-messages&limit=2");
    assert_eq!((first, total), (vec!["b".to_owned(), "c".to_owned()], json!(3)));
    let (second, next, _) = names(&format!("/api/v1/queues?sort=-messages&cursor={}", next.unwrap()));
    assert_eq!((second, next), (vec!["a".to_owned()], None));
    let (status, answer) = ask(&broker, "GET", "/api/v1/queues?sort=colour", None, "");
    assert!(status == 400 && answer["error"].as_str().unwrap().contains("dead_lettered"), "{answer}");

    // A sample may be a second old.
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let mut overview = get(&broker, "/api/v1/overview?history=true");
    while overview["now"]["messages"] == json!(0) && std::time::Instant::now() < end {
        overview = get(&broker, "/api/v1/overview?history=true");
    }
    assert_eq!(overview["now"]["enqueued_total"], json!(6), "{overview}");
    // Messages that topics retain count too.
    assert!(6 <= overview["now"]["messages"].as_u64().unwrap(), "{overview}");
    let columns = overview["history"]["columns"].as_array().unwrap().len();
    let rows = overview["history"]["rows"].as_array().unwrap();
    assert!(
        !rows.is_empty() && rows.iter().all(|row| row.as_array().unwrap().len() == columns),
        "{overview}"
    );
    assert_eq!(overview["alarms"], json!([]));
}

#[test]
fn the_console_is_served_and_no_other_script_runs_in_it() {
    let broker = Broker::start();
    let fetch = |path: &str| {
        let mut stream = TcpStream::connect(("127.0.0.1", broker.http)).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    let (root, page) = (fetch("/"), fetch("/console/queues/a"));
    assert!(root.contains("location: /console/"), "{root}");
    assert!(page.starts_with("HTTP/1.1 200") && page.contains("text/html"), "{page}");
    assert!(page.contains("content-security-policy: default-src 'none'; script-src 'self'"), "{page}");
    assert!(fetch("/console/assets/none.js").starts_with("HTTP/1.1 404"));
}

#[test]
fn a_message_that_is_not_delivered_is_explained() {
    let broker = Broker::start();
    send(&broker, "q", "x");
    let explained = get(&broker, "/api/v1/queues/q/explain");
    assert_eq!(explained["summary"], json!("No consumer is attached."), "{explained}");
    let url = format!("tcp://127.0.0.1:{}", broker.openwire);
    let mut consumer = Command::new(env!("CARGO_BIN_EXE_postroad"));
    consumer.args(["receive", "q", "--url", &url, "--follow", "--selector", "colour = 'blue'"]);
    let mut consumer = consumer.stdout(std::process::Stdio::null()).spawn().unwrap();
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while get(&broker, "/api/v1/queues/q")["consumers"] == json!(0) {
        assert!(std::time::Instant::now() < end, "the consumer is attached in time");
        std::thread::yield_now();
    }
    let id = get(&broker, "/api/v1/queues/q/messages")["items"][0]["id"].as_str().unwrap().to_owned();
    let of_message = format!("/api/v1/queues/q/messages/{}/explain", id.replace(':', "%3A"));
    for path in ["/api/v1/queues/q/explain", &of_message] {
        let explained = get(&broker, path);
        let verdict = &explained["consumer_verdicts"][0];
        assert_eq!(verdict["code"], json!("selector"), "{explained}");
        let text = verdict["text"].as_str().unwrap();
        assert!(text.contains("`colour = 'blue'` does not match, as colour is 'red'"), "{text}");
    }
    let data = broker.data();
    let told = postroad(&["ctl", "explain", "queue", "q", "--data", data.to_str().unwrap()]);
    let out = String::from_utf8(told.stdout).unwrap();
    assert!(out.contains("as colour is 'red'") && out.contains("Smallest change: Attach"), "{out}");
    assert_eq!(ask(&broker, "GET", "/api/v1/queues/none/explain", None, "").0, 404);
    assert_eq!(ask(&broker, "GET", "/api/v1/queues/q/messages/none/explain", None, "").0, 404);
    consumer.kill().unwrap();
    consumer.wait().unwrap();
}

#[test]
fn dead_letters_go_back_and_changes_are_audited() {
    let broker = Broker::start();
    let late = json!({ "body": "late", "ttl_ms": 1 });
    assert_eq!(ask(&broker, "POST", "/api/v1/queues/q/messages", Some(&late), "").0, 201);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let dead = "/api/v1/queues/ActiveMQ.DLQ";
    while ask(&broker, "GET", dead, None, "").1["messages"] != json!(1) {
        assert!(std::time::Instant::now() < end, "it expires in time");
        std::thread::yield_now();
    }
    let letter = &get(&broker, &format!("{dead}/messages"))["items"][0];
    assert_eq!((&letter["origin"], &letter["dead_letter_cause"]), (&json!("queue://q"), &json!("expired")));
    let other = json!({ "origin": "other" });
    let redrive = format!("{dead}/redrive");
    assert_eq!(ask(&broker, "POST", &redrive, Some(&other), "").1["moved"], json!(0));
    let selected = json!({ "origin": "q", "selector": "dlqDeliveryFailureCause = 'expired'" });
    let redriven = ask(&broker, "POST", &redrive, Some(&selected), "").1;
    assert!(redriven["redrive"].is_u64(), "it can be undone by its number: {redriven}");
    assert_eq!((&redriven["moved"], &redriven["stayed"]), (&json!(1), &json!(0)));
    assert_eq!(get(&broker, "/api/v1/queues/q")["messages"], json!(1));
    let (status, _) = ask(&broker, "POST", "/api/v1/queues/none/redrive", None, "");
    assert_eq!(status, 404);
    let audit = get(&broker, "/api/v1/audit?limit=2");
    let row = |row: &Value| (row["path"].clone(), row["status"].clone());
    assert_eq!(row(&audit["items"][0]), (json!("/api/v1/queues/none/redrive"), json!(404)));
    assert_eq!(row(&audit["items"][1]), (json!(redrive), json!(200)));
    let next = audit["next"].as_str().unwrap();
    assert_eq!(get(&broker, &format!("/api/v1/audit?cursor={next}"))["items"].as_array().unwrap().len(), 2);
}

#[test]
fn ctl_reads_the_same_over_the_control_socket() {
    let broker = Broker::start();
    for body in ["one", "two"] {
        send(&broker, "q", body);
    }
    let data = broker.data();
    let ctl = |arguments: &[&str]| {
        let told = postroad(&[&["ctl"], arguments, &["--data", data.to_str().unwrap()]].concat());
        let (out, error) = (String::from_utf8(told.stdout).unwrap(), String::from_utf8(told.stderr).unwrap());
        (told.status.success(), out, error)
    };
    let (well, out, error) = ctl(&["queues"]);
    assert!(well && out.starts_with("NAME") && out.contains("\nq "), "{out}{error}");
    let ahead = postroad(&["ctl", "--data", data.to_str().unwrap(), "queues"]);
    assert_eq!(String::from_utf8(ahead.stdout).unwrap(), out, "options may come before the command");
    let (_, out, _) = ctl(&["queues", "--json"]);
    let row: Value = serde_json::from_str(out.trim()).unwrap();
    assert_eq!((&row["name"], &row["messages"]), (&json!("q"), &json!(2)));
    let (_, out, error) = ctl(&["browse", "q", "--max", "1", "--json"]);
    assert_eq!(out.lines().count(), 1, "{out}{error}");
    let cursor = error.trim().rsplit(' ').next().unwrap().to_owned();
    let (_, out, error) = ctl(&["browse", "q", "--from", &cursor]);
    assert!(out.contains("two") && !out.contains("one"), "{out}{error}");
    let (well, _, error) = ctl(&["browse", "none"]);
    assert!(!well && error.contains("there is no queue://none"), "{error}");
    let (well, _, error) = ctl(&["browse", "q", "--selector", "a b"]);
    assert!(!well && error.contains("invalid selector"), "{error}");
    for list in ["connections", "consumers"] {
        let (well, out, error) = ctl(&[list]);
        assert!(well && out.starts_with(if list == "consumers" { "DEST" } else { "CONN" }), "{out}{error}");
    }
    let (well, _, error) = ctl(&["purge", "q"]);
    assert!(well && error.contains("removed 2 messages"), "{error}");
}
