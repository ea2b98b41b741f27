//! Errors of SQS: one code for the JSON protocol, one for the query protocol, and an HTTP status.

use postroad_model::{Refusal, Stale};
use serde_json::{Value, json};

/// An answer that refuses a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SqsError {
    /// The kind of error.
    pub code: Code,
    /// The reason, and the right input.
    pub message: String,
}

macro_rules! codes {
    ($($Code:ident: $json:literal, $query:literal, $status:literal;)*) => {
        /// The kinds of errors.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[allow(missing_docs, reason = "named as the API names them")]
        pub enum Code { $($Code,)* }

        impl Code {
            /// `__type` of the JSON protocol.
            pub fn json(self) -> &'static str {
                match self { $(Code::$Code => $json,)* }
            }

            /// `Code` of the query protocol.
            pub fn query(self) -> &'static str {
                match self { $(Code::$Code => $query,)* }
            }

            /// The HTTP status.
            pub fn status(self) -> u16 {
                match self { $(Code::$Code => $status,)* }
            }
        }
    };
}

codes! {
    AccessDenied: "com.amazon.coral.service#AccessDeniedException", "AccessDenied", 403;
    BatchEntryIdsNotDistinct: "com.amazonaws.sqs#BatchEntryIdsNotDistinct", "AWS.SimpleQueueService.BatchEntryIdsNotDistinct", 400;
    BatchRequestTooLong: "com.amazonaws.sqs#BatchRequestTooLong", "AWS.SimpleQueueService.BatchRequestTooLong", 400;
    EmptyBatchRequest: "com.amazonaws.sqs#EmptyBatchRequest", "AWS.SimpleQueueService.EmptyBatchRequest", 400;
    IncompleteSignature: "com.amazon.coral.service#IncompleteSignatureException", "IncompleteSignature", 400;
    InternalFailure: "com.amazon.coral.service#InternalFailure", "InternalFailure", 500;
    InvalidAction: "com.amazon.coral.service#UnknownOperationException", "InvalidAction", 400;
    InvalidAddress: "com.amazonaws.sqs#InvalidAddress", "InvalidAddress", 404;
    InvalidAttributeName: "com.amazonaws.sqs#InvalidAttributeName", "InvalidAttributeName", 400;
    InvalidAttributeValue: "com.amazonaws.sqs#InvalidAttributeValue", "InvalidAttributeValue", 400;
    InvalidBatchEntryId: "com.amazonaws.sqs#InvalidBatchEntryId", "AWS.SimpleQueueService.InvalidBatchEntryId", 400;
    InvalidClientTokenId: "com.amazon.coral.service#UnrecognizedClientException", "InvalidClientTokenId", 403;
    InvalidMessageContents: "com.amazonaws.sqs#InvalidMessageContents", "InvalidMessageContents", 400;
    InvalidParameterValue: "com.amazon.coral.service#InvalidParameterValueException", "InvalidParameterValue", 400;
    InvalidSignature: "com.amazon.coral.service#InvalidSignatureException", "SignatureDoesNotMatch", 403;
    MalformedInput: "com.amazon.coral.service#SerializationException", "MalformedInput", 400;
    MessageNotInflight: "com.amazonaws.sqs#MessageNotInflight", "AWS.SimpleQueueService.MessageNotInflight", 400;
    MissingAuthenticationToken: "com.amazon.coral.service#MissingAuthenticationTokenException", "MissingAuthenticationToken", 403;
    MissingParameter: "com.amazon.coral.service#MissingRequiredParameterException", "MissingParameter", 400;
    OverLimit: "com.amazonaws.sqs#OverLimit", "OverLimit", 403;
    QueueDoesNotExist: "com.amazonaws.sqs#QueueDoesNotExist", "AWS.SimpleQueueService.NonExistentQueue", 400;
    QueueNameExists: "com.amazonaws.sqs#QueueNameExists", "QueueAlreadyExists", 400;
    ReceiptHandleIsInvalid: "com.amazonaws.sqs#ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 400;
    RequestEntityTooLarge: "com.amazon.coral.service#RequestEntityTooLargeException", "RequestEntityTooLarge", 413;
    RequestExpired: "com.amazon.coral.service#RequestExpired", "RequestExpired", 400;
    ResourceNotFound: "com.amazonaws.sqs#ResourceNotFoundException", "ResourceNotFoundException", 404;
    ServiceUnavailable: "com.amazon.coral.service#ServiceUnavailableException", "ServiceUnavailable", 503;
    RequestThrottled: "com.amazonaws.sqs#RequestThrottled", "RequestThrottled", 400;
    TooManyEntriesInBatchRequest: "com.amazonaws.sqs#TooManyEntriesInBatchRequest", "AWS.SimpleQueueService.TooManyEntriesInBatchRequest", 400;
    UnsupportedOperation: "com.amazonaws.sqs#UnsupportedOperation", "AWS.SimpleQueueService.UnsupportedOperation", 400;
}

