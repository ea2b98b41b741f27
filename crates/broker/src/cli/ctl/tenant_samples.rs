//! Sample code for a new tenant: each sends one message to a queue of it and receives it.

/// How a tenant is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Its name.
    pub tenant: String,
    /// Its user; empty where clients need none.
    pub user: String,
    /// Its password.
    pub password: String,
    /// URLs by the names of protocols.
    pub endpoints: Vec<(String, String)>,
}

const CURL: &str = r#"curl -H 'Authorization: OAuth {user}:{password}' -H 'Content-Type: application/json' \
  -d '{"messages":[{"body":"hello"}]}' {http}/3/projects/{tenant}/queues/sample/messages
curl -H 'Authorization: OAuth {user}:{password}' -H 'Content-Type: application/json' \
  -d '{"n":1,"delete":true}' {http}/3/projects/{tenant}/queues/sample/reservations
"#;

const PYTHON: &str = r#"import json
import urllib.request


def call(path, body):
    request = urllib.request.Request("{http}/3/projects/{tenant}/queues/sample/" + path, json.dumps(body).encode())
    request.add_header("Authorization", "OAuth {user}:{password}")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


call("messages", {"messages": [{"body": "hello"}]})
for message in call("reservations", {"n": 1, "delete": True})["messages"]:
    print(message["body"])
"#;

const NODE: &str = r#"// npm install rhea
const rhea = require("rhea");
const { hostname, port } = new URL("{amqp}");
const connection = rhea.connect({ host: hostname, port, username: "{user}", password: "{password}" });
connection.open_receiver("{tenant}.sample");
connection.open_sender("{tenant}.sample").once("sendable", ({ sender }) => sender.send({ body: "hello", durable: true }));
rhea.once("message", ({ message, connection }) => {
  console.log(message.body);
  connection.close();
});
"#;

const GO: &str = r#"// go get github.com/Azure/go-amqp
package main

import (
	"context"
	"fmt"

	"github.com/Azure/go-amqp"
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	ctx := context.Background()
	options := &amqp.ConnOptions{SASLType: amqp.SASLTypePlain("{user}", "{password}")}
	conn, err := amqp.Dial(ctx, "{amqp}", options)
	check(err)
	defer conn.Close()
	session, err := conn.NewSession(ctx, nil)
	check(err)
	sender, err := session.NewSender(ctx, "{tenant}.sample", nil)
	check(err)
	message := amqp.NewMessage([]byte("hello"))
	message.Header = &amqp.MessageHeader{Durable: true}
	check(sender.Send(ctx, message, nil))
	receiver, err := session.NewReceiver(ctx, "{tenant}.sample", nil)
	check(err)
	received, err := receiver.Receive(ctx, nil)
	check(err)
	check(receiver.AcceptMessage(ctx, received))
	fmt.Println(string(received.GetData()))
}
"#;

const JAVA: &str = r#"// org.apache.activemq:activemq-client
import jakarta.jms.Connection;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import org.apache.activemq.ActiveMQConnectionFactory;

public class Sample {
    public static void main(String[] arguments) throws Exception {
        var factory = new ActiveMQConnectionFactory("{user}", "{password}", "{openwire}");
        try (Connection connection = factory.createConnection()) {
            connection.start();
            try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
                var queue = session.createQueue("{tenant}.sample");
                session.createProducer(queue).send(session.createTextMessage("hello"));
                var received = (TextMessage) session.createConsumer(queue).receive(5000);
                System.out.println(received.getText());
            }
        }
    }
}
"#;

/// The languages, each with a complete program.
pub fn samples(access: &Access) -> [(&'static str, String); 5] {
    let url = |protocol: &str| {
        let found = access.endpoints.iter().find(|(name, _)| name.eq_ignore_ascii_case(protocol));
        found.map(|(_, url)| url.as_str()).unwrap_or_default()
    };
    let named = [
        ("{tenant}", access.tenant.as_str()),
        ("{user}", &access.user),
        ("{password}", &access.password),
        ("{http}", url("HTTP")),
        ("{amqp}", url("AMQP")),
        ("{openwire}", url("OpenWire")),
    ];
    let of = |code: &str| named.iter().fold(code.to_owned(), |code, (name, value)| code.replace(name, value));
    [("curl", of(CURL)), ("python", of(PYTHON)), ("node", of(NODE)), ("go", of(GO)), ("java", of(JAVA))]
}
