//! Why a request was not taken, and how each protocol says so. What a client should try again is
//! answered as OTLP has it: `UNAVAILABLE` with a delay, or 503 and 429 with `Retry-After`.

use std::time::Duration;

use http::StatusCode;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// What a client is asked to wait before it tries again.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// How the next hop refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It calls the request wrong.
    Invalid,
    /// It does not take this kind of data, as a store of traces no metrics.
    Unimplemented,
    /// It may take it later.
    Unavailable,
}

/// Why a request was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Failure {
    /// The request is wrong, and stays wrong.
    #[error("{0}")]
    Malformed(String),
    #[error("expected at most {limit} bytes {what}, found more")]
    TooLarge { limit: usize, what: &'static str },
    #[error("expected {expected}, found {found}")]
    Unsupported { expected: &'static str, found: String },
    /// There is no room for it now.
    #[error("{0} bytes are in flight already, no more fit before the next hop has taken some")]
    Busy(usize),
    /// It did not come in time.
    #[error("the request did not come within {} s", .0.as_secs())]
    Slow(Duration),
    /// The next hop did not take it.
    #[error("the next hop {reason}")]
    Next {
        reason: String,
        refusal: Refusal,
        /// What the next hop asks to wait.
        after: Option<Duration>,
    },
}

impl Failure {
    /// The label of the metric.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "malformed",
            Self::TooLarge { .. } => "too_large",
            Self::Unsupported { .. } => "unsupported",
            Self::Busy(_) => "busy",
            Self::Slow(_) => "slow",
            Self::Next { refusal: Refusal::Invalid, .. } => "next_hop_refused",
            Self::Next { refusal: Refusal::Unimplemented, .. } => "next_hop_unimplemented",
            Self::Next { refusal: Refusal::Unavailable, .. } => "next_hop_unavailable",
        }
    }

    /// How long to wait before another try; `None` where that is in vain.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy(_) | Self::Slow(_) => Some(RETRY_AFTER),
            Self::Next { refusal: Refusal::Unavailable, after, .. } => {
                Some(after.unwrap_or(RETRY_AFTER))
            }
            _ => None,
        }
    }

    /// The code of the status, in both protocols' answers.
    pub(crate) fn code(&self) -> Code {
        match self {
            Self::Next { refusal: Refusal::Unimplemented, .. } => Code::Unimplemented,
            _ if self.retry_after().is_some() => Code::Unavailable,
            _ => Code::InvalidArgument,
        }
    }

    pub(crate) fn grpc(&self) -> Status {
        match self.retry_after() {
            Some(delay) => {
                let details = ErrorDetails::with_retry_info(Some(delay));
                Status::with_error_details(self.code(), self.to_string(), details)
            }
            None => Status::new(self.code(), self.to_string()),
        }
    }

    pub(crate) fn http(&self) -> StatusCode {
        match self {
            Self::Malformed(_) | Self::Next { refusal: Refusal::Invalid, .. } => {
                StatusCode::BAD_REQUEST
            }
            Self::Next { refusal: Refusal::Unimplemented, .. } => StatusCode::NOT_FOUND,
            Self::TooLarge { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Unsupported { .. } => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Busy(_) => StatusCode::TOO_MANY_REQUESTS,
            Self::Slow(_) | Self::Next { refusal: Refusal::Unavailable, .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
        }
    }
}
