//! Answers: the shapes that several actions share.

use serde_json::{Map, Value, json};

use crate::error::SqsError;

/// The answer to a batch: each entry with its own answer or error.
pub fn batch(entries: Vec<(String, Result<Value, SqsError>)>) -> Value {
    let (mut successful, mut failed) = (Vec::new(), Vec::new());
    for (id, result) in entries {
        match result {
            Ok(mut answer) => {
                answer["Id"] = json!(id);
                successful.push(answer);
            }
            Err(error) => failed.push(error.to_entry(&id)),
        }
    }
    let mut answer = json!({ "Successful": successful });
    if !failed.is_empty() {
        answer["Failed"] = Value::Array(failed);
    }
    answer
}

/// A list under a name, which is left out if it is empty, and the token of the next page if there
/// is one.
pub fn list(name: &str, items: Vec<Value>, next: Option<String>) -> Value {
    let mut answer = Map::new();
    if !items.is_empty() {
        answer.insert(name.to_owned(), Value::Array(items));
    }
    answer.extend(next.map(|next| ("NextToken".to_owned(), Value::String(next))));
    Value::Object(answer)
}
