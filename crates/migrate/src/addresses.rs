//! Virtual destinations: virtual topics, composite destinations, mirrored queues.

use super::element::Element;
use super::translation::{Table, Translation, Value};

const AT_ONCE: &str = "not needed: a message for several queues takes one write and one sync";

const VIRTUAL_TOPIC: &[(&str, &str)] = &[
    ("local", "not translated: write a [[bridge]] by hand"),
    ("concurrentSend", AT_ONCE),
    ("transactedSend", AT_ONCE),
    ("dropOnResourceLimit", "not translated: a send that exceeds a limit is refused for all target queues"),
    ("setOriginalDestination", "not translated: the original destination is always set"),
];

const COMPOSITE: &[(&str, &str)] = &[
    ("concurrentSend", AT_ONCE),
    (
        "sendWhenNotMatched",
        "not translated: with forward_only = false the address receives every message itself",
    ),
    (
        "copyMessage",
        "not needed: ActiveMQ has ignored it since 5.14; each copy has its target as destination",
    ),
];

const NO_COPY: &str =
    "copyMessage=\"false\": not needed: the message names the queue, and its copy the topic";

/// `<destinationInterceptors>`; whether all queues are mirrored.
pub fn translate(interceptors: &Element<'_>, translation: &mut Translation) -> bool {
    let mut mirrors = false;
    for interceptor in interceptors.children() {
        match interceptor.name() {
            "virtualDestinationInterceptor" => {
                interceptor.note_the_rest(&[], translation);
                for list in interceptor.children().filter(|list| list.name() == "virtualDestinations") {
                    list.children().for_each(|each| destination(&each, translation));
                }
            }
            "mirroredQueue" => {
                mirrors = true;
                for (attribute, key) in [("prefix", "prefix"), ("postfix", "postfix")] {
                    if let Some(text) = interceptor.value(attribute, translation) {
                        translation.set("mirrored_queues", key, text, &interceptor);
                    }
                }
                let copies = interceptor.flag("copyMessage", translation) != Some(false);
                if !copies {
                    translation.note(&interceptor, NO_COPY);
                }
                interceptor.note_the_rest(&[], translation);
            }
            _ => translation.note(&interceptor, "not translated: Postroad runs no Java plugins"),
        }
    }
    mirrors
}

fn destination(element: &Element<'_>, translation: &mut Translation) {
    match element.name() {
        "virtualTopic" => virtual_topic(element, translation),
        "compositeQueue" => composite(element, "queue://", translation),
        "compositeTopic" => composite(element, "topic://", translation),
        _ => translation
            .note(element, "not translated: expected virtualTopic, compositeQueue or compositeTopic"),
    }
}

fn virtual_topic(element: &Element<'_>, translation: &mut Translation) {
    let topics = element.value("name", translation).unwrap_or(">");
    let prefix = element.value("prefix", translation).unwrap_or("Consumer.*.");
    let postfix = element.value("postfix", translation).unwrap_or("");
    let mut keys = vec![("topics", topics.into()), ("prefix", prefix.into()), ("postfix", postfix.into())];
    if element.flag("selectorAware", translation) == Some(true) {
        keys.push(("selector_aware", true.into()));
    }
    element.note_the_rest(VIRTUAL_TOPIC, translation);
    translation.push(Table { name: "virtual_topic", lines: vec![element.line()], keys });
}

fn composite(element: &Element<'_>, scheme: &str, translation: &mut Translation) {
    let Some(name) = element.value("name", translation) else {
        return translation.note(element, "not translated: its name is missing or invalid");
    };
    let mut targets = Vec::new();
    let forwards = element.children().filter(|child| child.name() == "forwardTo");
    for target in forwards.flat_map(|forward| forward.children().collect::<Vec<_>>()) {
        targets.extend(target_of(&target, translation));
    }
    if targets.is_empty() {
        return translation.note(element, "not translated: it has no valid target");
    }
    let mut keys =
        vec![("address", format!("{scheme}{name}").as_str().into()), ("targets", Value::list(targets))];
    if let Some(only) = element.flag("forwardOnly", translation) {
        keys.push(("forward_only", only.into()));
    }
    element.note_the_rest(COMPOSITE, translation);
    translation.push(Table { name: "composite", lines: vec![element.line()], keys });
}

/// `<queue physicalName="a"/>`, `<topic …/>`, or `<filteredDestination selector="…" queue="a"/>`.
fn target_of(target: &Element<'_>, translation: &mut Translation) -> Option<Value> {
    let (kind, attribute) = match target.name() {
        "queue" => ("queue", "physicalName"),
        "topic" => ("topic", "physicalName"),
        "filteredDestination" if target.has("queue") => ("queue", "queue"),
        "filteredDestination" => ("topic", "topic"),
        _ => {
            translation.note(target, "not translated: expected queue, topic or filteredDestination");
            return None;
        }
    };
    let Some(name) = target.value(attribute, translation) else {
        translation.note(target, "not translated: it names no valid queue or topic");
        return None;
    };
    let mut keys = vec![("destination", format!("{kind}://{name}").as_str().into())];
    if let Some(selector) = target.value("selector", translation) {
        keys.push(("selector", selector.into()));
    }
    target.note_the_rest(&[], translation);
    Some(Value::table(keys))
}
