"""A small OpenWire client: loose encoding, no caches, no threads. Tables as in docs/protocols/openwire.md."""

import select
import socket
import struct
import time

WIRE_FORMAT_INFO, CONNECTION_INFO, SESSION_INFO, CONSUMER_INFO, PRODUCER_INFO = 1, 3, 4, 5, 6
TRANSACTION_INFO, DESTINATION_INFO, KEEP_ALIVE, SHUTDOWN, REMOVE_INFO = 7, 8, 10, 11, 12
CONNECTION_ERROR, MESSAGE_DISPATCH, MESSAGE_ACK, TEXT_MESSAGE = 16, 21, 22, 28
RESPONSE, EXCEPTION_RESPONSE, MESSAGE_PULL = 30, 31, 20
QUEUE, TOPIC, TEMP_QUEUE = 100, 101, 102
DELIVERED, POISON, STANDARD, INDIVIDUAL = 0, 1, 2, 4
BEGIN, COMMIT, ROLLBACK = 0, 2, 4

COMMAND = "command_id:int response_required:bool "
REPLY = COMMAND + "correlation_id:int "
MESSAGE = COMMAND + (
    "producer_id:object destination:object transaction_id:object original_destination:object message_id:object "
    "original_transaction_id:object group_id:string group_sequence:int correlation_id:string persistent:bool "
    "expiration:long priority:byte reply_to:object timestamp:long type:string content:bytes properties:bytes "
    "data_structure:object target_consumer_id:object compressed:bool redelivery_counter:int broker_path:array "
    "arrival:long user_id:string received_by_bridge:bool droppable:bool cluster:array broker_in:long broker_out:long "
    "group_first:bool"
)
FIELDS = {
    1: "magic:magic version:int properties:bytes",
    2: COMMAND + "broker_id:object broker_url:string peers:array broker_name:string slave:bool master:bool "
    "fault_tolerant:bool duplex:bool network:bool connection_id:long upload_url:string network_properties:string",
    3: COMMAND + "connection_id:object client_id:string password:string user_name:string broker_path:array "
    "broker_master:bool manageable:bool client_master:bool fault_tolerant:bool failover_reconnect:bool client_ip:string",
    4: COMMAND + "session_id:object",
    5: COMMAND + "consumer_id:object browser:bool destination:object prefetch:int pending_limit:int "
    "dispatch_async:bool selector:string client_id:string subscription:string no_local:bool exclusive:bool "
    "retroactive:bool priority:byte broker_path:array predicate:object network:bool optimized:bool no_range:bool "
    "network_path:array",
    6: COMMAND + "producer_id:object destination:object broker_path:array dispatch_async:bool window:int",
    7: COMMAND + "connection_id:object transaction_id:object step:byte",
    8: COMMAND + "connection_id:object destination:object operation:byte timeout:long broker_path:array",
    9: COMMAND + "connection_id:object subscription:string client_id:string",
    10: COMMAND,
    11: COMMAND,
    12: COMMAND + "object_id:object last_delivered:long",
    16: COMMAND + "exception:throwable connection_id:object",
    18: COMMAND + "close:bool exit:bool fault_tolerant:bool resume:bool suspend:bool brokers:string reconnect:string "
    "rebalance:bool token:bytes",
    19: COMMAND + "producer_id:object size:int",
    20: COMMAND + "consumer_id:object destination:object timeout:long correlation_id:string message_id:object",
    21: COMMAND + "consumer_id:object destination:object message:object redelivery_counter:int",
    22: COMMAND + "destination:object transaction_id:object consumer_id:object ack_type:byte first:object last:object "
    "count:int poison_cause:throwable",
    28: MESSAGE,
    30: REPLY,
    31: REPLY + "exception:throwable",
    33: REPLY + "data:array",
    100: "name:string",
    101: "name:string",
    102: "name:string",
    103: "name:string",
    110: "text_view:string producer_id:object producer_sequence:long broker_sequence:long",
    111: "value:long connection_id:object",
    120: "value:string",
    121: "connection_id:string value:long",
    122: "connection_id:string session_id:long value:long",
    123: "connection_id:string value:long session_id:long",
    124: "value:string",
}
FIELDS = {kind: [pair.split(":") for pair in text.split()] for kind, text in FIELDS.items()}
FIELDS[23] = FIELDS[28]


