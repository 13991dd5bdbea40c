//! OTLP's protobuf, looked at where it lies: checked, read and added to without being converted, so
//! that fields which this version does not know go on as they came, and a hostile request costs no
//! memory beyond its own bytes.

mod check;
mod field;
mod schema;
mod splice;
mod view;

pub(crate) use check::check;
pub(crate) use schema::{LOGS, METRICS, Message, TRACES};
pub(crate) use splice::{Additions, splice};
pub(crate) use view::{SpanParts, SpanView, resource_spans, scalars};
