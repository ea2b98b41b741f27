//! `postroad send`: messages from the command line, a file or standard input to a queue or topic.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::{ArgGroup, Args};
use postroad_bench::{Link, Stop, Waited};
use postroad_openwire::client::{ClientEvent, Outgoing, OutgoingBody, RequestId, message_id_text};
use postroad_openwire::codec::{Destination, Message, Primitive};
use serde::Serialize;

use crate::cli::link::ConnectArguments;
use crate::cli::names::{destination_text, parse_destination, parse_property};
use crate::cli::progress::Progress;
use crate::runtime::now_ms;

/// Frames gather until this number of bytes waits for the socket.
const OUTPUT_BYTES: usize = 64 << 10;

/// No frame can be larger, so no body either.
const BODY_BYTES_MAX: u64 = i32::MAX as u64;

/// Confirmations that may be outstanding. They are small frames: this number fits in a broker's and
/// the system's buffers while we are busy writing.
const WINDOW_MAX: i64 = 4096;

/// Confirmations of messages that are not kept on disk; waiting for each would gain nothing.
const WINDOW_NON_PERSISTENT: u16 = 1024;

/// While no line comes the connection is kept alive this often.
const KEPT_ALIVE_EVERY: Duration = Duration::from_secs(1);

/// Arguments of `send`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("source").required(true).args(["body", "file", "lines"]))]
pub struct SendArguments {
    /// Destination: queue://NAME, topic://NAME, or NAME for a queue.
    #[arg(value_parser = parse_destination)]
    destination: Destination,
    #[command(flatten)]
    connect: ConnectArguments,
    /// Body of the message.
    #[arg(long, value_name = "TEXT")]
    body: Option<String>,
    /// File with the body; - for standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// One message for each line of standard input.
    #[arg(long)]
    lines: bool,
    /// Number of copies.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "lines", value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,
    /// Property of the message: NAME=TEXT or NAME:TYPE=VALUE; repeatable.
    #[arg(long = "property", value_name = "NAME=VALUE", value_parser = parse_property)]
    properties: Vec<(String, Primitive)>,
    /// JMSType of the message.
    #[arg(long = "type", value_name = "TEXT")]
    message_type: Option<String>,
    /// JMSCorrelationID of the message.
    #[arg(long, value_name = "TEXT")]
    correlation_id: Option<String>,
    /// Destination of replies (JMSReplyTo).
    #[arg(long, value_name = "DESTINATION", value_parser = parse_destination)]
    reply_to: Option<Destination>,
    /// Priority from 0 to 9.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: u8,
    /// Time to live in milliseconds; 0 for no expiry.
    #[arg(long, value_name = "MS", default_value_t = 0)]
    ttl: u64,
    /// Send non-persistent messages.
    #[arg(long)]
    non_persistent: bool,
    /// Send bytes messages instead of text messages.
    #[arg(long)]
    bytes: bool,
    /// Maximum number of unconfirmed sends [default: 1, with --non-persistent 1024].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=WINDOW_MAX))]
    window: Option<u16>,
    /// Print the result as one JSON object.
    #[arg(long)]
    json: bool,
}

/// The result for machines.
#[derive(Serialize)]
struct Summary {
    destination: String,
    sent: u64,
    body_bytes: u64,
    seconds: f64,
    messages_per_second: f64,
    first_message_id: Option<String>,
    last_message_id: Option<String>,
}

/// Sends, and prints how many.
pub fn run(arguments: &SendArguments) -> anyhow::Result<()> {
    let bodies = bodies(arguments)?;
    let total = (!arguments.lines).then_some(arguments.count);
    let place = destination_text(&arguments.destination);
    let window = if arguments.non_persistent { WINDOW_NON_PERSISTENT } else { 1 };
    let mut sender = Sender {
        link: arguments.connect.open(&Stop::never())?,
        arguments,
        template: None,
        outstanding: VecDeque::new(),
        window: arguments.window.unwrap_or(window).into(),
        progress: Progress::new("sent", total),
        body_bytes: 0,
        first_message_id: None,
        last_message_id: None,
    };
    let sent = sender.send_all(bodies);
    let summary = sender.progress.summary(&format!("to {place}"));
    sent.with_context(|| format!("{summary}, then stopped"))?;
    let result = Summary {
        destination: place,
        sent: sender.progress.count(),
        body_bytes: sender.body_bytes,
        seconds: sender.progress.seconds(),
        messages_per_second: sender.progress.rate(),
        first_message_id: sender.first_message_id,
        last_message_id: sender.last_message_id,
    };
    sender.link.close()?;
    let mut out = std::io::stdout();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string(&result)?)?;
    } else {
        writeln!(out, "{summary}")?;
    }
    Ok(())
}

