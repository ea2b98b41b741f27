//! The table of composite types: performatives, SASL frames, message sections, terminus types,
//! delivery states, transactions. Numbers in brackets are sections of the standard.

use bytes::{Bytes, BytesMut};

use super::composite::{Composite, Fields, put_composite, put_optional};
use super::kinds::{
    DistributionMode, ReceiverSettleMode, Role, SaslCode, SenderSettleMode, TerminusDurability,
    TerminusExpiry, Timestamp,
};
use super::reader::{DESCRIBED, Reader};
use super::{Field, Symbol, Text, Value, ValueMap, WireError};

composites! {
    /// Negotiates the connection (2.7.1).
    0x10 "amqp:open:list" Open {
        container_id: required(Text),
        hostname: optional(Text),
        max_frame_size: default(u32 = u32::MAX),
        channel_max: default(u16 = u16::MAX),
        idle_time_out: optional(u32),
        outgoing_locales: symbols,
        incoming_locales: symbols,
        offered_capabilities: symbols,
        desired_capabilities: symbols,
        properties: optional(ValueMap),
    }

    /// Begins a session on a channel (2.7.2).
    0x11 "amqp:begin:list" Begin {
        remote_channel: optional(u16),
        next_outgoing_id: required(u32),
        incoming_window: required(u32),
        outgoing_window: required(u32),
        handle_max: default(u32 = u32::MAX),
        offered_capabilities: symbols,
        desired_capabilities: symbols,
        properties: optional(ValueMap),
    }

    /// Attaches a link to a session (2.7.3).
    0x12 "amqp:attach:list" Attach {
        name: required(Text),
        handle: required(u32),
        role: required(Role),
        snd_settle_mode: default(SenderSettleMode = SenderSettleMode::Mixed),
        rcv_settle_mode: default(ReceiverSettleMode = ReceiverSettleMode::First),
        source: optional(SourceTerminus),
        target: optional(TargetTerminus),
        unsettled: optional(ValueMap),
        incomplete_unsettled: default(bool = false),
        initial_delivery_count: optional(u32),
        max_message_size: optional(u64),
        offered_capabilities: symbols,
        desired_capabilities: symbols,
        properties: optional(ValueMap),
    }

    /// Says how much may be sent (2.7.4).
    0x13 "amqp:flow:list" Flow {
        next_incoming_id: optional(u32),
        incoming_window: required(u32),
        next_outgoing_id: required(u32),
        outgoing_window: required(u32),
        handle: optional(u32),
        delivery_count: optional(u32),
        link_credit: optional(u32),
        available: optional(u32),
        drain: default(bool = false),
        echo: default(bool = false),
        properties: optional(ValueMap),
    }

    /// Carries a message, or a part of one, after it in the frame (2.7.5).
    0x14 "amqp:transfer:list" Transfer {
        handle: required(u32),
        delivery_id: optional(u32),
        delivery_tag: optional(Bytes),
        message_format: optional(u32),
        settled: optional(bool),
        more: default(bool = false),
        rcv_settle_mode: optional(ReceiverSettleMode),
        state: optional(DeliveryState),
        resume: default(bool = false),
        aborted: default(bool = false),
        batchable: default(bool = false),
    }

    /// The outcome of deliveries (2.7.6).
    0x15 "amqp:disposition:list" Disposition {
        role: required(Role),
        first: required(u32),
        last: optional(u32),
        settled: default(bool = false),
        state: optional(DeliveryState),
        batchable: default(bool = false),
    }

    /// Detaches a link (2.7.7).
    0x16 "amqp:detach:list" Detach {
        handle: required(u32),
        closed: default(bool = false),
        error: optional(Error),
    }

    /// Ends a session (2.7.8).
    0x17 "amqp:end:list" End {
        error: optional(Error),
    }

    /// Closes the connection (2.7.9).
    0x18 "amqp:close:list" Close {
        error: optional(Error),
    }

    /// An error (2.8.14).
    0x1d "amqp:error:list" Error {
        condition: required(Symbol),
        description: optional(Text),
        info: optional(ValueMap),
    }

    /// The server's mechanisms (5.3.3.1).
    0x40 "amqp:sasl-mechanisms:list" SaslMechanisms {
        sasl_server_mechanisms: symbols,
    }

    /// The client's choice, and its first word (5.3.3.2).
    0x41 "amqp:sasl-init:list" SaslInit {
        mechanism: required(Symbol),
        initial_response: optional(Bytes),
        hostname: optional(Text),
    }

    /// The server asks (5.3.3.3).
    0x42 "amqp:sasl-challenge:list" SaslChallenge {
        challenge: required(Bytes),
    }

    /// The client answers (5.3.3.4).
    0x43 "amqp:sasl-response:list" SaslResponse {
        response: required(Bytes),
    }

    /// The end of it (5.3.3.5).
    0x44 "amqp:sasl-outcome:list" SaslOutcome {
        code: required(SaslCode),
        additional_data: optional(Bytes),
    }

    /// How far a delivery has come (3.4.1).
    0x23 "amqp:received:list" Received {
        section_number: required(u32),
        section_offset: required(u64),
    }

    /// Done with it (3.4.2).
    0x24 "amqp:accepted:list" Accepted {}

    /// Invalid, and never to be processed (3.4.3).
    0x25 "amqp:rejected:list" Rejected {
        error: optional(Error),
    }

    /// Not processed, and not looked at (3.4.4).
    0x26 "amqp:released:list" Released {}

    /// Not processed, and changed (3.4.5).
    0x27 "amqp:modified:list" Modified {
        delivery_failed: default(bool = false),
        undeliverable_here: default(bool = false),
        message_annotations: optional(ValueMap),
    }

    /// Where a link's messages come from (3.5.3).
    0x28 "amqp:source:list" Source {
        address: optional(Text),
        durable: default(TerminusDurability = TerminusDurability::None),
        expiry_policy: default(TerminusExpiry = TerminusExpiry::SessionEnd),
        timeout: default(u32 = 0),
        dynamic: default(bool = false),
        dynamic_node_properties: optional(ValueMap),
        distribution_mode: optional(DistributionMode),
        filter: optional(ValueMap),
        default_outcome: optional(Box<DeliveryState>),
        outcomes: symbols,
        capabilities: symbols,
    }

    /// Where a link's messages go to (3.5.4).
    0x29 "amqp:target:list" Target {
        address: optional(Text),
        durable: default(TerminusDurability = TerminusDurability::None),
        expiry_policy: default(TerminusExpiry = TerminusExpiry::SessionEnd),
        timeout: default(u32 = 0),
        dynamic: default(bool = false),
        dynamic_node_properties: optional(ValueMap),
        capabilities: symbols,
    }

    /// The target that transactions are begun and ended at (4.5.1).
    0x30 "amqp:coordinator:list" Coordinator {
        capabilities: symbols,
    }

    /// Begin a transaction (4.5.2).
    0x31 "amqp:declare:list" Declare {
        global_id: optional(Value),
    }

    /// End a transaction (4.5.3).
    0x32 "amqp:discharge:list" Discharge {
        txn_id: required(Bytes),
        fail: default(bool = false),
    }

    /// A transaction has begun (4.5.5).
    0x33 "amqp:declared:list" Declared {
        txn_id: required(Bytes),
    }

    /// The outcome of a delivery if its transaction commits (4.5.8).
    0x34 "amqp:transactional-state:list" TransactionalState {
        txn_id: required(Bytes),
        outcome: optional(Box<DeliveryState>),
    }

    /// How a message is to be delivered (3.2.1).
    0x70 "amqp:header:list" Header {
        durable: default(bool = false),
        priority: default(u8 = 4),
        ttl: optional(u32),
        first_acquirer: default(bool = false),
        delivery_count: default(u32 = 0),
    }

    /// The standard properties of a message (3.2.4).
    0x73 "amqp:properties:list" Properties {
        message_id: optional(Value),
        user_id: optional(Bytes),
        to: optional(Text),
        subject: optional(Text),
        reply_to: optional(Text),
        correlation_id: optional(Value),
        content_type: optional(Symbol),
        content_encoding: optional(Symbol),
        absolute_expiry_time: optional(Timestamp),
        creation_time: optional(Timestamp),
        group_id: optional(Text),
        group_sequence: optional(u32),
        reply_to_group_id: optional(Text),
    }
}

unions! {
    /// The body of an AMQP frame.
    Performative { Open, Begin, Attach, Flow, Transfer, Disposition, Detach, End, Close, }

    /// The body of a SASL frame.
    SaslFrame { SaslMechanisms, SaslInit, SaslChallenge, SaslResponse, SaslOutcome, }

    /// State of a delivery, outcomes among them.
    DeliveryState {
        Accepted, Rejected, Released, Modified, Received, Declared, TransactionalState, .. Other
    }

    /// The source of a link.
    SourceTerminus { Source, .. Other }

    /// The target of a link.
    TargetTerminus { Target, Coordinator, .. Other }

    /// The body of a message to a coordinator.
    TransactionStep { Declare, Discharge, }
}