class Gone(Exception):
    """The broker has ended the connection."""


class Refused(Exception):
    """The broker said no: class and text of its exception."""

    def __init__(self, java_class, text):
        super().__init__(f"{java_class}: {text}")
        self.java_class, self.text = java_class, text


def string(text):
    if text is None:
        return b"\0"
    data = text if isinstance(text, bytes) else text.encode()
    return b"\1" + struct.pack(">H", len(data)) + data


def nested(value):
    return b"\0" if value is None else b"\1" + encode(value)


def blob(value):
    return b"\0" if value is None else b"\1" + struct.pack(">i", len(value)) + value


WRITE = {
    "int": lambda value: struct.pack(">i", value or 0),
    "long": lambda value: struct.pack(">q", value or 0),
    "byte": lambda value: bytes([value or 0]),
    "bool": lambda value: b"\1" if value else b"\0",
    "string": string,
    "object": nested,
    "bytes": blob,
    "array": lambda value: b"\0",
    "throwable": lambda value: b"\0",
    "magic": lambda value: b"ActiveMQ",
}


def encode(value):
    """A structure `(type id, {field: value})` without a frame around it."""
    kind, fields = value
    return bytes([kind]) + b"".join(WRITE[form](fields.get(name)) for name, form in FIELDS[kind])


def frame(kind, **fields):
    body = encode((kind, fields))
    return struct.pack(">i", len(body)) + body


class Reader:
    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, count):
        self.at += count
        return self.data[self.at - count : self.at]

    def number(self, form):
        value = struct.unpack_from(">" + form, self.data, self.at)[0]
        self.at += struct.calcsize(form)
        return value

    def field(self, form):
        if form in ("int", "long", "byte"):
            return self.number({"int": "i", "long": "q", "byte": "B"}[form])
        if form == "bool":
            return self.number("B") != 0
        if form == "magic":
            return self.take(8)
        if not self.number("B"):
            return None
        if form == "string":
            return self.take(self.number("H"))
        if form == "bytes":
            return self.take(self.number("i"))
        if form == "array":
            return [self.field("object") for _ in range(self.number("H"))]
        if form == "throwable":
            return self.field("string"), self.field("string")
        return self.structure()

    def structure(self):
        kind = self.number("B")
        if kind not in FIELDS:
            return kind, {}
        return kind, {name: self.field(form) for name, form in FIELDS[kind]}


def decode(data):
    return Reader(data).structure()


def utf(text):
    data = text.encode()
    return struct.pack(">H", len(data)) + data


def wire_format(version=12, inactivity_ms=0, extra=(), properties=None):
    """The first frame. `extra`: encoded map entries besides the usual ones."""
    entries = [
        utf("MaxInactivityDuration") + b"\6" + struct.pack(">q", inactivity_ms),
        utf("TcpNoDelayEnabled") + b"\1\1",
        *extra,
    ]
    if properties is None:
        properties = struct.pack(">i", len(entries)) + b"".join(entries)
    return frame(WIRE_FORMAT_INFO, version=version, properties=properties)


def queue(name):
    return QUEUE, {"name": name}


def topic(name):
    return TOPIC, {"name": name}


def dial(port, source=None):
    peer = socket.socket()
    if source:
        peer.bind((source, 0))
    peer.settimeout(10)
    peer.connect(("127.0.0.1", port))
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return peer


