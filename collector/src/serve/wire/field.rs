use std::fmt;

/// A field of a message, as it lies in the bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'a> {
    pub(crate) number: u32,
    pub(crate) value: Value<'a>,
    /// Key and value.
    pub(crate) raw: &'a [u8],
}

/// A value by its wire type.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
    Fixed32,
}

impl<'a> Value<'a> {
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }
}

/// Why bytes are no OTLP: where, what was expected and what was found.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Malformed {
    pub(crate) place: String,
    pub(crate) expected: &'static str,
    pub(crate) found: String,
}

impl Malformed {
    fn new(expected: &'static str, found: impl Into<String>) -> Self {
        Self { place: String::new(), expected, found: found.into() }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { place, expected, found } = self;
        write!(f, "{place}: expected {expected}, found {found}")
    }
}

/// The fields of a message in their order.
#[derive(Clone, Debug)]
pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn of(message: &'a [u8]) -> Self {
        Self { rest: message }
    }

    #[inline]
    fn take(&mut self) -> Result<Field<'a>, Malformed> {
        let start = self.rest;
        let key = self.varint()?;
        let Ok(key) = u32::try_from(key) else {
            return Err(Malformed::new("a key of 32 bits", key.to_string()));
        };
        let number = key >> 3;
        if number == 0 {
            return Err(Malformed::new("a field number from 1 on", "0"));
        }
        let value = match key & 7 {
            0 => Value::Varint(self.varint()?),
            1 => Value::Fixed64(u64::from_le_bytes(self.fixed()?)),
            2 => {
                let length = self.varint()?;
                let there = self.rest.len();
                let Some((bytes, rest)) = usize::try_from(length)
                    .ok()
                    .and_then(|length| self.rest.split_at_checked(length))
                else {
                    return Err(Malformed::new(
                        "as many bytes as the length says",
                        format!("{there} of {length} in field {number}"),
                    ));
                };
                self.rest = rest;
                Value::Bytes(bytes)
            }
            5 => {
                self.fixed::<4>()?;
                Value::Fixed32
            }
            other => {
                return Err(Malformed::new("a wire type of 0, 1, 2 or 5", other.to_string()));
            }
        };
        let raw = &start[..start.len() - self.rest.len()];
        Ok(Field { number, value, raw })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Most are of one byte.
    #[inline]
    pub(super) fn varint(&mut self) -> Result<u64, Malformed> {
        match self.rest {
            [byte, rest @ ..] if *byte < 0x80 => {
                self.rest = rest;
                Ok(u64::from(*byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0;
        for (place, byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                if place == 9 && *byte > 1 {
                    break;
                }
                self.rest = &self.rest[place + 1..];
                return Ok(value);
            }
        }
        Err(Malformed::new(
            "a varint of 64 bits",
            format!("{} bytes that are none", self.rest.len()),
        ))
    }

    fn fixed<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        match self.rest.split_first_chunk() {
            Some((bytes, rest)) => {
                self.rest = rest;
                Ok(*bytes)
            }
            None => Err(Malformed::new("a number of fixed size", "the end")),
        }
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<Field<'a>, Malformed>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let field = self.take();
        if field.is_err() {
            self.rest = &[];
        }
        Some(field)
    }
}
