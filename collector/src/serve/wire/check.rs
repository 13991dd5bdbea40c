use super::field::{Fields, Malformed, Value};
use super::schema::{Kind, Message};

/// Messages inside messages: OTLP's own have ten, values in values take two each.
const MAX_DEPTH: u32 = 64;

/// Whether bytes are such a request, to the last byte; how many spans, data points or log records
/// there are. Takes no memory.
///
/// # Errors
///
/// The first place at which they are not.
pub(crate) fn check(message: &Message, bytes: &[u8]) -> Result<u64, Malformed> {
    let mut count = 0;
    descend(message, bytes, MAX_DEPTH, &mut count)?;
    Ok(count)
}

fn descend(message: &Message, bytes: &[u8], deeper: u32, count: &mut u64) -> Result<(), Malformed> {
    *count += u64::from(message.counted);
    for field in Fields::of(bytes) {
        let field = field.map_err(|error| at(message, None, error))?;
        let Some((number, kind)) =
            message.fields.iter().find(|(number, _)| *number == field.number)
        else {
            continue;
        };
        let wrong = |expected, found: &str| {
            Err(Malformed {
                place: format!("{}, field {number}", message.name),
                expected,
                found: found.to_owned(),
            })
        };
        match (*kind, field.value) {
            (Kind::Message(inner), Value::Bytes(bytes)) => {
                let Some(deeper) = deeper.checked_sub(1) else {
                    return wrong("at most 64 messages in each other", "more");
                };
                descend(inner, bytes, deeper, count)?;
            }
            (Kind::Text, Value::Bytes(bytes)) => {
                if std::str::from_utf8(bytes).is_err() {
                    return wrong("UTF-8", "other bytes");
                }
            }
            (Kind::Id(length), Value::Bytes(bytes)) => {
                if !bytes.is_empty() && bytes.len() != length {
                    return wrong("an id of 16 (trace) or 8 (span) bytes", "another length");
                }
            }
            (Kind::Fixed64s, Value::Bytes(bytes)) => {
                if !bytes.len().is_multiple_of(8) {
                    return wrong("numbers of 8 bytes", "a part of one");
                }
            }
            (Kind::Varints, Value::Bytes(bytes)) => {
                let mut numbers = Fields::of(bytes);
                while !numbers.is_empty() {
                    numbers.varint().map_err(|error| at(message, Some(*number), error))?;
                }
            }
            (Kind::Varint | Kind::Varints, Value::Varint(_))
            | (Kind::Fixed64 | Kind::Fixed64s, Value::Fixed64(_))
            | (Kind::Fixed32, Value::Fixed32)
            | (Kind::Bytes, Value::Bytes(_)) => {}
            _ => return wrong("the field's wire type", "another"),
        }
    }
    Ok(())
}

fn at(message: &Message, number: Option<u32>, error: Malformed) -> Malformed {
    let place = match number {
        Some(number) => format!("{}, field {number}", message.name),
        None => message.name.to_owned(),
    };
    Malformed { place, ..error }
}