impl Code {
    /// Whether the client is at fault.
    pub fn is_of_sender(self) -> bool {
        self.status() < 500
    }

    /// This error, with its reason.
    pub fn because(self, message: impl Into<String>) -> SqsError {
        SqsError { code: self, message: message.into() }
    }
}

impl SqsError {
    /// A parameter has a value that it cannot have.
    pub fn invalid(name: &str, value: &str, reason: &str) -> SqsError {
        let value = shortened(value);
        Code::InvalidParameterValue
            .because(format!("Value {value} for parameter {name} is invalid. Reason: {reason}."))
    }

    /// A parameter is missing.
    pub fn missing(name: &str) -> SqsError {
        Code::MissingParameter.because(format!("The request must contain the parameter {name}."))
    }

    /// The queue does not exist.
    pub fn no_such_queue() -> SqsError {
        Code::QueueDoesNotExist.because("The specified queue does not exist.")
    }

    /// The error for a refusal of the core.
    pub fn of_refusal(refusal: &Refusal) -> SqsError {
        let code = match refusal {
            Refusal::NoSuchQueue(_) | Refusal::NoSuchDestination(_) => return SqsError::no_such_queue(),
            Refusal::TooManyLeases { .. }
            | Refusal::TooManyTenantLeases { .. }
            | Refusal::TooManyDeduplicationIds { .. }
            | Refusal::TooManyQueues { .. } => Code::OverLimit,
            Refusal::TooManyConnections { .. } | Refusal::TooFast { .. } => Code::RequestThrottled,
            Refusal::NotPermitted { .. } | Refusal::OtherStore { .. } => Code::AccessDenied,
            Refusal::InUse { .. } | Refusal::NotOwner(_) => Code::UnsupportedOperation,
            // Clients try again.
            _ => Code::ServiceUnavailable,
        };
        code.because(refusal.to_string())
    }

    /// A receipt handle that does not apply any more, when the visibility timeout is to change.
    pub fn of_stale(stale: Stale, handle: &str) -> SqsError {
        let reason = match stale {
            Stale::Gone => "Message does not exist or is not available for visibility timeout change",
            Stale::Expired => {
                let message = "The message is not in flight: its visibility timeout has expired.";
                return Code::MessageNotInflight.because(message);
            }
            Stale::Taken | Stale::Held => {
                "The receipt handle has expired, and the message was received again"
            }
        };
        SqsError::invalid("ReceiptHandle", handle, reason)
    }

    /// The body of the JSON protocol.
    pub fn to_json(&self) -> Value {
        json!({ "__type": self.code.json(), "message": self.message })
    }

    /// The header `x-amzn-query-error`, from which clients of the JSON protocol take the code.
    pub fn query_header(&self) -> String {
        format!("{};{}", self.code.query(), self.fault())
    }

    /// Who is at fault.
    pub fn fault(&self) -> &'static str {
        if self.code.is_of_sender() { "Sender" } else { "Receiver" }
    }

    /// This error for one entry of a batch.
    pub fn to_entry(&self, id: &str) -> Value {
        json!({
            "Id": id,
            "SenderFault": self.code.is_of_sender(),
            "Code": self.code.query(),
            "Message": self.message,
        })
    }
}

/// Characters of a wrong value that an error quotes.
const QUOTED_CHARS_MAX: usize = 200;

fn shortened(value: &str) -> String {
    match value.char_indices().nth(QUOTED_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &value[..at]),
        None => value.to_owned(),
    }
}