class Client:
    """One connection with one session. Deliveries that come while an answer is awaited are kept in `inbox`."""

    count = 0

    def __init__(self, port, name=None, connect=True, client_id=None, info=None):
        Client.count += 1
        self.name = name or f"ID:hostile-{Client.count}"
        self.peer = dial(port)
        self.buffer = bytearray()
        self.inbox, self.answers, self.errors = [], {}, []
        self.commands = self.sent = self.consumers = 0
        self.info = None
        if connect:
            self.peer.sendall(info or wire_format())
            self.call(CONNECTION_INFO, connection_id=(120, {"value": self.name}), client_id=client_id or self.name)

    def close(self):
        self.peer.close()

    def next_command(self):
        self.commands += 1
        return self.commands

    def push(self, kind, wait=False, **fields):
        """Sends a command; returns its number."""
        number = self.next_command()
        try:
            self.peer.sendall(frame(kind, command_id=number, response_required=wait, **fields))
        except OSError as error:
            raise Gone(str(error)) from error
        return number

    def call(self, kind, seconds=10, **fields):
        return self.answer(self.push(kind, True, **fields), seconds)

    def answer(self, number, seconds=10):
        """Waits for one response; raises `Refused` if it is an exception."""
        until = time.monotonic() + seconds
        while number not in self.answers:
            self.read(until - time.monotonic())
        kind, fields = self.answers.pop(number)
        if kind == EXCEPTION_RESPONSE:
            java_class, text = fields["exception"]
            raise Refused(java_class.decode(), text.decode())
        return fields

    def read(self, seconds):
        """Reads once from the socket, and sorts what came; `TimeoutError` if nothing does."""
        if seconds <= 0 or not select_read(self.peer, seconds):
            raise TimeoutError("no answer from the broker")
        try:
            data = self.peer.recv(1 << 18)
        except OSError as error:
            raise Gone(str(error)) from error
        if not data:
            raise Gone("closed by the broker")
        self.buffer += data
        self.sort()

    def sort(self):
        at = 0
        while len(self.buffer) - at >= 4:
            size = struct.unpack_from(">i", self.buffer, at)[0]
            if len(self.buffer) - at - 4 < size:
                break
            self.keep(decode(bytes(self.buffer[at + 4 : at + 4 + size])))
            at += 4 + size
        del self.buffer[:at]

    def keep(self, command):
        kind, fields = command
        if kind == MESSAGE_DISPATCH:
            self.inbox.append(fields)
        elif kind in (RESPONSE, EXCEPTION_RESPONSE, 32, 33, 34):
            self.answers[fields["correlation_id"]] = command
        elif kind == CONNECTION_ERROR:
            self.errors.append(fields["exception"])
        elif kind == WIRE_FORMAT_INFO:
            self.info = fields

    def publish(self, destination, text, persistent=True, wait=True, transaction=None):
        """Sends a text; with `wait` the response is asked for (not awaited). Returns the command's number."""
        self.sent += 1
        data = text if isinstance(text, bytes) else text.encode()
        producer = (123, {"connection_id": self.name, "value": 1, "session_id": 1})
        return self.push(
            TEXT_MESSAGE, wait, producer_id=producer, destination=destination, transaction_id=transaction,
            message_id=(110, {"producer_id": producer, "producer_sequence": self.sent}),
            persistent=persistent, priority=4, content=struct.pack(">i", len(data)) + data,
        )

    def send(self, destination, text, persistent=True, seconds=10, transaction=None):
        self.answer(self.publish(destination, text, persistent, transaction=transaction), seconds)

    def consumer_id(self, number):
        return 122, {"connection_id": self.name, "session_id": 1, "value": number}

    def consume(self, destination, prefetch=100, seconds=10):
        """Attaches a consumer; returns its id."""
        self.consumers += 1
        consumer = self.consumer_id(self.consumers)
        self.call(CONSUMER_INFO, seconds, consumer_id=consumer, destination=destination, prefetch=prefetch, priority=0)
        return consumer

    def take(self, seconds=5):
        """The next delivery."""
        until = time.monotonic() + seconds
        while not self.inbox:
            self.read(until - time.monotonic())
        return self.inbox.pop(0)

    def ack(self, delivery, wait=True, kind=INDIVIDUAL, transaction=None):
        """Acknowledges; returns the command's number."""
        last = delivery["message"][1]["message_id"]
        return self.push(
            MESSAGE_ACK, wait, destination=delivery["destination"], consumer_id=delivery["consumer_id"],
            transaction_id=transaction, ack_type=kind, first=last, last=last, count=1,
        )

    def transaction(self, number):
        return 111, {"value": number, "connection_id": (120, {"value": self.name})}

    def step(self, kind, number, owner=None):
        transaction = (owner or self).transaction(number)
        self.call(TRANSACTION_INFO, connection_id=(120, {"value": self.name}), transaction_id=transaction, step=kind)


def select_read(peer, seconds):
    poll = select.poll()
    poll.register(peer, select.POLLIN)
    return poll.poll(seconds * 1000)


def body(delivery):
    return delivery["message"][1]["content"][4:]


def counter(delivery):
    return delivery["redelivery_counter"]
