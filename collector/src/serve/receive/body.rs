//! Bodies that are counted as they come.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, HttpBody};
use bytes::Bytes;
use http_body::{Frame, SizeHint};
use http_body_util::{BodyExt, Limited};

use crate::serve::failure::Failure;
use crate::serve::gate::Charge;

/// Bytes of a refused request that are read all the same.
const DRAINED: usize = 1 << 20;
/// How long that may take.
const DRAIN_TIME: Duration = Duration::from_secs(5);

/// Reads a body that nobody wants, within limits: a client that still writes when its connection is
/// closed may not see the answer.
pub(super) async fn drain(body: Body) {
    let reading = Limited::new(body, DRAINED).collect();
    // What comes of it does not matter.
    let _ = tokio::time::timeout(DRAIN_TIME, reading).await;
}

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
    /// The body, when nobody wants to read on.
    rest: Option<Body>,
}

impl Meter {
    /// Lets so many bytes pass.
    pub(super) fn new(charge: Charge, limit: usize) -> Self {
        let metered =
            Metered { charge: Some(charge), left: limit, limit, failure: None, rest: None };
        Self(Arc::new(Mutex::new(metered)))
    }

    pub(super) fn body(&self, body: Body) -> Body {
        Body::new(MeteredBody { body: Some(body), meter: self.clone() })
    }

    /// Reads what nobody wanted to read.
    pub(super) async fn drain(&self) {
        let rest = self.0.lock().unwrap_or_else(PoisonError::into_inner).rest.take();
        if let Some(rest) = rest {
            drain(rest).await;
        }
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
    /// Until it is dropped.
    body: Option<Body>,
    meter: Meter,
}

impl Drop for MeteredBody {
    fn drop(&mut self) {
        let mut metered = self.meter.0.lock().unwrap_or_else(PoisonError::into_inner);
        metered.rest = self.body.take().filter(|body| !body.is_end_stream());
    }
}

impl HttpBody for MeteredBody {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::BoxError>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let frame = ready!(Pin::new(body).poll_frame(context));
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
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(SizeHint::default, Body::size_hint)
    }
}
