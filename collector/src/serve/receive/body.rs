//! Bodies that are counted as they come.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::serve::failure::Failure;
use crate::serve::gate::Charge;

/// What a body's bytes have come to. It outlives the body: a library in between turns the body's
/// error into one of its own.
#[derive(Clone, Debug)]
pub(super) struct Meter(Arc<Mutex<Metered>>);

#[derive(Debug)]
struct Metered {
    charge: Option<Charge>,
    left: usize,
    limit: usize,
    failure: Option<Failure>,
}

impl Meter {
    /// Lets so many bytes pass.
    pub(super) fn new(charge: Charge, limit: usize) -> Self {
        let metered = Metered { charge: Some(charge), left: limit, limit, failure: None };
        Self(Arc::new(Mutex::new(metered)))
    }

    pub(super) fn body(&self, body: Body) -> Body {
        Body::new(MeteredBody { body, meter: self.clone() })
    }

    /// Why the body was broken off, if it was this that did.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).failure.clone()
    }

    /// The charge, to be held until the request is done with.
    pub(super) fn charge(&self) -> Option<Charge> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).charge.take()
    }

    fn pass(&self, bytes: usize) -> Result<(), Failure> {
        let mut metered = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let metered = &mut *metered;
        let passed = match metered.left.checked_sub(bytes) {
            Some(left) => {
                metered.left = left;
                metered.charge.as_mut().map_or(Ok(()), |charge| charge.grow(bytes))
            }
            None => Err(Failure::TooLarge { limit: metered.limit, what: "in a request's body" }),
        };
        if let Err(failure) = &passed {
            metered.failure = Some(failure.clone());
        }
        passed
    }
}

struct MeteredBody {
    body: Body,
    meter: Meter,
}

impl HttpBody for MeteredBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        Poll::Ready(match frame {
            Some(Ok(frame)) => {
                let bytes = frame.data_ref().map_or(0, Bytes::len);
                Some(self.meter.pass(bytes).map(|()| frame).map_err(Into::into))
            }
            Some(Err(error)) => Some(Err(error.into())),
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
