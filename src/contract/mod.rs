#![doc = include_str!("../../docs/fields.md")]

mod keys;
mod names;

pub(crate) use keys::DeviceKeys;
pub(crate) use names::*;
