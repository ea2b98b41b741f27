//! The codec against another one: each reads the other's output as the same value.

use bytes::{Bytes, BytesMut};
use fe2o3_amqp_types::{messaging, performatives, sasl, transaction};
use postroad_amqp::codec::{
    Array, Attach, Begin, Close, Composite, Coordinator, Declare, Declared, DeliveryState, Described, Detach,
    Discharge, Disposition, DistributionMode, End, Error, Field, Flow, Header, Modified, Open, Properties,
    Reader, ReceiverSettleMode, Rejected, Role, SaslCode, SaslInit, SaslMechanisms, SaslOutcome,
    SenderSettleMode, Source, SourceTerminus, Symbol, Target, TargetTerminus, TerminusDurability,
    TerminusExpiry, Timestamp, TransactionalState, Transfer, Value, ValueMap,
};
use proptest::prelude::*;
use serde_amqp::{from_slice, to_vec};

fn encoded(field: &impl Field) -> Bytes {
    let mut out = BytesMut::new();
    field.write(&mut out);
    out.freeze()
}

fn decoded<T: Field>(bytes: &[u8]) -> T {
    let bytes = Bytes::copy_from_slice(bytes);
    let mut reader = Reader::new(&bytes);
    let value = T::read(&mut reader).expect("what the other codec writes can be read");
    reader.finish().expect("and nothing is left over");
    value
}

/// Ours to theirs and back.
fn check<Theirs, Ours>(ours: &Ours)
where
    Theirs: serde::de::DeserializeOwned + serde::Serialize,
    Ours: Field + PartialEq + std::fmt::Debug,
{
    let theirs: Theirs = from_slice(&encoded(ours)).expect("the other codec reads what this one writes");
    let bytes = to_vec(&theirs).expect("the other codec writes what it has read");
    assert_eq!(&decoded::<Ours>(&bytes), ours);
}

fn leaf() -> impl Strategy<Value = Value> {
    let number = prop_oneof![Just(0_i64), -200..200_i64, any::<i64>()];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Boolean),
        any::<u8>().prop_map(Value::Ubyte),
        any::<u16>().prop_map(Value::Ushort),
        number.clone().prop_map(|number| Value::Uint(number as u32)),
        number.clone().prop_map(|number| Value::Ulong(number as u64)),
        any::<i8>().prop_map(Value::Byte),
        any::<i16>().prop_map(Value::Short),
        number.clone().prop_map(|number| Value::Int(number as i32)),
        number.prop_map(Value::Long),
        any::<i32>().prop_map(|number| Value::Float(number as f32 / 3.0)),
        any::<i64>().prop_map(|number| Value::Double(number as f64 / 3.0)),
        any::<[u8; 4]>().prop_map(Value::Decimal32),
        any::<[u8; 8]>().prop_map(Value::Decimal64),
        any::<[u8; 16]>().prop_map(Value::Decimal128),
        any::<char>().prop_map(Value::Char),
        any::<i64>().prop_map(Value::Timestamp),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        proptest::collection::vec(any::<u8>(), 0..300).prop_map(|bytes| Value::Binary(bytes.into())),
        ".{0,90}".prop_map(|text| Value::String(text.into())),
        symbol().prop_map(Value::Symbol),
        proptest::collection::vec(symbol(), 1..4)
            .prop_map(|symbols| Value::Array(Array::of_symbols(&symbols))),
    ]
}

fn symbol() -> impl Strategy<Value = Symbol> {
    let ascii = prop_oneof![9 => "[!-~]{0,20}", 1 => "[!-~]{256,270}"];
    ascii.prop_map(|text| Symbol::from_wire(text.into()).expect("ASCII"))
}

