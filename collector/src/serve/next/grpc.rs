use std::time::Duration;

use bytes::Bytes;
use http::uri::PathAndQuery;
use tonic::codec::CompressionEncoding;
use tonic::metadata::MetadataMap;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use crate::serve::codec::RawCodec;
use crate::serve::config::{self, Compression};
use crate::serve::failure::{Failure, Refusal};
use crate::serve::signal::Signal;

/// A connection that does not come about in this time is given up, and tried again by the next
/// request.
const CONNECT: Duration = Duration::from_secs(5);
/// A peer that is gone without a word is noticed by pings this far apart.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// OTLP by gRPC, over one connection.
#[derive(Clone, Debug)]
pub(super) struct Grpc {
    channel: Channel,
    headers: MetadataMap,
    gzip: bool,
}

impl Grpc {
    pub(super) fn new(config: &config::Next) -> Result<Self, String> {
        let wrong = |error: &dyn std::fmt::Display| format!("next.endpoint: {error}");
        let mut endpoint = Endpoint::from_shared(config.endpoint.clone())
            .map_err(|error| wrong(&error))?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .tcp_nodelay(true);
        if config.endpoint.starts_with("https:") {
            let mut tls = ClientTlsConfig::new().with_native_roots();
            if let Some(certificate) = config.certificate()? {
                tls = tls.ca_certificate(Certificate::from_pem(certificate));
            }
            endpoint = endpoint.tls_config(tls).map_err(|error| wrong(&error))?;
        }
        Ok(Self {
            channel: endpoint.connect_lazy(),
            headers: MetadataMap::from_headers(config.headers()?),
            gzip: config.compression == Compression::Gzip,
        })
    }

    pub(super) async fn send(&self, signal: Signal, request: Bytes) -> Result<Bytes, Failure> {
        let mut client = tonic::client::Grpc::new(self.channel.clone())
            .accept_compressed(CompressionEncoding::Gzip);
        if self.gzip {
            client = client.send_compressed(CompressionEncoding::Gzip);
        }
        client.ready().await.map_err(|error| {
            let reason = format!("cannot be reached: {}", with_sources(&error));
            Failure::Next { reason, refusal: Refusal::Unavailable, after: None }
        })?;
        let mut request = Request::new(request);
        *request.metadata_mut() = self.headers.clone();
        let path = PathAndQuery::from_static(signal.method());
        match client.unary(request, path, RawCodec).await {
            Ok(response) => Ok(response.into_inner()),
            Err(status) => Err(refused(&status)),
        }
    }
}

/// A request that the next hop calls wrong is wrong for good. What else it says is between it and
/// this collector: the client keeps the data and tries again, so that a wrong token here loses
/// nothing there.
fn refused(status: &Status) -> Failure {
    let refusal = match status.code() {
        Code::InvalidArgument => Refusal::Invalid,
        Code::Unimplemented => Refusal::Unimplemented,
        _ => Refusal::Unavailable,
    };
    let after = status.get_details_retry_info().and_then(|info| info.retry_delay);
    let cause = std::error::Error::source(status).map(|cause| format!(": {}", with_sources(cause)));
    let message = status.message();
    let reason = format!("answered {:?}: {message}{}", status.code(), cause.unwrap_or_default());
    Failure::Next { reason, refusal, after }
}

pub(super) fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        if !text.contains(&cause_text) {
            text = format!("{text}: {cause_text}");
        }
        source = cause.source();
    }
    text
}
