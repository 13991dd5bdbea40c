//! The next hop: an OTLP endpoint, by gRPC or HTTP. It gets the bytes as they are.

mod grpc;
mod http;

use std::time::Duration;

use bytes::Bytes;

use super::config::{self, Protocol};
use super::failure::{Failure, Refusal};
use super::signal::Signal;

/// The next hop.
#[derive(Clone, Debug)]
pub(crate) struct Next {
    hop: Hop,
    timeout: Duration,
}

#[derive(Clone, Debug)]
enum Hop {
    Grpc(grpc::Grpc),
    Http(http::Http),
}

impl Next {
    /// Does not connect yet. Must be made in a runtime.
    ///
    /// # Errors
    ///
    /// When an endpoint, header or certificate is not what it should be.
    pub(crate) fn new(config: &config::Next) -> Result<Self, String> {
        let hop = match config.protocol {
            Protocol::Grpc => Hop::Grpc(grpc::Grpc::new(config)?),
            Protocol::Http => Hop::Http(http::Http::new(config)?),
        };
        Ok(Self { hop, timeout: config.timeout })
    }

    /// Hands a request on and waits for the answer, which is the next hop's own.
    ///
    /// # Errors
    ///
    /// When the next hop did not take it.
    pub(crate) async fn send(&self, signal: Signal, request: Bytes) -> Result<Bytes, Failure> {
        let sending = async {
            match &self.hop {
                Hop::Grpc(hop) => hop.send(signal, request).await,
                Hop::Http(hop) => hop.send(signal, request).await,
            }
        };
        tokio::time::timeout(self.timeout, sending).await.unwrap_or_else(|_| {
            let reason = format!("did not answer within {} s", self.timeout.as_secs_f64());
            Err(Failure::Next { reason, refusal: Refusal::Unavailable, after: None })
        })
    }
}