struct Sender<'a> {
    link: Link,
    arguments: &'a SendArguments,
    /// The body that was sent last, and the message that was made of it.
    template: Option<(OutgoingBody, Message)>,
    outstanding: VecDeque<RequestId>,
    window: usize,
    progress: Progress,
    body_bytes: u64,
    first_message_id: Option<String>,
    last_message_id: Option<String>,
}

impl Sender<'_> {
    fn send_all(&mut self, bodies: Bodies) -> anyhow::Result<()> {
        match bodies {
            Bodies::Same { body, count } => (0..count).try_for_each(|_| self.send(body.clone()))?,
            Bodies::Lines(lines) => self.send_lines(lines)?,
        }
        while !self.outstanding.is_empty() {
            self.confirmation()?;
        }
        Ok(())
    }

    /// Lines come in their own time: the broker must hear of this client meanwhile.
    fn send_lines(&mut self, lines: Lines<std::io::Stdin>) -> anyhow::Result<()> {
        let (says, said) = sync_channel(1);
        std::thread::spawn(move || lines.read_to(&says));
        loop {
            match said.recv_timeout(KEPT_ALIVE_EVERY) {
                Ok(bodies) => bodies.into_iter().try_for_each(|body| self.send(body?))?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
            self.exchange()?;
        }
    }

    fn send(&mut self, body: OutgoingBody) -> anyhow::Result<()> {
        while self.outstanding.len() >= self.window {
            self.confirmation()?;
        }
        if self.link.unwritten_bytes() >= OUTPUT_BYTES {
            self.exchange()?;
        }
        let bytes = match &body {
            OutgoingBody::Text(text) => text.len(),
            OutgoingBody::Bytes(bytes) => bytes.len(),
        };
        let message = self.message(body)?;
        let (request, id) = self.link.client().send(message, true)?;
        let id = message_id_text(&id);
        self.first_message_id.get_or_insert_with(|| id.clone());
        self.last_message_id = Some(id);
        self.body_bytes += bytes as u64;
        self.outstanding.push_back(request);
        Ok(())
    }

    /// The message of a body; the previous one is used again if it is the same.
    fn message(&mut self, body: OutgoingBody) -> anyhow::Result<Message> {
        let now = now_ms();
        let arguments = self.arguments;
        let expires_at_ms = if arguments.ttl == 0 { 0 } else { now.saturating_add(arguments.ttl) };
        if let Some((_, message)) = self.template.as_ref().filter(|(last, _)| *last == body) {
            let mut message = message.clone();
            message.timestamp_ms = i64::try_from(now)?;
            message.expiration_ms = i64::try_from(expires_at_ms).unwrap_or(i64::MAX);
            return Ok(message);
        }
        let outgoing = Outgoing {
            destination: arguments.destination.clone(),
            body,
            properties: arguments.properties.clone(),
            persistent: !arguments.non_persistent,
            priority: arguments.priority,
            timestamp_ms: now,
            expires_at_ms,
            message_type: arguments.message_type.clone(),
            correlation_id: arguments.correlation_id.clone(),
            reply_to: arguments.reply_to.clone(),
        };
        let message = outgoing.to_message()?;
        self.template = Some((outgoing.body, message.clone()));
        Ok(message)
    }

    /// Waits for one confirmation.
    fn confirmation(&mut self) -> anyhow::Result<()> {
        match self.link.wait(None)? {
            Waited::Event(event) => {
                self.take(&event);
                Ok(())
            }
            Waited::Timeout | Waited::Stopped => bail!("interrupted"),
        }
    }

    /// Writes the gathered frames, and takes the broker's answers meanwhile.
    fn exchange(&mut self) -> anyhow::Result<()> {
        self.link.exchange()?;
        while let Some(event) = self.link.at_hand()? {
            self.take(&event);
        }
        Ok(())
    }

    /// Confirmations come in the order of their sends as a rule, which makes the search short.
    fn take(&mut self, event: &ClientEvent) {
        if let ClientEvent::Done(request) = event
            && let Some(index) = self.outstanding.iter().position(|waiting| waiting == request)
        {
            self.outstanding.remove(index);
            self.progress.add(1);
        }
    }
}

/// The bodies to send.
enum Bodies {
    Same { body: OutgoingBody, count: u64 },
    Lines(Lines<std::io::Stdin>),
}

/// One body for each line, read as they are wanted.
struct Lines<R> {
    input: BufReader<R>,
    number: u64,
    as_bytes: bool,
}

fn bodies(arguments: &SendArguments) -> anyhow::Result<Bodies> {
    if arguments.lines {
        let input = BufReader::new(std::io::stdin());
        return Ok(Bodies::Lines(Lines { input, number: 0, as_bytes: arguments.bytes }));
    }
    let (bytes, name) = match (&arguments.body, &arguments.file) {
        (Some(body), _) => (body.clone().into_bytes(), "--body".to_owned()),
        (None, Some(file)) => (read_file(file)?, file.display().to_string()),
        (None, None) => bail!("nothing to send: give --body, --file or --lines"),
    };
    Ok(Bodies::Same { body: body(bytes, arguments.bytes, &name)?, count: arguments.count })
}

