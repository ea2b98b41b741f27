//! The selectors of clients in a run: the number of a message, in fours.

use postroad_model::Message;
use postroad_selector::{Properties, Value};

use crate::oracle::{MessageNumber, number_of};

/// Whether a message of this number is wanted.
type Wanted = fn(MessageNumber) -> bool;

/// Selectors, and the oracle's knowledge of each.
pub const SELECTORS: [(&str, Wanted); 4] = [
    ("n = 0", |number| number % 4 == 0),
    ("n IN (1, 2)", |number| matches!(number % 4, 1 | 2)),
    ("n > 1 AND n IS NOT NULL", |number| number % 4 > 1),
    ("NOT n = 3", |number| number % 4 != 3),
];

/// The value of a message: some have none. It follows from the number in fours as well, so that
/// selectors choose among those of a value.
pub fn value_of(number: MessageNumber) -> Option<MessageNumber> {
    Some(number / 4 % 4).filter(|value| *value != 3)
}

/// The property that has it.
pub const VALUE: &str = "v";

/// Whether a consumer with this selector wants the message.
pub fn wants(selector: &str, number: MessageNumber) -> bool {
    SELECTORS.iter().all(|(text, wants)| *text != selector || wants(number))
}

struct InBody(Option<MessageNumber>);

impl Properties for InBody {
    fn property(&self, name: &str) -> Option<Value<'_>> {
        if name == "JMSMessageID" {
            return self.0.map(|number| Value::String(number.to_string().into()));
        }
        let number = match name {
            "n" => self.0.map(|number| number % 4),
            VALUE => self.0.and_then(value_of),
            _ => None,
        };
        number.map(|number| Value::Long(number as i64))
    }
}

/// The properties of a message.
pub fn properties_of(message: &Message) -> Box<dyn Properties + '_> {
    Box::new(InBody(number_of(message)))
}
