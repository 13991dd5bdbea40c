use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue};
use opentelemetry_proto::tonic::resource::v1::Resource;
use phasescope::contract::COLLECTOR_PATH;
use prost::Message as _;

use super::field::{Field, Fields};
use super::view;

/// What is added to spans: the place of the span in the request, and the fields. In this order.
pub(crate) type Additions = Vec<(usize, Vec<u8>)>;

/// Length of a key and a length; what a level can add besides its content.
const HEAD: usize = 20;

/// The request with fields added to spans, and with this collector's id in the path of every
/// resource. Everything else is copied as it lies; in protobuf a field that comes at a message's end
/// is one of it.
///
/// Groups whose places are in `without` are left out; places of spans count theirs too.
pub(crate) fn splice(
    request: &[u8],
    additions: &Additions,
    without: &[usize],
    id: &str,
) -> Vec<u8> {
    let mut groups = 0;
    let mut splicer = Splicer { additions: additions.iter().peekable(), span: 0, id };
    let added: usize = additions.iter().map(|(_, fields)| fields.len() + HEAD).sum();
    let mut out = Vec::with_capacity(request.len() + added + 1024);
    for field in fields(request) {
        match (field.number, field.value.bytes()) {
            (1, Some(group)) => {
                let place = groups;
                groups += 1;
                if without.contains(&place) {
                    splicer.span += view::ResourceSpans::of(group).spans().count();
                } else {
                    put(&mut out, 1, &splicer.group(group));
                }
            }
            _ => out.extend_from_slice(field.raw),
        }
    }
    out
}

struct Splicer<'a, I: Iterator<Item = &'a (usize, Vec<u8>)>> {
    additions: std::iter::Peekable<I>,
    /// Spans so far.
    span: usize,
    id: &'a str,
}

impl<'a, I: Iterator<Item = &'a (usize, Vec<u8>)>> Splicer<'a, I> {
    fn group(&mut self, group: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(group.len() + 256);
        put(&mut out, 1, &self.resource(group));
        for field in fields(group) {
            match (field.number, field.value.bytes()) {
                (1, _) => {}
                (2, Some(scope)) => self.scope(field, scope, &mut out),
                _ => out.extend_from_slice(field.raw),
            }
        }
        out
    }

    /// The resource with this collector's id at the end of its path.
    fn resource(&self, group: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let resources = fields(group).filter(|field| field.number == 1);
        for resource in resources.filter_map(|field| field.value.bytes()) {
            let others = fields(resource)
                .filter(|field| field.number != 1 || !field.value.bytes().is_some_and(is_path));
            others.for_each(|field| out.extend_from_slice(field.raw));
        }
        let path = path(group).map(str::to_owned).chain([self.id.to_owned()]);
        let text = |text| AnyValue { value: Some(Any::StringValue(text)) };
        let values = path.map(text).collect();
        let value = Some(AnyValue { value: Some(Any::ArrayValue(ArrayValue { values })) });
        let pair = KeyValue { key: COLLECTOR_PATH.to_owned(), value, ..KeyValue::default() };
        out.extend(Resource { attributes: vec![pair], ..Resource::default() }.encode_to_vec());
        out
    }

    fn scope(&mut self, field: Field<'_>, scope: &[u8], out: &mut Vec<u8>) {
        let spans = fields(scope).filter(|field| field.number == 2).count();
        let end = self.span + spans;
        if self.additions.peek().is_none_or(|(place, _)| *place >= end) {
            self.span = end;
            out.extend_from_slice(field.raw);
            return;
        }
        let mut inner = Vec::with_capacity(scope.len() + 4096);
        for field in fields(scope) {
            let (2, Some(span)) = (field.number, field.value.bytes()) else {
                inner.extend_from_slice(field.raw);
                continue;
            };
            match self.additions.next_if(|(place, _)| *place == self.span) {
                Some((_, fields)) => {
                    put_head(&mut inner, 2, span.len() + fields.len());
                    inner.extend_from_slice(span);
                    inner.extend_from_slice(fields);
                }
                None => inner.extend_from_slice(field.raw),
            }
            self.span += 1;
        }
        put(out, 2, &inner);
    }
}

/// The collectors that a group went through.
fn path(group: &[u8]) -> impl Iterator<Item = &str> {
    view::ResourceSpans::of(group).texts(COLLECTOR_PATH)
}

fn is_path(pair: &[u8]) -> bool {
    fields(pair)
        .any(|field| field.number == 1 && field.value.bytes() == Some(COLLECTOR_PATH.as_bytes()))
}

fn fields(message: &[u8]) -> impl Iterator<Item = Field<'_>> {
    Fields::of(message).map_while(Result::ok)
}

fn put(out: &mut Vec<u8>, number: u8, bytes: &[u8]) {
    put_head(out, number, bytes.len());
    out.extend_from_slice(bytes);
}

/// Numbers up to 15 take one byte.
fn put_head(out: &mut Vec<u8>, number: u8, length: usize) {
    out.push(number << 3 | 2);
    // A vector grows as it needs.
    let _ = prost::encode_length_delimiter(length, out);
}