fn value() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(4, 60, 6, |inner| {
        let pair = ("[a-z]{1,9}".prop_map(|key| Value::String(key.into())), inner.clone());
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..6).prop_map(Value::List),
            proptest::collection::btree_map("[a-z]{1,9}", pair.1, 0..5).prop_map(|pairs| {
                let pairs = pairs.into_iter().map(|(key, value)| (Value::String(key.into()), value));
                Value::Map(ValueMap(pairs.collect()))
            }),
            (symbol(), inner).prop_map(|(descriptor, value)| {
                Value::Described(Box::new(Described { descriptor: Value::Symbol(descriptor), value }))
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_value_reads_alike(value in value()) {
        // Compared as bytes of this codec: the other one keeps maps in an order of its own.
        let ours = encoded(&value);
        let theirs: serde_amqp::Value = from_slice(&ours).expect("the other codec reads what this one writes");
        let back: Value = decoded(&to_vec(&theirs).expect("and writes it"));
        prop_assert_eq!(sorted(back), sorted(value));
    }
}

/// With the pairs of every map in order, and arrays as lists: the two codecs choose other
/// constructors for elements.
fn sorted(value: Value) -> Value {
    match value {
        Value::Map(ValueMap(pairs)) => {
            let mut pairs: Vec<_> =
                pairs.into_iter().map(|(key, value)| (sorted(key), sorted(value))).collect();
            pairs.sort_by_key(|(key, _)| format!("{key:?}"));
            Value::Map(ValueMap(pairs))
        }
        Value::Array(array) => Value::List(array.elements().expect("well-formed elements")),
        Value::List(values) => Value::List(values.into_iter().map(sorted).collect()),
        Value::Described(described) => {
            let Described { descriptor, value } = *described;
            Value::Described(Box::new(Described { descriptor, value: sorted(value) }))
        }
        other => other,
    }
}

fn fields() -> ValueMap {
    let mut map = ValueMap::default();
    map.push("product", "Postroad");
    map
}

fn symbols(names: &[&'static str]) -> Vec<Symbol> {
    names.iter().map(|name| Symbol::from_static(name)).collect()
}

fn error() -> Error {
    let condition = "amqp:not-found".into();
    Error { condition, description: Some("no such queue".into()), info: Some(fields()) }
}

#[test]
fn connections_and_sessions_read_alike() {
    check::<performatives::Open, _>(&Open { container_id: "c".into(), ..Open::default() });
    check::<performatives::Open, _>(&Open {
        container_id: "container".into(),
        hostname: Some("host".into()),
        max_frame_size: 65_536,
        channel_max: 255,
        idle_time_out: Some(30_000),
        offered_capabilities: symbols(&["ANONYMOUS-RELAY", "DELAYED_DELIVERY"]),
        desired_capabilities: symbols(&["sole-connection-for-container"]),
        properties: Some(fields()),
        ..Open::default()
    });
    check::<performatives::Begin, _>(&Begin {
        remote_channel: Some(300),
        next_outgoing_id: 0,
        incoming_window: 2048,
        outgoing_window: 7,
        handle_max: 1023,
        ..Begin::default()
    });
    check::<performatives::End, _>(&End { error: Some(error()) });
    check::<performatives::Close, _>(&Close::default());
}

#[test]
fn links_read_alike() {
    let source = Source {
        address: Some("orders".into()),
        durable: TerminusDurability::UnsettledState,
        expiry_policy: TerminusExpiry::Never,
        timeout: 300,
        distribution_mode: Some(DistributionMode::Copy),
        outcomes: symbols(&["amqp:accepted:list", "amqp:released:list"]),
        capabilities: symbols(&["queue"]),
        ..Source::default()
    };
    let target = Target { dynamic: true, capabilities: symbols(&["temporary-queue"]), ..Target::default() };
    check::<performatives::Attach, _>(&Attach {
        name: "link".into(),
        handle: 3,
        role: Role::Receiver,
        snd_settle_mode: SenderSettleMode::Settled,
        rcv_settle_mode: ReceiverSettleMode::Second,
        source: Some(SourceTerminus::Source(source)),
        target: Some(TargetTerminus::Target(target)),
        initial_delivery_count: Some(0),
        max_message_size: Some(1 << 40),
        properties: Some(fields()),
        ..Attach::default()
    });
    let coordinator = Coordinator { capabilities: symbols(&["amqp:local-transactions"]) };
    check::<performatives::Attach, _>(&Attach {
        name: "tx".into(),
        source: Some(SourceTerminus::Source(Source::default())),
        target: Some(TargetTerminus::Coordinator(coordinator)),
        ..Attach::default()
    });
    check::<performatives::Flow, _>(&Flow {
        next_incoming_id: Some(u32::MAX),
        incoming_window: 1,
        next_outgoing_id: 2,
        outgoing_window: 3,
        handle: Some(4),
        delivery_count: Some(5),
        link_credit: Some(6),
        available: Some(7),
        drain: true,
        echo: true,
        properties: None,
    });
    check::<performatives::Detach, _>(&Detach { handle: 256, closed: true, error: Some(error()) });
}

#[test]
fn deliveries_read_alike() {
    check::<performatives::Transfer, _>(&Transfer {
        handle: 1,
        delivery_id: Some(2),
        delivery_tag: Some(Bytes::from_static(b"tag")),
        message_format: Some(0),
        settled: Some(false),
        more: true,
        state: Some(DeliveryState::TransactionalState(TransactionalState {
            txn_id: Bytes::from_static(b"txn"),
            outcome: Some(Box::new(DeliveryState::Accepted(Default::default()))),
        })),
        batchable: true,
        ..Transfer::default()
    });
    let modified = Modified { delivery_failed: true, undeliverable_here: true, message_annotations: None };
    for state in [
        DeliveryState::Accepted(Default::default()),
        DeliveryState::Rejected(Rejected { error: Some(error()) }),
        DeliveryState::Released(Default::default()),
        DeliveryState::Modified(modified),
        DeliveryState::Declared(Declared { txn_id: Bytes::from_static(b"1") }),
    ] {
        check::<performatives::Disposition, _>(&Disposition {
            role: Role::Receiver,
            first: 0,
            last: Some(70_000),
            settled: true,
            state: Some(state),
            batchable: false,
        });
    }
    check::<transaction::Declare, _>(&Declare::default());
    check::<transaction::Discharge, _>(&Discharge { txn_id: Bytes::from_static(b"t"), fail: true });
}

#[test]
fn sections_read_alike() {
    check::<messaging::Header, _>(&Header::default());
    check::<messaging::Header, _>(&Header {
        durable: true,
        priority: 9,
        ttl: Some(1000),
        first_acquirer: true,
        delivery_count: 3,
    });
    check::<messaging::Properties, _>(&Properties {
        message_id: Some("ID:1".into()),
        user_id: Some(Bytes::from_static(b"me")),
        to: Some("orders".into()),
        subject: Some("type".into()),
        reply_to: Some("replies".into()),
        correlation_id: Some(Value::Uuid([7; 16])),
        content_type: Some("text/plain".into()),
        content_encoding: Some("gzip".into()),
        absolute_expiry_time: Some(Timestamp(1)),
        creation_time: Some(Timestamp(-1)),
        group_id: Some("group".into()),
        group_sequence: Some(300),
        reply_to_group_id: Some("back".into()),
    });
}

#[test]
fn sasl_reads_alike() {
    let sasl_server_mechanisms = symbols(&["PLAIN", "ANONYMOUS"]);
    check::<sasl::SaslMechanisms, _>(&SaslMechanisms { sasl_server_mechanisms });
    check::<sasl::SaslInit, _>(&SaslInit {
        mechanism: "PLAIN".into(),
        initial_response: Some(Bytes::from_static(b"\0me\0secret")),
        hostname: Some("host".into()),
    });
    check::<sasl::SaslOutcome, _>(&SaslOutcome { code: SaslCode::Auth, additional_data: None });
}

#[test]
fn descriptors_may_be_symbols() {
    let mut bytes = BytesMut::from(&b"\x00"[..]);
    Symbol::from_static(<End as Composite>::NAME).write(&mut bytes);
    bytes.extend_from_slice(b"\x45");
    assert_eq!(decoded::<End>(&bytes), End::default());
}
