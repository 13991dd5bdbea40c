//! What `phasescope serve` is told: a file, the environment over it, flags over both.
//! `collector/serve.yaml` has every option with its default.

mod check;
mod load;

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use bytesize::ByteSize;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::de::{Error as _, Unexpected};
use serde::{Deserialize, Deserializer, Serialize};

pub(crate) use load::load;

/// Everything that can be told.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Config {
    pub(crate) listen: Listen,
    pub(crate) tls: Option<Tls>,
    /// A file with the bearer token that every request has to bring.
    pub(crate) token_file: Option<PathBuf>,
    pub(crate) next: Next,
    pub(crate) limits: Limits,
    /// A run that sends nothing for so long is forgotten, and its metrics go.
    #[serde(with = "humantime_serde")]
    pub(crate) forget_after: Duration,
    /// How long requests that are in flight may take to end at a shutdown.
    #[serde(with = "humantime_serde")]
    pub(crate) shutdown_timeout: Duration,
    pub(crate) log: Log,
}

/// Where it listens: addresses with ports.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Listen {
    /// OTLP over gRPC.
    #[serde(deserialize_with = "address")]
    pub(crate) grpc: SocketAddr,
    /// OTLP over HTTP.
    #[serde(deserialize_with = "address")]
    pub(crate) http: SocketAddr,
    /// Health, runs and metrics.
    #[serde(deserialize_with = "address")]
    pub(crate) api: SocketAddr,
}

/// The certificate that it shows on every port.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Tls {
    /// PEM: the certificate, and those up to a root.
    pub(crate) certificate: PathBuf,
    /// PEM: its private key.
    pub(crate) key: PathBuf,
}

/// Where everything goes.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Next {
    /// An OTLP endpoint, `http://` or `https://`.
    pub(crate) endpoint: String,
    pub(crate) protocol: Protocol,
    pub(crate) compression: Compression,
    /// How long it may take to answer.
    #[serde(with = "humantime_serde")]
    pub(crate) timeout: Duration,
    /// Sent with every request.
    pub(crate) headers: BTreeMap<String, String>,
    /// PEM: a root that its certificate may come from, besides the system's.
    pub(crate) ca_certificate: Option<PathBuf>,
}

/// How the next hop is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(crate) enum Protocol {
    #[serde(rename = "grpc")]
    Grpc,
    #[serde(rename = "http/protobuf")]
    Http,
}

/// How requests to the next hop are packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Compression {
    None,
    Gzip,
}

/// What is too much. Sizes are numbers of bytes or text like `16MiB`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Limits {
    /// A request as it comes; a larger one is refused for good.
    pub(crate) message: ByteSize,
    /// A request when it is unpacked; a larger one is refused for good.
    pub(crate) decompressed: ByteSize,
    /// All requests together; one that does not fit is to be tried again.
    pub(crate) in_flight: ByteSize,
    /// Runs that are judged; beyond them the busiest are.
    pub(crate) runs: usize,
    /// Ranks that are judged, over all runs. One takes some 140 KiB a device.
    pub(crate) ranks: usize,
    /// The longest run id, instance id and device name; what is longer is passed on unjudged.
    pub(crate) name: ByteSize,
}

/// Its own log, on standard error.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Log {
    pub(crate) format: LogFormat,
    pub(crate) level: LogLevel,
}

/// How a line of the log looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogFormat {
    Text,
    Json,
}

/// What is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
}

fn address<'de, D: Deserializer<'de>>(deserializer: D) -> Result<SocketAddr, D::Error> {
    let text = String::deserialize(deserializer)?;
    let found = Unexpected::Str(&text);
    text.parse().map_err(|_| D::Error::invalid_value(found, &"an IP address with a port"))
}

impl Default for Config {
    fn default() -> Self {
        Self {
            listen: Listen::default(),
            tls: None,
            token_file: None,
            next: Next::default(),
            limits: Limits::default(),
            forget_after: Duration::from_secs(15 * 60),
            shutdown_timeout: Duration::from_secs(10),
            log: Log::default(),
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        let loopback = |port| SocketAddr::from(([127, 0, 0, 1], port));
        Self { grpc: loopback(4317), http: loopback(4318), api: loopback(4319) }
    }
}

impl Default for Next {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            protocol: Protocol::Grpc,
            compression: Compression::None,
            timeout: Duration::from_secs(10),
            headers: BTreeMap::new(),
            ca_certificate: None,
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            message: ByteSize::mib(16),
            decompressed: ByteSize::mib(32),
            in_flight: ByteSize::mib(256),
            runs: 1000,
            ranks: 4096,
            name: ByteSize::b(256),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { format: LogFormat::Text, level: LogLevel::Info }
    }
}

impl Next {
    /// The headers, values hidden.
    pub(crate) fn headers(&self) -> Result<HeaderMap, String> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let wrong = |what| format!("next.headers: expected the {what} of an HTTP header");
            let key: HeaderName =
                name.parse().map_err(|_| format!("{}, found \"{name}\"", wrong("name")))?;
            // A value may be a secret.
            let mut value: HeaderValue = value
                .parse()
                .map_err(|_| format!("{}, found other text in {name}", wrong("value")))?;
            value.set_sensitive(true);
            headers.insert(key, value);
        }
        Ok(headers)
    }

    pub(crate) fn certificate(&self) -> Result<Option<Vec<u8>>, String> {
        let read = |path: &PathBuf| {
            fs::read(path)
                .map_err(|error| format!("next.ca_certificate: {}: {error}", path.display()))
        };
        self.ca_certificate.as_ref().map(read).transpose()
    }
}

impl Config {
    /// The bearer token, without the line's end.
    pub(crate) fn token(&self) -> Result<Option<String>, String> {
        let Some(path) = &self.token_file else { return Ok(None) };
        let wrong = |what: String| format!("token_file: {}: {what}", path.display());
        let text = fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        let token = text.trim_end();
        let printable = token.bytes().all(|byte| byte.is_ascii_graphic());
        if token.is_empty() || !printable {
            // The text itself is a secret.
            return Err(wrong("expected a line of printable characters, found none".to_owned()));
        }
        Ok(Some(token.to_owned()))
    }
}
