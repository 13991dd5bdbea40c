//! What the diagnosis needs of a request that has been checked, borrowed from its bytes.

use phasescope::contract::{Scalar, SpanHead};

use super::field::{Field, Fields, Value};

/// The spans of one resource.
#[derive(Clone, Debug)]
pub(crate) struct ResourceSpans<'a>(&'a [u8]);

/// One span.
#[derive(Clone, Debug)]
pub(crate) struct SpanView<'a>(&'a [u8]);

/// The groups of a request of traces.
pub(crate) fn resource_spans(request: &[u8]) -> impl Iterator<Item = ResourceSpans<'_>> {
    messages(request, 1).map(ResourceSpans)
}

impl<'a> ResourceSpans<'a> {
    pub(super) fn of(group: &'a [u8]) -> Self {
        Self(group)
    }

    /// The resource's attributes.
    pub(crate) fn attributes(&self) -> impl Iterator<Item = (&'a str, Scalar<'a>)> + use<'a> {
        scalars(messages(self.0, 1).flat_map(|resource| messages(resource, 1)))
    }

    /// The texts in a list among the resource's attributes.
    pub(crate) fn texts(&self, wanted: &'a str) -> impl Iterator<Item = &'a str> + use<'a> {
        let resource = messages(self.0, 1);
        let pairs = resource.flat_map(|resource| messages(resource, 1));
        let list = pairs.filter(move |pair| text(pair, 1) == Some(wanted));
        let values = list.flat_map(|pair| messages(pair, 2)).flat_map(|value| messages(value, 5));
        values.flat_map(|array| messages(array, 1)).filter_map(|value| text(value, 1))
    }

    /// The spans, in their order.
    pub(crate) fn spans(&self) -> impl Iterator<Item = SpanView<'a>> + use<'a> {
        messages(self.0, 2).flat_map(|scope| messages(scope, 2)).map(SpanView)
    }
}

/// What a span says, but for its attributes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpanParts<'a> {
    pub(crate) head: SpanHead<'a>,
    /// Zeros where it has none.
    pub(crate) id: [u8; 8],
}

impl<'a> SpanView<'a> {
    /// Looks at it once. `attributes` is room that is used again.
    pub(crate) fn parts(&self, attributes: &mut Vec<&'a [u8]>) -> SpanParts<'a> {
        attributes.clear();
        let head = SpanHead { name: "", end_unix_nano: 0, status_message: "" };
        let mut parts = SpanParts { head, id: [0; 8] };
        for field in fields(self.0) {
            match (field.number, field.value) {
                (9, Value::Bytes(pair)) => attributes.push(pair),
                (2, Value::Bytes(id)) => parts.id = id.try_into().unwrap_or_default(),
                (5, Value::Bytes(name)) => parts.head.name = utf8(name),
                (8, Value::Fixed64(time)) => parts.head.end_unix_nano = time,
                (15, Value::Bytes(status)) => {
                    parts.head.status_message = text(status, 2).unwrap_or("");
                }
                _ => {}
            }
        }
        parts
    }
}

/// Attributes by name, lists and maps left out.
pub(crate) fn scalars<'a>(
    pairs: impl IntoIterator<Item = &'a [u8]>,
) -> impl Iterator<Item = (&'a str, Scalar<'a>)> {
    pairs.into_iter().filter_map(|pair| {
        let (mut key, mut value) = ("", None);
        for field in fields(pair) {
            match (field.number, field.value) {
                (1, Value::Bytes(text)) => key = utf8(text),
                (2, Value::Bytes(any)) => value = scalar(any),
                _ => {}
            }
        }
        Some((key, value?))
    })
}

/// The fields of a message that has been checked: none is wrong.
fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    Fields::of(message).map_while(Result::ok)
}

fn messages(message: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    fields(message)
        .filter(move |field| field.number == number)
        .filter_map(|field| field.value.bytes())
}

/// Of several values in one the last counts, as in every reader of protobuf.
fn scalar(any: &[u8]) -> Option<Scalar<'_>> {
    let values = fields(any).filter_map(|field| match (field.number, field.value) {
        (1, Value::Bytes(text)) => Some(Some(Scalar::Text(utf8(text)))),
        (2, Value::Varint(flag)) => Some(Some(Scalar::Flag(flag != 0))),
        (3, Value::Varint(number)) => Some(Some(Scalar::Integer(number.cast_signed()))),
        (4, Value::Fixed64(bits)) => Some(Some(Scalar::Double(f64::from_bits(bits)))),
        (5..=8, _) => Some(None),
        _ => None,
    });
    values.last().flatten()
}

fn text(message: &[u8], number: u32) -> Option<&str> {
    messages(message, number).last().map(utf8)
}

fn utf8(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or("")
}
