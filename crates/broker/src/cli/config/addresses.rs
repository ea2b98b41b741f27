//! Virtual destinations: virtual topics, composite destinations, mirrored queues.

use super::element::Element;
use super::translation::{Table, Translation, Value};

const AT_ONCE: &str =
    "nothing follows: a message for several queues is one write and one sync, whatever their number";

const VIRTUAL_TOPIC: &[(&str, &str)] = &[
    ("local", "not translated: there are no networks of brokers yet"),
    ("concurrentSend", AT_ONCE),
    ("transactedSend", AT_ONCE),
    ("dropOnResourceLimit", "not translated: what does not fit is refused, for all queues or for none"),
    ("setOriginalDestination", "not translated: the original destination is always set"),
];

const COMPOSITE: &[(&str, &str)] = &[
    ("concurrentSend", AT_ONCE),
    ("sendWhenNotMatched", "not translated: with forward_only = false the address gets everything itself"),
    (
        "copyMessage",
        "nothing follows: ActiveMQ ignores it since 5.14, and each target's message says its target",
    ),
];

const NO_COPY: &str = "copyMessage=\"false\": nothing follows: a mirrored queue's message always says the queue, and its copy the topic";

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
            _ => translation.note(&interceptor, "not translated: no Java runs in Postroad"),
        }
    }
    mirrors
}

fn destination(element: &Element<'_>, translation: &mut Translation) {
    match element.name() {
        "virtualTopic" => virtual_topic(element, translation),
        "compositeQueue" => composite(element, "queue://", translation),
        "compositeTopic" => composite(element, "topic://", translation),
        _ => translation.note(
            element,
            "not translated: only virtualTopic, compositeQueue and compositeTopic are known here",
        ),
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
        return translation.note(element, "not translated: it has no name that could be read");
    };
    let mut targets = Vec::new();
    let forwards = element.children().filter(|child| child.name() == "forwardTo");
    for target in forwards.flat_map(|forward| forward.children().collect::<Vec<_>>()) {
        targets.extend(target_of(&target, translation));
    }
    if targets.is_empty() {
        return translation.note(element, "not translated: it forwards to nothing that could be read");
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
            translation
                .note(target, "not translated: only queue, topic and filteredDestination are known here");
            return None;
        }
    };
    let Some(name) = target.value(attribute, translation) else {
        translation.note(target, "not translated: it names no queue or topic that could be read");
        return None;
    };
    let mut keys = vec![("destination", format!("{kind}://{name}").as_str().into())];
    if let Some(selector) = target.value("selector", translation) {
        keys.push(("selector", selector.into()));
    }
    target.note_the_rest(&[], translation);
    Some(Value::table(keys))
}
