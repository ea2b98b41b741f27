//! XML as `roxmltree` read it, in the shape in which `xpath-eval` walks it, with a count of the
//! steps.
//!
//! Nodes are as in the XPath 1.0 data model (section 5), but for namespace nodes, which are left
//! out: nothing selects by them. Comments are not seen, as in ActiveMQ.

use std::cell::Cell;
use std::cmp::Ordering;

use roxmltree::{Document, Node as XmlNode, NodeType};
use xpath_eval::{ExpandedName, Node, NodeKind};

/// How many nodes one evaluation may still come by.
#[derive(Debug)]
pub(super) struct Budget {
    left: Cell<u32>,
}

impl Budget {
    pub(super) fn new(visits: u32) -> Budget {
        Budget { left: Cell::new(visits) }
    }

    /// Once it is, no node has children any more: the evaluation ends soon, and says nothing.
    pub(super) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }

    fn take_one(&self) -> bool {
        self.left.set(self.left.get().saturating_sub(1));
        !self.is_spent()
    }
}

/// A node of the document, or one of its attributes.
#[derive(Clone, Copy)]
pub(super) struct TreeNode<'a> {
    node: XmlNode<'a, 'a>,
    /// Which of the node's attributes, if it is one.
    attribute: Option<usize>,
    budget: &'a Budget,
}

impl<'a> TreeNode<'a> {
    pub(super) fn root(document: &'a Document<'a>, budget: &'a Budget) -> TreeNode<'a> {
        TreeNode { node: document.root(), attribute: None, budget }
    }

    fn at(self, node: XmlNode<'a, 'a>) -> TreeNode<'a> {
        TreeNode { node, attribute: None, ..self }
    }

    fn attribute(self) -> Option<roxmltree::Attribute<'a, 'a>> {
        self.node.attributes().nth(self.attribute?)
    }

    /// In the order of the document: an element, its attributes, its children.
    fn place(self) -> (XmlNode<'a, 'a>, usize) {
        (self.node, self.attribute.map_or(0, |index| index + 1))
    }
}

impl PartialEq for TreeNode<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.place() == other.place()
    }
}

impl Eq for TreeNode<'_> {}

impl<'a> Node<'a> for TreeNode<'a> {
    fn kind(self) -> NodeKind {
        if self.attribute.is_some() {
            return NodeKind::Attribute;
        }
        match self.node.node_type() {
            NodeType::Root => NodeKind::Root,
            NodeType::Element => NodeKind::Element,
            NodeType::PI => NodeKind::ProcessingInstruction,
            NodeType::Comment => NodeKind::Comment,
            NodeType::Text => NodeKind::Text,
        }
    }

    fn parent(self) -> Option<Self> {
        match self.attribute {
            Some(_) => Some(self.at(self.node)),
            None => self.node.parent().map(|parent| self.at(parent)),
        }
    }

    fn children(self) -> impl Iterator<Item = Self> + 'a {
        let children = self
            .node
            .children()
            .filter(move |child| self.attribute.is_none() && !child.is_comment() && self.budget.take_one());
        children.map(move |child| self.at(child))
    }

    fn attributes(self) -> impl Iterator<Item = Self> + 'a {
        let count = if self.attribute.is_none() { self.node.attributes().len() } else { 0 };
        let taken = (0..count).take_while(move |_| self.budget.take_one());
        taken.map(move |index| TreeNode { attribute: Some(index), ..self })
    }

    fn namespaces(self) -> impl Iterator<Item = Self> + 'a {
        std::iter::empty()
    }

    fn expanded_name(self) -> Option<ExpandedName> {
        let name = |uri: Option<&str>, local: &str| ExpandedName {
            namespace_uri: uri.map(str::to_owned),
            local_name: local.to_owned(),
        };
        match (self.attribute(), self.kind()) {
            (Some(attribute), _) => Some(name(attribute.namespace(), attribute.name())),
            (None, NodeKind::Element) => {
                let tag = self.node.tag_name();
                Some(name(tag.namespace(), tag.name()))
            }
            (None, NodeKind::ProcessingInstruction) => self.node.pi().map(|pi| name(None, pi.target)),
            _ => None,
        }
    }

    fn string_value(self) -> String {
        match (self.attribute(), self.kind()) {
            (Some(attribute), _) => attribute.value().to_owned(),
            (None, NodeKind::Root | NodeKind::Element) => {
                let below = self.node.descendants().take_while(|_| self.budget.take_one());
                below.filter(XmlNode::is_text).filter_map(|text| text.text()).collect()
            }
            (None, NodeKind::ProcessingInstruction) => {
                self.node.pi().and_then(|pi| pi.value).unwrap_or_default().to_owned()
            }
            _ => self.node.text().unwrap_or_default().to_owned(),
        }
    }

    fn document_order(self, other: Self) -> Ordering {
        self.place().cmp(&other.place())
    }
}
