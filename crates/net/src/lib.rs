//! Placeholder header, replaced as this room is furnished.
