use std::fmt;

use serde::{Deserialize, Serialize};

/// How a phase ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// It ran to its end.
    #[default]
    Completed,
    /// An error was recorded inside it (an event of level ERROR).
    Failed(String),
    /// A panic unwound through it; the message where it is known.
    Panicked(Option<String>),
    /// An allocation was refused inside it.
    OutOfMemory(OutOfMemory),
}

impl Outcome {
    /// Whether the phase ran to its end.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        *self == Self::Completed
    }

    /// The outcome that a message from libtorch, or from a panic that carries one, stands for.
    ///
    /// # Examples
    ///
    /// ```
    /// use phasescope::phase::Outcome;
    ///
    /// let outcome = Outcome::from_error("CUDA out of memory. Tried to allocate 2.50 GiB. GPU 0 has ...");
    /// assert!(matches!(outcome, Outcome::OutOfMemory(oom) if oom.requested == Some(2_684_354_560)));
    /// ```
    #[must_use]
    pub fn from_error(message: &str) -> Self {
        match OutOfMemory::from_message(message) {
            Some(oom) => Self::OutOfMemory(oom),
            None => Self::Failed(message.to_owned()),
        }
    }
}

/// A refused allocation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OutOfMemory {
    /// The bytes asked for, where the message tells.
    pub requested: Option<u64>,
}

impl OutOfMemory {
    /// Reads libtorch's two messages: the device allocators' "... out of memory. Tried to allocate
    /// 2.50 GiB ..." and the CPU's "DefaultCPUAllocator: can't allocate memory: you tried to
    /// allocate 1099511627776 bytes". `None` when the message is about something else.
    ///
    /// # Examples
    ///
    /// ```
    /// use phasescope::phase::OutOfMemory;
    ///
    /// let message = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes.";
    /// assert_eq!(OutOfMemory::from_message(message).and_then(|oom| oom.requested), Some(4096));
    /// assert_eq!(OutOfMemory::from_message("shape mismatch"), None);
    /// ```
    #[must_use]
    pub fn from_message(message: &str) -> Option<Self> {
        const SIGNS: [&str; 3] = ["out of memory", "can't allocate memory", "not enough memory"];
        let lower = message.to_ascii_lowercase();
        SIGNS.iter().any(|sign| lower.contains(sign)).then(|| Self { requested: requested(&lower) })
    }
}

/// The amount behind "tried to allocate" in a lower-case message.
fn requested(message: &str) -> Option<u64> {
    let (_, rest) = message.split_once("tried to allocate ")?;
    let mut words = rest.split_whitespace();
    let number: f64 = words.next()?.parse().ok()?;
    let unit: f64 = match words.next()?.trim_end_matches(['.', ',']) {
        "bytes" | "byte" => 1.0,
        "kib" => 1024.0,
        "mib" => 1024.0 * 1024.0,
        "gib" => 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    };
    let bytes = number * unit;
    (bytes.is_finite() && bytes >= 0.0).then_some(bytes as u64)
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.requested {
            Some(bytes) => {
                write!(f, "out of memory: {} were asked for", crate::units::Readable::level(bytes))
            }
            None => f.write_str("out of memory: the amount asked for is not known"),
        }
    }
}