fn read_file(file: &PathBuf) -> anyhow::Result<Vec<u8>> {
    let cannot = || format!("cannot read {}", file.display());
    let input: Box<dyn Read> = if file.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(file).with_context(cannot)?)
    };
    let mut bytes = Vec::new();
    input.take(BODY_BYTES_MAX + 1).read_to_end(&mut bytes).with_context(cannot)?;
    if bytes.len() as u64 > BODY_BYTES_MAX {
        bail!("{} exceeds the maximum message size ({BODY_BYTES_MAX} bytes)", file.display());
    }
    Ok(bytes)
}

fn body(bytes: Vec<u8>, as_bytes: bool, name: &str) -> anyhow::Result<OutgoingBody> {
    if as_bytes {
        return Ok(OutgoingBody::Bytes(bytes.into()));
    }
    let text = String::from_utf8(bytes).map_err(|error| error.utf8_error().valid_up_to());
    text.map(OutgoingBody::Text).map_err(|offset| {
        anyhow::anyhow!("{name} is not valid UTF-8 at byte {offset}; use --bytes to send it as bytes")
    })
}

impl<R: Read> Lines<R> {
    /// Passes the lines on: together as far as they are at hand, as the next one may take its time.
    /// Ends with the input, with a line that cannot be sent, or if no more are wanted.
    fn read_to(mut self, says: &SyncSender<Vec<anyhow::Result<OutgoingBody>>>) {
        let mut goes_on = true;
        while goes_on {
            let mut bodies = Vec::new();
            while goes_on && (bodies.is_empty() || !self.input.buffer().is_empty()) {
                self.number += 1;
                let body = read_line(&mut self.input, self.number, self.as_bytes).transpose();
                goes_on = matches!(body, Some(Ok(_)));
                bodies.extend(body);
            }
            if says.send(bodies).is_err() {
                return;
            }
        }
    }
}

/// The next line without its end; `None` after the last.
fn read_line(input: &mut impl BufRead, number: u64, as_bytes: bool) -> anyhow::Result<Option<OutgoingBody>> {
    let mut line = Vec::new();
    let read = input.take(BODY_BYTES_MAX + 1).read_until(b'\n', &mut line);
    if read.context("cannot read standard input")? == 0 {
        return Ok(None);
    }
    if line.len() as u64 > BODY_BYTES_MAX {
        bail!("line {number} exceeds the maximum message size ({BODY_BYTES_MAX} bytes)");
    }
    if line.ends_with(b"\n") {
        line.pop();
        if line.ends_with(b"\r") {
            line.pop();
        }
    }
    body(line, as_bytes, &format!("line {number}")).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_at_hand_are_passed_on_together_up_to_the_first_that_cannot_be_sent() {
        // Each part of the chain comes by a read of its own, as from a pipe.
        let input = (&b"a\nb\n"[..]).chain(&b"c\n\xFF\nd\n"[..]).chain(&b"e\n"[..]);
        let (says, said) = sync_channel(9);
        Lines { input: BufReader::new(input), number: 0, as_bytes: false }.read_to(&says);
        drop(says);
        let text = |body: anyhow::Result<OutgoingBody>| match body {
            Ok(OutgoingBody::Text(text)) => text,
            other => other.unwrap_err().to_string(),
        };
        let parts: Vec<Vec<String>> = said.iter().map(|part| part.into_iter().map(text).collect()).collect();
        let wrong = "line 4 is not valid UTF-8 at byte 0; use --bytes to send it as bytes";
        assert_eq!(parts, [vec!["a", "b"], vec!["c", wrong]]);
    }

    #[test]
    fn lines_become_bodies_without_their_ends() {
        let text = |text: &str| Some(OutgoingBody::Text(text.to_owned()));
        for (case, input, want) in [
            ("line", &b"a\nb\n"[..], text("a")),
            ("last line without end", b"a", text("a")),
            ("empty line", b"\nb", text("")),
            ("line from Windows", b"a\r\n", text("a")),
            ("nothing", b"", None),
        ] {
            let mut input = input;
            assert_eq!(read_line(&mut input, 1, false).unwrap(), want, "case: {case}");
        }
        let error = read_line(&mut &b"a\xFF\n"[..], 7, false).unwrap_err();
        assert_eq!(error.to_string(), "line 7 is not valid UTF-8 at byte 1; use --bytes to send it as bytes");
        let bytes = read_line(&mut &b"a\xFF\n"[..], 7, true).unwrap();
        assert_eq!(bytes, Some(OutgoingBody::Bytes(b"a\xFF"[..].to_vec().into())));
    }
}
