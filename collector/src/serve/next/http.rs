use std::io::Write;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use flate2::Compression as Level;
use flate2::write::GzEncoder;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, StatusCode};
use reqwest::{Certificate, Client, Response};

use super::grpc::with_sources;
use crate::serve::config::{self, Compression};
use crate::serve::failure::{Failure, Refusal};
use crate::serve::signal::Signal;

/// A connection that does not come about in this time is given up.
const CONNECT: Duration = Duration::from_secs(5);
/// Bytes of an answer that are read; an OTLP answer has a few.
const MAX_ANSWER: usize = 1 << 20;
/// Characters of an error's answer that are told on.
const MAX_REASON: usize = 200;

/// OTLP by HTTP, as protobuf.
#[derive(Clone, Debug)]
pub(super) struct Http {
    client: Client,
    endpoint: String,
    headers: HeaderMap,
    gzip: bool,
}

impl Http {
    pub(super) fn new(config: &config::Next) -> Result<Self, String> {
        let mut client = Client::builder().connect_timeout(CONNECT).no_proxy();
        if let Some(certificate) = config.certificate()? {
            let certificate = Certificate::from_pem(&certificate)
                .map_err(|error| format!("next.ca_certificate: {error}"))?;
            client = client.tls_certs_merge([certificate]);
        }
        let client = client.build().map_err(|error| with_sources(&error))?;
        let mut headers = config.headers()?;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let gzip = config.compression == Compression::Gzip;
        if gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        let endpoint = config.endpoint.trim_end_matches('/').to_owned();
        Ok(Self { client, endpoint, headers, gzip })
    }

    pub(super) async fn send(&self, signal: Signal, request: Bytes) -> Result<Bytes, Failure> {
        let body = if self.gzip { gzip(&request) } else { request };
        let url = format!("{}{}", self.endpoint, signal.path());
        let sent = self.client.post(url).headers(self.headers.clone()).body(body).send().await;
        let response = sent.map_err(|error| {
            // The address may hold a password.
            unavailable(format!("cannot be reached: {}", with_sources(&error.without_url())))
        })?;
        let status = response.status();
        let after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let after = after.and_then(|seconds| seconds.parse().ok()).map(Duration::from_secs);
        let body = read(response).await?;
        if status.is_success() {
            return Ok(body);
        }
        let said = String::from_utf8_lossy(&body);
        let said: String = said.chars().take(MAX_REASON).filter(|c| !c.is_control()).collect();
        let refusal = match status {
            StatusCode::BAD_REQUEST | StatusCode::PAYLOAD_TOO_LARGE => Refusal::Invalid,
            StatusCode::NOT_FOUND | StatusCode::NOT_IMPLEMENTED => Refusal::Unimplemented,
            _ => Refusal::Unavailable,
        };
        Err(Failure::Next { reason: format!("answered {status}: {said}"), refusal, after })
    }
}

async fn read(mut response: Response) -> Result<Bytes, Failure> {
    let mut body = BytesMut::new();
    loop {
        match response.chunk().await {
            Ok(Some(chunk)) if body.len() + chunk.len() <= MAX_ANSWER => {
                body.extend_from_slice(&chunk);
            }
            Ok(Some(_)) => return Err(unavailable("answered with more than 1 MiB".to_owned())),
            Ok(None) => return Ok(body.freeze()),
            Err(error) => {
                let error = with_sources(&error.without_url());
                return Err(unavailable(format!("broke off its answer: {error}")));
            }
        }
    }
}

fn unavailable(reason: String) -> Failure {
    Failure::Next { reason, refusal: Refusal::Unavailable, after: None }
}

fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Level::fast());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default().into()
}
