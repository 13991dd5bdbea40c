//! What may be in flight at once: the bytes of all requests that are being read, judged or handed on.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::failure::Failure;

/// Bytes are counted in these, rounded up: a semaphore counts to 2^29 on small machines.
const UNIT: usize = 1024;

/// The bytes that may be in flight.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    free: Arc<Semaphore>,
    limit: usize,
}

/// The bytes of one request; they are free again when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    gate: Gate,
    held: Option<OwnedSemaphorePermit>,
    bytes: usize,
}

impl Gate {
    pub(crate) fn new(limit: usize) -> Self {
        let units = (limit / UNIT).clamp(1, Semaphore::MAX_PERMITS);
        Self { free: Arc::new(Semaphore::new(units)), limit }
    }

    /// A request of no bytes yet.
    pub(crate) fn enter(&self) -> Charge {
        Charge { gate: self.clone(), held: None, bytes: 0 }
    }

    /// Bytes in flight, in whole KiB.
    pub(crate) fn in_flight(&self) -> usize {
        (self.limit / UNIT).saturating_sub(self.free.available_permits()) * UNIT
    }
}

impl Charge {
    /// The request has so many bytes now, more than before.
    ///
    /// # Errors
    ///
    /// When they do not fit now: nobody waits here, the client tries again. When they never will.
    pub(crate) fn grow(&mut self, bytes: usize) -> Result<(), Failure> {
        self.bytes += bytes;
        if self.bytes > self.gate.limit {
            // It never will fit.
            return Err(Failure::TooLarge { limit: self.gate.limit, what: "in flight" });
        }
        let held = self.held.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
        let Some(more) = self.bytes.div_ceil(UNIT).checked_sub(held).filter(|more| *more > 0)
        else {
            return Ok(());
        };
        let busy = || Failure::Busy(self.gate.limit);
        let more = u32::try_from(more).map_err(|_| busy())?;
        let permit = self.gate.free.clone().try_acquire_many_owned(more).map_err(|_| busy())?;
        match &mut self.held {
            Some(held) => held.merge(permit),
            none => *none = Some(permit),
        }
        Ok(())
    }
}
